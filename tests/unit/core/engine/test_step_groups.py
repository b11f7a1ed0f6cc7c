"""Micro-batches of each update, and who may leave while they are waited for."""

import signal
from types import SimpleNamespace

import pytest
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.distributed import StopRequested, stops
from paddlevit_dist.core.engine import synchronized_groups
from paddlevit_dist.core.runtime import signals


def draw_batches(number):
    """Micro-batches, and then a stop while the next one is waited for."""
    yield from range(number)
    raise StopRequested


@pytest.fixture
def asked(monkeypatch):
    """What this rank says to the others: whether it leaves."""
    said = []
    monkeypatch.setattr(stops, "any_rank_stopping", lambda leaves: said.append(leaves) or leaves)
    return said


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_leave_together_before_the_first_update_and_a_single_process_also_later(asked, ranks):
    def read(rank):
        loader = SimpleNamespace(may_leave=True)
        found = []
        for group in synchronized_groups(loader, draw_batches(6), 2, 3):
            found.append(group)
            assert loader.may_leave is (ranks == 1)
        assert found == [[0, 1], [2, 3], [4, 5]] and loader.may_leave

    ThreadRanks(ranks).run(read)
    assert asked == [False] * ranks
    asked.clear()
    loader = SimpleNamespace(may_leave=True)
    with pytest.raises(StopRequested):
        next(synchronized_groups(loader, draw_batches(1), 2, 3))
    assert asked == [True]
    later = synchronized_groups(loader, draw_batches(3), 2, 3)
    assert next(later) == [0, 1]
    with pytest.raises(StopRequested):
        next(later)
    assert asked == [True, False]  # the others may be in a collective already


def test_a_stop_of_any_rank_ends_all_before_the_first_update(own_handlers):
    loader = SimpleNamespace(may_leave=True)

    def read(rank):
        with pytest.raises(StopRequested):
            next(synchronized_groups(loader, draw_batches(4 * rank), 1, 2))

    ThreadRanks(2).run(read)
    signals.record_only()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(StopRequested):
        next(synchronized_groups(loader, draw_batches(4), 1, 2))
    assert loader.may_leave
