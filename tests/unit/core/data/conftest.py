"""A simulated time, and what a process is for others."""

from support.simulated import exit_codes, fresh_status, machine, simulated_time  # noqa: F401
