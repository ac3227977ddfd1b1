"""SLIM: sessions point to point, or of a group, through a node; with MLS the members of a session encrypt for each other."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import slim_bindings as slim

Values = dict[str, Any]
SECRET = "a-secret-of-the-benchmark-of-32-bytes-or-more"


def seconds(number: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


def start() -> Any:
    """The service of this process."""
    tracing = slim.new_tracing_config()
    tracing.log_level = "error"
    slim.initialize_with_configs(
        tracing_config=tracing,
        runtime_config=slim.new_runtime_config(),
        service_config=[slim.new_service_config()],
    )
    return slim.get_global_service()


async def drain(session: Any) -> None:
    while True:
        try:
            await session.get_message_async(timeout=seconds(3600))
        except Exception:
            # The session has ended.
            return


class Speaker:
    def __init__(self, app: Any, session: Any) -> None:
        # The session ends with its application.
        self.app, self.session = app, session

    async def send(self, content: bytes) -> None:
        await self.session.publish_async(content, None, None)

    async def ask(self, content: bytes) -> bytes:
        await self.session.publish_async(content, None, None)
        message = await self.session.get_message_async(timeout=seconds(20))
        return bytes(message.payload)


class Peer:
    client = "slim-bindings 3.3.8"

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.apps: list[Any] = []
        self.run = ""

    async def join(self, service: Any, settings: Values, role: str) -> Any:
        if "pki" not in settings:
            config = slim.new_insecure_client_config(f"http://127.0.0.1:{settings['port']}")
        else:
            pki, name = Path(settings["pki"]), "receiver" if role == "receive" else "sender"
            config = slim.new_secure_client_config(f"https://localhost:{settings['port']}")
            config.tls.ca_source = slim.CaSource.FILE(path=str(pki / "ca.pem"))
            config.tls.source = slim.TlsSource.FILE(
                cert=str(pki / f"{name}.pem"), key=str(pki / f"{name}.key")
            )
            config.tls.include_system_ca_certs_pool = False
        return await service.connect_async(config)

    async def app(self, service: Any, connection: Any, name: str) -> Any:
        full = slim.Name.from_string(f"bench/{self.run}/{name}")
        app = service.create_app_with_secret(full, SECRET)
        await app.subscribe_async(full, connection)
        self.apps.append(app)
        return app

    async def connect(self, order: Values, tally: Any) -> list[Speaker]:
        scenario, settings = order["scenario"], order["system"]
        role = order["role"]
        self.run = order["run"] if role == "receive" else order["there"]
        service = start()
        connection = await self.join(service, settings, role)
        if role == "receive":
            for number in range(scenario["receivers"]):
                app = await self.app(service, connection, f"receiver-{number}")
                listening = self.listen(app, number, scenario, tally)
                self.tasks.append(asyncio.create_task(listening))
            return []
        if scenario["shape"] == "broadcast":
            return await self.group(service, connection, scenario, settings)
        speakers = []
        for number in range(scenario["senders"]):
            app = await self.app(service, connection, f"sender-{number}")
            target = 0 if scenario["shape"] == "many_to_one" else number
            there = slim.Name.from_string(f"bench/{self.run}/receiver-{target}")
            await app.set_route_async(there, connection)
            session = self.session(slim.SessionType.POINT_TO_POINT, settings)
            created = await app.create_session_async(session, there)
            await created.completion.wait_async()
            speakers.append(Speaker(app, created.session))
        return speakers

    def session(self, kind: Any, settings: Values) -> Any:
        mls = None
        if settings.get("mls"):
            mls = slim.MlsSettings(
                header_integrity_validation_percent=100,
                max_seen_control_message_ids_size=None,
            )
        return slim.SessionConfig(
            session_type=kind, max_retries=None, interval=None, metadata={}, mls_settings=mls
        )

    async def group(
        self, service: Any, connection: Any, scenario: Values, settings: Values
    ) -> list[Speaker]:
        """Makes one group of all agents: the first sender founds it and invites the others."""
        senders = [
            await self.app(service, connection, f"sender-{number}")
            for number in range(scenario["senders"])
        ]
        founder, *others = senders
        channel = slim.Name.from_string(f"bench/{self.run}/all")
        created = await founder.create_session_async(
            self.session(slim.SessionType.GROUP, settings), channel
        )
        await created.completion.wait_async()
        members = [f"receiver-{number}" for number in range(scenario["receivers"])]
        members += [f"sender-{number + 1}" for number in range(len(others))]
        for member in members:
            name = slim.Name.from_string(f"bench/{self.run}/{member}")
            await founder.set_route_async(name, connection)
            await created.session.invite_and_wait_async(name)
        speakers = [Speaker(founder, created.session)]
        for app in others:
            session = await app.listen_for_session_async(seconds(60))
            speakers.append(Speaker(app, session))
        if others:
            # Members of a group hear each other.
            self.tasks += [asyncio.create_task(drain(it.session)) for it in speakers]
        return speakers

    async def listen(self, app: Any, number: int, scenario: Values, tally: Any) -> None:
        """Each sender has a session of its own with its receiver."""
        while True:
            try:
                session = await app.listen_for_session_async(seconds(3600))
            except Exception:
                # Nobody has come for an hour.
                return
            taking = self.take(session, number, scenario, tally)
            self.tasks.append(asyncio.create_task(taking))

    async def take(self, session: Any, number: int, scenario: Values, tally: Any) -> None:
        while True:
            try:
                message = await session.get_message_async(timeout=seconds(3600))
            except Exception:
                # The session has ended.
                return
            content = bytes(message.payload)
            if scenario["kind"] == "stream":
                tally.count(number, content, scenario["size"])
            else:
                await session.publish_async(content, None, None)
                tally.answer()

    def here(self) -> str:
        return self.run

    async def meet(self, there: Any) -> None:
        pass

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
