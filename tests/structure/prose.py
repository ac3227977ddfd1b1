"""Sentences that hide their subject: those that begin with "Who", "What" or "Whose" and ask nothing."""

import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Code and quotations are no sentences of ours.
QUOTED = re.compile(r'(`+)(?:(?!\1).)*\1|"[^"\n]*"|“[^”]*”', re.DOTALL)
# To the end of the sentence, or of the table's cell.
HEADLESS = re.compile(r"\b(?:Who|What|Whose)\b(?:[^.?!|]|\.(?=\w))*[.?!|]?")
FENCE = re.compile(r"\s*(?:```|~~~)")
# Headings, table rows and items of lists begin a block of their own.
BEGINS = re.compile(r"\s*(?:[-*|#]|\d+\.)\s*\S")
# A comment of Rust or Java.
COMMENT = re.compile(r"^(?:|.*?\s)(?://[/!]?|/\*\*?|\*)(?:\s+|$)(.*?)(?:\*/)?$")

KINDS = ["*.md", "*.py", "*.pyi", "*.rs", "*.java"]


def prose(file, text):
    """Yields the lines of prose, each with its number: all of Markdown, else the comments and the docstrings."""
    if file.endswith(".md"):
        yield from enumerate(text.splitlines(), 1)
    elif file.endswith((".py", ".pyi")):
        starts = True
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#: ")
                continue
            if token.type == tokenize.STRING and starts:
                yield from enumerate(token.string.lstrip("r").strip('"').splitlines(), token.start[0])
            if token.type != tokenize.NL:
                starts = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if found := COMMENT.match(line):
                yield number, found[1]


def paragraphs(lines):
    """Joins the lines that belong together. Yields each paragraph with the number of its first line."""
    first, paragraph, fenced = 0, [], False
    for number, line in lines:
        if FENCE.match(line):
            fenced, line = not fenced, ""
        if paragraph and (not line.strip() or BEGINS.match(line) or number > first + len(paragraph)):
            yield first, "\n".join(paragraph)
            paragraph = []
        if line.strip() and not fenced:
            first = first if paragraph else number
            paragraph.append(line)
    if paragraph:
        yield first, "\n".join(paragraph)


def headless():
    """Yields each sentence that begins with "Who", "What" or "Whose" and is no question."""
    listed = subprocess.run(["git", "ls-files", "-z", *KINDS], cwd=ROOT, capture_output=True, text=True, check=True)
    for file in filter(None, listed.stdout.split("\0")):
        if not (ROOT / file).exists():
            continue
        for first, paragraph in paragraphs(prose(file, (ROOT / file).read_text())):
            plain = QUOTED.sub(lambda found: "`" + "\n" * found[0].count("\n") + "`", paragraph)
            for found in HEADLESS.finditer(plain):
                if not found[0].endswith("?"):
                    at = first + plain.count("\n", 0, found.start())
                    yield f"{file}:{at}: put the subject first: {' '.join(found[0].split())[:90]}"
