"""Fixtures shared by several tests."""

from support.samples.image_fixtures import families_once  # noqa: F401
from support.simulated import machine  # noqa: F401
from support.trainings.stand_in_workers import workers  # noqa: F401
