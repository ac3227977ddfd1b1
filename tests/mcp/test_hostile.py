"""Hostile callers: no key, wrong keys, the sessions of others, web pages, bytes and streams without end.

They write raw HTTP and use nothing of Sealbus or of MCP's SDK. An honest caller goes on all the while.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Door, opened
from harness import DEADLINE, bounded, wait_for
from strangers import has_ended, strangers

NEW = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "mallory", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "mallory", "version": "1"}},
}  # fmt: skip


def call(tool: str, **arguments: object) -> dict[str, object]:
    params = {"name": tool, "arguments": arguments, "_meta": NEW}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


class Stranger:
    """Raw HTTP to the gateway."""

    def __init__(self, door: Door) -> None:
        self.door = door

    def head(self, length: int, *lines: str, method: str = "POST", path: str = "/mcp", host: str | None = None) -> bytes:
        host = host or "%s:%d" % self.door.place
        fields = [
            f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json",
            "Accept: application/json, text/event-stream", f"Content-Length: {length}", *lines,
        ]  # fmt: skip
        return ("\r\n".join(fields) + "\r\n\r\n").encode("latin-1")

    def stateless(self, name: str) -> list[str]:
        return ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", f"Mcp-Name: {name}"]

    def key(self, caller: str) -> str:
        return f"Authorization: Bearer {self.door.keys[caller]}"

    def connect(self) -> socket.socket:
        return socket.create_connection(self.door.place, DEADLINE)

    def send(self, raw: bytes) -> tuple[int, str]:
        """The status of the answer and the whole answer, once the connection is closed; 0 if it is cut off before."""
        answer = b""
        with contextlib.suppress(OSError), self.connect() as stream:
            with contextlib.suppress(OSError):
                stream.sendall(raw)
            while piece := stream.recv(65536):
                answer += piece
        text = answer.decode(errors="replace")
        return int(text.split(" ", 2)[1]) if text.startswith("HTTP/1.1 ") else 0, text

    def post(self, message: object, *lines: str, host: str | None = None) -> tuple[int, str]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.send(self.head(len(body), *lines, "Connection: close", host=host) + body)

    def search(self, *lines: str, host: str | None = None) -> tuple[int, str]:
        return self.post(call("search_agents"), *self.stateless("search_agents"), *lines, host=host)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A platform of its own: its callers' places are filled, and one of them is revoked."""
    with opened(tmp_path_factory) as door:
        yield door


@pytest.fixture
def stranger(door: Door) -> Stranger:
    return Stranger(door)


@contextlib.contextmanager
def honest(door: Door, growth: int = 96) -> Iterator[None]:
    """The gateway serves an honest caller afterwards, in the same process, which took at most `growth` MiB more."""
    pid = door.pid()
    with bounded({"the gateway": pid}, growth):
        yield
        status, answer = Stranger(door).search(Stranger(door).key("assistant"))
        assert status == 200 and "secretary" not in answer.split("\r\n")[0], answer
        assert door.pid() == pid


def test_a_wrong_key_opens_nothing(door: Door, stranger: Stranger) -> None:
    key = door.keys["assistant"]
    with honest(door):
        wrong = [
            f"Bearer {key[:-1]}", f"Bearer {key}x", f"Basic {key}", key, "Bearer", "Bearer ", "Bearer " + "x" * 10_000,
            f"Bearer {key}, Bearer {key}",
        ]  # fmt: skip
        for each in wrong:
            status, answer = stranger.search(f"Authorization: {each}")
            assert status == 401, (each, answer)
            assert "www-authenticate: bearer" in answer.lower()
        # Two keys are two callers, even if one of them is right.
        twice = [stranger.key("assistant"), stranger.key("auditor")]
        assert stranger.search(*twice)[0] == 401
        assert stranger.search(twice[0], twice[0])[0] == 401
        # A key in the address is none: the answer is the anonymous guest's, who has no vault.
        body = json.dumps(call("vault__open", input="1")).encode()
        lines = [*stranger.stateless("vault__open"), "Connection: close"]
        raw = stranger.head(len(body), *lines, path=f"/mcp?access_token={key}") + body
        assert "gold" not in stranger.send(raw)[1]
    assert key not in door.factory.tell("logs", "mcp").stdout.decode()


def test_wrong_keys_fill_no_log(door: Door, stranger: Stranger) -> None:
    """Each address has a share of it."""
    (log,) = door.factory.state.rglob("mcp.log")

    def lines() -> int:
        return log.read_text(errors="replace").count("a wrong key")

    before = lines()
    with honest(door):
        for _ in range(300):
            assert stranger.search("Authorization: Bearer nothing")[0] == 401
    assert lines() - before < 50


def test_a_session_belongs_to_its_caller(door: Door, stranger: Stranger) -> None:
    with honest(door):
        status, answer = stranger.post(INITIALIZE, stranger.key("assistant"))
        assert status == 200, answer
        (session,) = [line for line in answer.split("\r\n") if line.lower().startswith("mcp-session-id:")]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        old = "MCP-Protocol-Version: 2025-11-25"
        assert stranger.post(ping, stranger.key("assistant"), session, old)[0] == 200
        for thief in ([stranger.key("auditor")], []):
            assert stranger.post(ping, *thief, session, old)[0] == 404
            lines = [*thief, session, old, "Connection: close"]
            assert stranger.send(stranger.head(0, *lines, method="GET"))[0] == 404
            # To end a session that is not there is no error; the one that is there goes on.
            assert stranger.send(stranger.head(0, *lines, method="DELETE"))[0] in (202, 404)
        assert stranger.post(ping, stranger.key("assistant"), session, old)[0] == 200


def test_a_request_with_the_id_of_an_open_one_of_its_session_is_refused(door: Door, stranger: Stranger) -> None:
    key, old = stranger.key("assistant"), "MCP-Protocol-Version: 2025-11-25"
    begun, cancelled = door.notes / "slow-begun", door.notes / "slow-cancelled"
    with honest(door):
        sessions = []
        for _ in range(2):
            answer = stranger.post(INITIALIZE, key)[1]
            sessions += [line for line in answer.split("\r\n") if line.lower().startswith("mcp-session-id:")]

        def ask(method: str, session: str = sessions[0]) -> str:
            return stranger.post({"jsonrpc": "2.0", "id": 7, "method": method}, key, session, old)[1]

        wait_for(lambda: "clock__slow" in ask("tools/list"), "the clock's tools")
        params = {"name": "clock__slow", "arguments": {"count": 1, "pause": 600}}
        slow = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()
        with stranger.connect() as stream:
            stream.sendall(stranger.head(len(slow), key, sessions[0], old, "Connection: close") + slow)
            wait_for(begun.exists, "the call to begin")
            for _ in range(2):
                assert "a request with the id 7 is not answered yet" in ask("ping")
            assert '"result"' in ask("ping", sessions[1])
            # The cancellation meets the call, and not a request that was refused.
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            assert not cancelled.exists() and stranger.post(cancel, key, sessions[0], old)[0] == 202
            wait_for(cancelled.exists, "the call to be cancelled")
            wait_for(lambda: has_ended(stream), "the end of the call's stream")
        wait_for(lambda: '"result"' in ask("ping"), "the id to be free again")


def test_web_pages_cannot_call(door: Door, stranger: Stranger) -> None:
    with honest(door):
        port = door.place[1]
        others = ("https://evil.example", "http://127.0.0.1:1", f"https://localhost:{port}", "http://localhost", "null")
        for origin in others:
            assert stranger.search(f"Origin: {origin}")[0] == 403, origin
        # Nobody has a page of this origin, and the specification wants it admitted.
        for host in ("localhost", "127.0.0.1", "[::1]"):
            assert stranger.search(f"Origin: http://{host}:{port}")[0] == 200, host
        # A name that now leads to this machine.
        for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"):
            assert stranger.search(stranger.key("assistant"), host=host)[0] == 403, host


def test_heads_and_bodies_that_disagree_are_refused(door: Door, stranger: Stranger) -> None:
    with honest(door):
        key = stranger.key("assistant")
        body = call("send_message", to="secretary", content="x")
        assert stranger.post(body, key, *stranger.stateless("search_agents"))[0] == 400
        doubled = [*stranger.stateless("send_message"), "Mcp-Name: search_agents"]
        assert stranger.post(body, key, *doubled)[0] == 400
        raw = json.dumps(call("search_agents")).encode()
        # Two lengths, and a length beside chunks: two readers would find two bodies.
        lines = [key, *stranger.stateless("search_agents"), "Connection: close"]
        assert stranger.send(stranger.head(len(raw), f"Content-Length: {len(raw) + 5}", *lines) + raw)[0] in (0, 400)
        smuggled = b"0\r\n\r\nPOST /mcp HTTP/1.1\r\nHost: x\r\n\r\n"
        status, answer = stranger.send(stranger.head(len(smuggled), "Transfer-Encoding: chunked", *lines) + smuggled)
        assert status in (0, 400, 415) and answer.count("HTTP/1.1 ") <= 1


def test_names_and_arguments_of_a_megabyte(door: Door, stranger: Stranger) -> None:
    huge = "ä\u202e\x1b[2J" * 100_000
    with honest(door, 128):
        key = stranger.key("assistant")
        old = []
        for message in (
            call(huge),
            call("send_message", to=huge, content="x"),
            call("send_message", to="secretary", content="x", performative=huge),
            call("search_agents", service=huge),
            call("subscribe", channel="/" + huge),
            call("search_agents", nothing=huge),
            {"jsonrpc": "2.0", "id": huge, "method": "tools/list", "params": {"_meta": NEW}},
            {"jsonrpc": "2.0", "id": 1, "method": huge, "params": {}},
            {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": huge, "_meta": NEW}},
        ):
            status, answer = stranger.post(message, key, *old)
            assert status in (200, 202, 400, 404, 415, 422, 429), (status, answer[:500])
            assert "\x1b" not in answer
        deep = b"[" * 1_000_000
        assert 400 <= stranger.post(deep, key)[0] < 500
        assert stranger.post(b"x" * (4 << 20) + b"x", key)[0] in (0, 413)
        # A body that is announced and never comes takes no memory.
        waiting = []
        for _ in range(50):
            stream = stranger.connect()
            stream.sendall(stranger.head(4 << 20, key))
            waiting.append(stream)
        assert stranger.search(key)[0] in (200, 429)
        for stream in waiting:
            stream.close()


def test_many_streams_of_one_caller_keep_nobody_else_out(door: Door, stranger: Stranger) -> None:
    params = {"notifications": {"resourceSubscriptions": ["sealbus://channel/news"]}, "_meta": NEW}
    listen = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()
    lines = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen"]
    streams = []
    with honest(door):
        refused = 0
        for _ in range(300):
            stream = stranger.connect()
            stream.sendall(stranger.head(len(listen), stranger.key("auditor"), *lines) + listen)
            streams.append(stream)
            refused += stream.recv(12).endswith(b"429")
        # None of them reads any more; the events must not gather for them.
        assert refused >= 40
        for _ in range(20):
            stranger.post(call("publish", channel="/news", content="x" * 100_000), stranger.key("assistant"),
                          *stranger.stateless("publish"))  # fmt: skip
        assert stranger.search(stranger.key("assistant"))[0] == 200
    for stream in streams:
        stream.close()
    # The places of the clients that went are free again.
    wait_for(lambda: stranger.search(stranger.key("auditor"))[0] == 200, "the places of streams that ended")


def test_sessions_have_an_end(door: Door, stranger: Stranger) -> None:
    with honest(door):
        statuses = [stranger.post(INITIALIZE, stranger.key("auditor"))[0] for _ in range(80)]
        assert set(statuses) == {200, 429} and statuses[0] == 200
        # `initialize` opens a session, whichever version its head names.
        present = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "2026-07-28"}}
        assert stranger.post(present, stranger.key("auditor"), "MCP-Protocol-Version: 2026-07-28")[0] == 429
        # The present protocol has none, and goes on.
        assert stranger.search(stranger.key("auditor"))[0] == 200


def test_connections_that_say_nothing_keep_nobody_out(door: Door, stranger: Stranger) -> None:
    with honest(door), strangers(door.place, [b"", b"POST /mcp HTTP/1.1\r\nHost: "]):
        assert stranger.search(stranger.key("assistant"))[0] == 200


def test_a_revoked_caller_is_cut_off(door: Door, stranger: Stranger) -> None:
    ask = call("request_agent", to="secretary", content="hello", timeout_s=5)
    lines = [stranger.key("auditor"), *stranger.stateless("request_agent")]
    assert "auditor@factory said hello" in stranger.post(ask, *lines)[1]

    def plain(method: str, **params: object) -> tuple[bytes, list[str]]:
        """The body of a request, and the lines of its head."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": NEW}}
        return json.dumps(body).encode(), [stranger.key("auditor"), "MCP-Protocol-Version: 2026-07-28", f"Mcp-Method: {method}"]

    tools, its_lines = plain("tools/list")
    assert stranger.post(tools, *its_lines)[0] == 200
    news, news_lines = plain("subscriptions/listen", notifications={"toolsListChanged": True})
    with honest(door), stranger.connect() as stream:
        stream.sendall(stranger.head(len(news), *news_lines, "Connection: close") + news)
        assert stream.recv(12) == b"HTTP/1.1 200"
        door.factory.tell("ca", "revoke", "auditor")
        wait_for(lambda: stranger.post(ask, *lines)[0] == 401, "the revoked caller to be refused")
        assert stranger.post(tools, *its_lines)[0] == stranger.post(news, *news_lines)[0] == 401
        wait_for(lambda: has_ended(stream), "the end of the open stream")
