"""A proxy that gives the tools of an agent other names."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from harness import DEADLINE

OWN = {"host", "content-length", "transfer-encoding", "connection"}
"""Fields of one connection alone."""


@contextmanager
def renamed(url: str, prefix: str, other: str) -> Iterator[str]:
    """The server at `url` with `other` for `prefix`, wherever that stands."""
    place = urlsplit(url)

    class Proxy(BaseHTTPRequestHandler):
        def relay(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            fields = {name: value.replace(other, prefix) for name, value in self.headers.items() if name.lower() not in OWN}
            server = http.client.HTTPConnection(place.netloc, timeout=DEADLINE)
            server.request(self.command, self.path, body.replace(f'"{other}'.encode(), f'"{prefix}'.encode()), fields)
            answer = server.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in OWN:
                    self.send_header(name, value)
            self.end_headers()
            # Each event is passed on as it comes.
            for line in answer:
                self.wfile.write(line.replace(prefix.encode(), other.encode()))
                self.wfile.flush()
            server.close()

        do_GET = do_POST = do_DELETE = relay

        def log_message(self, *_: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}{place.path}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
