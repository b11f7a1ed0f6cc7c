"""Locks of folders, and the network of rank 0."""

from support.meetings import network  # noqa: F401
from support.trainings.locked_folders import take  # noqa: F401
