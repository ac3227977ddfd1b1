"""The manifests of the platforms that the tests start."""

from __future__ import annotations

import textwrap

from harness import PROGRAMS


def manifest(rabbitmq: str, workers: dict[str, str], level: str = "auth", rest: str = "") -> str:
    """A platform of two nodes on the broker that `rabbitmq` names, with a worker of each name on its node."""
    head = f"""\
        [platform]
        name = "factory"
        level = "{level}"
        transport = "rabbitmq"
        nodes = 2

        [rabbitmq]
    """
    parts = [textwrap.dedent(head), textwrap.dedent(rabbitmq)]
    for name, node in workers.items():
        worker = f"""
            [[agent]]
            name = "{name}"
            command = ["PYTHON", "{PROGRAMS}/worker.py"]
            node = "{node}"
        """
        parts.append(textwrap.dedent(worker))
    return "".join([*parts, textwrap.dedent(rest)])
