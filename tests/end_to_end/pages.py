"""Plays a page of the manual as its reader would: saves its files, types its commands, and compares their output.

A block with a title is a file (`python title="shop.py"`). In a `console` block each line that begins with `$ ` is a command,
and the lines below it are its output. There `…` stands for any text. Pages of one folder go on where the one before ended.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import DEADLINE, SEALBUS, clean_environment, wait_for

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

LOOKS = (
    "sealbus ps",
    "sealbus nodes",
    "sealbus masters",
    "sealbus logs",
    "sealbus df search",
    "sealbus ca monitor",
    "sealbus status",
    "sealbus store check",
    "curl -s ",
)
"""Commands that show a state. Their reader looks again until the output is as on the page."""


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """Each block's language, title and text."""
    for language, title, text in BLOCK.findall(page.read_text()):
        yield language, title, text


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and its output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = command[:-1] + more.strip()
        yield command, output


def pattern(output: str) -> re.Pattern[str]:
    """A pattern of the output that a page shows. White space may be of another width, since it aligns columns."""
    lines = [r"\s+".join(map(re.escape, line.split())) for line in output.strip().splitlines()]
    text = r"\s*\n\s*".join(lines)
    return re.compile(text.replace("…", ".*?"), re.DOTALL)


class Reader:
    """Someone at a terminal, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = clean_environment(
            {
                "HOME": str(folder),
                "XDG_STATE_HOME": str(folder / ".state"),
                "COLUMNS": "120",
                # As on a terminal.
                "PYTHONUNBUFFERED": "1",
                "PATH": os.pathsep.join([str(SEALBUS.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
            }
        )

    def read(self, page: Path) -> None:
        """Follows the page, which has a command."""
        typed = 0
        for language, title, text in blocks(page):
            if title:
                file = self.folder / title
                file.parent.mkdir(parents=True, exist_ok=True)
                # The answers are those of the page on a busy machine, too.
                file.write_text(text.replace("timeout=5)", "timeout=60)"))
            elif language == "console":
                for command, output in commands(text):
                    self.type(command, output)
                    typed += 1
        assert typed, f"{page} has no command"

    def type(self, command: str, output: str) -> None:
        """Runs a command, which must succeed and print this."""
        if command.startswith(LOOKS):
            wait_for(lambda: pattern(output).search(self.run(command, None)), command, also=lambda: self.run(command, None))
            return
        printed = self.run(command, 0)
        assert pattern(output).search(printed), f"$ {command}\n{printed}\n--- the page shows\n{output}"

    def run(self, command: str, expect: int | None) -> str:
        """Runs a command, and returns its output."""
        done = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.folder,
            timeout=5 * DEADLINE,
            check=False,
        )
        printed = done.stdout.decode(errors="replace")
        assert expect is None or done.returncode == expect, f"$ {command}\n{printed}"
        return printed

    def leave(self) -> None:
        """Ends the platforms that the pages started."""
        for state in (self.folder / ".state" / "sealbus").glob("*"):
            self.run(f"sealbus --state {shlex.quote(str(state))} down", None)


@contextmanager
def someone() -> Iterator[Reader]:
    """A reader in a new folder. Programs that run there are ended with the block."""
    # The path of a Unix socket has a hundred bytes: pytest's own folders leave too few.
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        reader = Reader(Path(folder))
        try:
            yield reader
        finally:
            reader.leave()
