"""What the self-test compares, which variants it starts with which settings, and what it prints of each."""

import contextlib
import math
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.registrations import forgotten
from support.thread_ranks import ThreadRanks
from support.trainings.runs import DIGITS, STATE

from paddlevit_dist import UserError, register_task
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.distributed import running_statistics
from paddlevit_dist.core.tasks.step_types import LossTerm
from paddlevit_dist.extensions.debug import selftest
from paddlevit_dist.extensions.debug.selftest import RunVariant, compare_variants
from paddlevit_dist.images import Classification

LOSS_1, LOSS_2 = "loss term 'ce' of update 1", "loss term 'ce' of update 2"
LARGE, SMALL = "gradient of 'large' in update 1", "gradient of 'small' in update 1"
WEIGHT, BUFFER = "change of weight 'large' after update 3", "change of buffer 'mean' after update 3"


def make_variant(differing=None, has_batch_norm=False, **changes) -> RunVariant:
    """Build a variant; ``changes`` are added to its values, which are named in capitals above."""
    values = {
        **{"LOSS_1": np.float64(2.0), "LOSS_2": np.float64(-0.5), "LARGE": np.array([1.0, -4.0, 2.0])},
        **{"SMALL": np.array([[1e-6, 0.0]]), "WEIGHT": np.zeros(3), "BUFFER": np.array([8.0])},
    }
    named = {globals()[name]: np.asarray(value + changes.get(name, 0.0)) for name, value in values.items()}
    rounding = {LOSS_1: 0.5, LOSS_2: 0.5, LARGE: 0.002}
    return RunVariant(named, differing, has_batch_norm, {"large": 100.0, "mean": 1.0}, rounding)


def test_each_tensor_differs_by_a_share_of_its_own_size_and_may_by_what_rounding_does_to_it():
    other = make_variant(LOSS_1=-0.1, LOSS_2=0.1, LARGE=np.array([0.0, 0.02, -0.03]), SMALL=2e-6, WEIGHT=1e-3, BUFFER=4)
    rounded_weight = 3 * 2.0**-23 * 100 / 1e-4  # three updates of a weight of 100
    expected = {
        LOSS_1: (0.1, 2.0, 0.01),  # of the first update's loss at most 1 %
        LOSS_2: (0.1, 0.5, 5.0001),
        LARGE: (0.03, 4.0, 0.0201),
        SMALL: (2e-6, 0.004, 1e-4),  # of a thousandth of the largest gradient
        WEIGHT: (1e-3, rounded_weight, 1e-4),
        BUFFER: (4.0, 8.0, 1e-4),
    }
    found = compare_variants(make_variant(), other)
    assert [difference.name for difference in found] == list(expected)
    for difference in found:
        largest, scale, allowed = expected[difference.name]
        assert (difference.largest, difference.scale, difference.allowed) == pytest.approx((largest, scale, allowed))
        assert difference.share == pytest.approx(largest / scale)
    without = compare_variants(make_variant(), other, with_buffers=False)
    assert [difference.name for difference in without] == [LOSS_1, LOSS_2, LARGE, SMALL, WEIGHT]


def test_what_one_variant_lacks_or_has_in_another_shape_or_not_finite_differs_infinitely():
    reference, other = make_variant(), make_variant(LARGE=math.nan)
    del reference.values[LOSS_2], other.values[WEIGHT]
    other.values[SMALL] = np.zeros(2)
    found = {difference.name: difference.share for difference in compare_variants(reference, other)}
    assert found == {LOSS_1: 0.0, LARGE: math.inf, SMALL: math.inf, WEIGHT: math.inf, BUFFER: 0.0, LOSS_2: math.inf}


def run_with(workers, words, results) -> list[dict]:
    """Run the command on variants that were trained before, and return what each was started with."""
    started = []

    def note(start):
        function, (config, task, dataset, folder, perturbed), plan, seconds, in_child = start
        assert function is selftest.run_variant and in_child and len(dataset) > 64 and task.config.SELFTEST
        facts = {"processes": plan.processes, "batch": config.DATA.BATCH_SIZE, "steps": config.TRAIN.ACCUM_ITER}
        started.append({**facts, "ngpus": config.NGPUS, "perturbed": perturbed, "config": config, "seconds": seconds})
        with open(f"{folder}/{selftest.RESULT}", "wb") as file:
            pickle.dump(results[len(started) - 1], file)

    workers.work = note
    selftest.run(settings.load([*DIGITS, "-selftest", *words]))
    return started


def list_starts(started) -> list[tuple]:
    return [tuple(facts[name] for name in ("processes", "ngpus", "batch", "steps", "perturbed")) for facts in started]


def test_the_devices_are_compared_with_one_device_and_with_a_batch_in_parts(workers, capsys, tmp_path):
    words = ["-ngpus=3", f"-output={tmp_path / 'none'}", "MODEL.DROPOUT", "0.3", "WATCHDOG_SECONDS", "77"]
    words += ["TRAIN.TF32", "True", "-amp", "TRAIN.WARMUP_STEPS", "5"]
    started = run_with(workers, words, [make_variant(), make_variant(SMALL=1e-7), make_variant(BUFFER=5)])
    assert list_starts(started) == [(3, 3, 21, 1, 0), (1, 1, 63, 1, 5), (1, 1, 21, 3, 0)]
    for facts in started:
        config = facts["config"]
        assert (config.TRAIN.OPTIMIZER.NAME, config.TRAIN.BATCH_NORM, config.MODEL.DROPOUT) == ("SGD", "sync", 0.0)
        assert (config.TRAIN.TF32, config.AMP, config.MODEL.RESUME) == (False, False, None)
        assert (config.TRAIN.WARMUP_STEPS, config.TRAIN.WARMUP_EPOCHS) == (None, 0.0)
        assert Path(config.SAVE).name.startswith("paddlevit_dist_selftest_") and facts["seconds"] == 77
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "selftest: 3 updates of each of these variants, float32, SGD",
        "  3 processes x 21",
        "  1 process x 63",
        "  1 process x 21 x 3 accumulated",
    ]
    off = "off, since results depend on the rank or on rounding: dropout layers, AMP True, MODEL.DROPOUT 0.3"
    assert lines[4] == off
    assert [line for line in lines if "agree" in line] == [
        "3 processes x 21 and 1 process x 63: 6 tensors agree; closest to its tolerance:",
        "1 process x 21 x 3 accumulated and 1 process x 63: 5 tensors agree; closest to its tolerance:",
    ]
    assert lines[6] == f"  {SMALL}: by 1e-07, 2.5e-05 of 0.004 (allowed 0.0001)" and lines[-1] == "PASS"
    assert not (tmp_path / "none").exists()


def test_the_first_tensor_that_differs_and_the_first_gradient_are_printed(workers, capsys, tmp_path):
    bad = make_variant("'head' is not the same on rank 0 and rank 1", LOSS_1=1, SMALL=1, BUFFER=1)
    with pytest.raises(SystemExit) as ended:
        run_with(workers, ["-ngpus=2", f"-output={tmp_path}"], [bad, make_variant(), make_variant(LARGE=3, SMALL=1)])
    *_, first, pair, loss, gradient, other_pair, other_gradient, end = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1 and end == "FAIL"
    assert first == "FAIL: 2 processes x 32: 'head' is not the same on rank 0 and rank 1"
    assert pair == "FAIL: 2 processes x 32 and 1 process x 64: 3 of 6 tensors differ, first:"
    assert loss == f"  {LOSS_1}: by 1, 0.5 of 2 (allowed 0.01)" and gradient.startswith(f"  {SMALL}: by 1, 2.5e+02 of ")
    assert other_pair.endswith(" accumulated and 1 process x 64: 2 of 5 tensors differ, first:")
    assert other_gradient == f"  {LARGE}: by 3, 0.75 of 4 (allowed 0.02)"


def test_batch_norm_is_not_compared_with_a_batch_in_parts(workers, capsys, tmp_path):
    results = [make_variant(has_batch_norm=True)] * 2
    started = run_with(workers, ["-ngpus=2", f"-output={tmp_path}"], results)
    assert list_starts(started) == [(2, 2, 32, 1, 0), (1, 1, 64, 1, 5)]
    skipped = "not compared: 1 process x 32 x 2 accumulated: batch norm has other statistics in each micro-batch"
    assert skipped in capsys.readouterr().out.splitlines()
    with pytest.raises(UserError, match="single process with batch norm"):
        run_with(workers, ["-ngpus=1", f"-output={tmp_path}"], results)


def test_one_device_is_compared_with_two_processes_unless_one_was_asked_for(monkeypatch, workers, machine, tmp_path):
    two, one = (2, 2, 32, 1, 0), [(1, 1, 64, 1, 5), (1, 1, 32, 2, 0)]
    three = [(3, 3, 21, 1, 0), (1, 1, 63, 1, 5), (1, 1, 21, 3, 0)]
    for words, machine.gpus, starts in (
        ([], 0, [two, *one]),
        ([], 1, one),
        (["-device=cpu"], 1, [two, *one]),
        (["-ngpus=1"], 0, one),
        (["-ngpus=3"], 0, three),
    ):
        started = run_with(workers, [*words, f"-output={tmp_path}"], [make_variant()] * 3)
        assert list_starts(started) == starts
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    with pytest.raises(UserError, match="^-selftest starts its own processes: run it without Paddle's launcher$"):
        run_with(workers, [f"-output={tmp_path}"], [])


@pytest.mark.parametrize("there", ["named", "data", None])
def test_a_cache_of_a_run_is_read_and_none_is_made(workers, tmp_path, there):
    if there:
        (tmp_path / there).mkdir()
    words, used = [f"DATA.CACHE_FOLDER={tmp_path / there}"] if there == "named" else [], []

    class Noted(Classification):
        def build_dataset(self, split, folder):
            used.append((split, folder))
            return super().build_dataset(split, folder)

    with forgotten():
        register_task("noted", Noted)
        words += ["TASK=noted", "-ngpus=2", f"-output={tmp_path}"]
        started = run_with(workers, words, [make_variant()] * 3)
    temporary = started[0]["config"].SAVE
    assert [(split, str(folder)) for split, folder in used] == [
        ("train", str(tmp_path / there) if there else temporary)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [there] * bool(there)


class BufferedNetwork(paddle.nn.Layer):
    """A weight and a running statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([2])
        self.register_buffer("mean", paddle.zeros([3]))


@pytest.mark.parametrize(
    "means, said",
    [
        ([[2.0, 3.0, 4.0]] * 3, None),
        ([[2, 3, 4], [2, 3, 4], [2, 2.5, 4.25]], "'mean' is not the same on rank 0 and rank 2 after update 3: "),
        ([[2, 3, 4], [2, 2.5, 4.25], [9, 9, 9]], "'mean' is not the same on rank 0 and rank 1 after update 3: "),
    ],
)
def test_the_first_tensor_and_rank_that_differ_are_told(means, said):
    networks, ranks = [BufferedNetwork() for _ in means], ThreadRanks(3)
    for network, mean in zip(networks, means):
        network.weight.set_value(paddle.to_tensor([1.0, -2.0]))
        network.mean.set_value(paddle.to_tensor(mean, dtype="float32"))
    expected = said and f"{said}they differ by 0.5"
    assert ranks.run(lambda rank: selftest.find_differing_ranks(networks[rank], 3)) == [expected] * 3
    networks[2].weight.set_value(paddle.to_tensor([1.0, -2.25]))
    first = "'weight' is not the same on rank 0 and rank 2 after update 1: they differ by 0.25"
    networks[0].mean.set_value(networks[2].mean)
    assert ranks.run(lambda rank: selftest.find_differing_ranks(networks[rank], 1)) == [first] * 3


def test_a_loss_is_the_mean_of_all_ranks_and_parts():
    def list_terms(rank):
        terms = [
            {
                "ce": LossTerm(paddle.to_tensor(total), count, 0.5),
                "none": LossTerm(paddle.to_tensor(0.0), paddle.to_tensor([0]), 2.0),
                "shown only": LossTerm(paddle.to_tensor(total), count, 0.0),
            }
            for total, count in ([(6.0, 2), (1.0, 4)], [(2.0, paddle.to_tensor([3])), (7.0, 1)])[rank]
        ]
        return selftest.compute_losses(terms, 2)

    expected = {"loss term 'ce' of update 2": 1.6, "loss term 'none' of update 2": 0.0}  # 16 of 10
    assert ThreadRanks(2).run(list_terms) == [expected] * 2


def test_last_bits_are_changed_in_what_is_trained():
    networks = [paddle.nn.Linear(40, 50) for _ in range(3)]
    for network, seed in zip(networks, (3, 3, 4)):
        network.weight.set_value(paddle.full([40, 50], 1.0))
        network.bias.set_value(paddle.full([50], 0.5))
        network.bias.stop_gradient = True
        selftest.change_last_bits(network, seed)
    first, same, other = (network.weight.numpy().astype("float64") for network in networks)
    changed = (first - 1) / np.spacing(np.float32(1.0))
    assert changed.max() == 32 and changed.min() < -31 and abs(changed.mean()) < 2 and (first == same).all()
    assert (first != other).mean() > 0.9
    assert all((network.bias.numpy() == 0.5).all() for network in networks)


@pytest.mark.parametrize("is_averaged", [False, True])
def test_what_is_saved_and_scored_has_the_statistics_of_rank_0(tmp_path, is_averaged):
    models, folder, saved, scored = [paddle.nn.BatchNorm1D(3) for _ in range(2)], tmp_path / "saved", {}, {}
    means = [running_statistics(model)[0] for model in models]

    def set_mean(rank, value):
        means[rank].set_value(paddle.full([3], value))

    def save(rank):
        saved[rank] = means[rank].tolist()
        if rank == 0:
            state = checkpoint_store.RunState({"epoch": 0, "consumed": 8, "update": 3}, {}, STATE)
            own, averaged = models[0].state_dict(), {**models[0].state_dict(), "_mean": paddle.full([3], 9.0)}
            checkpoint_store.save(folder, "update_00000003", own, state, averaged if is_averaged else None)
            (folder / "last").symlink_to("update_00000003")

    @contextlib.contextmanager
    def average(rank):
        before = means[rank].numpy().copy()
        set_mean(rank, [9.0, 4.0][rank])
        yield
        scored[rank] = means[rank].tolist()
        means[rank].set_value(before)

    def require(rank):
        set_mean(rank, [2.0, 3.0][rank])
        finished = []
        checkpointer = SimpleNamespace(
            folder=folder, save_update=lambda due, _: finished.append(due) or save(rank), finish=lambda: finished.pop()
        )
        ema = SimpleNamespace(in_place=lambda: average(rank)) if is_averaged else None
        training = SimpleNamespace(checkpointer=checkpointer, model=models[rank], ema=ema, config=None, task=None)
        selftest.require_same_saved(training)
        return finished

    assert ThreadRanks(2).run(require) == [[], []]
    assert saved == {0: [2.0] * 3, 1: [2.0] * 3} and scored == ({0: [9.0] * 3, 1: [9.0] * 3} if is_averaged else {})
    assert list(tmp_path.iterdir()) == []
