"""The official conformance kit of MCP against a platform: all that the revision 2026-07-28 requires of servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Door
from javascript import NODE, PACKAGES, needs_node
from renamed import renamed
from test_servers import until

pytestmark = needs_node
OWN_NAMES = ["tools-call-simple-text", "tools-call-error", "tools-call-with-progress"]
"""They ask for tools of the kit's own names. Here each tool has its agent's name, too, so they are tried with other names on the way."""
LEFT_OUT = {
    "a tool's result is a text or JSON": {
        "tools-call-image": {"ToolsCallImage"},
        "tools-call-audio": {"ToolsCallAudio"},
        "tools-call-embedded-resource": {"ToolsCallEmbeddedResource"},
        "tools-call-mixed-content": {"ToolsCallMixedContent"},
    },
    "the resources are agents and channels, and none is of the kit's": {
        "resources-read-text": {"ResourcesReadText"},
        "resources-read-binary": {"ResourcesReadBinary"},
        "resources-templates-read": {"ResourcesTemplateRead"},
    },
    "there are no prompts": {
        "prompts-list": {"PromptsList"},
        "prompts-get-simple": {"PromptsGetSimple"},
        "prompts-get-with-args": {"PromptsGetWithArgs"},
        "prompts-get-embedded-resource": {"PromptsGetEmbeddedResource"},
        "prompts-get-with-image": {"PromptsGetWithImage"},
        "caching": {"PromptsListCachingHints"},
    },
    "nothing is completed": {"completion-complete": {"CompletionComplete"}},
    "no tool asks its host for anything": {
        "input-required-result-basic-elicitation": {"InputRequiredResultElicitationIncomplete"},
        "input-required-result-basic-sampling": {"InputRequiredResultSamplingIncomplete"},
        "input-required-result-basic-list-roots": {"InputRequiredResultListRootsIncomplete"},
        "input-required-result-request-state": {"InputRequiredResultRequestStateIncomplete"},
        "input-required-result-multiple-input-requests": {"InputRequiredResultMultipleInputsIncomplete"},
        "input-required-result-multi-round": {"InputRequiredResultMultiRoundR1"},
        "input-required-result-non-tool-request": {"InputRequiredResultNonToolIncomplete"},
        "input-required-result-result-type": {"ResultTypeIncluded"},
        "input-required-result-tampered-state": {"RejectTamperedState"},
        "input-required-result-capability-check": {"RespectClientCapabilities"},
        "server-stateless": {
            "HttpServerNoIndependentRequestsOnStream", "MissingCapabilityHttp400", "ServerNoLogWithoutLogLevel", "ServerRejectsUndeclaredCapability",
        },
    },
}  # fmt: skip
"""Checks of the kit that do not apply, by the reason."""


def checked(url: str, results: Path, *choice: str) -> Iterator[tuple[str, set[str]]]:
    """Each scenario that was tried, with the names of its checks that failed."""
    command = [NODE, PACKAGES / ".bin" / "conformance", "server", "--url", url, "-o", results, *choice]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    found = list(results.glob("server-*/checks.json"))
    assert found, done.stdout + done.stderr
    for file in found:
        checks = json.loads(file.read_text())
        assert [it for it in checks if it["status"] in ("SUCCESS", "SKIPPED", "FAILURE")], file
        scenario = file.parent.name.removeprefix("server-").split("-2026-")[0]
        yield scenario, {it["name"] for it in checks if it["status"] == "FAILURE"}


def test_the_platform_conforms(door: Door, tmp_path: Path) -> None:
    required = (PACKAGES / "@modelcontextprotocol" / "conformance" / "requirements" / "2026-07-28.yaml").read_text()
    servers = {line.strip(" -") for line in required.partition("\nserver:\n")[2].partition("\n\n")[0].splitlines()}
    found = dict(checked(door.url, tmp_path, "--requirements", "2026-07-28"))
    assert len(servers) == 37 and servers <= found.keys()
    known = {name: checks for scenarios in LEFT_OUT.values() for name, checks in scenarios.items()}
    failed = {name: found[name] for name in servers - set(OWN_NAMES) if found[name]}
    assert failed == known
    # Not required, and yet so.
    assert found["http-header-validation"] == set()


@pytest.mark.parametrize("scenario", OWN_NAMES)
async def test_tools_of_the_kits_own_names(door: Door, tmp_path: Path, scenario: str) -> None:
    async with door.client() as client:
        await until(client, "kit__test_simple_text")

    def tried() -> dict[str, set[str]]:
        with renamed(door.url, "kit__test_", "test_") as url:
            return dict(checked(url, tmp_path, "--scenario", scenario, "--spec-version", "2026-07-28"))

    assert await asyncio.to_thread(tried) == {scenario: set()}
