"""Platforms whose authorities have their keys in a token: SoftHSM."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from network import pytest_configure  # noqa: F401
from platforms import binary, platform, tmp_path  # noqa: F401
from softhsm import Token


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """The programs that the tests cannot do without."""
    for name in ("softhsm2-util", "openssl"):
        if not shutil.which(name):
            pytest.exit(f"{name} is missing: run `make softhsm`", returncode=1)


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Token:
    """A new token, which all programs of the test find."""
    token = Token(tmp_path / "token")
    monkeypatch.setenv("SOFTHSM2_CONF", str(token.settings))
    return token
