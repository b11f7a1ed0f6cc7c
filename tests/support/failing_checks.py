"""Checks of the doctor that end as they should not."""

import os
import signal

from paddlevit_dist.diagnosis.doctor_checks import Check, Finding


def _counts(checkup):
    return Finding("ok", f"{len(checkup.found)} before this one")


def _crashes(checkup):
    os.kill(os.getpid(), signal.SIGSEGV)


def _fails(checkup):
    raise KeyError("a bug")


def _keeps(checkup):
    return Finding("ok", f"{checkup.keep('process', os.getpid)}")


CHECKS = [Check("counts", _counts), Check("crash", _crashes), Check("fails", _fails), Check("again", _counts)]
WITH_A_TRAINING = [Check("first", _keeps), Check("second", _keeps), Check("step", _keeps, starts_processes=True)]
