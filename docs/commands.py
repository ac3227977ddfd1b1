"""Writes the reference of the command line from the help of the commands.

    python3 docs/commands.py target/debug/sealbus > docs/reference/commands.md
"""

import re
import subprocess
import sys

HEAD = """# Commands

Every command of `sealbus`, as its `--help` describes it. The tests compare this page with the commands.
"""


def told(sealbus: str, words: list[str]) -> str:
    """The help of a command."""
    environment = {"COLUMNS": "120", "NO_COLOR": "1", "HOME": "/"}
    command = [sealbus, *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def page(sealbus: str) -> str:
    """The whole page."""
    parts = [HEAD]

    def describe(words: list[str]) -> None:
        text = told(sealbus, words)
        title = " ".join(["sealbus", *words])
        parts.append(f"{'#' * (len(words) + 1 if words else 2)} `{title}`\n\n```text\n{text.strip()}\n```\n")
        listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
        for name in re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []:
            if name != "help":
                describe([*words, name])

    describe([])
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1]))
