"""Fixtures of the end-to-end tests."""

from platforms import binary, platform  # noqa: F401
