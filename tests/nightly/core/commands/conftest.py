"""Modules of a user, and a run that several tests look at."""

from support.hosts.own_modules import project  # noqa: F401
from support.trainings.finished_runs import trained_by_two  # noqa: F401
