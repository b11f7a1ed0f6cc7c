"""A simulated time, and a process that does not end."""

from support.simulated import exit_codes, simulated_time  # noqa: F401
