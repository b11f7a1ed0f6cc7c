"""A simulated time, and a process that does not end."""

from support.simulated import at_exit, command_line, exit_codes, kills, machine, simulated_time  # noqa: F401
