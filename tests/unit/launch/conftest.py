"""Locks of folders, a simulated time, and what a process is for others."""

from support.simulated import exit_codes, fresh_rank, fresh_status, simulated_time, store  # noqa: F401
from support.trainings.locked_folders import take  # noqa: F401
