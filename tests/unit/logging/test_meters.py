"""Meters divide summed terms once; memory is that of all processes; waiting for data is told once, with advice."""

import gc
import weakref

import paddle
import pytest
from paddle.autograd import PyLayer

from paddlevit_dist.logging.meters import DataWaitHint, StepMeters
from paddlevit_dist.tasks.step_types import LossTerm


def terms(loss: float, count, correct: float) -> dict:
    return {"loss": LossTerm(paddle.to_tensor(loss), count), "top-1": LossTerm(paddle.to_tensor(correct), 4, 0.0)}


def test_means_are_weighted_by_counts_not_by_batches():
    meters = StepMeters()
    meters.add(terms(8.0, 4, 400.0))
    meters.add(terms(1.0, 1, 0.0))
    assert meters.reduce() == pytest.approx({"loss": 9 / 5, "top-1": 50.0})


def test_counts_on_the_device_add_up_with_those_on_the_host():
    meters = StepMeters()
    meters.add(terms(8.0, paddle.to_tensor(3.0), 0.0))
    meters.add(terms(1.0, paddle.to_tensor(0), 0.0))
    assert meters.reduce()["loss"] == pytest.approx(3.0)


def test_a_window_starts_afresh_and_the_epoch_keeps_all():
    meters = StepMeters()
    meters.add(terms(8.0, 4, 400.0))
    meters.reduce()
    meters.add(terms(2.0, 4, 0.0))
    assert meters.reduce()["loss"] == pytest.approx(0.5)
    assert meters.finish_epoch() == pytest.approx({"loss": 10 / 8, "top-1": 50.0})
    assert meters.finish_epoch() == {}


def test_a_term_without_any_element_is_zero_and_nothing_added_is_empty():
    meters = StepMeters()
    assert meters.reduce() == {}
    meters.add({"loss": LossTerm(paddle.to_tensor(0.0), 0)})
    assert meters.reduce() == {"loss": 0.0}


class SampleTable:
    """What a step of a graph holds for its backward pass."""


class Watched(PyLayer):
    kept = []

    @staticmethod
    def forward(context, x):
        context.kept = SampleTable()
        Watched.kept.append(weakref.ref(context.kept))
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def test_terms_lose_their_graph():
    weight = paddle.to_tensor(1.0, stop_gradient=False)
    meters = StepMeters()
    term = Watched.apply(weight)
    meters.add({"loss": LossTerm(term, 1)})
    (kept,) = Watched.kept
    assert kept() is not None, "the graph is gone without the meters' help: the test proves nothing"
    del term
    gc.collect()
    assert kept() is None
    assert meters.reduce() == {"loss": 2.0}


def hints(shares, seconds=4.0, workers=2, processes=1, cores=8):
    hint = DataWaitHint(workers, processes, cores, ["DATA.DECODER fast"])
    return [hint.update(share, seconds) for share in shares]


def test_a_tenth_of_the_time_is_told_once():
    said = hints([0.5] * 12)
    assert [report for report, line in enumerate(said) if line] == [4]  # 3 reports x 2 s: more than 5 s
    assert said[4] == (
        "hint: 50% of the time is spent waiting for data (more than 10%): try -num_workers=7 (now 2 loader "
        "processes, on 8 cores); DATA.DECODER fast"
    )


def test_the_start_of_the_loader_processes_and_short_waits_are_not():
    assert not any(hints([1.0, 1.0] + [0.05] * 50))
    assert not any(hints([0.5] * 10, seconds=0.5))  # 4 s in all


def test_with_all_cores_in_use_no_more_processes_are_advised():
    (said,) = filter(None, hints([0.5] * 12, workers=3, processes=2))
    assert "3 loader processes per training process and 2 training processes already share 8 cores" in said
