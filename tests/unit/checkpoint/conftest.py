"""Fixtures shared by several tests."""

from support.hubs import hub, weights  # noqa: F401
