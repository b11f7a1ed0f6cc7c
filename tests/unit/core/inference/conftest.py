"""What a test of predictions sets for its whole process."""

from support.simulated import act_as, machine  # noqa: F401
