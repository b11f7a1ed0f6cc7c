"""Ranks that are started separately."""

from integration.launch.separate_ranks import ranks  # noqa: F401
