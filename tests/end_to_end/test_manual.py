"""The pages of the manual work as they stand, and their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import ROOT, SEALBUS
from pages import someone

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.fixture
def reader():
    with someone() as reader:
        yield reader


def test_the_tutorial(reader):
    pages = sorted((DOCS / "tutorial").glob("[0-9]*.md"))
    assert pages
    for page in pages:
        reader.read(page)


@pytest.mark.parametrize("page", ["index.md", "monitoring.md", "spade.md", *(f"coming-from/{it}.md" for it in ("jade", "spade", "nats", "rabbitmq", "mcp", "a2a"))])
def test_a_page_that_stands_for_itself(page, reader):
    reader.read(DOCS / page)


# Those with ports and other servers are played by test_telemetry.py. Some have no commands that a reader could follow here.
LEFT_OUT = ("prometheus", "tracing", "packages", "troubleshooting", "windows")
TASKS = [page for page in sorted((DOCS / "how-to").glob("*.md")) if page.stem not in LEFT_OUT]


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_page_about_one_task(page, reader):
    reader.read(page)


def test_the_reference_of_the_commands_is_of_these_commands():
    written = subprocess.run(
        [sys.executable, DOCS / "commands.py", SEALBUS], capture_output=True, text=True, check=True
    ).stdout
    assert written == (DOCS / "reference" / "commands.md").read_text(), (
        "run python3 docs/commands.py target/debug/sealbus > docs/reference/commands.md"
    )


def test_the_messages_on_the_page_about_them_are_those_of_the_programs():
    page = (DOCS / "how-to" / "troubleshooting.md").read_text()
    sources = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/sealbus/*.py")]
    said = re.sub(r"\\\n\s*", "", "\n".join(source.read_text() for source in sources))
    messages = re.findall(r"^\| `([^`]* [^`]*)` \|", page, re.MULTILINE)
    assert messages
    for message in messages:
        for part in message.split("…"):
            assert part.strip() in said, f"no program says {part!r}"
    source = (ROOT / "crates" / "bus" / "src" / "refusal.rs").read_text()
    reasons = re.findall(r"Self::\w+ => \"([a-z-]+)\"", source)
    assert reasons
    for reason in reasons:
        assert f"`{reason}`" in page, f"{reason} is not explained"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_to_a_page_and_to_a_place_on_it(page: Path):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        file, _, place = target.partition("#")
        to = (page.parent / file).resolve() if file else page
        assert to.exists(), f"{target} leads nowhere"
        if place:
            places = {anchor(title) for title in re.findall(r"^#+ (.*)$", to.read_text(), re.MULTILINE)}
            assert place in places, f"{target}: {sorted(places)}"


def anchor(title: str) -> str:
    """The name that a heading has in links."""
    plain = re.sub(r"[^\w\s-]", "", title.replace("`", "").lower())
    return re.sub(r"[\s]+", "-", plain.strip())
