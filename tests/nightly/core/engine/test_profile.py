"""``-profile N`` with two processes."""

import re

import paddle
import pytest
from support.processes import run_main, succeeded
from support.trainings.runs import DIGITS

needs_profiler = pytest.mark.skipif(
    paddle.is_compiled_with_cuda() and not paddle.device.cuda.device_count(),
    reason="a Paddle for GPUs profiles with a GPU only",
)


@needs_profiler
def test_with_two_processes_the_first_one_records_and_says_so(tmp_path):
    ended = succeeded(run_main(*DIGITS, "-ngpus=2", "-profile=3", f"-output={tmp_path}"))
    assert re.search(r"profile of 3 updates, on rank 0 of 2: ", ended.out)
    assert len(list((tmp_path / "profile").iterdir())) == 2
