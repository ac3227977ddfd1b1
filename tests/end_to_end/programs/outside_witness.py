"""A witness outside the platform (C2SP tlog-witness), written anew: it shares only the reading of notes with tools/verify_log.py.

    outside_witness.py PORT_FILE STATE_FILE LOG_KEY SEED
"""

import base64
import http.server
import json
import struct
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from verify_log import WITNESS, Checkpoint, Key, sha256  # noqa: E402

NAME = "witness.example"


def continues(old: int, old_root: bytes, new: int, new_root: bytes, proof: list[bytes]) -> bool:
    """RFC 9162 section 2.1.4.2."""
    if old == 0:
        return not proof
    if old == new:
        return not proof and old_root == new_root
    rest = list(proof)
    if old & (old - 1) == 0:
        rest.insert(0, old_root)
    if not rest:
        return False
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    first = second = rest[0]
    for hashed in rest[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            first, second = sha256(b"\x01", hashed, first), sha256(b"\x01", hashed, second)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            second = sha256(b"\x01", second, hashed)
        at, last = at >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


def main() -> None:
    port_file, state_file, log_key, seed = sys.argv[1:]
    log = Key.parse(log_key)
    own = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
    key = Key(NAME, WITNESS, own.public_key())
    state = Path(state_file)

    class Witness(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            head, _, note = body.partition("\n\n")
            old_line, *lines = head.split("\n")
            old = int(old_line.removeprefix("old "))
            shown = Checkpoint.parse(note)
            if self.path != "/factory/add-checkpoint" or shown.signed(log) is None or shown.origin != log.name:
                return self.answer(403, b"")
            seen = json.loads(state.read_text()) if state.exists() else {"size": 0, "root": ""}
            if old != seen["size"]:
                return self.answer(409, f"{seen['size']}\n".encode())
            proof = [base64.b64decode(line) for line in lines]
            if not continues(old, bytes.fromhex(seen["root"]), shown.size, shown.root, proof):
                return self.answer(422, b"")
            draft = state.with_suffix(".draft")
            draft.write_text(json.dumps({"size": shown.size, "root": shown.root.hex()}))
            draft.replace(state)
            now = int(time.time())
            signed = own.sign(f"cosignature/v1\ntime {now}\n{shown.text}".encode())
            line = base64.b64encode(key.hint() + struct.pack(">Q", now) + signed).decode()
            return self.answer(200, f"\u2014 {NAME} {line}\n".encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.HTTPServer(("127.0.0.1", 0), Witness)
    Path(port_file).write_text(str(server.server_port))
    server.serve_forever()


main()
