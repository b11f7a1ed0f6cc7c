"""What a test of checks sets for its whole process."""

from support.simulated import machine  # noqa: F401
from support.trainings.stand_in_workers import workers  # noqa: F401
