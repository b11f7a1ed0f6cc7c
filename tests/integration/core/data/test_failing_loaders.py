"""Loader processes that end are told, with the sample that they read."""

import re
import sys

import numpy as np
import pytest
from support.processes import run_command
from support.samples.bad_samples import Changed

from paddlevit_dist.core.data.loader import DeviceLoader, SampleFailure
from paddlevit_dist.core.data.sampler import EvaluationSampler

PROGRAM = """
import os, sys
import numpy as np
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import EvaluationSampler

class Leaving:
    def __len__(self):
        return 64
    def sample(self, index, generator):
        if index == 9:
            os._exit(0)
        return index
    def describe(self, index):
        return f"number {index}"

samples = Leaving()
loader = DeviceLoader(samples, EvaluationSampler(samples, 2, rank=0, world_size=1),
                lambda readings: {"n": np.array(readings)}, num_workers=2, seed=0)
for batch in loader:
    pass
print("all read")
"""


def test_a_loader_process_that_leaves_with_code_0_ends_the_run():
    ended = run_command([sys.executable, "-c", PROGRAM])
    assert ended.code != 0 and "all read" not in ended.out
    assert re.search(r"loader process \d+ with exit code 0 ended while batches were due", ended.err), ended.err


def test_a_pass_that_ends_well_is_not_taken_for_one():
    ended = run_command([sys.executable, "-c", PROGRAM.replace("index == 9", "index == 99")])
    assert (ended.code, ended.out) == (0, "all read\n"), ended.err


@pytest.mark.parametrize("num_workers", [0, 1])
def test_sys_exit_in_a_data_set_is_told_with_its_sample(num_workers):
    class Leaving(Changed):
        def describe(self, index):
            return f"number {index}"

    samples = Leaving(Numbers(), 8, lambda sample: sys.exit(0))
    sampler = EvaluationSampler(samples, 2, rank=0, world_size=1)
    loader = DeviceLoader(samples, sampler, lambda numbers: {"n": np.array(numbers)}, num_workers=num_workers, seed=0)
    with pytest.raises(SampleFailure, match=r"sample 5 \(number 5\): SystemExit: 0"):
        list(loader)


class Numbers:
    def __len__(self):
        return 8

    def sample(self, index, generator):
        return index
