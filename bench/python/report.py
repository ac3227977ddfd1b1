"""The options that benchmarks share, and the file with their figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def options(sealbus: bool = True) -> argparse.ArgumentParser:
    """A parser for the options of a benchmark. `sealbus`: it measures that program."""
    parser = argparse.ArgumentParser()
    if sealbus:
        parser.add_argument("--sealbus", type=Path, required=True, help="the sealbus binary")
    parser.add_argument("--json", type=Path, help="write the figures as JSON to this file too")
    return parser


def write(path: Path | None, figures: Any) -> None:
    """Writes the figures, if a file was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n")
