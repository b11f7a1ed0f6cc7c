"""Locks of folders, a simulated time, and what a process notes of itself."""

from support.simulated import exit_codes, fresh_status, simulated_time  # noqa: F401
from support.trainings.locked_folders import take  # noqa: F401
