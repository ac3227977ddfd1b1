"""The command line: help, JSON, exit codes, tickets, logs, the DF."""

import json
import subprocess
import sys

import pytest
from harness import DEADLINE, PROGRAMS, SEALBUS, alive, clean_environment, one_worker, sealbus, wait_for

COMMANDS = """
    new doctor up down status node token ticket ps nodes describe send df channel gateway
    start stop restart kill move logs top sniff mailbox ca demo acl completion man version
""".split()
NESTED = [
    "df search", "df register", "df deregister", "df federate", "ca log", "ca list", "ca revoke", "ca root",
    "ca log verify", "ca monitor", "ca authorities", "ca keys", "ca request", "ca certify",
] + [
    f"acl {each}" for each in ("convert", "explain", "validate")
] + [f"channel {each}" for each in ("list", "publish", "tail", "request")] + [
    f"gateway {each}" for each in ("list", "allow", "deny", "counters")
] + [f"describe {each}" for each in ("agent", "node", "channel")]
PLAIN = one_worker()


@pytest.mark.parametrize("command", [*COMMANDS, *NESTED])
def test_help_of_each_command_has_an_example(command):
    text = sealbus(*command.split(), "--help").stdout.decode()
    assert "Usage: sealbus" in text
    if command not in ("df", "channel", "gateway", "ca", "acl", "describe"):
        assert f"Example: sealbus {command}" in text or f"$(sealbus {command}" in text
    assert "\x1b[" not in text, "no colours off a terminal"


def test_the_overview_names_every_command_and_the_exit_codes():
    text = sealbus("--help").stdout.decode()
    for command in COMMANDS:
        assert f"\n  {command}" in text
    assert "Exit codes:" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell"])
def test_completion_for_each_shell(shell):
    script = sealbus("completion", shell).stdout
    assert b"SEALBUS_COMPLETE" in script and shell.encode() in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, check=True)


def completed(*words, environment=None):
    """The completions of the last of the words, as the bash script asks for them."""
    asking = {
        "SEALBUS_COMPLETE": "bash",
        "_CLAP_COMPLETE_INDEX": str(len(words)),
        "_CLAP_IFS": "\n",
        "_CLAP_COMPLETE_COMP_TYPE": "9",
        "_CLAP_COMPLETE_SPACE": "true",
    }
    done = sealbus("--", "sealbus", *words, environment=asking | (environment or {}))
    return done.stdout.decode().split()


def test_completion_knows_the_commands_and_the_platforms_names(platform):
    assert "revoke" in completed("ca", "")
    factory = platform(PLAIN).up()
    factory.active("worker")
    assert completed("kill", "wor", environment={"SEALBUS_STATE": str(factory.state)}) == ["worker"]
    assert completed("--state", str(factory.state), "move", "worker", "node") == ["node-1"]
    assert completed("--state", str(factory.state), "ca", "revoke", "wor") == ["worker"]
    factory.tell("channel", "publish", "/offers/tea", "leaves", "--qos", "persistent")
    assert completed("--state", str(factory.state), "channel", "tail", "/off") == ["/offers/tea"]
    assert completed("kill", "wor", environment={"SEALBUS_STATE": "/nonexistent"}) == []


def test_manual_pages(tmp_path):
    sealbus("man", tmp_path / "man")
    pages = {page.name for page in (tmp_path / "man").iterdir()}
    assert {"sealbus.1", "sealbus-describe-agent.1", "sealbus-ca-revoke.1"} <= pages
    assert "sealbus-launch.1" not in pages
    assert "End an agent at once" in (tmp_path / "man" / "sealbus-kill.1").read_text()


def test_the_version_is_the_workspaces():
    told = json.loads(sealbus("version", "--json").stdout)
    assert told["sealbus"] in sealbus("version").stdout.decode()
    assert sealbus("--version").stdout.decode().split()[-1] == told["sealbus"]


def test_wrong_command_lines_exit_with_2():
    for arguments in (["no-such-command"], ["send"], ["token", "--lifetime", "soon"], ["demo", "--level", "high"]):
        assert sealbus(*arguments, expect=2).stderr


def test_without_a_platform_every_question_says_so(tmp_path):
    state = tmp_path / "nothing"
    for arguments in (["ps"], ["nodes"], ["token"], ["ca", "list"], ["kill", "x"], ["send", "x", "y"]):
        done = sealbus(*arguments, "--state", state, expect=3)
        assert str(state) in done.stderr.decode()
        assert "sealbus up" in done.stderr.decode()
        done = sealbus(*arguments, "--state", state, "--json", expect=3)
        assert "sealbus up" in json.loads(done.stderr)["help"]


def test_a_platform_is_found_by_name_and_alone_without_any(platform, tmp_path):
    environment = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
    factory = platform(PLAIN)
    program = factory.program(SEALBUS, "up", factory.manifest, name="up", environment=environment)

    def up():
        assert program.process.poll() is None, program.output()
        return sealbus("nodes", expect=None, environment=environment).returncode == 0

    wait_for(up, "the platform")
    sealbus("ps", "--platform", "factory", environment=environment)
    sealbus("ps", "--platform", "other", environment=environment, expect=3)
    # As the documentation has it: the platform that a rule is about is not the one that is asked.
    allowed = sealbus("gateway", "allow", "plat1", "--to", "greeter", "--json", environment=environment)
    assert json.loads(allowed.stdout)["rules"]["rules"] == [{"platform": "plat1", "to": ["greeter"]}]
    denied = sealbus("gateway", "deny", "plat1", "--platform", "factory", "--json", environment=environment)
    assert json.loads(denied.stdout)["rules"]["rules"] == []


def test_a_command_ends_quietly_when_nobody_reads_it_any_more(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    command = f"{SEALBUS} channel tail /offers/tea --state {factory.state} | head -1; echo exit ${{PIPESTATUS[0]}}"
    reader = factory.program("bash", "-c", command, name="reader")

    def published_and_read():
        sealbus("channel", "publish", "/offers/tea", "-", "--state", factory.state, stdin=b"fresh leaves")
        return "fresh leaves" in reader.output()

    wait_for(published_and_read, "an event to be read", also=reader.output)
    # No other event follows.
    assert reader.wait() == 0
    assert reader.output().count("fresh leaves") == 1
    assert reader.output().splitlines()[-1] == "exit 0", reader.output()


def test_what_is_not_there_exits_with_4_and_names_it(platform):
    factory = platform(PLAIN).up()
    for arguments in (["start", "nobody"], ["kill", "nobody"], ["restart", "nobody"], ["describe", "agent", "nobody"], ["describe", "node", "nobody"], ["df", "deregister", "nobody"], ["logs", "nobody"], ["send", "nobody", "hello"], ["move", "nobody", "node-1"], ["ca", "revoke", "nobody"]):
        done = factory.tell(*arguments, expect=4)
        assert "nobody" in done.stderr.decode()


def test_what_a_rule_forbids_is_shown_even_if_its_sender_ends_at_once(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "source"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]

        [[agent]]
        name = "sink"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]

        [[agent]]
        name = "trespasser"
        command = ["PYTHON", "{PROGRAMS}/trespasser.py"]
        restart = "never"

        [[permission.rule]]
        deny = {{ from = ["source", "trespasser"], to = ["sink"] }}
        """
    ).up()
    factory.active("source", "sink")
    assert "may not write to sink" in json.loads(factory.send("source", '["big", "sink", 1]'))
    for name in ("source", "trespasser"):

        def shown(name=name):
            return [it for it in factory.refusals() if it["who"] == f"{name}@factory"]

        (record,) = wait_for(shown, f"the refusal of {name} to be shown", also=factory.logs)
        assert record["receiver"] == "sink@factory" and record["count"] == 1 and record["by"] == name
        assert record["reason"].startswith("not-permitted: ")
        assert record["proved"] == f"spiffe://factory/agent/{name}"


def test_every_command_that_shows_something_speaks_json(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    (agent,) = factory.ask("ps")
    assert agent["name"] == "worker@factory" and agent["state"] == "active" and agent["pid"] > 0
    (node,) = factory.ask("nodes")
    assert node["name"] == "node-1" and node["agents"] == 1
    assert factory.ask("ps", "--refused") == []
    assert {"token", "expires"} <= factory.ask("token").keys()
    assert {"agent", "ticket", "expires"} <= factory.ask("ticket", "guest").keys()
    assert factory.ask("df", "search") == []
    factory.ask("df", "register", "worker", "--type", "work", "--name", "hard")
    (service,) = factory.ask("df", "search", "--type", "work")
    assert service == {"agent": "worker@factory", "name": "hard", "service_type": "work"}
    assert factory.ask("df", "search", "--type", "play") == []
    answer = factory.ask("send", "worker", '["echo", "ä"]', "--performative", "request", "--timeout", "100s")
    assert len(answer["replies"]) == 1
    assert any(each["identity"] == "spiffe://factory/agent/worker" for each in factory.ask("ca", "list"))
    events = factory.ask("ca", "log")
    assert [event["sequence"] for event in events] == list(range(len(events)))
    for line in factory.tell("logs", "worker", "--json").stdout.splitlines():
        assert json.loads(line)["agent"] == "worker"


def test_tables_for_people_have_no_colours_off_a_terminal(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    for arguments in (["ps"], ["nodes"], ["ca", "list"], ["ca", "log"]):
        text = factory.tell(*arguments).stdout.decode()
        assert "\x1b[" not in text
        assert "worker" in text or arguments == ["nodes"]


def test_logs_follow(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    follower = factory.program(
        SEALBUS, "logs", "worker", "--follow", "--state", factory.state, name="follower"
    )
    wait_for(lambda: "worker is set up" in follower.output(), "what was printed before", also=follower.output)
    for word in ("one", "two", "three"):
        factory.send("worker", json.dumps(["print", word]))
        wait_for(lambda word=word: word in follower.output().split(), word, also=follower.output)
    assert follower.process.poll() is None
    follower.process.kill()
    follower.process.wait()
    last = factory.tell("logs", "worker", "-n", "1").stdout.decode()
    assert last == "three\n"


def test_logs_have_the_line_that_is_not_complete(platform):
    factory = platform(PLAIN + """
    [[agent]]
    name = "half"
    command = ["sh", "-c", "printf unfinished; exec sleep 600"]
""").up("--isolation", "none")  # The node, too, writes a line about isolation.
    wait_for(lambda: b"unfinished" in factory.tell("logs", "half", expect=None).stdout, "the line to begin", also=factory.logs)
    assert b"unfinished" in factory.tell("logs", "half", "worker").stdout
    assert b"unfinished" in factory.tell("logs").stdout
    assert b"unfinished" in factory.tell("logs", "half", "--grep", "finish").stdout
    lines = factory.tell("logs", "half", "--json").stdout.splitlines()
    assert {"agent": "half", "line": "unfinished"} in map(json.loads, lines)


def test_output_that_the_disk_does_not_take_is_a_failure(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    for arguments in (["completion", "bash"], ["logs", "worker", "--state", factory.state]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [SEALBUS, *arguments], stdout=full, stderr=subprocess.PIPE, env=clean_environment(), timeout=DEADLINE, check=False
            )
        assert done.returncode == 1, done.stderr
        assert b"cannot write standard output" in done.stderr


def test_a_program_started_by_hand_joins_with_a_ticket(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    ticket = factory.ask("ticket", "guest")["ticket"]
    environment = {"SEALBUS_TICKET": ticket}
    guest = factory.program(sys.executable, PROGRAMS / "worker.py", name="guest", environment=environment)
    factory.active("guest")
    assert json.loads(factory.send("guest", '["echo", "hello"]')) == "hello"
    factory.send("guest", '["send", "worker", 10, 0]')
    wait_for(
        lambda: json.loads(factory.send("worker", '["heard"]')) == {"guest": list(range(10))},
        "the guest's messages",
        also=factory.logs,
    )
    steps = [event["step"] for event in factory.events("guest") if event["step"] > 0]
    assert steps[-1] == 6
    # The ticket was good for one program.
    second = factory.program(sys.executable, PROGRAMS / "worker.py", name="second", environment=environment)
    assert second.wait() != 0
    assert "ticket" in second.output()
    assert guest.end() == 0, "SIGTERM is a clean end"
    assert "guest leaves" in guest.output()
    wait_for(lambda: factory.agents()["guest"]["state"] is None, "guest to be gone", also=factory.logs)


def test_a_ticket_for_a_name_that_is_not_legal(platform):
    factory = platform(PLAIN).up()
    done = factory.tell("ticket", "bad name", expect=2)
    assert "bad name" in done.stderr.decode()


def test_ctrl_c_ends_the_platform_and_every_agent(platform):
    factory = platform(PLAIN).up()
    pid = factory.active("worker")["worker"]["pid"]
    assert factory.master.end() == 0
    wait_for(lambda: not factory.pids(), "every process to end", also=factory.logs)
    assert not alive(pid)


def test_content_from_standard_input(platform):
    factory = platform(PLAIN).up()
    factory.active("worker")
    done = subprocess.run(
        [SEALBUS, "send", "worker", "-", "--performative", "request", "--timeout", "100s", "--state", factory.state],
        input=b'["echo", "from a pipe"]',
        capture_output=True,
        env=clean_environment(),
        timeout=DEADLINE,
        check=True,
    )
    assert b"from a pipe" in done.stdout
