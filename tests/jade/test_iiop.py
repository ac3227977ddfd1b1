"""Messages over IIOP: with a real JADE, and through the object request brokers of three makers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

import sealbus
from conftest import GLASSFISH, HERE, JARS, LIMIT, ORB_JARS, PEERS, Jade
from sealbus import AID, AclMessage, Agent, Filter

ENCODINGS = ["string", "xml", "bitefficient"]
LENGTHS = [7, 2150, 40_000]
"""The second one is the first that GlassFish's ORB sends in parts."""

JACORB = [
    "-Dorg.omg.CORBA.ORBClass=org.jacorb.orb.ORB",
    "-Dorg.omg.CORBA.ORBSingletonClass=org.jacorb.orb.ORBSingleton",
    *("-DOAIAddr=127.0.0.1", "-Djacorb.log.default.verbosity=1"),
]


def gateway(other: str, encoding: str | None = None) -> dict[str, object]:
    known: dict[str, object] = {} if encoding is None else {other: {"encoding": encoding}}
    return {
        "listen": "127.0.0.1:0",
        "iiop": {"listen": "127.0.0.1:0"},
        "platforms": known,
        "allow": [{"platform": other, "to": ["*"], "from": ["127.0.0.1"], "register": True}],
        "limits": {"patience": int(LIMIT * 1000)},
    }


@pytest_asyncio.fixture
async def factory() -> AsyncIterator[sealbus.Platform]:
    async with sealbus.Platform(name="factory", gateway=gateway("plat1")) as platform:
        yield platform


async def test_jade_answers_over_iiop(
    jade: Callable[..., Jade], factory: sealbus.Platform
) -> None:
    plat1 = jade(iiop=True, partner="Partner")
    assert plat1.address.startswith("IOR:")
    assert [it.split(":")[0] for it in factory.addresses] == ["http", "IOR", "corbaloc"]
    pinger = await factory.start(Agent("pinger"))
    for length in LENGTHS:
        ping = AclMessage("request", plat1.aid("partner"), "x" * length)
        pong = await pinger.request(ping, timeout=LIMIT)
        assert (pong.content_text, pong.provenance) == ("x" * length, "foreign")
        # JADE's own address is there, too.
        assert pong.sender is not None and plat1.address in pong.sender.addresses
        again = await pinger.request(pong.create_reply("request", "again"), timeout=LIMIT)
        assert again.content_text == "again"

    for number in range(200):
        await pinger.send(AclMessage("inform", plat1.aid("partner"), str(number)))
    for number in range(200):
        assert (await pinger.receive(timeout=LIMIT)).content_text == str(number)
    await pinger.send(AclMessage("request", plat1.aid("partner"), "send 100"))
    for number in range(100):
        assert (await pinger.receive(timeout=LIMIT)).content_text == str(number)


async def test_jades_directory_is_reached_over_iiop(
    jade: Callable[..., Jade], factory: sealbus.Platform
) -> None:
    plat1 = jade(iiop=True, partner="Partner")
    pinger = await factory.start(Agent("pinger"))
    directory = pinger.df.at(plat1.aid("df"))
    await directory.register(sealbus.ServiceDescription(name="boxes", type="box-selling"))
    (entry,) = await directory.search("box-selling")
    assert entry.name.name == "pinger@factory"
    assert entry.name.addresses[0].startswith("IOR:")
    await directory.deregister()


async def test_a_jade_that_was_restarted_has_another_reference(
    jade: Callable[..., Jade], factory: sealbus.Platform
) -> None:
    plat1 = jade(iiop=True, partner="Partner")
    pinger = await factory.start(Agent("pinger"))
    old = plat1.aid("partner")
    pong = await pinger.request(AclMessage("request", old, "ping"), timeout=LIMIT)
    assert pong.content_text == "ping"
    plat1.kill()
    plat1.start()
    pong = await pinger.request(AclMessage("request", plat1.aid("partner"), "new"), timeout=LIMIT)
    assert pong.content_text == "new"


class Relays:
    """Objects on other brokers that hand every message on."""

    def __init__(self, classes: Path, ends: ExitStack) -> None:
        self.classes = classes
        self.ends = ends

    def start(self, orb: str, target: str) -> str:
        command, environment = self.command(orb)
        process = subprocess.Popen(
            [*command, target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

        def end() -> None:
            process.kill()
            process.communicate()

        self.ends.callback(end)
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("IOR:"), f"{orb} does not start: {line}"
        return line

    def command(self, orb: str) -> tuple[list[str], dict[str, str]]:
        if orb == "omniorb":
            prefix = PEERS / "omniorb/prefix"
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            (modules,) = prefix.glob("lib/python3*/site-packages")
            assert modules.parent.name == version
            environment = {
                "LD_LIBRARY_PATH": str(prefix / "lib"),
                "PYTHONPATH": f"{modules}{os.pathsep}{PEERS / 'omniorb/fipa'}",
            }
            options = ["-ORBendPoint", "giop:tcp:127.0.0.1:"]
            python = str(PEERS / "omniorb/bin/python")
            # The ORB takes its options out, wherever they stand.
            return [python, str(HERE / "orbs/relay.py"), *options], environment
        jars = PEERS / "java/corba" if orb == "jacorb" else ORB_JARS
        path = os.pathsep.join([f"{jars}/*", f"{JARS}/*", str(self.classes)])
        options = JACORB if orb == "jacorb" else GLASSFISH
        return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", *options, "-cp", path, "Relay"], {}


@pytest.fixture
def relays(classes: Path) -> Iterator[Relays]:
    for name in ("java/corba", "omniorb"):
        if not (PEERS / name).exists():
            pytest.exit(f"{name} is not in {PEERS}: run `bench/peers/install corba omniorb`", returncode=1)
    with ExitStack() as ends:
        yield Relays(classes, ends)


@pytest.mark.parametrize("orb", ["glassfish", "jacorb", "omniorb"])
async def test_another_orb_hands_messages_on(orb: str, relays: Relays) -> None:
    """A message goes from us to the ORB's object, and from its client to us again, in every encoding."""
    for encoding in ENCODINGS:
        async with (
            sealbus.Platform(name="left", gateway=gateway("right", encoding)) as left,
            sealbus.Platform(name="right", gateway=gateway("left", encoding)) as right,
        ):
            alice = await left.start(Agent("alice"))
            bob = await right.start(Agent("bob"))
            # Their references, and the short form, which ORBs call in GIOP 1.0.
            for form in (1, 2):
                there = relays.start(orb, right.addresses[form])
                for length in LENGTHS:
                    text = f'{form} "quoted" äöü ' + "x" * length
                    await alice.send(AclMessage("inform", AID("bob@right", addresses=[there]), text))
                    message = await bob.receive(timeout=LIMIT)
                    assert (message.content_text, message.provenance) == (text, "foreign")
                    assert message.sender_name == "alice@left"
            back = relays.start(orb, left.addresses[1])
            await bob.send(AclMessage("inform", AID("alice@left", addresses=[back]), "back"))
            assert (await alice.receive(timeout=LIMIT)).content_text == "back"


async def test_a_stale_reference_comes_back_at_once(relays: Relays) -> None:
    async with sealbus.Platform(name="left", gateway=gateway("right")) as left:
        alice = await left.start(Agent("alice"))
        stale = relays.start("omniorb", left.addresses[1])
        reference = bytearray.fromhex(stale.removeprefix("IOR:"))
        # A port and the length of the key follow the host. omniORB's key numbers its objects after one byte.
        key = reference.index(b"127.0.0.1\0") + 16
        assert reference[key] == 0xFE
        reference[key + 1 : key + 3] = bytes(2)
        wrong = f"IOR:{reference.hex()}"
        await alice.send(AclMessage("inform", AID("bob@right", addresses=[wrong]), "lost"))
        failure = await alice.receive(Filter("failure"), timeout=LIMIT)
        assert "OBJECT_NOT_EXIST" in (failure.content_text or "")
