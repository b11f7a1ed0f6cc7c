"""Fixtures shared by several tests."""

from support.hosts.hubs import hub, weights  # noqa: F401
