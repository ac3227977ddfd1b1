"""Operating a platform: background, probes, stopping and starting, the doctor, watching, and the documented JSON."""

import json
import signal
import socket
from contextlib import suppress

import pytest
from harness import SEALBUS, Platform, alive, documented_keys, one_worker, sealbus, wait_for

WORKER = one_worker()


def test_a_detached_platform_outlives_the_command_and_is_ended_by_down(platform):
    factory = platform(WORKER)
    told = factory.ask("up", factory.manifest, "--detach")
    try:
        assert told["platform"] == "factory" and told["state"] == str(factory.state)
        status = factory.ask("status")
        assert alive(status["pid"])
        worker = factory.active("worker")["worker"]["pid"]
        assert "step" in (factory.state / "up.log").read_text(), "the log is text, also with --json"
        # A second one is told why it cannot be.
        again = factory.tell("up", factory.manifest, "--detach", expect=1).stderr.decode()
        assert "did not start" in again and "up.log" in again
    finally:
        assert factory.tell("down", "--timeout", "60s").stdout.decode() == "factory has ended\n"
    assert not alive(status["pid"]) and not alive(worker)
    assert factory.tell("status", expect=3)
    factory.tell("down", expect=3)


def test_a_platform_in_the_background_is_not_up_without_its_nodes(platform):
    factory = platform(WORKER)
    factory.state.mkdir(parents=True, exist_ok=True)
    (factory.state / "node-1").write_text("no folder")
    told = factory.tell("up", factory.manifest, "--detach", expect=1).stderr.decode()
    assert "0 of 1 local nodes are there" in told, told
    factory.tell("status", expect=3)


def test_a_start_in_the_background_that_is_interrupted_leaves_no_platform(platform):
    factory = platform(WORKER)
    factory.state.mkdir(parents=True, exist_ok=True)
    # Without a folder for its node, the platform is not up for a while.
    (factory.state / "node-1").write_text("no folder")
    start = factory.program(SEALBUS, "up", factory.manifest, "--detach", "--state", factory.state, name="start")
    wait_for(lambda: factory.tell("status", expect=None).returncode == 0, "the Master to answer", also=factory.logs)
    assert start.end() == 1
    assert "interrupted" in start.output()
    factory.tell("status", expect=3)


def test_a_manifest_with_a_mistake_starts_nothing_in_the_background(platform):
    factory = platform("[platform]\nname = 7\n")
    assert b"name" in factory.tell("up", factory.manifest, "--detach", expect=1).stderr
    assert not factory.state.exists()


def test_a_manifest_from_standard_input(tmp_path):
    done = sealbus("up", "-", "--check", "--json", stdin=b'[platform]\nname = "piped"\n')
    assert json.loads(done.stdout)["platform"] == "piped"
    for command in (["store", "check", "-"], ["broker", "rabbitmq", "-", "--write-config", tmp_path / "broker"]):
        refused = sealbus(*command, stdin=b'[platform]\nname = "piped"\n', expect=2)
        assert b"standard input" in refused.stderr, refused.stderr
    refused = sealbus("up", "-", "--detach", "--state", tmp_path, stdin=b'[platform]\nname = "piped"\n', expect=2)
    assert b"standard input" in refused.stderr


def test_probes(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    wait_for(lambda: factory.tell("status", "--nodes", "1", "--agent", "worker", expect=None).returncode == 0, "health")
    few = factory.tell("status", "--nodes", "2", "--agent", "nobody", expect=1).stderr.decode()
    assert "1 of 2 nodes are alive" in few and "there is no agent nobody" in few
    factory.tell("stop", "worker")
    assert b"worker has ended" in factory.tell("status", "--agent", "worker", expect=1).stderr
    # A Master that hangs is no longer waited for than the probe says.
    assert factory.master is not None
    factory.master.process.send_signal(signal.SIGSTOP)
    try:
        silent = factory.tell("status", "--timeout", "1s", expect=1).stderr.decode()
        assert "did not answer within 1s" in silent
    finally:
        factory.master.process.send_signal(signal.SIGCONT)


def test_an_agent_is_restarted(platform):
    factory = platform(WORKER).up()
    before = factory.active("worker")["worker"]
    assert factory.ask("restart", "worker")["restarted"] == "worker"
    after = factory.active("worker")["worker"]
    assert before["pid"] != after["pid"] and not alive(before["pid"])
    factory.tell("kill", "worker")
    factory.tell("restart", "worker")
    factory.active("worker")


def test_a_start_is_awaited_as_long_as_the_operator_says(platform):
    mute = '\n    [[agent]]\n    name = "mute"\n    command = ["sleep", "1000"]\n    restart = "never"\n'
    factory = platform(WORKER + mute).up()
    factory.active("worker")
    factory.tell("kill", "mute")
    told = factory.tell("start", "mute", "--timeout", "1s", expect=5).stderr.decode()
    assert "mute" in told and "certificate" in told
    told = factory.tell("restart", "mute", "--timeout", "1s", "--start-timeout", "1s", expect=5).stderr.decode()
    assert "mute" in told and "certificate" in told


def test_a_persistent_message_waits_for_its_receiver(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    factory.tell("stop", "worker")
    told = factory.ask("send", "worker", '["print", "from afar"]', "--performative", "request", "--persistent")
    assert told["persistent"] is True and told["sender"].startswith("send-")
    wait_for(lambda: factory.ask("mailbox", "worker")["total"] == 1, "the message to wait", also=factory.logs)
    factory.tell("start", "worker")
    wait_for(lambda: "from afar" in factory.tell("logs", "worker").stdout.decode(), "the message", also=factory.logs)


def test_services_are_deregistered(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    for name in ("day", "night"):
        factory.tell("df", "register", "worker", "--type", "shift", "--name", name)
    assert b"offers no service" in factory.tell("df", "deregister", "worker", "--name", "noon", expect=4).stderr
    factory.tell("df", "deregister", "worker", "--name", "day")
    assert [each["name"] for each in factory.ask("df", "search")] == ["night"]
    factory.tell("df", "deregister", "worker")
    assert factory.ask("df", "search") == []
    assert b"no services of worker" in factory.tell("df", "deregister", "worker", expect=4).stderr


def test_a_listing_is_watched_until_nobody_reads_it(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    command = f"{SEALBUS} ps --watch=100ms --json --state {factory.state} | head -3; echo exit ${{PIPESTATUS[0]}}"
    watcher = factory.program("bash", "-c", command, name="watcher")
    assert watcher.wait() == 0
    *rounds, last = watcher.output().splitlines()
    assert last == "exit 0" and len(rounds) == 3
    assert all(json.loads(line)[0]["name"] == "worker@factory" for line in rounds)


def test_the_doctor_names_what_is_wrong_and_its_remedy(platform):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        factory = platform(WORKER.replace('name = "factory"', f'name = "factory"\n    enrolment-port = {port}'))
        factory.state.mkdir(mode=0o755)
        factory.state.chmod(0o755)
        done = factory.tell("doctor", factory.manifest, "--isolation", "none", "--json", expect=1)
    found = json.loads(done.stdout)
    problems = {each["subject"]: each for each in found if each["verdict"] == "problem"}
    assert {"port", "state"} <= problems.keys()
    assert str(port) in problems["port"]["found"]
    assert problems["state"]["remedy"] == f"chmod 700 {factory.state}"
    assert all(each["remedy"] for each in found if each["verdict"] != "good")
    factory.manifest.write_text("[platform]\nname = 7\n")
    done = factory.tell("doctor", factory.manifest, "--json", expect=1)
    (manifest,) = [each for each in json.loads(done.stdout) if each["subject"] == "manifest"]
    assert manifest["verdict"] == "problem" and str(factory.manifest) in manifest["remedy"]


def test_the_doctor_examines_a_running_platform(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    findings = json.loads(factory.tell("doctor", factory.manifest, "--json", expect=None).stdout)
    verdicts = {each["subject"]: each["verdict"] for each in findings}
    assert {"platform", "nodes", "agents", "certificates"} <= verdicts.keys()
    assert {verdicts[subject] for subject in ("platform", "nodes", "certificates")} == {"good"}
    assert "port" not in verdicts


def test_a_thing_is_described_with_all_that_belongs_to_it(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    factory.tell("df", "register", "worker", "--type", "work", "--name", "hard")
    told = factory.ask("describe", "agent", "worker@factory")
    assert told["agent"]["name"] == "worker@factory" and told["services"][0]["name"] == "hard"
    assert told["certificates"][0]["serial"] == told["agent"]["serial"]
    assert "hard" in factory.tell("describe", "agent", "worker").stdout.decode()
    node = factory.ask("describe", "node", "node-1")
    assert node["node"]["name"] == "node-1" and [each["name"] for each in node["agents"]] == ["worker@factory"]
    assert "worker@factory" in factory.tell("describe", "node", "node-1").stdout.decode()
    nobody = factory.tell("describe", "channel", "/offers/tea").stdout.decode()
    assert "nobody has subscribed" in nobody
    tail = factory.program(SEALBUS, "channel", "tail", "/offers/*", "--state", factory.state, name="tail")
    wait_for(lambda: factory.ask("describe", "channel", "/offers/tea")["subscriptions"], "the subscriber", also=tail.output)
    assert factory.ask("describe", "channel", "/wanted/tea")["subscriptions"] == []


# ---- the page

# test_evidence.py compares those of evidence, and tests/a2a/test_certificates.py that of certificates for callers.
ELSEWHERE = ("evidence ", "gateway certificate")
SCHEMAS = {command: keys for command, keys in documented_keys().items() if not command.startswith(ELSEWHERE)}
NAMED = {"describe agent": ["worker"], "describe node": ["node-1"], "describe channel": ["/offers/tea"], "mailbox": ["worker"]}
MAY_LACK = {"ps --refused": {"receiver", "proved", "by"}}


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A platform of which every listing shows something."""
    factory = Platform(tmp_path_factory.mktemp("busy"), WORKER)
    try:
        factory.up()
        factory.active("worker")
        factory.tell("df", "register", "worker", "--type", "work", "--name", "hard")
        # A stranger knocks, and is refused.
        host, port = factory.ask("status")["address"].rsplit(":", 1)
        with suppress(ConnectionError), socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"let me in, please\r\n")
            stranger.recv(100)
        yield factory
    finally:
        factory.down()


def test_the_page_names_every_listing():
    assert {"status", "ps", "ps --refused", "nodes", "df search", "mailbox", "channel list", "ca list", "doctor"} <= SCHEMAS.keys()


@pytest.mark.parametrize("command", SCHEMAS)
def test_what_is_printed_is_what_the_page_says(command, busy, tmp_path):
    arguments = [*command.split(), *NAMED.get(command, [])]
    if command == "doctor":
        arguments.append(str(busy.manifest))
    if command == "identity":
        arguments.append(str(tmp_path / "seller.key"))
    told = json.loads(busy.tell(*arguments, "--json", expect=None).stdout)
    if command == "ps --refused":
        told = wait_for(lambda: busy.ask(*arguments), "a refusal", also=busy.logs)
    shown = told if isinstance(told, list) else [told]
    assert shown, "nothing to compare"
    for each in shown:
        assert each.keys() | MAY_LACK.get(command, set()) == SCHEMAS[command]
