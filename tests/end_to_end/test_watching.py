"""`top` and `sniff` on real platforms."""

import json
import re
import socket
from contextlib import suppress
from xml.etree import ElementTree

import pytest
from harness import PROGRAMS, SEALBUS, sealbus, wait_for

PAIR = "[platform]\nname = \"factory\"\n" + "".join(
    f"""
[[agent]]
name = "{name}"
command = ["PYTHON", "{PROGRAMS}/worker.py"]
"""
    for name in ("ann", "ben")
)


@pytest.fixture
def pair(platform):
    factory = platform(PAIR).up()
    factory.active("ann", "ben")
    return factory


def sniffing(factory, *arguments, name="sniffer"):
    """A reader that watches already."""
    sniffer = factory.program(SEALBUS, "sniff", *arguments, "--state", factory.state, name=name)
    wait_for(lambda: "watching factory" in sniffer.output(), "the sniffer to watch", also=factory.logs)
    return sniffer


def lines(sniffer):
    return [json.loads(line) for line in sniffer.output().splitlines() if line.startswith("{")]


def knock(factory):
    """A stranger knocks, and is refused."""
    host, port = factory.ask("status")["address"].rsplit(":", 1)
    with suppress(ConnectionError), socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"let me in, please\r\n")
        stranger.recv(100)


def test_top_counts_what_agents_send_and_get(pair):
    pair.send("ann", json.dumps(["send", "ben", 50, 0]))
    wait_for(lambda: len(json.loads(pair.send("ben", '["heard"]')).get("ann", [])) == 50, "the numbers", also=pair.logs)

    def whole():
        """The answer in which all take part. A busy node or process is left out."""
        told = pair.ask("top", "--interval", "200ms")
        seen = {each["agent"] for each in told["agents"]}
        return told if {"ann@factory", "ben@factory"} <= seen and told["silent"] == [] else None

    told = wait_for(whole, "both agents", also=pair.logs)
    agents = {each["agent"]: each for each in told["agents"]}
    # The answers to the operator count too.
    assert agents["ann@factory"]["sent"] >= 51 and agents["ben@factory"]["received"] >= 51
    assert agents["ben@factory"]["node"] == "node-1" and agents["ben@factory"]["waiting"] == 0
    processes = {each["process"]: each for each in told["processes"]}
    ann = agents["ann@factory"]
    assert processes[ann["process"]]["sent"] == ann["sent"]
    assert told["left_out"] == 0

    def shown():
        text = pair.tell("top", "--filter", "ben", "--interval", "200ms").stdout.decode()
        assert "AGENT" in text and "ann@factory" not in text and "\x1b" not in text
        return "ben@factory" in text

    wait_for(shown, "ben to be shown", also=pair.logs)
    pair.tell("channel", "publish", "/tea", "leaves")
    assert "SUBSCRIPTIONS" in pair.tell("top", "--list", "channels", "--interval", "200ms").stdout.decode()


def test_sniff_shows_records_and_draws(pair, tmp_path):
    record = tmp_path / "run.jsonl"
    sniffer = sniffing(pair, "be*", "--performative", "inform", "--json", "--record", record)
    everything = sniffing(pair, "--json", name="everything")
    pair.send("ann", json.dumps(["send", "ben", 3, 0]))
    numbers = wait_for(
        lambda: found if len(found := [each for each in lines(sniffer) if each["to"] == "ben@factory"]) == 3 else None,
        "the numbers", also=sniffer.output,
    )
    for number in numbers:
        assert (number["seen"], number["from"], number["performative"]) == ("message", "ann@factory", "inform")
        assert number["provenance"] == "proved" and number["size"] > 0
    # The request of the operator was to another agent, and no inform.
    assert {each["performative"] for each in lines(sniffer)} == {"inform"}
    wait_for(
        lambda: {("operator@factory", "ann@factory"), ("ann@factory", "ben@factory")}
        <= {(each["from"], each["to"]) for each in lines(everything)},
        "all of it", also=everything.output,
    )
    assert not [each for each in lines(everything) if each["to"].startswith(("master@", "ca@"))]
    sniffer.kill()

    again = [json.loads(line) for line in pair.tell("sniff", "--open", record, "ann", "--json").stdout.splitlines()]
    assert again == numbers
    piped = sealbus("sniff", "--open", "-", "ann", "--json", stdin=record.read_bytes()).stdout
    assert [json.loads(line) for line in piped.splitlines()] == numbers
    drawn = pair.tell("sniff", "--open", record, "--count", "2", "--mermaid").stdout.decode()
    assert drawn.count("->>") == 2 and "participant p0 as ann@factory" in drawn
    svg = ElementTree.fromstring(pair.tell("sniff", "--open", record, "--svg").stdout)
    texts = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "ann@factory" in texts and texts.count("inform") == 3
    record.write_text("hello\n")
    assert b"line 1" in pair.tell("sniff", "--open", record, expect=1).stderr


def test_bodies_are_shown_on_request_and_kept_where_the_manifest_says(platform):
    kept = PAIR + '\n[tap]\nheads = ["ben"]\n'
    factory = platform(kept).up()
    factory.active("ann", "ben")
    sniffer = sniffing(factory, "--bodies", "--json")
    shown = sniffing(factory, "--bodies", name="shown")

    def body(sender, receiver):
        return next((each.get("body") for each in lines(sniffer) if (each["from"], each["to"]) == (sender, receiver)), None)

    factory.send("ann", json.dumps(["send", "ben", 1, 0]))
    asked = wait_for(lambda: body("operator@factory", "ann@factory"), "the operator's words", also=sniffer.output)
    assert asked["is"] == "shown" and json.loads(asked["text"])[:2] == ["send", "ben"] and asked["left_out"] == 0
    assert wait_for(lambda: body("ann@factory", "ben@factory"), "the number", also=sniffer.output) == {"is": "private"}
    wait_for(lambda: '["send", "ben"' in shown.output() and "[tap]" in shown.output(), "the same as text", also=shown.output)

    changed = factory.directory / "changed.toml"
    changed.write_text(factory.manifest.read_text().replace('heads = ["ben"]', 'none = ["ben"]'))
    factory.tell("apply", changed, "--yes")
    later = sniffing(factory, "--bodies", "--json", name="later")

    def seen():
        factory.send("ann", json.dumps(["send", "ben", 1, 0]))
        return [each for each in lines(later) if each["to"] == "ann@factory"]

    wait_for(lambda: len(seen()) > 2, "messages to others", also=later.output)
    assert not [each for each in lines(later) if "ben@factory" in (each["from"], each["to"])]


def test_sniff_shows_events_and_refusals(pair):
    channel = sniffing(pair, "--channel", "/tea/*", "--json")
    tail = pair.program(SEALBUS, "channel", "tail", "/tea/*", "--state", pair.state, name="tail")

    def published():
        pair.tell("channel", "publish", "/tea/green", "leaves")
        return lines(channel)

    event = wait_for(published, "an event to be seen", also=channel.output)[0]
    assert event["channel"] == "/tea/green" and event["from"].startswith("publish-")
    assert "leaves" not in channel.output(), "contents are not shown"
    tail.kill()

    refused = sniffing(pair, "--refused", name="refused")
    knock(pair)
    line = wait_for(lambda: re.search(r".* → .*refused.*", refused.output()), "the refusal", also=refused.output)
    assert "127.0.0.1" in line[0]


def test_sniff_ends_when_nobody_reads_it_any_more(pair):
    command = f"{SEALBUS} sniff --json --state {pair.state} | head -1; echo exit ${{PIPESTATUS[0]}}"
    reader = pair.program("bash", "-c", command, name="reader")

    def sent_and_read():
        pair.send("ann", '["where"]')
        return reader.process.poll() is not None

    wait_for(sent_and_read, "the sniffer to end", also=reader.output)
    assert "exit 0" in reader.output()


def test_logs_of_all_agents_begin_with_their_names(pair):
    for name in ("ann", "ben"):
        pair.send(name, json.dumps(["print", f"hello from {name}"]))

    def shown(*arguments):
        return pair.tell("logs", *arguments).stdout.decode().splitlines()

    both = ["ann | hello from ann", "ben | hello from ben"]
    wait_for(lambda: shown("--grep", "^hello") == both, "what was printed", also=pair.logs)
    assert shown("ann", "--grep", "hello") == both[:1]
    assert {"ann | ann is set up", "ben | ben is set up"} <= set(shown("ann", "ben"))
    told = [json.loads(line) for line in pair.tell("logs", "--grep", "^hello", "--json").stdout.splitlines()]
    assert told == [{"agent": name, "line": f"hello from {name}"} for name in ("ann", "ben")]
    assert b"regex" in pair.tell("logs", "--grep", "(", expect=2).stderr
    # Lines older than the time asked for are left out, as soon as they are.
    assert "ann is set up" in shown("ann", "--since", "1d")
    assert set(both) <= set(shown("--since", "1d"))
    wait_for(lambda: shown("ann", "ben", "--since", "2s") == [], "what was printed to be older than that")
    assert b"--lines" in pair.tell("logs", "--since", "1d", "--lines", "5", expect=2).stderr


def test_logs_of_all_agents_include_those_that_have_ended(pair):
    pair.tell("stop", "ann", "--timeout", "100s")
    shown = pair.tell("logs").stdout.decode().splitlines()
    assert {"ann | ann is set up", "ann | ann leaves", "ben | ben is set up"} <= set(shown)
    # The steps of certification are shown to those who look for them.
    assert not [line for line in shown if "step=" in line]
    assert b"step=" not in pair.tell("logs", "ann").stdout
    for agents in ([], ["ann"]):
        assert b"step=" in pair.tell("logs", *agents, "--grep", "certification").stdout


def test_up_on_a_terminal_shows_what_agents_print_and_what_happens(platform):
    factory = platform(PAIR)
    command = f"exec {SEALBUS} up {factory.manifest} --state {factory.state}"
    up = factory.program("script", "-qefc", command, "/dev/null", name="terminal", environment={"TERM": "xterm"})

    def shows(text):
        wait_for(lambda: text in up.output(), text, also=up.output)

    shows("node-1 is alive")
    shows("ann@factory is certified and active on node-1")
    shows("ann | ann is set up")
    factory.active("ann", "ben")
    factory.send("ben", json.dumps(["print", "\x1b[2Jhello\u202e"]))
    shows("ben | \\u{1b}[2Jhello\\u{202e}")
    knock(factory)
    shows("refused: ")
    factory.tell("stop", "ann")
    shows("ann@factory has ended")
    assert "sealbus::certification" not in up.output()
    factory.tell("down")
    assert up.wait() == 0
