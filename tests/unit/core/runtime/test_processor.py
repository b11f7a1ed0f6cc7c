"""What importing the package sets for MKL on AMD processors."""

import os
import platform
import sys
import warnings

import pytest

from paddlevit_dist.core.launch import tuning
from paddlevit_dist.core.runtime import processor

AMD = {"vendor": "AuthenticAMD", "model": "EPYC", "flags": ["avx2"]}


@pytest.fixture
def amd(monkeypatch, machine):
    for name in (processor.KERNELS, processor.CHOSEN):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever happens
        monkeypatch.delenv(name)
    machine.cpu = AMD


def test_it_is_set_before_paddle_and_no_word_is_said(amd, monkeypatch):
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        processor.choose_kernels()
    assert os.environ[processor.KERNELS] == "5" and processor.chose_in_time()


def test_a_later_import_says_so_once(amd, monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", sys)
    with pytest.warns(UserWarning, match="imported after Paddle: .* or set MKL_DEBUG_CPU_TYPE=5 in the environment"):
        processor.choose_kernels()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        processor.choose_kernels()
    assert os.environ[processor.KERNELS] == "5" and not processor.chose_in_time()


@pytest.mark.parametrize("tuned", [True, False])
def test_a_command_takes_its_own_choice_and_restores_this_one(amd, monkeypatch, tuned):
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    processor.choose_kernels()
    before = dict(os.environ)
    processor.forget_kernels()
    assert processor.KERNELS not in os.environ
    assert (processor.KERNELS in tuning.environment(1, tuned, os.environ)) is tuned
    os.environ.update({name: before[name] for name in (processor.KERNELS, processor.CHOSEN)})
    os.environ[processor.KERNELS] = "7"  # by the user, since
    processor.forget_kernels()
    assert os.environ[processor.KERNELS] == "7"


def test_what_the_user_has_set_stays_and_other_processors_are_left_alone(amd, machine, monkeypatch):
    monkeypatch.setenv(processor.KERNELS, "4")
    processor.choose_kernels()
    assert os.environ[processor.KERNELS] == "4" and processor.CHOSEN not in os.environ
    monkeypatch.delenv(processor.KERNELS)
    machine.cpu = {**AMD, "vendor": "GenuineIntel"}
    processor.choose_kernels()
    assert processor.KERNELS not in os.environ


def test_a_processor_is_that_of_the_first_core(monkeypatch, tmp_path):
    first = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: EPYC: 9\nflags\t\t: fpu avx2\n"
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert processor.processor(file) == {"vendor": "", "model": "arm", "flags": []}
    other = first.replace("0", "1").replace("AMD", "Other")
    file.write_bytes(f"{first}\n{other}".replace("EPYC", "EP\udcffYC").encode("utf-8", "surrogateescape"))
    expected = {"vendor": "AuthenticAMD", "model": "EP\ufffdYC: 9", "flags": ["fpu", "avx2"]}
    assert processor.processor(file) == expected
    file.write_text("processor: 0\n")
    assert processor.processor(file) == {"vendor": "", "model": "arm", "flags": []}


def test_all_four_instruction_sets_choose_the_widest_kernels():
    widest = ["avx512f", "avx512bw", "avx512dq", "avx512vl"]
    assert processor.math_kernels({"vendor": "AuthenticAMD", "flags": widest}) == "7"
    for missing in widest:
        flags = [name for name in widest if name != missing]
        assert processor.math_kernels({"vendor": "AuthenticAMD", "flags": flags}) is None
