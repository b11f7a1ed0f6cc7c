"""Meters divide summed terms once; memory is that of all processes; waiting for data is told once, with advice."""

import gc
import math
import os
import weakref
from pathlib import Path

import paddle
import pytest
from paddle.autograd import PyLayer
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.logging import meters as meters_module
from paddlevit_dist.core.logging.meters import DataWaitHint, StepMeters, memory_mib, resident_mib
from paddlevit_dist.core.tasks.step_types import LossTerm


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


def test_sums_and_counts_of_all_ranks_are_reduced():
    def reduce(rank):
        meters = StepMeters()
        sums, counts = [(3.0, 1.0), (1.0, 2.0**24)][rank], [(2, 6), (6, 10)][rank]
        parts = zip("ab", sums, counts)
        meters.add({name: LossTerm(paddle.to_tensor(total, "float64"), number) for name, total, number in parts})
        return meters.reduce()

    assert ThreadRanks(2).run(reduce) == [{"a": 0.5, "b": (2**24 + 1) / 16}] * 2


def test_a_term_without_any_element_is_zero_and_nothing_added_is_empty():
    meters = StepMeters()
    assert meters.reduce() == {}
    meters.add({"loss": LossTerm(paddle.to_tensor(0.0), 0)})
    assert meters.reduce() == {"loss": 0.0}


@pytest.mark.parametrize("total, number", [(math.nan, 2), (math.inf, 2), (0.0, 0)])
def test_means_that_are_only_reported_and_undefined_are_left_out_also_after_a_resumption(total, number):
    def add(meters, loss, shown, count):
        shown = LossTerm(paddle.to_tensor(shown), count, 0.0)
        meters.add({"loss": LossTerm(paddle.to_tensor(loss), 2), "shown": shown})

    meters, resumed = StepMeters(), StepMeters()
    add(meters, 3.0, total, number)
    resumed.load_state_dict(meters.state_dict([meters.window()]))
    for each in (meters, resumed):
        assert each.reduce() == {"loss": 1.5}
        add(each, 1.0, 4.0, 2)
        assert each.reduce() == {"loss": 0.5, "shown": 2.0}
        assert each.finish_epoch() == {"loss": 1.0, **({} if number else {"shown": 2.0})}
    add(meters, math.nan, 4.0, 2)
    assert math.isnan(meters.reduce()["loss"])  # what is learned has diverged


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
    term, count = Watched.apply(weight), Watched.apply(weight * 2)
    meters.add({"loss": LossTerm(term, count)})
    alive = [kept() is not None for kept in Watched.kept]
    assert alive == [True, True], "the graph is gone without the meters' help: the test proves nothing"
    del term, count
    gc.collect(1)  # the graph is young, and what other tests have left is not looked at
    assert [kept() for kept in Watched.kept] == [None, None]
    assert meters.reduce() == {"loss": 0.5}


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


@pytest.mark.parametrize("workers, processes, cores, text", [
    (1, 1, 2, "1 loader process and 1 training process already share 2 cores"),
    (0, 1, 1, "0 loader processes and 1 training process already share 1 core"),
    (1, 2, 6, "try -num_workers=2 (now 1 loader process per training process, on 6 cores)"),
    (2, 2, 6, "2 loader processes per training process and 2 training processes already share 6 cores"),
])  # fmt: skip
def test_advice_counts_processes_and_cores(workers, processes, cores, text):
    (said,) = filter(None, hints([0.5] * 12, workers=workers, processes=processes, cores=cores))
    assert f": {text}; DATA.DECODER fast" in said


def test_a_wait_has_to_be_long_and_recent():
    assert [n for n, line in enumerate(hints([0.9] * 2 + [0.5] + [0.1] * 9 + [0.11], seconds=10.0)) if line] == [2]
    assert not any(hints([0.0, 0.0] + [0.0] * 40 + [0.3] * 4, seconds=5.0))  # 3 % in all
    assert [n for n, line in enumerate(hints([0.0] * 2 + [0.2] + [0.1] * 3, seconds=24.0)) if line] == []  # 4.8 s
    assert [n for n, line in enumerate(hints([0.0] * 2 + [0.2], seconds=25.0)) if line] == [2]


def test_saved_meters_continue_with_their_window_and_epoch():
    meters, resumed = StepMeters(), StepMeters()
    meters.add(terms(8.0, 4, 400.0))
    meters.reduce()
    meters.add(terms(3.0, paddle.to_tensor(2.0), 100.0))
    meters.add(terms(1.0, 5, 0.0))
    assert meters.window() == [[4.0, 100.0], [5.0, 8.0], [2.0, 0.0]]
    state = meters.state_dict([meters.window()])
    assert (state["names"], state["sums"]) == (["loss", "top-1"], {"loss": 8.0, "top-1": 400.0})
    resumed.load_state_dict(state)
    resumed.add(terms(5.0, 1, 0.0))
    meters.add(terms(5.0, 1, 0.0))
    assert resumed.reduce() == meters.reduce() == pytest.approx({"loss": 9 / 8, "top-1": 100 / 12})
    assert resumed.finish_epoch() == meters.finish_epoch() == pytest.approx({"loss": 17 / 12, "top-1": 500 / 16})


@pytest.mark.parametrize("windows, mean", [
    ([[[6.0], [2.0], [1.0]], [], [[3.0], [3.0], [0.0]]], {"loss": 9 / 6}),
    ([[[6.0], [2.0], [0.0]], [[3.0], [3.0], [0.0]]], {"loss": 9 / 5}),
    ([[], []], {}),
    ([[]], {}),
])  # fmt: skip
def test_windows_of_several_ranks_add_up_on_one(windows, mean):
    meters = StepMeters()
    assert meters.window() == []
    meters.load_state_dict({"names": ["loss"], "sums": {}, "counts": {}, "windows": windows})
    assert meters.reduce() == pytest.approx(mean)


def test_counts_above_those_of_float32_are_kept_and_ranks_without_values_reduce_with_the_others():
    many = float(2**24 + 1)
    state = {"names": ["loss"], "sums": {}, "counts": {}, "windows": [[[many], [0.0], [many]]]}
    meters = StepMeters()
    meters.load_state_dict(state)
    assert meters.reduce() == {"loss": 1.0}

    def reduce(rank):
        meters = StepMeters()
        meters.load_state_dict({**state, "windows": [[], [[6.0], [3.0], [0.0]]]})
        assert meters.window() == [[[0.0], [0.0], [0.0]], [[6.0], [3.0], [0.0]]][rank]
        return meters.reduce()

    assert ThreadRanks(2).run(reduce) == [{"loss": 2.0}] * 2


def test_resident_memory_is_that_of_the_process_and_its_children(monkeypatch):
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    own = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert resident_mib(os.getpid()) == pytest.approx(own, rel=0.2) and memory_mib() == pytest.approx(own, rel=0.2)
    monkeypatch.setattr(meters_module, "list_process_tree", lambda root: [root, 2**22 + 1, root])
    resident, shared = (int(word) for word in Path("/proc/self/statm").read_text().split()[1:3])
    both = (2 * resident - shared) * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert resident_mib(os.getpid()) == pytest.approx(both, rel=0.01)
    monkeypatch.undo()
    assert resident_mib(2**22 + 1) is None  # above the highest number of a process
