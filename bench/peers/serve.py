"""Starts a server of the papers' benchmark for as long as its standard input is open:  serve.py NAME

The first line of the input holds the setting's values, in JSON. When the server can be used, a line of JSON is
printed with what its clients need to know. All servers listen on the loopback interface only, keep their state in
a folder that goes with them, and take free ports.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from server import PATIENCE, PEERS, PKI, Server, Values, certificate_of, free_port, until


def nats(server: Server, values: Values) -> Values:
    """nats-server with its own defaults, with or without mutual TLS."""
    port = free_port()
    lines = [f"listen: 127.0.0.1:{port}", "max_payload: 8MB"]
    if values.get("tls"):
        own = certificate_of("server")
        lines.append(
            f'tls {{ cert_file: "{own["certificate"]}", key_file: "{own["key"]}", '
            f'ca_file: "{own["authority"]}", verify: true }}'
        )
    (server.folder / "nats.conf").write_text("\n".join(lines) + "\n")
    server.start([PEERS / "bin" / "nats-server", "-c", "nats.conf"])
    server.wait(port)
    if values.get("tls"):
        return {"url": f"tls://127.0.0.1:{port}", **certificate_of("sender")}
    return {"url": f"nats://127.0.0.1:{port}"}


def rabbitmq(server: Server, values: Values) -> Values:
    """A node of its own, as an ordinary user; with certificates the agent's name is that of its certificate."""
    amqp, amqps, distribution, epmd = (free_port() for _ in range(4))
    folder = server.folder
    # The node's user cannot read in our folder.
    own = {
        what: shutil.copy(path, folder) for what, path in certificate_of("server").items()
    }
    (folder / "rabbitmq.conf").write_text(
        f"""listeners.tcp.1 = 127.0.0.1:{amqp}
listeners.ssl.1 = 127.0.0.1:{amqps}
ssl_options.cacertfile = {own["authority"]}
ssl_options.certfile = {own["certificate"]}
ssl_options.keyfile = {own["key"]}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_options.versions.1 = tlsv1.3
auth_mechanisms.1 = EXTERNAL
auth_mechanisms.2 = PLAIN
ssl_cert_login_from = distinguished_name
loopback_users = none
log.console = true
log.console.level = warning
"""
    )
    (folder / "enabled_plugins").write_text("[rabbitmq_auth_mechanism_ssl].\n")
    # Its scripts make a file of this name readable to nobody else.
    (folder / ".erlang.cookie").write_text("benchmark")
    (folder / ".erlang.cookie").chmod(0o400)
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench{amqp}@localhost",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_SCHEMA_DIR": str(folder / "schema"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    scripts = Path("/usr/lib/rabbitmq/bin")
    if not scripts.exists():
        scripts = Path(shutil.which("rabbitmq-server") or "").resolve().parent
    options: Values = {"env": environment}
    if os.geteuid() == 0:
        # The scripts of the distribution refuse to run as root, the node need not.
        user = pwd.getpwnam("rabbitmq")
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def control(*words: str) -> None:
        subprocess.run(
            [scripts / "rabbitmqctl", "-q", *words],
            check=True,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=PATIENCE,
            **options,
        )

    server.start([scripts / "rabbitmq-server"], **options)
    # Erlang's port mapper goes to the background; it is ours alone.
    mapper = ["epmd", "-port", str(epmd), "-kill"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": sys.stderr}
    server.farewells.append(lambda: subprocess.run(mapper, check=False, **quiet))
    server.wait(amqp)
    server.wait(amqps)
    if not values.get("tls"):
        return {"url": f"amqp://guest:guest@127.0.0.1:{amqp}/"}
    users = {}
    for name in ("sender", "receiver"):
        user_name = f"UID={name},CN=127.0.0.1"
        control("add_user", user_name, "unused")
        control("clear_password", user_name)
        control("set_permissions", "-p", "/", user_name, ".*", ".*", ".*")
        users[name] = user_name
    return {
        "url": f"amqps://127.0.0.1:{amqps}/",
        "sides": {
            "send": {"user": users["sender"], **certificate_of("sender")},
            "receive": {"user": users["receiver"], **certificate_of("receiver")},
        },
    }


def key_store(name: str) -> str:
    """A certificate with its key, as Java reads it."""
    return str(PKI / f"{name}.p12")


def artemis(server: Server, values: Values) -> Values:
    """A broker of its own, with one acceptor of the core protocol; durable messages go to its folder."""
    home = PEERS / "artemis" / "apache-artemis-2.56.0"
    port = free_port()
    broker = server.folder / "broker"
    options = "--name bench --host 127.0.0.1 --user bench --password bench --require-login --no-web"
    options += " --no-amqp-acceptor --no-mqtt-acceptor --no-stomp-acceptor --no-hornetq-acceptor"
    options += f" --no-autotune --nio --silent --default-port {port}"
    subprocess.run(
        [home / "bin" / "artemis", "create", broker, *options.split()],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        timeout=PATIENCE,
    )
    trust = PKI / "trust.p12"

    def url(name: str, extra: str) -> str:
        """The URL for a side, with the certificate that the side shows."""
        if not values.get("tls"):
            return f"tcp://127.0.0.1:{port}"
        return (
            f"tcp://127.0.0.1:{port}?{extra}sslEnabled=true&keyStorePath={key_store(name)}"
            "&keyStorePassword=changeit&keyStoreType=PKCS12"
            f"&trustStorePath={trust}&trustStorePassword=changeit&trustStoreType=PKCS12"
        )

    settings = broker / "etc" / "broker.xml"
    text = settings.read_text()
    begin, end = text.index("<acceptors>"), text.index("</acceptors>")
    accepted = url("server", "needClientAuth=true&").replace("&", ";")
    accepted += ("?" if "?" not in accepted else ";") + "protocols=CORE"
    acceptor = f'<acceptors><acceptor name="core">{accepted}</acceptor>'
    text = text[:begin] + acceptor + text[end:]
    # By default, it takes no more messages once nine tenths of the disk are full.
    text = re.sub(r"<max-disk-usage>\d+<", "<max-disk-usage>100<", text)
    settings.write_text(text)
    server.start([broker / "bin" / "artemis", "run"])
    server.wait(port)
    return {"send_url": url("sender", ""), "receive_url": url("receiver", "")}


def kafka(server: Server, values: Values) -> Values:
    """One node that is broker and controller."""
    port, controller = free_port(), free_port()
    listener = "SSL" if values.get("tls") else "PLAINTEXT"
    trust = PKI / "trust.p12"
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners={listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners={listener}://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        f"inter.broker.listener.name={listener}",
        f"listener.security.protocol.map={listener}:{listener},CONTROLLER:PLAINTEXT",
        f"log.dirs={server.folder / 'data'}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]
    if values.get("tls"):
        lines += [
            "ssl.client.auth=required",
            "ssl.keystore.type=PKCS12",
            f"ssl.keystore.location={key_store('server')}",
            "ssl.keystore.password=changeit",
            "ssl.key.password=changeit",
            "ssl.truststore.type=PKCS12",
            f"ssl.truststore.location={trust}",
            "ssl.truststore.password=changeit",
        ]
    (server.folder / "server.properties").write_text("\n".join(lines) + "\n")
    java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    java += ["-cp", str(PEERS / "java" / "kafka" / "*")]
    tool = [*java, "kafka.tools.StorageTool"]
    made = subprocess.run([*tool, "random-uuid"], check=True, capture_output=True, text=True)
    identity = made.stdout.split()[-1]
    subprocess.run(
        [*tool, "format", "-t", identity, "-c", "server.properties"],
        check=True,
        cwd=server.folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    server.start([*java, "kafka.Kafka", "server.properties"])
    server.wait(port)
    known: Values = {"servers": f"127.0.0.1:{port}"}
    if values.get("tls"):
        known |= {"trust": str(trust), "send": key_store("sender"), "receive": key_store("receiver")}
    return known


def corba(server: Server, values: Values) -> Values:
    """An event channel of JacORB, or its Notification Service."""
    folder, libraries = server.folder, PEERS / "java" / "corba" / "*"
    port, reference = free_port(), folder / "channel"
    java: list[str | Path] = ["java", "-Xmx2g", "-XX:+UseParallelGC"]
    java += [f"-Djacorb.config.dir={folder}", "-Djacorb.net.tcp_nodelay=true"]
    java += ["-Dorg.omg.CORBA.ORBClass=org.jacorb.orb.ORB"]
    java += ["-Dorg.omg.CORBA.ORBSingletonClass=org.jacorb.orb.ORBSingleton"]
    java += ["-DOAIAddr=127.0.0.1", "-Djacorb.log.default.verbosity=1"]
    if values["service"] == "event":
        java += [f"-DOAPort={port}", "-cp", f"{PEERS / 'java' / 'classes-corba'}:{libraries}"]
        server.start([*java, "bench.corba.Channel", reference])
    else:
        java += ["-cp", str(libraries), "org.jacorb.notification.ConsoleMain"]
        server.start([*java, "-port", str(port), "-writeIOR", reference])
    server.wait(port)
    deadline = time.monotonic() + PATIENCE
    while not (reference.exists() and reference.read_text().startswith("IOR:")):
        if time.monotonic() > deadline:
            sys.exit("the service did not say where it is")
        time.sleep(0.05)
    return {"reference": reference.read_text().strip()}


PYTHON = PEERS / "python" / "bin" / "python"
HERE = Path(__file__).parent / "python"


def slim(server: Server, values: Values) -> Values:
    """A node inside a Python process: the wheel brings it."""
    port = free_port()
    pki = [values["pki"]] if "pki" in values else []
    server.start([PYTHON, HERE / "slim_node.py", str(port), *pki])
    server.wait(port)
    return {"port": port}


def spade(server: Server, values: Values) -> Values:
    """The XMPP server that SPADE brings."""
    port = free_port()
    server.start([PYTHON, HERE / "pyjabber_server.py", str(port), str(free_port())])
    server.wait(port)
    return {"port": port}


MOST_AGENTS = 2048


def sealbus(server: Server, values: Values) -> Values:
    """A platform with two programs in Python, on a node of its own each."""
    folder = server.folder
    text = f'[platform]\nname = "bench"\nlevel = "{values["level"]}"\nnodes = 2\n'
    sockets = {}
    (folder / "sockets").mkdir()
    for role, side in (("receive", "receiver"), ("send", "sender")):
        sockets[role] = str(folder / "sockets" / side)
        program = [values["python"], str(HERE / "sealbus_agents.py"), side, sockets[role]]
        program += ["spade"] if values.get("of") == "spade" else []
        text += f'\n[[agent]]\nname = "{side}"\nagents = {MOST_AGENTS}\n'
        text += f"command = {json.dumps(program)}\n"
        text += 'write = ["sockets"]\nunix-sockets = true\n'
    (folder / "platform.toml").write_text(text)
    platform = server.start([values["binary"], "up", "platform.toml", "--state", "state"])
    deadline = time.monotonic() + PATIENCE
    while not all(Path(path).exists() for path in sockets.values()):
        if platform.poll() is not None or time.monotonic() > deadline:
            sys.exit("the platform did not start its programs")
        time.sleep(0.05)
    return {"sockets": sockets}


def jade(server: Server, values: Values) -> Values:
    """A platform that containers of JADE join with tickets, which the driver asks for."""
    (server.folder / "platform.toml").write_text('[platform]\nname = "bench"\n')
    platform = server.start([values["binary"], "up", "platform.toml", "--state", "state"])
    state = str(server.folder / "state")
    deadline = time.monotonic() + PATIENCE
    while True:
        nodes = [values["binary"], "nodes", "--json", "--state", state]
        shown = subprocess.run(nodes, capture_output=True, text=True, check=False).stdout
        if '"alive"' in shown:
            return {"state": state}
        if platform.poll() is not None or time.monotonic() > deadline:
            sys.exit("the platform did not start its node")
        time.sleep(0.2)


def wireguard(server: Server, values: Values) -> Values:
    """Two network namespaces with a cable between them, and a tunnel of wireguard-go through it. They end with us."""
    if os.geteuid() != 0:
        sys.exit("only root may make network namespaces, and a tunnel in them")

    def run(*command: object) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=PATIENCE)
        return done.stdout.decode()

    def x25519(name: str) -> tuple[str, str]:
        """A key, and its public half, in hexadecimal. Both encodings end with the key itself."""
        path = server.folder / f"{name}.key"
        run("openssl", "genpkey", "-algorithm", "X25519", "-outform", "DER", "-out", path)
        public = server.folder / f"{name}.public"
        run("openssl", "pkey", "-in", path, "-inform", "DER", "-pubout", "-outform", "DER", "-out", public)
        return path.read_bytes()[-32:].hex(), public.read_bytes()[-32:].hex()

    names = ("receive", "send")
    tunnels = {name: f"wg{os.getpid():x}{name[0]}" for name in names}
    keys = {name: x25519(name) for name in names}
    spaces = {}
    for name in names:
        holder = server.start(["unshare", "--net", "sleep", "infinity"])
        spaces[name] = f"/proc/{holder.pid}/ns/net"
        own = os.readlink("/proc/self/ns/net")
        until(lambda space=spaces[name], own=own: os.readlink(space) != own)

    def inside(name: str, *command: object) -> list[object]:
        return ["nsenter", f"--net={spaces[name]}", *command]

    def door(name: str) -> Path:
        return Path("/var/run/wireguard") / f"{tunnels[name]}.sock"

    def listens(name: str) -> bool:
        with socket.socket(socket.AF_UNIX) as control:
            return control.connect_ex(str(door(name))) == 0

    def tell(name: str, *lines: str) -> str:
        """Gives the tunnel's end an order, and returns its answer."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(door(name)))
            control.sendall(("\n".join(lines) + "\n\n").encode())
            answer = ""
            while not answer.endswith("\n\n") and (more := control.recv(65536)):
                answer += more.decode()
        if not answer.endswith("errno=0\n\n"):
            sys.exit(f"wireguard-go refused its order: {answer}")
        return answer

    # The cable is made inside one namespace, so that nothing of it shows outside.
    there = spaces["send"].split("/")[2]
    run(*inside("receive", "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", there))
    sides = {}
    for number, name in enumerate(names, start=1):
        run(*inside(name, "ip", "address", "add", f"10.9.0.{number}/24", "dev", "cable"))
        run(*inside(name, "ip", "link", "set", "cable", "up"))
        tunnel = tunnels[name]
        command = inside(name, PEERS / "bin" / "wireguard", "-f", tunnel)
        server.start([str(word) for word in command], env={**os.environ, "LOG_LEVEL": "error"})
        until(lambda name=name: listens(name))
        other = names[2 - number]
        lines = [
            "set=1",
            f"private_key={keys[name][0]}",
            "listen_port=51820",
            f"public_key={keys[other][1]}",
            f"endpoint=10.9.0.{3 - number}:51820",
            f"allowed_ip=10.8.0.{3 - number}/32",
        ]
        if name == "send":
            # It greets the other end at once: that handshake is no part of a first contact between agents.
            lines.append("persistent_keepalive_interval=25")
        tell(name, *lines)
        run(*inside(name, "ip", "address", "add", f"10.8.0.{number}/24", "dev", tunnel))
        run(*inside(name, "ip", "link", "set", tunnel, "up"))
        sides[name] = {"network": spaces[name], "address": f"10.8.0.{number}"}
    until(lambda: "last_handshake_time_sec=0\n" not in tell("send", "get=1"))
    return {"sides": sides}


SERVERS: dict[str, Callable[[Server, Values], Values]] = {
    "nats": nats,
    "rabbitmq": rabbitmq,
    "artemis": artemis,
    "kafka": kafka,
    "corba": corba,
    "slim": slim,
    "spade": spade,
    "sealbus": sealbus,
    "jade": jade,
    "wireguard": wireguard,
}


def main() -> None:
    """Serves until the input ends."""
    if len(sys.argv) != 2 or sys.argv[1] not in SERVERS:
        sys.exit(f"usage: serve.py {'|'.join(SERVERS)}")
    values: Values = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(tempfile.mkdtemp(prefix="sealbus-bench-"))
    folder.chmod(0o755)
    server = Server(folder)
    try:
        print(json.dumps(SERVERS[sys.argv[1]](server, values)), flush=True)
        sys.stdin.read()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
