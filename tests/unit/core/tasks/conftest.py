"""Fixtures shared by several tests."""

from support.samples.image_fixtures import weights_of_zero  # noqa: F401
