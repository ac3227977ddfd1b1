"""Isolated programs in an attacker's hands: the modes of this machine, and the way to tell such a program what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Platform, sealbus

HERE = Path(__file__).resolve().parent


def working() -> dict[str, str | None]:
    """The modes of this machine; of those that do not work, why."""
    told = json.loads(sealbus("node", "--check", "--json").stdout)
    return {each["isolation"]: each["problem"] for each in told} | {"none": None}


def needs(modes: dict[str, str | None], mode: str) -> None:
    problem = modes[mode]
    if problem is not None:
        pytest.skip(f"{mode}: {problem}")


def provide(folder: Path, *programs: str) -> None:
    """Copies hostile programs, and what they use, to a folder that they may read."""
    (folder / "orders").mkdir(exist_ok=True)
    for path in [*(HERE / "programs" / name for name in (*programs, "kernel.py")), HERE / "attacker" / "rpc.py"]:
        shutil.copy(path, folder)


def order(folder: Path, name: str, words: Any = None) -> None:
    """Tells a hostile program something, at once and whole."""
    draft = folder / "orders" / "draft"
    draft.write_text(json.dumps(words))
    draft.chmod(0o644)
    draft.rename(folder / "orders" / name)


def lines(factory: Platform, agent: str) -> list[str]:
    return factory.tell("logs", agent, "--lines", "1000", expect=None).stdout.decode().splitlines()


def said(factory: Platform, agent: str) -> list[dict[str, Any]]:
    """The lines of JSON in an agent's log."""
    return [json.loads(line) for line in lines(factory, agent) if line.startswith("{")]


def note_of(factory: Platform, agent: str) -> str:
    return str(factory.agents().get(agent, {}).get("note"))


def node_of(factory: Platform, name: str = "node-1") -> int:
    """The process of a node."""
    mark = f"\0node\0--name\0{name}\0".encode()
    (pid,) = [pid for pid in factory.pids() if mark in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid
