"""`sealbus apply`: a changed manifest on a running platform."""

import sys

from harness import PROGRAMS, sealbus, wait_for

FACTORY = """\
[platform]
name = "factory"
"""


def worker(name, *more):
    keys = "\n".join(more)
    return f'\n[[agent]]\nname = "{name}"\ncommand = ["PYTHON", "{PROGRAMS}/worker.py"]\n{keys}\n'


def write(factory, text):
    factory.manifest.write_text(text.replace("PYTHON", sys.executable))


def test_a_changed_manifest_changes_what_it_says_and_nothing_else(platform):
    factory = platform(FACTORY + worker("steady") + worker("changes") + worker("goes"))
    factory.up()
    before = factory.active("steady", "changes", "goes")
    assert factory.ask("apply", factory.manifest)["applied"] is False
    write(
        factory,
        FACTORY
        + worker("steady")
        + worker("changes", 'environment = { COLOUR = "red" }')
        + worker("comes", "replicas = 2")
        + '\n[[permission.rule]]\ndeny = { from = ["steady"], to = ["changes"] }\n',
    )
    expected = {
        "start": ["comes-1", "comes-2"],
        "stop": ["goes"],
        "restart": [{"process": "changes", "keys": ["environment"]}],
        "change": ["permission"],
        "new_platform": [],
    }
    shown = factory.ask("apply", factory.manifest, "--dry-run")
    assert shown == {"platform": "factory", "applied": False, "difference": expected}
    assert b"--yes" in factory.tell("apply", factory.manifest, expect=2).stderr, "nobody is there to be asked"
    assert factory.agents().keys() == before.keys() and factory.agents()["goes"]["pid"] == before["goes"]["pid"]

    told = factory.tell("apply", factory.manifest, "--yes", "--timeout", "60s").stdout.decode()
    assert "restart  changes: environment" in told and "stop     goes" in told and "change   permission" in told
    after = factory.active("steady", "changes", "comes-1", "comes-2")
    assert set(after) == {"steady", "changes", "comes-1", "comes-2"}
    assert after["steady"]["pid"] == before["steady"]["pid"] and after["steady"]["serial"] == before["steady"]["serial"]
    assert after["changes"]["pid"] != before["changes"]["pid"]
    # The rule holds in the process that was not touched.
    answer = wait_for(lambda: factory.send("steady", '["big", "changes", 1]').removeprefix("accepted"), "the refusal", also=factory.logs)
    assert "may not write to changes" in answer
    assert factory.ask("apply", factory.manifest, "--yes")["applied"] is False, "nothing is left to do"


def test_what_needs_a_new_platform_is_refused_by_name(platform):
    factory = platform(FACTORY + worker("steady")).up()
    pid = factory.active("steady")["steady"]["pid"]
    write(factory, FACTORY + 'level = "tls"\nnodes = 2\n' + worker("steady") + worker("comes"))
    for how in ("--yes", "--dry-run"):
        refused = factory.tell("apply", factory.manifest, how, expect=5).stderr.decode()
        assert "level, nodes" in refused and "sealbus down" in refused
    assert factory.agents().keys() == {"steady"} and factory.agents()["steady"]["pid"] == pid


def test_a_name_that_is_taken_changes_nothing(platform):
    factory = platform(FACTORY + worker("steady") + worker("goes")).up()
    pids = {name: agent["pid"] for name, agent in factory.active("steady", "goes").items()}
    ticket = factory.ask("ticket", "guest")["ticket"]
    factory.program(sys.executable, PROGRAMS / "worker.py", name="guest", environment={"SEALBUS_TICKET": ticket})
    factory.active("guest")
    write(factory, FACTORY + worker("steady") + worker("guest"))
    assert b"guest is taken" in factory.tell("apply", factory.manifest, "--yes", expect=5).stderr
    now = factory.active("guest")
    assert {name: now[name]["pid"] for name in pids} == pids
    # A name may pass from an agent that goes to one that comes.
    write(factory, FACTORY + worker("steady") + worker("other", 'agents = ["goes"]'))
    factory.tell("apply", factory.manifest, "--yes")
    assert factory.active("goes")["goes"]["pid"] != pids["goes"]


def test_without_a_platform_the_command_says_so(platform):
    factory = platform(FACTORY + worker("steady"))
    factory.tell("apply", factory.manifest, "--yes", expect=3)
    wrong = sealbus("apply", "-", "--state", factory.state, stdin=b"[platform]\nname = 7\n", expect=1)
    assert b"name" in wrong.stderr


def test_agents_that_a_restarted_masters_manifest_does_not_name_are_said_to_go_on(platform):
    factory = platform(FACTORY + worker("stays") + worker("goes"))
    factory.up()
    before = factory.active("stays", "goes")
    factory.master.kill()
    write(factory, FACTORY + worker("stays"))
    factory.up()
    wait_for(lambda: "`sealbus kill goes` ends it" in factory.master.output(), "word of the agent", also=factory.logs)
    assert "sealbus kill stays" not in factory.master.output()
    assert factory.active("stays", "goes")["goes"]["pid"] == before["goes"]["pid"]
    factory.tell("kill", "goes")
    wait_for(lambda: factory.agents()["goes"]["state"] is None, "the agent to end", also=factory.logs)
    # It is mentioned no more.
    factory.master.kill()
    factory.up()
    factory.active("stays")
    assert factory.master.output().count("sealbus kill goes") == 1
