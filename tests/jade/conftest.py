"""A real JADE main container beside a Sealbus platform, both started by the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

import sealbus
from sealbus import AID, Agent
from network import pytest_configure  # noqa: F401
from platforms import tmp_path  # noqa: F401
from ports import free_port

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
PEERS = Path(os.environ.get("SEALBUS_PEERS") or CACHE / "sealbus/peers")
JARS = PEERS / "java/jade"
# The successor of the object request broker in older Java. JADE's IIOP runs on no other.
ORB_JARS = PEERS / "java/orb"
GLASSFISH = [
    "-Dorg.omg.CORBA.ORBClass=com.sun.corba.ee.impl.orb.ORBImpl",
    "-Dorg.omg.CORBA.ORBSingletonClass=com.sun.corba.ee.impl.orb.ORBSingleton",
    "-Dcom.sun.corba.ee.ORBServerHost=127.0.0.1",
]
# JADE 4.3 reads envelopes with a parser that newer Java hides.
PARSER = "--add-exports=java.xml/com.sun.org.apache.xerces.internal.jaxp=ALL-UNNAMED"

LIMIT = 120.0
"""Seconds that anything may take on a busy machine; nothing is expected to."""

# A shell that starts the tests in the background lets them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Jade:
    """A JADE platform named ``plat1``, in a process group of its own."""

    def __init__(
        self,
        classes: Path,
        folder: Path,
        agents: dict[str, str],
        https: dict[str, object] | None,
        iiop: bool,
    ) -> None:
        self.folder = folder
        self.classes = classes
        self.agents = agents
        self.port = free_port()
        self.http = free_port()
        scheme = "http" if https is None else "https"
        self.address = f"{scheme}://127.0.0.1:{self.http}/acc"
        self.https = [
            text
            for name, value in (https or {}).items()
            for text in (f"-jade_mtp_http_https_{name}", str(value))
        ]
        self.iiop = iiop
        self.process: subprocess.Popen[bytes] | None = None

    def aid(self, name: str) -> AID:
        return AID(f"{name}@plat1", addresses=[self.address])

    def start(self) -> None:
        log = self.folder / "jade.log"
        with log.open("ab") as output:
            begin = output.tell()
            self.process = subprocess.Popen(
                [
                    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", PARSER, *GLASSFISH),
                    *("-cp", os.pathsep.join([f"{JARS}/*", f"{ORB_JARS}/*", str(self.classes)])),
                    "jade.Boot",
                    *("-local-host", "127.0.0.1", "-host", "127.0.0.1"),
                    *("-port", str(self.port), "-local-port", str(self.port)),
                    *("-jade_imtp_leap_JICP_JICPServer_acceptlocalhostonly", "true"),
                    *("-platform-id", "plat1"),
                    *("-mtps", self.transport()),
                    *self.https,
                    *("-agents", ";".join(f"{name}:{what}" for name, what in self.agents.items())),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + LIMIT
        while "is ready" not in log.read_bytes()[begin:].decode(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"JADE did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        if self.iiop:
            # The reference names the ORB's port, and dies with it.
            written = self.folder / "MTPs-Main-Container.txt"
            self.address = written.read_text().split()[0]

    def transport(self) -> str:
        if self.iiop:
            return "jade.mtp.iiop.MessageTransportProtocol"
        return f"jade.mtp.http.MessageTransportProtocol({self.address})"

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait(LIMIT)
            self.process = None


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests' own JADE agents, compiled."""
    if shutil.which("javac") is None:
        pytest.exit("javac is missing: install a JDK, 17 or later", returncode=1)
    if not any(JARS.glob("jade-*.jar")):
        pytest.exit(f"JADE is not in {JARS}: run `bench/peers/install jade`", returncode=1)
    folder = tmp_path_factory.mktemp("classes")
    sources = [str(path) for path in sorted(HERE.glob("*/*.java"))]
    jars = f"{JARS}/*{os.pathsep}{ORB_JARS}/*"
    subprocess.run(
        ["javac", "-nowarn", "-Xlint:-unchecked", "-d", str(folder), "-cp", jars, *sources],
        check=True,
        timeout=LIMIT,
    )
    return folder


@pytest.fixture
def jade(classes: Path, tmp_path: Path) -> Iterator[Callable[..., Jade]]:
    """Starts JADE platforms with the agents named, over HTTPS with these options or over IIOP, and ends them after the test."""
    with ExitStack() as ends:

        def start(
            https: dict[str, object] | None = None, *, iiop: bool = False, **agents: str
        ) -> Jade:
            platform = Jade(classes, tmp_path, agents, https, iiop)
            ends.callback(platform.kill)
            platform.start()
            return platform

        yield start


class Ours:
    """A Sealbus platform named ``factory`` in this process, with a gateway."""

    def __init__(self, platform: sealbus.Platform) -> None:
        self.platform = platform
        self.address = platform.addresses[0]

    async def agent(self, name: str) -> Agent:
        return await self.platform.start(Agent(name))

    def aid(self, name: str) -> AID:
        return AID(f"{name}@factory", addresses=[self.address])


@pytest_asyncio.fixture
async def ours() -> AsyncIterator[Ours]:
    gateway = {
        "listen": "127.0.0.1:0",
        "allow": [{"platform": "plat1", "to": ["*"], "from": ["127.0.0.1"], "register": True}],
        "limits": {"patience": int(LIMIT * 1000)},
    }
    async with sealbus.Platform(name="factory", gateway=gateway) as platform:
        yield Ours(platform)
