"""SPADE's own XMPP server on the loopback interface only:  pyjabber_server.py PORT SERVER_PORT"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from loguru import logger
from pyjabber.server import Server
from pyjabber.server_parameters import Parameters


async def main(port: int, server_port: int) -> None:
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    parameters = Parameters(
        host="localhost", client_port=port, server_port=server_port, database_in_memory=True
    )
    server = Server(parameters)
    # It would listen on the machine's own address too.
    server._public_ip = None
    await server.start()


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
