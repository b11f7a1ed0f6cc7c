"""``-profile N``: its table, its trace, and that the training does not notice."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support import small_runs
from support.processes import run_main, succeeded
from support.runs import DIGITS

from paddlevit_dist.diagnosis import profile
from paddlevit_dist.runtime.errors import UserError

RUN = ["-batch_size=16", "-accum_iter=2", "-epochs=1", "REPORT_FREQ", "1"]  # 10 updates
ROW = re.compile(r" *-?\d+\.\d% +-?\d+\.\d\d ")

needs_profiler = pytest.mark.skipif(
    paddle.is_compiled_with_cuda() and not paddle.device.cuda.device_count(),
    reason="a Paddle for GPUs profiles with a GPU only",
)


def train(output: Path, *arguments: str) -> Any:
    trainer = small_runs.build(str(output), *RUN, *arguments)
    trainer.train()
    return trainer


def losses(output: Path) -> list[float]:
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines for name in ("loss", "gradient_norm") if name in line]


@needs_profiler
def test_a_profile_names_ten_operators_and_changes_no_number(tmp_path, capsys):
    plain = train(tmp_path / "plain")
    capsys.readouterr()
    profiled = train(tmp_path / "profiled", "-profile=4")
    said = capsys.readouterr().out.splitlines()
    first = next(
        number for number, line in enumerate(said) if line.startswith("profile of 4 updates, 3 to 6 of epoch 1")
    )
    rows = [line for line in said[first:] if ROW.match(line)]
    assert len(rows) == 10 + 2  # what is left, and what is outside of operators
    assert sum(float(row.split("%")[0]) for row in rows) == pytest.approx(100, abs=1)
    assert any(line.startswith("stages of the process's time: waiting for data ") for line in said)
    (trace,) = (tmp_path / "profiled" / "profile").iterdir()
    assert f"trace: {trace} " in "\n".join(said)
    spans = profile.read_trace(trace)
    names = {row.name for row in profile.most_expensive(spans)}
    assert any("linear" in name.lower() or "matmul" in name for name in names), names  # the layers choose which
    assert any(name.endswith("backward") for name in names), names
    stages = [span["name"] for span in spans if span["name"].startswith(("forward pass", "waiting for data"))]
    assert len(stages) == 4 * 2 + 4  # two micro-batches in an update
    assert losses(tmp_path / "profiled") == losses(tmp_path / "plain")
    for one, other in zip(plain.model.parameters(), profiled.model.parameters()):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@needs_profiler
def test_a_profile_longer_than_the_epoch_covers_it(tmp_path, capsys):
    train(tmp_path, "-profile=99")
    assert "profile of 10 updates, 1 to 10 of epoch 1 (99 were asked for; the epoch ends)" in capsys.readouterr().out


@needs_profiler
def test_an_interrupted_profile_leaves_nothing_and_another_works(tmp_path):
    trainer = small_runs.build(str(tmp_path), *RUN, "-profile=4")
    training = trainer.training()
    updater, calls = training.updater, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return updater(*arguments)

    interrupted.finite, interrupted.gradient_norm = True, 1.0  # type: ignore[attr-defined]
    training.updater = interrupted
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert not (tmp_path / "profile").exists()
    train(tmp_path / "again", "-profile=1")
    assert len(list((tmp_path / "again" / "profile").iterdir())) == 1


@pytest.mark.skipif(not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() > 0, reason="it works here")
def test_a_paddle_for_gpus_without_a_gpu_says_that_it_cannot_profile(tmp_path):
    with pytest.raises(UserError, match=r"-profile \(PROFILE\): .* does not start here: .*leave -profile out"):
        train(tmp_path, "-profile=1")


def test_functions_of_our_own_are_called_by_their_names():
    assert profile.operator_name("GradNodePyLayer__AttentionBranch[1.0 us]") == "AttentionBranch, backward"
    assert profile.operator_name("GradNodeAccumulation[1.0 us]") == "GradNodeAccumulation"


def test_an_operators_own_time_is_without_the_operators_inside_it():
    def span(name: str, ts: float, dur: float, tid: str = "1") -> Any:
        return {"name": name, "cat": "Operator", "ph": "X", "ts": ts, "dur": dur, "tid": tid}

    rows = profile.most_expensive(
        [
            span("Global_MatmulV2GradNode[10.0 us]", 0, 100),
            span("matmul dygraph[3.0 us]", 10, 30),
            span("matmul dygraph[3.0 us]", 50, 60),  # ends after the one around it
            span("matmul dygraph[3.0 us]", 0, 100, tid="2"),
        ]
    )
    assert [(row.name, row.calls) for row in rows] == [("matmul", 3), ("matmul_v2, backward", 1)]
    assert [row.seconds for row in rows] == pytest.approx([190e-6, 20e-6])


def test_kernels_of_a_gpu_come_before_operators_and_nccl_is_communication():
    events = [
        {"name": "matmul dygraph[1 us]", "cat": "Operator", "ts": 0, "dur": 5, "tid": "1"},
        {"name": "gemm[1.0 us]", "cat": "Kernel", "ts": 0, "dur": 50, "tid": "s"},
        {"name": "ncclDevKernel[1.0 us]", "cat": "Kernel", "ts": 60, "dur": 20, "tid": "s"},
    ]
    assert [row.name for row in profile.most_expensive(events)] == ["gemm", "ncclDevKernel"]
    assert profile.exchange_seconds(events) == pytest.approx(20e-6)


@needs_profiler
@pytest.mark.long
def test_with_two_processes_the_first_one_records_and_says_so(tmp_path):
    ended = succeeded(run_main(*DIGITS, "-ngpus=2", "-profile=3", f"-output={tmp_path}"))
    assert re.search(r"profile of 3 updates, 3 to 5 of epoch 1, on rank 0 of 2: ", ended.out)
    assert "waiting for other ranks" in ended.out and "exchange of gradients" in ended.out
    assert len(list((tmp_path / "profile").iterdir())) == 1
