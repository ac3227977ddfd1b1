"""Lists every public name of the crate `sealbus`, with the first sentences of its documentation, for the manual's reference."""

import re
from pathlib import Path

CRATES = Path(__file__).resolve().parents[1] / "crates"
FACADE = CRATES / "sealbus"
MODULE = re.compile(r'\(\s*"([\w:]+)",\s*"([\w./]+)",\s*&\[(.*?)\],?\s*\)', re.DOTALL)
KINDS = r"(?:unsafe )?(?:async )?(?:const )?(fn|struct|enum|trait|type|const|static|mod)"


def documentation(lines: list[str], number: int) -> str:
    """The first paragraph of the comment above a line."""
    above = []
    for line in reversed(lines[:number]):
        text = line.strip()
        if text.startswith("///"):
            above.append(text[3:].strip())
        elif not text or not (text.startswith(("#", ")", "]")) or not above and not text.endswith((";", "}", "{"))):
            break
    return " ".join(above[::-1]).split("  ")[0]


def definitions(sources: dict[Path, str]) -> dict[str, list[tuple[Path, str, str]]]:
    """Where each public name is defined, its kind, and its description."""
    found: dict[str, list[tuple[Path, str, str]]] = {}
    for path, source in sources.items():
        lines = source.splitlines()
        for number, line in enumerate(lines):
            if defined := re.match(rf"\s*pub {KINDS} (\w+)", line):
                kind, name = defined[1], defined[2]
                said = documentation(lines, number)
                if kind == "mod":
                    inner = path.with_name(f"{name}.rs")
                    inner = inner if inner in sources else path.parent / name / "mod.rs"
                    opening = re.match(r"((?://!.*\n)+)", sources.get(inner, ""))
                    said = said or " ".join(re.findall(r"//! ?(.*)", opening[1])).split("  ")[0] if opening else said
                found.setdefault(name, []).append((path, kind, said))
    return found


def modules() -> list[tuple[str, Path, list[str]]]:
    """The public modules, their files and names, from the test that holds them fast."""
    listed = (FACADE / "tests/public_names.rs").read_text()
    return [(module, FACADE / "src" / file, re.findall(r'"(\w+)"', names)) for module, file, names in MODULE.findall(listed)]


def rows() -> list[tuple[str, str, str, str]]:
    """The module, the name, its kind and its description."""
    files = sorted(CRATES.glob("*/src/**/*.rs"), key=lambda path: (FACADE not in path.parents, path))
    defined = definitions({path: path.read_text() for path in files})
    table = []
    for module, file, names in modules():
        lower = re.findall(r"pub use sealbus_(\w+)::([^;]*);", file.read_text())
        for name in names:
            homes = [CRATES / crate for crate, used in lower if re.search(rf"\b{name}\b", used)] or [FACADE]
            choice = [each for each in defined.get(name, []) if each[2]]
            choice = [each for each in choice if each[0] == file or homes[0] in each[0].parents] or choice
            choice.sort(key=lambda each: each[0] != file)
            _, kind, said = choice[0] if choice else (file, "", "")
            table.append((module, name, kind, said))
    return table


def page() -> str:
    """A table for each module."""
    parts: list[str] = []
    for module, name, kind, said in rows():
        title = f"## `{module}`\n\n| name | kind | meaning |\n|---|---|---|"
        if title not in parts:
            parts += ["", title]
        said = re.sub(r"\[(`?[^\]]+`?)\](?:\([^)]*\))?", r"\1", said).replace("|", "\\|")
        parts.append(f"| `{name}` | {kind} | {said} |")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page())
