"""Modules of a user."""

from support.own_modules import project  # noqa: F401
