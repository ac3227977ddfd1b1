"""The work of two shops and the command line on channels, whatever carries them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness import PROGRAMS, SEALBUS, Platform, Program, sealbus, wait_for

AGENTS = f"""
    [[agent]]
    name = "shop-1"
    command = ["PYTHON", "{PROGRAMS}/shop.py", "shop-1"]

    [[agent]]
    name = "shop-2"
    command = ["PYTHON", "{PROGRAMS}/shop.py", "shop-2"]
"""


def trade(platform: Platform, directory: Path, provenance: str) -> None:
    """Events through filters, answers, and errors; senders are of this provenance."""
    state = ("--state", platform.state)

    def subscribers(channels: str) -> list[str]:
        told = json.loads(sealbus("channel", "list", "--json", *state).stdout)
        return [each["agent"].split("@")[0] for each in told["subscriptions"] if each["channels"] == channels]

    wait_for(lambda: subscribers("/offers/**") == ["shop-1", "shop-2"], "both shops to subscribe")
    text = sealbus("channel", "list", *state).stdout.decode()
    assert "properties.price < 10" in text and "push-back" in text

    tail = Program([SEALBUS, "channel", "tail", "/echo", "--json", "--count", "2", *state], directory / "tail")
    lines = Program([SEALBUS, "channel", "tail", "/offers/*", "--count", "2", *state], directory / "lines")
    try:
        wait_for(lambda: subscribers("/echo"), "the reader to subscribe", also=tail.output)
        wait_for(lambda: subscribers("/offers/*"), "the other reader to subscribe", also=lines.output)
        for word, price in (("dear", 12), ("cheap", 7)):
            text = ("/offers/tea", word, "--property", f"price={price}", "--qos", "priority=7")
            sealbus("channel", "publish", *text, *state)
        assert tail.wait() == 0, tail.output()
        assert lines.wait() == 0, lines.output()
    finally:
        tail.end()
        lines.end()
    # Time, channel, verified sender, QoS, performative, content.
    shown = rf"\d{{4}}-\d\d-\d\d.\d\d:\d\d:\d\d\S*  /offers/tea  publish-\d+@factory \({provenance}\)  \S*priority=7\S*  inform  dear"
    assert re.search(shown, lines.output()), lines.output()
    seen = [json.loads(line) for line in tail.output().splitlines() if line.startswith("{")]
    assert sorted(each["sender"] for each in seen) == ["shop-1@factory", "shop-2@factory"]
    assert {each["content"] for each in seen} == {"publish: cheap"}
    said = {(each["provenance"], each["channel"], each["mechanism"]) for each in seen}
    assert said == {(provenance, "/echo", "event")}

    asked = ("channel", "request", "/wanted/tea", "10 kg?", "--timeout", "60s", *state)
    told = json.loads(sealbus(*asked, "--json").stdout)
    assert [(each["sender"], each["content"]) for each in told["replies"]] == [("shop-1@factory", "9 EUR")]
    assert told["missing"] == ["shop-2@factory"]
    text = sealbus(*asked, "--first", "1").stdout.decode()
    assert f"shop-1@factory ({provenance})" in text and "9 EUR" in text

    wrong = sealbus("channel", "tail", "/echo", "--filter", "price <", *state, expect=2).stderr.decode()
    assert "column 1" in wrong
    wrong = sealbus("channel", "publish", "/offers/*", "x", *state, expect=2).stderr.decode()
    assert "'*' stands for many channels" in wrong
    wrong = sealbus("channel", "publish", "/offers", "x", "--qos", "ack=majority", *state, expect=2).stderr.decode()
    assert "ack=majority" in wrong
