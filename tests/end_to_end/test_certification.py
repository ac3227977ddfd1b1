"""Six steps to a certificate; who the Master did not place gets none; renewal and revocation."""

import json

from harness import PROGRAMS, alive, wait_for

WORKERS = f"""
    [platform]
    name = "factory"
    nodes = 2

    [[agent]]
    name = "worker"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    replicas = 2
"""


def test_each_agent_goes_through_the_six_steps(platform):
    factory = platform(WORKERS).up()
    factory.active("worker-1", "worker-2")
    for name in ("worker-1", "worker-2"):
        steps = [event["step"] for event in factory.events(name) if event["step"] > 0]
        assert steps[:6] == [1, 2, 3, 4, 5, 6], factory.tell("ca", "log").stdout.decode()
    shown = factory.tell("ca", "log", "--agent", "worker-1").stdout.decode()
    for step in range(1, 7):
        assert f"step {step}" in shown
    # The same steps stand in the platform's own log.
    log = factory.logs()
    assert "sealbus::certification" in log and "step" in log


def test_agents_are_spread_and_their_certificates_name_them_and_their_address(platform):
    factory = platform(WORKERS).up()
    agents = factory.active("worker-1", "worker-2")
    assert agents["worker-1"]["node"] != agents["worker-2"]["node"]
    identities = {each["identity"]: each for each in factory.ask("ca", "list")}
    for name in ("worker-1", "worker-2"):
        certificate = identities[f"spiffe://factory/agent/{name}"]
        assert certificate["address"] == "127.0.0.1"
        assert certificate["serial"] == agents[name]["serial"]
        assert certificate["revoked"] is None
        # An hour, and the small allowance for clocks that differ.
        life = (certificate["not_after"] - certificate["not_before"]) / 1000
        assert 3600 <= life <= 3600 + 15 * 60
    serials = [each["serial"] for each in factory.ask("ca", "list")]
    assert len(serials) == len(set(serials))


def test_no_certificate_for_an_agent_that_was_not_placed_there(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"
        nodes = 2

        [[agent]]
        name = "victim"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        node = "node-1"

        [[agent]]
        name = "impostor"
        command = ["PYTHON", "{PROGRAMS}/impostor.py"]
        node = "node-2"
        environment = {{ WANTED = "victim" }}
        unix-sockets = true
        """
    ).up()
    factory.active("victim")

    def answers():
        lines = factory.tell("logs", "impostor", expect=None).stdout.decode().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return found if len(found) == 2 else None

    own, other = wait_for(answers, "the impostor's two answers", also=factory.logs)
    assert own["wanted"] == "impostor" and "answer" in own
    assert other["wanted"] == "victim" and other["fault"]["body"]["code"] == "not-placed"
    # No second certificate names the victim.
    named = [each for each in factory.ask("ca", "list") if each["identity"].endswith("/agent/victim")]
    assert len(named) == 1


def test_certificates_renew_themselves_under_traffic(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"
        nodes = 2
        lifetime = "4s"

        [[agent]]
        name = "worker"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        replicas = 2
        """
    ).up()
    first = factory.active("worker-1", "worker-2")
    count = 5000
    factory.send("worker-1", json.dumps(["send", "worker-2", count, 1000]))

    def renewed():
        listed = factory.ask("ca", "list")
        serials = {
            name: [each["serial"] for each in listed if each["identity"].endswith(f"/agent/{name}")]
            for name in ("worker-1", "worker-2")
        }
        return all(len(each) >= 4 for each in serials.values())

    wait_for(renewed, "three renewals of both agents", also=factory.logs)
    wait_for(
        lambda: json.loads(factory.send("worker-1", '["sent"]')) == [count, True],
        "all messages to be accepted",
        also=factory.logs,
    )
    wait_for(
        lambda: json.loads(factory.send("worker-2", '["heard"]')).get("worker-1") == list(range(count)),
        "all messages to arrive once and in order",
        also=factory.logs,
    )
    agents = factory.agents()
    for name in ("worker-1", "worker-2"):
        assert agents[name]["serial"] != first[name]["serial"]
        assert agents[name]["restarts"] == 0


def test_a_revoked_agent_is_cut_off(platform):
    factory = platform(WORKERS).up()
    pid = factory.active("worker-1", "worker-2")["worker-1"]["pid"]
    factory.send("worker-1", json.dumps(["send", "worker-2", 1_000_000, 1000]))

    def heard() -> int:
        return len(json.loads(factory.send("worker-2", '["heard"]')).get("worker-1", []))

    wait_for(lambda: heard() > 20, "traffic to flow", also=factory.logs)
    revoked = factory.ask("ca", "revoke", "worker-1", "--reason", "found lying")
    assert [each["revoked"] for each in revoked] == ["by order of an operator: found lying"]
    assert "revoked: by order of an operator: found lying" in [
        event["what"] for event in factory.events("worker-1")
    ]
    # Its program ends with it: it is not just slow.
    wait_for(lambda: not alive(pid), "the program of worker-1 to end", also=factory.logs)
    # Two looks with nothing new between them: it is cut off.
    before = -1

    def silent() -> bool:
        nonlocal before
        previous, before = before, heard()
        return before == previous

    wait_for(silent, "worker-1 to be cut off", also=factory.logs)
    wait_for(
        lambda: any("revoked" in each["reason"] for each in factory.refusals())
        or factory.agents()["worker-1"]["state"] != "active",
        "its end to be known",
        also=factory.logs,
    )
    # The other goes on.
    assert json.loads(factory.send("worker-2", '["echo", "still here"]')) == "still here"


def test_stop_and_kill_end_the_agent_and_revoke_it(platform):
    factory = platform(WORKERS).up()
    agents = factory.active("worker-1", "worker-2")
    factory.tell("stop", "worker-1", "--timeout", "100s")
    assert factory.agents()["worker-1"]["state"] is None
    states = {each["serial"]: each["revoked"] for each in factory.ask("ca", "list")}
    assert states[agents["worker-1"]["serial"]]
    assert not states[agents["worker-2"]["serial"]]
    assert "worker-1 leaves" in factory.tell("logs", "worker-1").stdout.decode()
    factory.tell("kill", "worker-2")
    assert {each["serial"]: each["revoked"] for each in factory.ask("ca", "list")}[agents["worker-2"]["serial"]]
    assert "worker-2 leaves" not in factory.tell("logs", "worker-2").stdout.decode()


