"""Strangers who read the issuance log: the limits and the cost of their requests."""

import socket

import pytest
from attacker.rpc import JOINING, Token, over_tls
from crowd import ELSEWHERE, crowd
from harness import bounded, wait_for

HTTP = "http/1.1"


@pytest.fixture(scope="module")
def door(factory, pair):
    """Where nodes join."""
    return Token.parse(factory.ask("token")["token"]).addresses[0]


def asked(stream, request: bytes) -> bytes:
    """Everything that the platform answers before it ends the connection."""
    stream.sendall(request)
    answer = b""
    try:
        while data := stream.recv(65536):
            answer += data
    except OSError:
        pass
    return answer


def get(path: str, method: str = "GET", close: bool = True) -> bytes:
    end = "Connection: close\r\n" if close else ""
    return f"{method} {path} HTTP/1.1\r\nHost: factory\r\n{end}\r\n".encode()


def test_only_the_files_of_the_log_are_served(factory, pair, door):
    def read(path, method="GET"):
        with over_tls(door, HTTP) as stream:
            return asked(stream, get(path, method)).split(b"\r\n")[0]

    wait_for(lambda: read("/log/ca/checkpoint") == b"HTTP/1.1 200 OK", "the checkpoint", also=factory.logs)
    with pair.talking(), bounded(pair.pids(), 96):
        for path in (
            "/", "/log", "/log/ca", "/log/ca/", "/log/other/checkpoint", "/log/ca/../../ca.key", "/log/../ca.key",
            "/log/ca/%2e%2e/%2e%2e/ca.key", "/log/ca/tile/0/../../../../ca.key", "/log/ca//etc/passwd", "/log/ca/tile/0/000.p/",
            "/log/ca/tile/0/000.draft", "/log/ca/checkpoint.draft", "/log/ca/tile/63/000", "/log/ca/tile/0/x999/x999/999",
            "/log/ca/" + "a" * 4000,
        ):
            assert b"404" in read(path), path
        for method in ("POST", "PUT", "DELETE", "CONNECT", "TRACE"):
            assert b" 200 " not in read("/log/ca/checkpoint", method), method


def test_long_heads_and_many_requests_occupy_no_memory(factory, pair, door):
    with pair.talking(), bounded(pair.pids(), 96):
        for head in (b"GET /log/ca/" + b"a" * 4_000_000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 400_000):
            with over_tls(door, HTTP) as stream:
                try:
                    answer = asked(stream, head)
                except OSError:
                    answer = b""
            assert b" 200 " not in answer
        # Requests without end on one connection, whose answers nobody reads: the platform stops reading.
        with over_tls(door, HTTP) as stream:
            stream.settimeout(2)
            request = get("/log/ca/checkpoint", close=False) * 1000
            with pytest.raises(OSError):
                for _ in range(10_000):
                    stream.sendall(request)
    assert factory.ask("token")["token"]


def test_readers_keep_no_newcomer_out(factory, pair, door):
    def stranger() -> socket.socket:
        return over_tls(door, HTTP, source=ELSEWHERE)

    with pair.talking(), bounded(pair.pids(), 96), crowd(stranger, 300):
        factory.node("node-8")
    assert JOINING != HTTP
