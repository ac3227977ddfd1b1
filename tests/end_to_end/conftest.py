"""Fixtures of the end-to-end tests."""

from network import pytest_configure  # noqa: F401
from platforms import binary, platform, tmp_path  # noqa: F401
