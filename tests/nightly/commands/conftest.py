"""Modules of a user."""

from support.hosts.own_modules import project  # noqa: F401
