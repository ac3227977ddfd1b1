"""RabbitMQ brokers that an operator starts by hand, from the files `sealbus broker rabbitmq` wrote."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from harness import alive, wait_for

#: Erlang nodes give each other seven seconds to shake hands, which is too little on a busy machine.
PATIENT = "-kernel net_setuptime 120"
PLACES = [Path("/usr/lib/rabbitmq/bin"), Path("/opt/rabbitmq/sbin")]


class OperatorBroker:
    """One broker: its configuration in `config`, everything else in a folder of its own."""

    def __init__(
        self, config: Path, folder: Path, amqp: int, management: int, distribution: int, mapper: int
    ) -> None:
        self.config = config
        self.folder = folder
        self.node = f"operator{distribution}@localhost"
        self.amqp = amqp
        self.management = management
        self.distribution = distribution
        self.mapper = mapper
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)

    def environment(self) -> dict[str, str]:
        at = self.folder
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            # The cookie lies there.
            "HOME": str(at),
            # From the written instructions.
            "RABBITMQ_CONFIG_FILE": str(self.config / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.config / "enabled_plugins"),
            # On a machine of its own, a broker has these already: a name, and places to write to.
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_MNESIA_BASE": str(at / "data"),
            "RABBITMQ_LOG_BASE": str(at / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(at / "generated"),
            "RABBITMQ_SCHEMA_DIR": str(at / "schema"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(at / "feature_flags"),
            "RABBITMQ_PID_FILE": str(at / "pid"),
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.mapper),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} "
            "+sbwt none +sbwtdcpu none +sbwtdio none -kernel net_setuptime 120",
        }

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self.folder / "pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if alive(pid) else None

    def spawn(self) -> None:
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "start.log").open("wb") as log:
            self.process = subprocess.Popen(
                [program("rabbitmq-server")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )

    def wait(self) -> None:
        wait_for(self._is_there, f"the broker {self.node} to start", deadline=900, also=self.words)

    def _is_there(self) -> bool:
        # It listens before it has started altogether.
        if self.pid is None or "Starting broker... completed" not in self.words():
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.management)) == 0

    def kill(self) -> None:
        """As a power failure would."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not alive(pid), "the broker to be dead")
        self.process.wait(60)
        self.process = None

    def keep_cookie(self, cookie: str) -> None:
        """Erlang nodes of one cluster know each other by it."""
        file = self.folder / ".erlang.cookie"
        file.write_text(cookie)
        file.chmod(0o400)

    def control(self, *arguments: str) -> str:
        """The output of `rabbitmqctl`."""
        environment = self.environment() | {"RABBITMQ_CTL_ERL_ARGS": PATIENT}
        done = subprocess.run(
            [program("rabbitmqctl"), "--quiet", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            env=environment,
        )
        assert done.returncode == 0, f"rabbitmqctl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def ask(self, path: str, user: str, password: str) -> Any:
        """An answer of its management interface; None while there is none."""
        context = ssl.create_default_context(cafile=str(self.config / "ca.pem"))
        # A broker is known by its SPIFFE identity, not by a host name.
        context.check_hostname = False
        request = urllib.request.Request(f"https://127.0.0.1:{self.management}/api/{path}")
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return json.loads(answer.read())
        except OSError:
            return None

    def words(self) -> str:
        log = self.folder / "start.log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else ""

    def end(self) -> None:
        """Kills it, and the port mapper that Erlang started beside it."""
        self.kill()
        environment = {"PATH": os.environ["PATH"], "ERL_EPMD_ADDRESS": "127.0.0.1"}
        # It refuses until it has noticed that the broker is gone, and as long as others of a cluster are there.
        for _ in range(50):
            said = subprocess.run(
                ["epmd", "-port", str(self.mapper), "-kill"], env=environment, capture_output=True, timeout=60
            )
            if b"living nodes" not in said.stdout:
                return
            time.sleep(0.1)


def program(name: str) -> str:
    return next((str(place / name) for place in PLACES if (place / name).exists()), name)
