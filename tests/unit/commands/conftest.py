"""Fixtures shared by several tests."""

from support.image_fixtures import families_once  # noqa: F401
