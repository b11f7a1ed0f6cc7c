"""Runs and modules that several tests of commands look at."""

from support.finished_runs import copy, trained, trained_by_two  # noqa: F401
from support.own_modules import project  # noqa: F401
