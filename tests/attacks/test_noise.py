"""Bytes that are not the protocol, at every port of a platform."""

import random
import socket

from harness import DEADLINE


def test_noise_ends_its_own_connection_only(factory, pair):
    found = factory.ports()
    assert len(found) >= 3
    chance = random.Random(11)
    nonsense = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 4096,
        b"\xff" * 70_000,
        b"\x16\x03\x01\xff\xff" + chance.randbytes(3000),
        chance.randbytes(50_000),
    ]
    with pair.talking():
        for port in found:
            for data in nonsense:
                with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as knock:
                    try:
                        knock.sendall(data)
                        knock.shutdown(socket.SHUT_WR)
                        while knock.recv(65536):
                            pass
                    except TimeoutError:
                        raise AssertionError(f"port {port} neither answers {data[:8]!r} nor closes") from None
                    except OSError:
                        pass  # It was cut off before it had said everything.
