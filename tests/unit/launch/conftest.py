"""Locks of folders."""

from support.locked_folders import take  # noqa: F401
