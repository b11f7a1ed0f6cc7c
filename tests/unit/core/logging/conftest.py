"""What a test of logs sets for its whole process."""

from support.simulated import command_line, simulated_time  # noqa: F401
