"""Fixtures shared by several tests."""

from support.settings_fixtures import load_text, refuse, write  # noqa: F401
from support.simulated import command_line  # noqa: F401
