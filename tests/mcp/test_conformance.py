"""The official conformance kit of MCP 2026-07-28 against a platform.

Many of its scenarios want a server with tools, prompts and resources of the kit's own names. The scenarios here hold for
every server.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from conftest import Door
from javascript import NODE, PACKAGES, needs_node

SCENARIOS: dict[str, set[str]] = {
    # These checks want tools of the kit's.
    "server-stateless": {
        "HttpServerNoIndependentRequestsOnStream",
        "MissingCapabilityHttp400",
        "ServerNoLogWithoutLogLevel",
        "ServerRejectsUndeclaredCapability",
    },
    "tools-list": set(),
    "resources-list": set(),
    "sep-2164-resource-not-found": set(),
    "server-sse-multiple-streams": set(),
    "dns-rebinding-protection": set(),
    "http-header-validation": set(),
    # There are no prompts.
    "caching": {"PromptsListCachingHints"},
}
"""Each scenario, and its checks that do not apply."""


@needs_node
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_platform_conforms(door: Door, scenario: str) -> None:
    command = [NODE, PACKAGES / ".bin" / "conformance", "server", "--url", door.url, "--scenario", scenario]
    done = subprocess.run(
        [*command, "--spec-version", "2026-07-28"], capture_output=True, text=True, timeout=500, check=False
    )
    printed = done.stdout + done.stderr
    passed = re.search(r"Passed: (\d+)/(\d+)", printed)
    assert passed and int(passed[1]) > 0, printed
    failed = set(re.findall(r"^  - (\w+):", printed.partition("=== Failed Checks ===")[2], re.MULTILINE))
    assert failed == SCENARIOS[scenario], printed
