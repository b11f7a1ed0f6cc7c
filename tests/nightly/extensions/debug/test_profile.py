"""``-profile N``: its tables, its trace, and that the training does not notice."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist import UserError

RUN = ["-batch_size=16", "-accum_iter=2", "-epochs=1", "REPORT_FREQ", "1"]  # 10 updates

needs_profiler = pytest.mark.skipif(
    paddle.is_compiled_with_cuda() and not paddle.device.cuda.device_count(),
    reason="a Paddle for GPUs profiles with a GPU only",
)


def train(output: Path, *arguments: str) -> Any:
    trainer = small_runs.build(str(output), *RUN, *arguments)
    trainer.train()
    return trainer


def losses(output: Path) -> list[float]:
    lines = read_events(output)
    return [line[name] for line in lines for name in ("loss", "gradient_norm") if name in line]


@needs_profiler
def test_a_profile_writes_paddles_tables_and_a_trace_and_changes_no_number(tmp_path, capsys):
    plain = train(tmp_path / "plain")
    capsys.readouterr()
    profiled = train(tmp_path / "profiled", "-profile=4")
    name = tmp_path / "profiled" / "profile" / "epoch_0001_updates_3_to_6"
    assert re.search(
        rf"profile of 4 updates: \d+\.\d ms each; table: {name}\.txt; trace: {name}\.json ", capsys.readouterr().out
    )
    tables = name.with_suffix(".txt").read_text()
    assert re.search(r"^update +4 ", tables, re.M) and re.search(r"^waiting for data +4 ", tables, re.M)
    spans = [event.get("name", "") for event in json.loads(name.with_suffix(".json").read_text())["traceEvents"]]
    assert any("linear" in span.lower() or "matmul" in span for span in spans), spans  # the layers choose which
    assert losses(tmp_path / "profiled") == losses(tmp_path / "plain")
    for one, other in zip(plain.model.parameters(), profiled.model.parameters()):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@needs_profiler
def test_a_profile_longer_than_the_epoch_covers_it(tmp_path, capsys):
    train(tmp_path, "-profile=99")
    assert "profile of 10 updates (99 were requested, but the epoch has no more)" in capsys.readouterr().out


@needs_profiler
def test_an_interrupted_profile_leaves_nothing_and_another_works(tmp_path):
    trainer = small_runs.build(str(tmp_path), *RUN, "-profile=4")
    trainer.prepare_training()
    begin, calls = trainer.step.launch, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return begin(*arguments)

    trainer.step.launch = interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert not (tmp_path / "profile").exists()
    train(tmp_path / "again", "-profile=1")
    assert len(list((tmp_path / "again" / "profile").iterdir())) == 2


@pytest.mark.skipif(not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() > 0, reason="it works here")
def test_a_paddle_for_gpus_without_a_gpu_says_that_it_cannot_profile(tmp_path):
    with pytest.raises(
        UserError, match=r"-profile \(PROFILE\): .* does not start: .*drop -profile, or install Paddle's CPU build"
    ):
        train(tmp_path, "-profile=1")
