"""The commands and programs in docs/mcp.md work as they stand."""

from harness import ROOT
from pages import someone


def test_a_host_uses_an_agent_in_ten_minutes() -> None:
    with someone() as reader:
        reader.read(ROOT / "docs" / "mcp.md")
