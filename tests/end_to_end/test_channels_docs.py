"""The commands and programs in docs/channels.md work as they stand."""

import re
import shlex
import subprocess
import sys

import pytest

from harness import DEADLINE, ROOT, SEALBUS, Program, clean_environment, wait_for

DOCS = (ROOT / "docs" / "channels.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
SAID = [
    [
        "Middlemarch is on my shelf",
        "Middlemarch is on my shelf",
        "shop-1@home wants 9 EUR",
        "shop-2@home wants 9 EUR",
        "no answer: []",
    ],
    ["good leaves"],
    ["sweep is done", "polish is done", "count is done"],
    [
        "on disk as number 1",
        "on disk as number 2",
        "on disk as number 3",
        "the last two begin with Tuesday",
        "number 2 is Tuesday",
        "never heard before: Monday",
    ],
    ["asked: 19", "asked: 22", "subscribed: ['19', '22']", "live: 23"],
]


@pytest.mark.parametrize(("text", "said"), list(zip(PROGRAMS, SAID, strict=True)))
def test_the_programs_say_what_they_should(text, said, tmp_path):
    file = tmp_path / "program.py"
    # On a busy machine an answer may take longer than the page has patience.
    file.write_text(text.replace("timeout=5", f"timeout={DEADLINE}"))
    done = subprocess.run(
        [sys.executable, file],
        capture_output=True,
        text=True,
        env=clean_environment(),
        cwd=tmp_path,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Either agent may answer first.
    assert sorted(done.stdout.splitlines()) == sorted(said), done.stdout + done.stderr


def test_the_platform_and_its_commands(platform, tmp_path):
    (manifest,) = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", DOCS, re.DOTALL)
    market = platform(manifest.replace('"python"', '"PYTHON"'))
    # The shops alone: who asks them here is the command line.
    (market.directory / "shops.py").write_text(PROGRAMS[0].replace(', Buyer("buyer"))', ")"))
    market.up().active("shop-1", "shop-2")
    listing, publishing, reading, last, asking = (shlex.split(line)[1:] for line in commands.splitlines())

    def listens():
        told = market.ask(*listing)["subscriptions"]
        return {(each["agent"], each["channels"]) for each in told}

    both = {(f"shop-{number}@market", channels) for number in (1, 2) for channels in ("/wishes/**", "/wanted/*")}
    wait_for(lambda: both <= listens(), "the shops to subscribe", also=market.logs)

    said = market.tell(*publishing).stdout.decode()
    assert "keeps it as #1" in said
    tail = Program([SEALBUS, *reading, "--state", market.state], tmp_path / "tail")
    try:
        assert tail.wait() == 0, tail.output()
    finally:
        tail.end()
    assert "fresh leaves" in tail.output() and "priority=7" in tail.output()
    assert "fresh leaves" in market.tell(*last).stdout.decode()
    asking[-1] = f"{DEADLINE:.0f}s"
    answered = market.tell(*asking).stdout.decode()
    assert "shop-1@market" in answered and "shop-2@market" in answered and answered.count("9 EUR") == 2

    # The command line is none of the shops.
    refused = market.tell("channel", "publish", "/shelves", "spam", expect=None)
    assert refused.returncode != 0 and b"may not publish" in refused.stderr, refused.stderr
