"""What importing the package sets for MKL on AMD processors."""

import os
import sys
import warnings

import pytest

from paddlevit_dist.launch import tuning
from paddlevit_dist.runtime import processor

AMD = {"vendor": "AuthenticAMD", "model": "EPYC", "flags": ["avx2"]}


@pytest.fixture
def amd(monkeypatch):
    for name in (processor.KERNELS, processor._OURS):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever happens
        monkeypatch.delenv(name)
    monkeypatch.setattr(processor, "processor", lambda: AMD)
    monkeypatch.setattr(tuning, "processor", lambda: AMD)
    monkeypatch.setattr(processor, "_was_in_time", False)


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
    os.environ.update({name: before[name] for name in (processor.KERNELS, processor._OURS)})
    os.environ[processor.KERNELS] = "7"  # by the user, since
    processor.forget_kernels()
    assert os.environ[processor.KERNELS] == "7"


def test_what_the_user_has_set_stays_and_other_processors_are_left_alone(amd, monkeypatch):
    monkeypatch.setenv(processor.KERNELS, "4")
    processor.choose_kernels()
    assert os.environ[processor.KERNELS] == "4" and processor._OURS not in os.environ
    monkeypatch.delenv(processor.KERNELS)
    monkeypatch.setattr(processor, "processor", lambda: {**AMD, "vendor": "GenuineIntel"})
    processor.choose_kernels()
    assert processor.KERNELS not in os.environ
