"""A simulated time, and a process that does not end."""

from support.simulated import command_line, exit_codes, machine, simulated_time  # noqa: F401
