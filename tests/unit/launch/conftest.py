"""Locks of folders."""

from support.trainings.locked_folders import take  # noqa: F401
