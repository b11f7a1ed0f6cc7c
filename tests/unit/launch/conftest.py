"""Locks of folders, a simulated time, and what a process is for others."""

from support.simulated import (  # noqa: F401
    command_line,
    exit_codes,
    fresh_rank,
    fresh_status,
    machine,
    simulated_time,
    store,
)
from support.trainings.locked_folders import take  # noqa: F401
