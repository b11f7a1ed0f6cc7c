"""The doctor outlives a device that crashes, and measures updates."""

import json
import os
import signal

import pytest
from support.processes import ROOT
from support.trainings.runs import DIGITS, PLAIN

from paddlevit_dist.core import settings
from paddlevit_dist.core.launch import devices
from paddlevit_dist.extensions.debug import doctor_checks, doctor_updates
from paddlevit_dist.extensions.debug.doctor_checks import CheckContext, DoctorCheck, run_checks

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


def test_a_few_updates_with_one_batch_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_updates, "_UPDATES", 3)
    words = [*DIGITS, "-batch_size=8", "-accum_iter=2", f"-output={tmp_path}", "TRAIN.BASE_LR", "1e-9"]
    checkup = CheckContext(settings.load(words).values, tmp_path, MACHINE)
    target = tmp_path / "facts.json"
    doctor_updates.run_device_steps(checkup.config, checkup.task, checkup.samples["train"], str(target))
    facts = json.loads(target.read_text())
    assert facts.keys() == {"losses", "first", "seconds", "memory_mib", "trained"}
    assert len(facts["losses"]) == 4  # before, and after each of three updates
    assert facts["losses"] == pytest.approx([facts["first"]["loss"]] * 4, rel=1e-4)
    assert 1.5 < facts["losses"][0] < 3.5 and facts["trained"] == 1.0
    assert 0 < facts["seconds"] < 60 and facts["memory_mib"] > 50
