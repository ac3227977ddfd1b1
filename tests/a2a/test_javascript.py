"""The official JavaScript client uses agents of the platform as they are, in all bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import PROGRAMS, Door
from harness import wait_for
from javascript import needs_node, printed


def texts(events: list[dict[str, Any]]) -> list[str]:
    """The parts of a result, as they came."""
    return [event["artifactUpdate"]["artifact"]["parts"][0]["text"] for event in events if "artifactUpdate" in event]


def last(events: list[dict[str, Any]]) -> dict[str, Any]:
    status: dict[str, Any] = events[-1]["statusUpdate"]["status"]
    return status


@needs_node
def test_a_client_in_javascript_asks_agents(door: Door, tmp_path: Path, binding: str) -> None:
    (door.notes / "slow-cancelled").unlink(missing_ok=True)
    found = printed(PROGRAMS / "javascript.mjs", tmp_path, binding, door.url, door.keys["assistant"])
    assert texts(found["slow"]) == ["0", "1", "2"] and last(found["slow"])["state"] == "TASK_STATE_COMPLETED"
    assert [part["text"] for part in found["done"]["artifacts"][0]["parts"]] == ["0", "1", "2"]
    assert found["done"]["metadata"]["sealbus/provenance"] == "proved"
    refused = last(found["refused"])
    assert (refused["state"], refused["message"]["parts"][0]["text"]) == ("TASK_STATE_REJECTED", "not my job")
    asked = found["question"]["status"]
    assert (asked["state"], asked["message"]["parts"][0]["text"]) == ("TASK_STATE_INPUT_REQUIRED", "which colour?")
    assert texts(found["answer"]) == ["you answered: blue"]
    assert found["foreign"].endswith("TaskNotFoundError")
    assert last([found["cancelled"]])["state"] == "TASK_STATE_CANCELED"
    assert found["again"].endswith("TaskNotCancelableError")
    wait_for((door.notes / "slow-cancelled").exists, "the agent's tool to be cancelled")
