"""Fixtures of the end-to-end tests."""

from platforms import binary, platform, tmp_path  # noqa: F401
