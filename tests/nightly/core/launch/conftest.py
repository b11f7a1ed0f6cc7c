"""Ranks that are started separately."""

from integration.core.launch.separate_ranks import ranks  # noqa: F401
