"""A SLIM node for as long as its input is open:  slim_node.py PORT [PKI]"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import slim_bindings as slim
from slim_peer import start


async def main(port: str, pki: Path | None) -> None:
    service = start()
    address = f"127.0.0.1:{port}"
    if pki is None:
        config = slim.new_insecure_server_config(address)
    else:
        own = slim.TlsSource.FILE(cert=str(pki / "server.pem"), key=str(pki / "server.key"))
        config = slim.new_secure_server_config(address, own)
        config.tls.client_ca = slim.CaSource.FILE(path=str(pki / "ca.pem"))
    await service.run_server_async(config)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None))
