"""What a test of a comparison sets for its whole process."""

from support.simulated import machine, simulated_time  # noqa: F401
from support.trainings.stand_in_commands import commands  # noqa: F401
