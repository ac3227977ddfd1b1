"""The commands and programs in docs/a2a.md work as they stand."""

from harness import ROOT
from pages import someone


def test_a_client_asks_an_agent_in_ten_minutes() -> None:
    with someone() as reader:
        reader.read(ROOT / "docs" / "a2a.md")
