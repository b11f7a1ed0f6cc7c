"""Ranks that are started separately, locks of folders, what a process is for others, and a simulated time."""

from integration.core.launch.separate_ranks import ranks  # noqa: F401
from support.simulated import fresh_rank, simulated_time, store  # noqa: F401
from support.trainings.locked_folders import take  # noqa: F401
