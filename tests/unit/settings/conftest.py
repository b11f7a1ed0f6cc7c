"""Fixtures shared by several tests."""

from support.settings_fixtures import load_text, refuse, write  # noqa: F401
