"""Which updates are recorded, and that each recording has its table and its trace."""

import itertools
import json
from types import SimpleNamespace

import paddle
import pytest
from support.thread_ranks import acting_as

from paddlevit_dist.extensions.debug import profile
from paddlevit_dist.extensions.debug.profile import ProfileHook

pytestmark = pytest.mark.skipif(paddle.is_compiled_with_cuda(), reason="GPU builds of Paddle record with a GPU only")


def record(folder, requested: int, per_epoch: int, done: int = 0, writes: bool = True, made: int = 99):
    """Go through two epochs, and return which updates were recorded and what was logged.

    Args:
        folder: of the run.
        requested: -profile.
        per_epoch: updates of an epoch.
        done: updates of the first epoch before the run's start.
        writes: whether this is the rank that logs.
        made: updates of the first epoch after which it is interrupted.
    """
    lines: list[str] = []
    log = SimpleNamespace(writes=writes, log_and_print=lines.append)
    config = SimpleNamespace(PROFILE=requested or None, SAVE=str(folder))
    hook = ProfileHook(SimpleNamespace(config=config, run_log=log, updates_per_epoch=per_epoch))
    recorded = []
    for epoch, before in ((3, done), (4, 0)):
        hook.before_epoch(epoch, before)
        for update in range(before + 1, min(per_epoch, made) + 1):
            if hook._profiler is not None:
                recorded.append((epoch, update))
                paddle.add(paddle.ones([3]), paddle.ones([3]))
            hook.after_step(None)
        hook.after_epoch(epoch, made > per_epoch)
        assert hook._profiler is None
    return recorded, lines


@pytest.mark.parametrize(
    "requested, per_epoch, done, expected",
    [
        (2, 9, 0, [3, 4]),  # the first two compile
        (3, 9, 4, [7, 8, 9]),
        (3, 4, 0, [2, 3, 4]),  # there is room to skip one
        (3, 3, 0, [1, 2, 3]),
        (9, 6, 4, [5, 6]),
    ],
)
def test_the_updates_after_the_first_two_are_recorded_once(tmp_path, monkeypatch, requested, per_epoch, done, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profile, "time", SimpleNamespace(perf_counter=itertools.count(0, 0.25).__next__))
    with acting_as(0, requested - 1):
        recorded, (line,) = record(tmp_path, requested, per_epoch, done)
    assert recorded == [(3, update) for update in expected]
    name = f"epoch_0003_updates_{expected[0]}_to_{expected[-1]}"
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == [f"{name}.json", f"{name}.txt"]
    assert "Time unit: ms" in (tmp_path / "profile" / f"{name}.txt").read_text()
    events = json.loads((tmp_path / "profile" / f"{name}.json").read_text())["traceEvents"]
    assert sum(event.get("name", "").startswith("ProfileStep") for event in events) == len(expected)
    also = " (9 were requested, but the epoch has no more)" if requested == 9 else ""
    also += f", on rank 0 of {requested - 1}" if requested > 2 else ""
    assert [path.name for path in tmp_path.iterdir()] == ["profile"]
    assert (
        line.startswith(f"profile of {len(expected)} updates{also}: {250 / len(expected):.1f} ms each; ")
        and line.count(f"/profile/{name}.") == 2
    )


def test_a_profile_that_cannot_be_written_is_told_and_training_goes_on(tmp_path):
    (tmp_path / "profile").touch()
    recorded, (line,) = record(tmp_path, 1, 3)
    file = tmp_path / "profile" / "epoch_0003_updates_3_to_3.json"
    assert recorded == [(3, 3)] and line.startswith(f"profile: {file} was not written: [Errno 17] File exists: ")


def test_only_the_rank_that_logs_records_and_only_if_asked(tmp_path):
    assert record(tmp_path, 0, 5) == record(tmp_path, 2, 5, writes=False) == ([], [])
    assert not list(tmp_path.iterdir())


def test_an_interrupted_recording_is_dropped(tmp_path):
    recorded, lines = record(tmp_path, 4, 9, made=4)
    assert recorded == [(3, 3), (3, 4)] and not lines and not list(tmp_path.iterdir())
