"""Fixtures shared by several tests."""

from support.samples.image_fixtures import cache  # noqa: F401
