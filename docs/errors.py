"""Lists every error of the code, with its meaning, for the manual's reference."""

import re
from pathlib import Path

CRATES = Path(__file__).resolve().parents[1] / "crates"
#: Crates that run only in tests.
TESTS = {"conformance"}
MESSAGE = re.compile(r'#\[error\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', re.DOTALL)
ITEM = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(enum|struct) (\w+)")
VARIANT = re.compile(r"^\s*(\w+)\s*(?:[({,]|$)")
FIELD = re.compile(r"\{[^{}]*\}")


def cell(text: str) -> str:
    """One cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def message(attribute: str) -> str:
    """The text of an attribute, with … for the variable parts."""
    text = re.sub(r"\\\n\s*", "", "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', attribute, re.DOTALL)))
    text = text.replace('\\"', '"').replace("{{", "\0").replace("}}", "\1")
    return FIELD.sub("…", text).replace("\0", "{").replace("\1", "}")


def errors(source: str) -> list[tuple[str, str, str]]:
    """The message, the meaning and the name of each error in a file."""
    found: list[tuple[str, str, str]] = []
    owner, doc, waiting, inside = "", [], None, False
    lines = source.splitlines()
    for number, line in enumerate(lines):
        text = line.strip()
        if inside:
            inside = not text.endswith(")]")
        elif text.startswith("///"):
            doc.append(text[3:].strip())
        elif text.startswith("#[error("):
            matched = MESSAGE.match("\n".join([text, *lines[number + 1 : number + 12]]))
            waiting = message(matched[1]) if matched else None
            inside = not text.endswith(")]")
        elif item := ITEM.match(line):
            owner = item[2]
            if waiting:
                found.append((waiting, " ".join(doc), owner))
            doc, waiting = [], None
        elif waiting and (variant := VARIANT.match(line)) and not text.startswith(("#", "//")):
            if "{" in text or "(" in text or text.endswith(","):
                found.append((waiting, " ".join(doc), f"{owner}::{variant[1]}"))
                doc, waiting = [], None
        elif waiting is None and not text.startswith("#"):
            doc = []
    return found


def page() -> str:
    """A table for each crate."""
    parts = []
    for crate in sorted(each for each in CRATES.iterdir() if each.name not in TESTS):
        files = sorted(file for file in (crate / "src").rglob("*.rs") if "tests" not in file.stem)
        rows = sorted({error for file in files for error in errors(file.read_text()) if error[0].strip("…: ")})
        if rows:
            parts.append(f"## `sealbus-{crate.name}`\n\n| message | meaning | name |\n|---|---|---|")
            parts.append("\n".join(f"| {cell(text)} | {cell(doc)} | `{name}` |" for text, doc, name in rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page())
