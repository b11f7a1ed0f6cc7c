"""Fixtures shared by several tests."""

from support.samples.image_fixtures import cache, families_once  # noqa: F401
from support.settings_fixtures import load_text, refuse, write  # noqa: F401
