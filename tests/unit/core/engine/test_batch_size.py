"""The search for the largest batch that fits, its refusals, and what counts as too large in a trial."""

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
import yaml
from support.forced_device import forced_device
from support.trainings import small_runs
from support.trainings.full_gpus import no_memory

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import batch_size
from paddlevit_dist.core.launch import ProcessPlan
from paddlevit_dist.core.runtime.errors import WorkerFailure
from paddlevit_dist.core.settings.every_run import RunSettings
from paddlevit_dist.images import Classification

GPUS, CPU = ProcessPlan(2, "gpu", False, []), ProcessPlan(1, "cpu", False, [])
TASK = SimpleNamespace(traits=SimpleNamespace(sample_name="images", fixed_shapes=True))
RECIPE = "-cfg=vit_digits"


def find(workers, limit: int, *words: str, plan: ProcessPlan = GPUS) -> tuple[RunSettings, list[int], str]:
    """What is found if an update of up to ``limit`` images fits, the batches that were tried, and the last notice."""
    tried = []

    def try_batch(started) -> None:
        config, *_ = started.arguments
        tried.append(config.DATA.BATCH_SIZE)
        if tried[-1] > limit:
            Path(config.SAVE, "too_large").touch()
            raise WorkerFailure(0, "out of memory")

    workers.work = try_batch
    run = batch_size.resolve_found_batch(settings.load([RECIPE, *words, "-batch_size=auto"]), plan, TASK, {})
    return run.values, tried, run.notices[-1]


def test_bisection_finds_the_largest_size_that_fits():
    for number in range(1, 60):
        sizes = batch_size.list_divisors(number)
        assert sizes == sorted({a for a in range(1, number + 1) for b in range(1, number + 1) if a * b == number})
        for limit in range(number + 2):
            tried: list[int] = []
            found = batch_size.find_largest(sizes, lambda size: tried.append(size) or size <= limit)  # noqa: B023
            assert found == max((size for size in sizes if size <= limit), default=None)
            assert len(tried) <= len(sizes).bit_length()


@pytest.mark.parametrize(
    "words, limit, batch, accumulated, too_large",
    [
        (["DATA.BATCH_SIZE", "256"], 100, 64, 4, 128),
        (["DATA.BATCH_SIZE", "32", "-accum_iter=8"], 1000, 256, 1, None),  # fewer and larger batches are found as well
        (["DATA.BATCH_SIZE", "96"], 40, 32, 3, 48),
        (["DATA.BATCH_SIZE", "100"], 40, 25, 4, 50),
        (["DATA.BATCH_SIZE", "7"], 6, 1, 7, 7),
    ],
)
def test_the_samples_of_an_update_stay(workers, words, limit, batch, accumulated, too_large):
    values, tried, notice = find(workers, limit, *words)
    assert (values.DATA.BATCH_SIZE, values.TRAIN.ACCUM_ITER) == (batch, accumulated)
    assert values.DATA.BATCH_SIZE_EVAL == batch and len(tried) <= 4
    why = f"the largest batch that fits; {too_large} exceeds the memory" if too_large else "all fit at once"
    assert notice == (
        f"-batch_size=auto (DATA.FIND_BATCH_SIZE): of {batch * accumulated} images per device and update, {why}: "
        f"DATA.BATCH_SIZE {batch}, TRAIN.ACCUM_ITER {accumulated}, DATA.BATCH_SIZE_EVAL {batch}"
    )


@pytest.mark.parametrize(
    "earlier, is_kept",
    [
        ({"BATCH_SIZE": 16, "FIND_BATCH_SIZE": True}, True),
        ({"BATCH_SIZE": 16, "FIND_BATCH_SIZE": False}, False),
        ({"BATCH_SIZE": 24, "FIND_BATCH_SIZE": True}, False),
        ({"BATCH_SIZE": "16", "FIND_BATCH_SIZE": True}, False),
        ({}, False),
    ],
)
def test_a_resumed_run_keeps_what_it_has_found_if_that_divides_the_samples(workers, tmp_path, earlier, is_kept):
    checkpoint = tmp_path / "checkpoints" / "epoch_0003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    (checkpoint / "about.yaml").write_text(yaml.safe_dump({"settings": {"DATA": earlier}}))
    words = ["DATA.BATCH_SIZE", "32", "-accum_iter=2", f"-output={tmp_path}", "-resume=auto"]
    values, tried, notice = find(workers, 1000, *words)
    assert (values.DATA.BATCH_SIZE, values.TRAIN.ACCUM_ITER) == ((16, 4) if is_kept else (64, 1))
    assert bool(tried) != is_kept
    if is_kept:
        assert notice == (
            "-batch_size=auto (DATA.FIND_BATCH_SIZE): as in the run that is resumed: DATA.BATCH_SIZE 16, "
            "TRAIN.ACCUM_ITER 4, DATA.BATCH_SIZE_EVAL 16"
        )


def test_a_found_batch_that_cannot_be_one_is_refused_with_its_file(workers, tmp_path):
    checkpoint = tmp_path / "checkpoints" / "epoch_0003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    (checkpoint / "about.yaml").write_text("settings: {DATA: {BATCH_SIZE: 0, FIND_BATCH_SIZE: true}}")
    with pytest.raises(UserError, match=r"epoch_0003/about.yaml: settings: DATA.BATCH_SIZE is 0: expected a whole nu"):
        find(workers, 1000, "DATA.BATCH_SIZE", "32", f"-output={tmp_path}", "-resume=auto")


def test_a_stated_batch_of_evaluations_stays(workers):
    values, _, _ = find(workers, 16, "DATA.BATCH_SIZE", "32", "-batch_size_eval=100")
    assert (values.DATA.BATCH_SIZE, values.DATA.BATCH_SIZE_EVAL) == (16, 100)


def test_batches_that_contradict_other_settings_are_not_tried(workers):
    mixing = ["TRAIN.MIXUP_ALPHA", "0.8", "DATA.BATCH_SIZE", "4"]
    assert find(workers, 2, *mixing)[1] == [4, 2]
    with pytest.raises(UserError, match="an update with 2 per device exceeds the memory; .*TRAIN.RECOMPUTE True"):
        find(workers, 1, *mixing)


@pytest.mark.parametrize(
    "plan, told", [(CPU, "CPU processes have no memory"), (GPUS._replace(by_paddle_launcher=True), "use no launcher")]
)
def test_where_nothing_can_be_tried_a_number_is_asked_for(workers, plan, told):
    with pytest.raises(UserError, match=f"-batch_size=auto .*{told}.*-batch_size=N"):
        find(workers, 1, plan=plan)


def test_an_evaluation_ignores_it_and_says_so(tmp_path):
    run = settings.load([RECIPE, "-eval", "-pretrained=run", "-batch_size=auto"])
    assert any("DATA.FIND_BATCH_SIZE" in notice and "no effect" in notice for notice in run.notices)


@pytest.mark.parametrize(
    "peak, fixed_shapes, fits",
    [(90, True, True), (91, True, False), (70, False, True), (71, False, False), (None, True, True)],
)
def test_some_of_the_memory_has_to_stay_free(tmp_path, peak, fixed_shapes, fits):
    class AnyShape(Classification):
        traits = dataclasses.replace(Classification.traits, fixed_shapes=fixed_shapes)

    trainer = small_runs.build(str(tmp_path), "-batch_size=16", train_size=16, val_size=16, task_class=AnyShape)
    with (
        contextlib.nullcontext() if peak is None else forced_device(used=peak, memory=100),
        contextlib.nullcontext() if fits else pytest.raises(UserError, match=f"^{peak} of 100 bytes are more than "),
    ):
        batch_size.run_trial(trainer.config, trainer.task, trainer.datasets)
    assert Path(tmp_path, "too_large").exists() is not fits


@pytest.mark.parametrize("accumulated, tried", [(1, 1), (2, 2), (3, 2)])
def test_a_trial_is_a_process_of_its_own_with_few_micro_batches_and_a_folder_of_its_own(
    tmp_path, workers, accumulated, tried
):
    words = [RECIPE, "-accum_iter", str(accumulated), "-resume=auto", f"-output={tmp_path}", "WATCHDOG_SECONDS", "123"]
    config = settings.load(words).values
    assert batch_size.try_batch(config, GPUS, TASK, {"train": 1})
    ((worker, (values, task, datasets), plan, seconds, in_child),) = workers.started
    assert (worker, task, datasets, plan, seconds) == (batch_size.run_trial, TASK, {"train": 1}, GPUS, 123)
    assert in_child and values.TRAIN.ACCUM_ITER == tried
    assert values.MODEL.RESUME is None and not Path(values.SAVE).exists() and Path(values.SAVE) != tmp_path
    assert (config.TRAIN.ACCUM_ITER, config.MODEL.RESUME) == (accumulated, "auto")
    with pytest.raises(AttributeError, match="immutable"):
        values.SAVE = "elsewhere"


@pytest.mark.parametrize("error", [UserError("no such file"), WorkerFailure(1, "killed")])
def test_other_failures_of_a_trial_end_the_run(workers, error):
    def fail(started):
        raise error

    workers.work = fail
    with pytest.raises(type(error)):
        batch_size.try_batch(settings.load([RECIPE]).values, GPUS, TASK, {})


@pytest.mark.parametrize("fails_in", ["train_step", "eval_step"])
def test_memory_that_runs_out_in_an_update_or_an_evaluation_is_told_to_the_parent(tmp_path, fails_in):
    calls = []
    full = type("Full", (Classification,), {fails_in: lambda *_: calls.append(1) or no_memory()})
    trainer = small_runs.build(str(tmp_path), "-batch_size=16", "-accum_iter=2", task_class=full)
    with pytest.raises(UserError, match="out of memory on GPU 0"):
        batch_size.run_trial(trainer.config, trainer.task, trainer.datasets)
    assert calls == [1] and Path(tmp_path, "too_large").exists()


def test_a_trial_writes_nothing_and_makes_two_updates(tmp_path, capsys):
    updates, evaluated = [], []

    class Noted(Classification):
        def train_step(self, *given):
            updates.append(given[2][:4])
            return super().train_step(*given)

        def eval_step(self, model, *rest):
            evaluated.append((model.training, rest[1].epoch))
            return super().eval_step(model, *rest)

    weights = tmp_path / "start.pdparams"
    words = ["-batch_size=32", "-accum_iter=2", f"-pretrained={weights}"]
    trainer = small_runs.build(str(tmp_path), *words, train_size=64, task_class=Noted)
    paddle.save(trainer.model.state_dict(), str(weights))
    capsys.readouterr()
    before = sorted(tmp_path.rglob("*"))
    batch_size.run_trial(trainer.config, trainer.task, trainer.datasets)
    total = trainer.config.TRAIN.NUM_EPOCHS  # of one update each
    assert updates == [(1, 0, total, 0), (1, 0, total, 1), (2, 1, total, 0), (2, 1, total, 1)]
    assert evaluated == [(False, 1)]  # one batch of two
    assert sorted(tmp_path.rglob("*")) == before and capsys.readouterr().out == ""
