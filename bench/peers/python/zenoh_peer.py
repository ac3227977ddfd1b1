"""Zenoh, peer to peer: a session for each side, a key for each agent; callbacks on Zenoh's own threads."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import zenoh

Values = dict[str, Any]


class Speaker:
    """A publisher, with a subscriber to its answers for round trips."""

    def __init__(self, session: zenoh.Session, key: str, answers: str | None) -> None:
        self.publisher = session.declare_publisher(
            key,
            reliability=zenoh.Reliability.RELIABLE,
            congestion_control=zenoh.CongestionControl.BLOCK,
        )
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[bytes] = self.loop.create_future()
        if answers is not None:
            self.attachment = answers.encode()
            self.subscriber = session.declare_subscriber(answers, self._answered)

    def _answered(self, sample: zenoh.Sample) -> None:
        content = sample.payload.to_bytes()
        self.loop.call_soon_threadsafe(self.answer.set_result, content)

    async def send(self, content: bytes) -> None:
        self.publisher.put(content)

    async def ask(self, content: bytes) -> bytes:
        self.answer = self.loop.create_future()
        self.publisher.put(content, attachment=self.attachment)
        return await asyncio.wait_for(self.answer, 20)


class Peer:
    client = "eclipse-zenoh 1.10.2"

    def __init__(self) -> None:
        self.session: zenoh.Session | None = None
        self.endpoint = ""

    def open(self, order: Values) -> zenoh.Session:
        settings, is_receiver = order["system"], order["role"] == "receive"
        config = zenoh.Config()

        def put(key: str, value: object) -> None:
            config.insert_json5(key, json.dumps(value))

        put("mode", "peer")
        put("scouting/multicast/enabled", False)
        put("scouting/gossip/enabled", False)
        protocol = "tls" if "pki" in settings else "tcp"
        if is_receiver:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.endpoint = f"{protocol}/127.0.0.1:{probe.getsockname()[1]}"
            put("listen/endpoints", [self.endpoint])
        else:
            put("listen/endpoints", [])
            put("connect/endpoints", [order["there"]])
        if "pki" in settings:
            pki = Path(settings["pki"])
            side = "listen" if is_receiver else "connect"
            name = "receiver" if is_receiver else "sender"
            tls = "transport/link/tls"
            put(f"{tls}/root_ca_certificate", str(pki / "ca.pem"))
            put(f"{tls}/enable_mtls", True)
            put(f"{tls}/{side}_certificate", str(pki / f"{name}.pem"))
            put(f"{tls}/{side}_private_key", str(pki / f"{name}.key"))
        return zenoh.open(config)

    async def connect(self, order: Values, tally: Any) -> list[Speaker]:
        scenario = order["scenario"]
        session = self.session = self.open(order)
        is_stream, shape = scenario["kind"] == "stream", scenario["shape"]

        def key(number: int) -> str:
            if shape == "broadcast":
                return "bench/all"
            return f"bench/agent/{0 if shape == 'many_to_one' else number}"

        if order["role"] == "send":
            speakers = []
            for number in range(scenario["senders"]):
                answers = None if is_stream else f"bench/answers/{number}"
                speakers.append(Speaker(session, key(number), answers))
            # Waits until the publishers know the subscribers.
            for speaker in speakers:
                while not speaker.publisher.matching_status.matching:
                    await asyncio.sleep(0.01)
            return speakers
        for number in range(scenario["receivers"]):

            def take(sample: zenoh.Sample, number: int = number) -> None:
                content = sample.payload.to_bytes()
                if is_stream:
                    tally.count(number, content, scenario["size"])
                elif sample.attachment is not None:
                    session.put(sample.attachment.to_string(), content)
                    tally.answer()

            session.declare_subscriber(key(number), take)
        return []

    def here(self) -> str:
        return self.endpoint

    async def meet(self, there: Any) -> None:
        pass

    async def leave(self) -> None:
        if self.session is not None:
            self.session.close()
