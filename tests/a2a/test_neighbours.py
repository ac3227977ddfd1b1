"""Agents of others as agents of the platform: servers of the official SDK, in both bindings, and hostile ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from a2a.types import CancelTaskRequest, TaskState
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from conftest import PROGRAMS, Door, say
from harness import Platform, memory, wait_for
from login import Authority
from ports import free_port
from test_client import heard, outcome, result, why

STATE = TaskState.Name
KINDS = ["probe", "rest", "whole", "grpc"]
OFFICIAL = {"probe": [], "rest": ["--binding", "HTTP+JSON"], "whole": ["--whole"], "locked": ["--key", "sesame"]}
BAD_CARDS = {
    "huge": "more than 1048576 bytes",
    "loop": "status 302, and leads elsewhere",
    "slow": "no answer within",
    "html": "cannot be read",
    "deep": "cannot be read",
    "copied": "leads to 127.0.0.1:1, which is not where the card is",
    "later": "names no interface of A2A 1",
}
UNSIGNED = {
    "forged": "it is not the key's signature of this text",
    "none": "its algorithm is not that of the key",
    "far": "cannot be checked: name its `signer`",
    "endless": "more than 262144 bytes",
}
"""Cards that are not signed as they say. An entry that demands a signature refuses each, and any other says what is wrong."""
OVER_GRPC = {
    "huge": "a message has more than 8388608 bytes",
    "garbage": "its answer cannot be read",
    "foreign": "it told of another task",
    "refusing": "it answered error 7: not  you",
}
OVER_TLS = {"tls": "server", "grpc-tls": "other"}
"""Servers over TLS: in JSON-RPC, and in gRPC, which has another certificate of the same authority."""
UNPROVED = {
    "grpc-impostor": "invalid peer certificate: BadSignature",
    "grpc-misnamed": "invalid peer certificate: certificate not valid for name \"localhost\"",
    "grpc-plain": "",
}
"""Servers of gRPC that do not prove their name, although the server of their card does."""
BAD_ANSWERS = {
    "line": "an event of its stream has more than 8388608 bytes",
    "ids": "its answer cannot be read",
    "foreign": "it told of another task",
    "number": "it answered a request that it was not asked",
    "page": "its answer cannot be read",
    "away": "it answered status 307, and leads elsewhere",
}
MANIFEST = """
    [platform]
    name = "factory"

    [gateway.a2a]
    listen = "127.0.0.1:0"
    anonymous = "guest"

    [[agent]]
    name = "customer"
    command = ["PYTHON", "CUSTOMER"]
"""


class Server:
    """A server of others, in a process of its own."""

    def __init__(self, stack: ExitStack, log: Path, program: str, *arguments: str) -> None:
        self.port, self.grpc, self.log = free_port(), free_port(), log
        places = [it.replace("GRPC", str(self.grpc)) for it in arguments]
        command = [sys.executable, str(PROGRAMS / program), str(self.port), *places]
        output = stack.enter_context(log.open("w"))
        self.process = stack.enter_context(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        stack.callback(self.process.terminate)

    def said(self) -> list[str]:
        return self.log.read_text().splitlines()


class Neighbourhood:
    """A platform with neighbours."""

    def __init__(self, door: Door, servers: dict[str, Server]) -> None:
        self.door, self.servers = door, servers

    def status(self) -> dict[str, dict[str, Any]]:
        told = json.loads(self.door.factory.tell("gateway", "list", "--json").stdout)
        return {it["agent"]: it for it in told["neighbours"]["neighbours"]}

    def pid(self) -> int:
        return int(self.door.factory.agents()["probe"]["pid"])


def new_key(folder: Path, name: str, number: str) -> None:
    """A private key, and the public half as a file of keys."""
    key = ec.generate_private_key(ec.SECP256R1())
    for file, half in ((name, key), (f"{name}.keys", key.public_key())):
        told: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(half, as_dict=True)  # type: ignore[arg-type]
        (folder / file).write_text(json.dumps(told | {"kid": number}))


@pytest.fixture(scope="module")
def hood(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbourhood]:
    directory = tmp_path_factory.mktemp("factory")
    with ExitStack() as stack:
        servers = {name: Server(stack, directory / f"{name}.log", "probe.py", *more) for name, more in OFFICIAL.items()}
        servers["hostile"] = Server(stack, directory / "hostile.log", "hostile.py")
        (directory / "key").write_text("sesame\n")
        new_key(directory, "signing", "probe-1")
        new_key(directory, "other", "probe-1")
        servers["signed"] = Server(stack, directory / "signed.log", "probe.py", "--sign", str(directory / "signing"))
        servers["grpc"] = Server(stack, directory / "grpc.log", "probe.py", "--grpc", "GRPC")
        authority = Authority(directory)
        for name in ("server", "other"):
            authority.certify(name)
        authority.certify("elsewhere", "elsewhere.example")
        (directory / "stranger").mkdir()
        Authority(directory / "stranger").certify("server")

        def over_tls(name: str, *more: str) -> Server:
            proof = ("--host", "localhost", "--certificate", str(directory / "server"))
            return Server(stack, directory / f"{name}.log", "probe.py", *proof, *more)

        servers["tls"] = over_tls("tls")
        for name, file in {"tls": "other", "impostor": "stranger/server", "misnamed": "elsewhere", "plain": ""}.items():
            servers[f"grpc-{name}"] = over_tls(f"grpc-{name}", "--grpc", "GRPC", "--grpc-certificate", str(directory / file) if file else "")
        servers["hostile-grpc"] = Server(stack, directory / "hostile-grpc.log", "hostile_grpc.py", "GRPC")
        manifest = MANIFEST.replace("CUSTOMER", str(PROGRAMS / "customer.py"))
        for name in OFFICIAL:
            manifest += f'\n    [gateway.neighbours.{name}]\n    url = "http://127.0.0.1:{servers[name].port}"\n'
        manifest += '    key-file = "key"\n'

        def neighbour(name: str, server: str, path: str = "", more: str = "") -> str:
            url = f"http://127.0.0.1:{servers[server].port}{path}"
            return f'\n    [gateway.neighbours.{name}]\n    url = "{url}"\n    {more}\n'

        manifest += neighbour("grpc", "grpc", more=f'hosts = ["127.0.0.1:{servers["grpc"].grpc}"]')
        for name in OVER_GRPC:
            there = f'hosts = ["127.0.0.1:{servers["hostile-grpc"].grpc}"]'
            manifest += neighbour(f"grpc-{name}", "hostile-grpc", f"/{name}", there)
        for name in (*OVER_TLS, *UNPROVED):
            there = f'hosts = ["localhost:{servers[name].grpc}"]\n    trust = "authority.pem"'
            manifest += neighbour(name, name, more=there).replace("http://127.0.0.1", "https://localhost")
        manifest += neighbour("untrusted", "tls").replace("http://127.0.0.1", "https://localhost")
        manifest += neighbour("published", "signed", more="signed = true")
        manifest += neighbour("pinned", "signed", more='signer = "signing.keys"')
        manifest += neighbour("mistaken", "signed", more='signer = "other.keys"')
        manifest += neighbour("unsigned", "probe", more="signed = true")
        manifest += neighbour("true", "hostile", "/true", "signed = true")
        for name in UNSIGNED:
            manifest += neighbour(name, "hostile", f"/{name}", "signed = true")
            manifest += neighbour(f"lenient-{name}", "hostile", f"/lenient-{name}")
        for name in (*BAD_CARDS, *BAD_ANSWERS, "silent", "cut"):
            manifest += f'\n    [gateway.neighbours.{name}]\n    url = "http://127.0.0.1:{servers["hostile"].port}/{name}"\n'
        factory = Platform(directory, manifest).up()
        stack.callback(factory.down)

        def listens() -> Any:
            log = factory.tell("logs", "a2a", expect=None).stdout.decode(errors="replace")
            return re.search(r"(http://127\.0\.0\.1:\d+)/agents/", log)

        url = wait_for(listens, "the gateway to listen", also=factory.logs).group(1)
        hood = Neighbourhood(Door(factory, url, {}, directory), servers)

        def are_offered() -> bool:
            signed = ("published", "pinned", "true", *(f"lenient-{it}" for it in UNSIGNED))
            agents = (*OFFICIAL, *BAD_ANSWERS, "silent", "cut", "customer", "grpc", *(f"grpc-{it}" for it in OVER_GRPC), *signed, *OVER_TLS, *UNPROVED)
            places = (f"/agents/{it}/.well-known/agent-card.json" for it in agents)
            return all(hood.door.send("GET", place, caller=None)[0] == 200 for place in places)

        wait_for(are_offered, "the neighbours", also=factory.logs)
        yield hood


async def told(hood: Neighbourhood, tool: str, *wish: str) -> Any:
    """Lets the customer ask, and returns its report."""
    async with hood.door.client("customer", None) as client:
        task = await outcome(client, say(data=list(wish), skill=tool))
        assert STATE(task.status.state) == "TASK_STATE_COMPLETED", task
        found = result(task)
        return found[0] if len(found) == 1 else found


@pytest.mark.parametrize("name", KINDS)
async def test_a_request_becomes_a_task(hood: Neighbourhood, name: str) -> None:
    for text, act, said in [
        ("echo good day ½", "inform", "good day ½"),
        ("say directly", "inform", "directly"),
        ("refuse", "refuse", "not my job"),
        ("fail", "failure", "it broke"),
        ("auth", "failure", "it wants a login: please log in"),
        ("slow 3", "inform", "0 1 2 "),
        ("ask", "inform", "you answered: blue"),
    ]:
        heard = await told(hood, "request-of", name, text)
        assert (heard["act"], heard["text"]) == (act, said), text
        assert (heard["sender"], heard["provenance"]) == (f"{name}@factory", "proved")
        server = hood.servers[name]
        port = server.grpc if name == "grpc" else server.port
        assert heard["neighbour"].startswith(f"A2A http://127.0.0.1:{port}"), heard
        assert heard["neighbour"].endswith(f"; no TLS, 127.0.0.1:{server.port}; card not signed")


@pytest.mark.parametrize("name", KINDS)
async def test_parts_come_as_they_are_made(hood: Neighbourhood, name: str) -> None:
    assert await told(hood, "parts-of", name, "slow 4") == ["0 ", "1 ", "2 ", "3 "]


async def test_a_call_for_proposals_becomes_a_task(hood: Neighbourhood) -> None:
    # An answer is an offer, and the order a further message; a question is an offer, and the order its answer.
    assert await told(hood, "order-of", "probe", "echo 12 euros", "echo ten boxes") == ["12 euros", "ten boxes"]
    assert await told(hood, "order-of", "rest", "ask", "blue") == ["which colour?", "you answered: blue"]
    assert await told(hood, "order-of", "probe", "refuse", "") == ["refuse"]


async def test_a_task_passes_through_both_gateways(hood: Neighbourhood) -> None:
    async with hood.door.client("probe", None) as client:
        events = await heard(client, say("slow 3"))
        parts = [it.artifact.parts[0].text for kind, it in events if kind == "artifact_update"]
        assert parts == ["0 ", "1 ", "2 "]
        notices = [it.status.message.parts[0].text for kind, it in events if kind == "status_update" and it.status.message.parts]
        assert notices == ["0 %: counting"]
        asked = await outcome(client, say("ask"))
        assert STATE(asked.status.state) == "TASK_STATE_INPUT_REQUIRED" and why(asked) == "which colour?"
        await heard(client, say("red", task=asked.id, context=asked.context_id))
        assert result(await outcome_of(client, asked.id)) == ["you answered: red"]
        card = hood.door.send("GET", "/agents/probe/.well-known/agent-card.json", caller=None)[2]
        assert json.loads(card)["skills"][0]["description"] == "Says it  again."


async def outcome_of(client: Any, task: str) -> Any:
    from a2a.types import GetTaskRequest

    return await client.get_task(GetTaskRequest(id=task))


@pytest.mark.parametrize("name", KINDS)
async def test_cancelling_reaches_the_neighbour(hood: Neighbourhood, name: str) -> None:
    server = hood.servers[name]
    before = server.said().count("cancelled")
    async with hood.door.client(name, None) as client:
        async for event in client.send_message(say("hold 3000")):
            if event.HasField("status_update"):
                await client.cancel_task(CancelTaskRequest(id=event.status_update.task_id))
                break
    await asyncio.to_thread(wait_for, lambda: server.said().count("cancelled") > before, "the neighbour to be cancelled")


async def test_a_neighbour_gets_its_key_and_nobody_else(hood: Neighbourhood) -> None:
    assert (await told(hood, "request-of", "locked", "echo open"))["text"] == "open"
    assert "sesame" not in hood.door.factory.tell("logs", "neighbours").stdout.decode()
    status = hood.status()["locked"]
    assert status["card"] == "Probe 1.0.0" and status["asked"] >= 1 and status["trouble"] is None
    shown = hood.door.factory.tell("gateway", "list").stdout.decode()
    assert "agents of others:" in shown and "A2A clients reach" in shown
    counters = json.loads(hood.door.factory.tell("gateway", "counters", "--json").stdout)
    assert {"a2a", "neighbours"} <= counters.keys()


@pytest.mark.parametrize("name", OVER_TLS)
async def test_a_neighbour_over_tls_is_proved(hood: Neighbourhood, name: str) -> None:
    heard = await told(hood, "request-of", name, "echo good day ½")
    assert (heard["act"], heard["text"], heard["sender"]) == ("inform", "good day ½", f"{name}@factory")
    # The server of the card is the one that is shown.
    certificate = x509.load_pem_x509_certificate((hood.door.notes / "server.pem").read_bytes())
    fingerprint = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    assert heard["neighbour"].endswith(f"; TLS localhost sha256:{fingerprint}; card not signed"), heard
    assert await told(hood, "parts-of", name, "slow 3") == ["0 ", "1 ", "2 "]
    before = hood.servers[name].said().count("cancelled")
    # Only a task that has begun can be ended: a busy machine needs time for that.
    assert (await told(hood, "request-of", name, "hold 3000", "30"))["act"] == "failure"
    await asyncio.to_thread(wait_for, lambda: hood.servers[name].said().count("cancelled") > before, "the task to be ended there")


@pytest.mark.parametrize("name", UNPROVED)
async def test_a_server_of_grpc_proves_its_name(hood: Neighbourhood, name: str) -> None:
    heard = await told(hood, "request-of", name, "show me")
    assert heard["act"] == "failure" and UNPROVED[name] in heard["text"], heard
    assert not [line for line in hood.servers[name].said() if line.startswith("shown")]


async def test_a_server_of_an_unknown_authority_is_not_asked(hood: Neighbourhood) -> None:
    def is_known() -> bool:
        return "UnknownIssuer" in (hood.status()["untrusted"]["trouble"] or "")

    await asyncio.to_thread(wait_for, is_known, "the certificate to be refused", also=lambda: str(hood.status()))


async def test_a_broken_stream_goes_on(hood: Neighbourhood) -> None:
    assert await told(hood, "parts-of", "cut", "go") == ["0 ", "1 ", "2"]
    assert "cut SubscribeToTask" in hood.servers["hostile"].said()


async def test_cards_that_are_not_believed(hood: Neighbourhood) -> None:
    pid, before = hood.pid(), memory(hood.pid())
    for name, problem in BAD_CARDS.items():

        def is_known(name: str = name, problem: str = problem) -> bool:
            return problem in (hood.status()[name]["trouble"] or "")

        await asyncio.to_thread(wait_for, is_known, f"{name}: {problem}", also=lambda: str(hood.status()))
        heard = await told(hood, "request-of", name, "hello")
        assert heard["act"] == "refuse" or heard["act"] == "failure"
        assert problem in heard["text"]
    assert (await told(hood, "request-of", "probe", "echo still here"))["text"] == "still here"
    assert hood.pid() == pid and memory(pid) - before <= 64


async def test_a_signed_card_is_verified(hood: Neighbourhood) -> None:
    for name, proof in [
        ("published", "card signed by the key probe-1, which its server publishes"),
        ("pinned", "card signed by the key probe-1"),
    ]:
        heard = await told(hood, "request-of", name, "echo signed")
        assert heard["text"] == "signed" and heard["neighbour"].endswith(f"; {proof}"), heard
        assert hood.status()[name]["proof"].endswith(f"; {proof}")
    assert hood.status()["true"]["proof"].endswith("; card signed by the key k, which its server publishes")


async def test_a_card_that_is_not_signed_as_demanded_is_refused(hood: Neighbourhood) -> None:
    pid, before = hood.pid(), memory(hood.pid())
    wrong = UNSIGNED | {"mistaken": UNSIGNED["forged"], "unsigned": "its card is not signed; the entry in the manifest demands"}
    for name, problem in wrong.items():

        def is_known(name: str = name, problem: str = problem) -> bool:
            return problem in (hood.status()[name]["trouble"] or "")

        await asyncio.to_thread(wait_for, is_known, f"{name}: {problem}", also=lambda: str(hood.status()))
        heard = await told(hood, "request-of", name, "hello")
        assert heard["act"] in ("refuse", "failure") and problem in heard["text"], heard
    log = hood.door.factory.tell("logs", "neighbours").stdout.decode()
    assert all(re.search(rf'neighbour="?{name}\b.*{re.escape(problem)}', log) for name, problem in wrong.items()), log
    # Where nobody demands a signature, the proof says what is wrong with it.
    for name, problem in UNSIGNED.items():
        proof = hood.status()[f"lenient-{name}"]["proof"]
        assert "; card signed, but not verified: " in proof and problem in proof, proof
    # Keys of another server are not fetched.
    said = hood.servers["hostile"].said()
    assert "forged keys" in said and "far keys" not in said
    assert hood.pid() == pid and memory(pid) - before <= 64


async def test_answers_over_grpc_that_are_none(hood: Neighbourhood) -> None:
    pid, before = hood.pid(), memory(hood.pid())
    for name, problem in OVER_GRPC.items():
        heard = await told(hood, "request-of", f"grpc-{name}", "hello")
        assert heard["act"] == "failure" and problem in heard["text"], (name, heard)
    server = hood.servers["hostile-grpc"]
    await asyncio.to_thread(wait_for, lambda: "foreign CancelTask" in server.said(), "the task to be ended there")
    assert (await told(hood, "request-of", "grpc", "echo still here"))["text"] == "still here"
    assert hood.pid() == pid and memory(pid) - before <= 96


async def test_answers_that_are_none(hood: Neighbourhood) -> None:
    pid, before = hood.pid(), memory(hood.pid())
    for name, problem in BAD_ANSWERS.items():
        heard = await told(hood, "request-of", name, "hello")
        assert heard["act"] == "failure" and problem in heard["text"], (name, heard)
    # A task that cannot be believed is ended there, and nothing follows a redirection.
    said = hood.servers["hostile"].said()
    assert "foreign CancelTask" in said and not [line for line in said if line.startswith("stolen")]
    assert (await told(hood, "request-of", "probe", "echo still here"))["text"] == "still here"
    assert hood.pid() == pid and memory(pid) - before <= 96


async def test_a_silent_neighbour_fails_at_the_deadline(hood: Neighbourhood) -> None:
    heard = await told(hood, "request-of", "silent", "hello", "2")
    assert heard["act"] == "failure" and "when the time was up" in heard["text"]
