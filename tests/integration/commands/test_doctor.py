"""The doctor outlives a device that crashes."""

import os
import signal

from support.processes import ROOT
from support.runs import PLAIN

from paddlevit_dist import settings
from paddlevit_dist.debug import doctor_checks
from paddlevit_dist.debug.doctor_checks import CheckContext, DoctorCheck, run_checks
from paddlevit_dist.launch import devices

MACHINE = devices.ProcessPlan(1, "cpu", False, [])


def ends_with_a_signal(*arguments):
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_crash_of_a_device_is_one_line_and_the_checks_after_it_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    monkeypatch.setattr(doctor_checks, "run_device_test", ends_with_a_signal)
    checkup = CheckContext(settings.load([PLAIN, "-dataset=digits"]).values, tmp_path, MACHINE)

    def fails(_):
        raise KeyError("a bug")

    checks = [*doctor_checks.CHECKS[-1:], DoctorCheck("fails", fails), DoctorCheck("needs", fails, ("devices",))]
    run_checks(checkup, checks)
    found = checkup.results
    assert found["devices"].status == "failure" and "SIGSEGV" in found["devices"].text
    assert found["fails"].status == "failure" and found["fails"].text == "KeyError: 'a bug'"
    assert found["needs"].status == "skipped" and found["needs"].text.endswith("fix 'devices' first")
