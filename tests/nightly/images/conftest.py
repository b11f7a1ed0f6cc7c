"""Fixtures shared by several tests."""

from support.samples.image_fixtures import families_once  # noqa: F401
