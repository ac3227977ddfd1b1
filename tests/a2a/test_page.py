"""The commands and programs in docs/a2a.md work as they stand."""

import subprocess
import sys
import urllib.error
import urllib.request

from harness import ROOT, wait_for
from pages import blocks, pattern, someone

PAGE = ROOT / "docs" / "a2a.md"
CARD = "http://127.0.0.1:7781/agents/tea-house/.well-known/agent-card.json"


def test_a_client_asks_an_agent_in_ten_minutes() -> None:
    with someone() as reader:
        reader.read(PAGE)


def is_shown() -> bool:
    try:
        with urllib.request.urlopen(CARD) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def test_a_program_by_itself_is_asked_by_the_same_client() -> None:
    with someone() as reader:
        for _, title, text in blocks(PAGE):
            if title:
                (reader.folder / title).write_text(text)
        program = subprocess.Popen([sys.executable, "alone.py"], env=reader.environment, cwd=reader.folder)
        try:
            wait_for(is_shown, "the card of the tea house")
            printed = reader.run("python client.py", 0)
            assert pattern('tea for {"leaves": "oolong", "cups": 2}').search(printed), printed
        finally:
            program.terminate()
            program.wait()
