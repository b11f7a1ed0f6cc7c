"""Locks of folders, a simulated time, and what a process is for others."""

from support.meetings import network  # noqa: F401
from support.simulated import (  # noqa: F401
    command_line,
    exit_codes,
    fresh_rank,
    fresh_status,
    kills,
    machine,
    signals_sent,
    simulated_time,
    store,
)
from support.trainings.locked_folders import take  # noqa: F401
