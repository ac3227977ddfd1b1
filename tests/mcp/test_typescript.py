"""The official TypeScript client uses the platform as it is, over HTTP and over standard input and output."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import PROGRAMS, Door
from harness import SEALBUS, wait_for
from javascript import needs_node, printed

HOST = PROGRAMS / "typescript.mjs"


@needs_node
@pytest.mark.parametrize("door_of", ["http", "stdio"])
def test_a_host_in_typescript_uses_agents(door: Door, tmp_path: Path, mode: str, door_of: str) -> None:
    for note in ("slow-begun", "slow-cancelled"):
        (door.notes / note).unlink(missing_ok=True)
    if door_of == "http":
        name, found = "assistant", printed(HOST, tmp_path, mode, door.url, door.keys["assistant"])
    else:
        name = "columnist"
        # The one of the other mode may still be leaving.
        options = ("--state", door.factory.state, "--timeout", "5m")
        found = printed(HOST, tmp_path, mode, SEALBUS, "mcp", name, *options)
    assert (found["version"], found["server"]) == ("2025-11-25" if mode == "legacy" else "2026-07-28", "sealbus")
    assert {"search_agents", "clock__double", "vault__open"} <= set(found["tools"])
    assert found["doubled"]["structuredContent"] == {"result": 42}
    assert found["doubled"]["_meta"]["sealbus/provenance"] == "proved"
    assert found["refused"]["isError"] and "not my job: tea" in found["refused"]["content"][0]["text"]
    assert found["unknown"] == -32602
    assert found["counted"]["structuredContent"] == {"result": ["0", "1", "2"]}
    assert [it["message"] for it in found["progress"][:3]] == ["step 1", "step 2", "step 3"]
    assert found["asked"]["structuredContent"]["content"] == f"{name}@factory said good day"
    assert found["givenUp"]
    wait_for((door.notes / "slow-cancelled").exists, "the agent's tool to be cancelled")
    assert found["updated"] == "sealbus://channel/news"
    assert f"{name}@factory ordered tea" in [event["content"] for event in found["news"]["events"]]
