"""Runs and modules that several tests of commands look at."""

from support.hosts.own_modules import project  # noqa: F401
from support.trainings.finished_runs import copy, trained  # noqa: F401
