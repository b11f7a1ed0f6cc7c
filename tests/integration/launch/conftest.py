"""Ranks that are started separately, and locks of folders."""

from integration.launch.separate_ranks import ranks  # noqa: F401
from support.trainings.locked_folders import take  # noqa: F401
