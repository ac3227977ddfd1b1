"""The commands and programs in docs/jade.md work as they stand, but for ports and patience."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from conftest import JARS, LIMIT, Jade
from ports import free_port
from harness import ROOT, Program, wait_for

DOCS = (ROOT / "docs" / "jade.md").read_text()

PATIENCE = f"""
import sealbus.life
import sealbus.platform
sealbus.life.TEARDOWN_LIMIT = sealbus.platform.TEARDOWN_LIMIT = {LIMIT}
"""
"""JADE may be slow on a busy machine."""


def block(language: str, begin: str = "") -> str:
    """The first code block of this language that begins so."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)
    return next(text for text in found if text.startswith(begin))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs, and ends them after the test with all they started."""
    with ExitStack() as ends:

        def start(name: str, *command: str | Path) -> Program:
            started = Program(command, tmp_path / f"{name}.log")

            def end() -> None:
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
                started.wait(LIMIT)

            ends.callback(end)
            return started

        yield start


def test_the_ten_minutes(jade: Callable[..., Jade], program: Callable[..., Program], tmp_path: Path) -> None:
    assert "jade.mtp.http.MessageTransportProtocol(http://127.0.0.1:7778/acc)" in block("sh", "mvn dependency:copy")
    plat1 = jade()
    port = free_port()
    script = block("python").replace("http://127.0.0.1:7778/acc", plat1.address)
    script = script.replace("127.0.0.1:7779", f"127.0.0.1:{port}")
    script = script.replace('"greeter"))', f'"greeter"), timeout={LIMIT})')
    hello = tmp_path / "hello_jade.py"
    hello.write_text(PATIENCE + script)
    greeter = program("greeter", sys.executable, hello)

    def says(speaker: Program, text: str) -> None:
        wait_for(lambda: text in speaker.output(), repr(text), also=speaker.output)

    says(greeter, f"JADE's DF knows greeter@factory http://127.0.0.1:{port}/acc")

    (tmp_path / "Hello.java").write_text(block("java"))
    commands = block("sh", "javac").replace("$HOME/.cache/sealbus/peers/java/jade", str(JARS))
    commands = commands.replace("-agents", f"-port {plat1.port} -agents")
    asker = program("asker", "sh", "-e", "-c", f"cd '{tmp_path}'\n{commands}")
    says(asker, "Hello, hello@plat1")
    says(greeter, "hello@plat1 says hello (foreign)")

    # Messages of a leaving agent to the outside are still carried: it takes its entry out of JADE's DF.
    greeter.process.send_signal(signal.SIGINT)
    assert greeter.wait(LIMIT) == 0, greeter.output()
