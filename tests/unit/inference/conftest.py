"""What a test of predictions sets for its whole process."""

from support.simulated import act_as, simulated_time  # noqa: F401
