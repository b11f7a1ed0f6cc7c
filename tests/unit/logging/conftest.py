"""What a test of logs sets for its whole process."""

from support.simulated import simulated_time  # noqa: F401
