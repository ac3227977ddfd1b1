"""The page about etcd works as it stands."""

from __future__ import annotations

import os
import signal

from harness import ROOT
from pages import someone


def test_the_page_about_etcd() -> None:
    with someone() as reader:
        try:
            reader.read(ROOT / "docs" / "operations.md")
        finally:
            for file in reader.folder.glob("etcd-*.pid"):
                try:
                    os.kill(int(file.read_text()), signal.SIGKILL)
                except ProcessLookupError:
                    pass
