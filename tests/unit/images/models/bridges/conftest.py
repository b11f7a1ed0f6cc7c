"""Fixtures shared by tests of the bridges."""

from support.hosts.hubs import hub, weights  # noqa: F401
