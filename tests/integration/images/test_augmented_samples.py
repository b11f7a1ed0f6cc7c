"""Samples with everything enabled are the same arrays whatever reads them."""

from support.augmented_samples import drawn
from support.processes import run_workers, succeeded


def test_samples_do_not_depend_on_loader_processes():
    """In processes of their own: a fork beside threads that an earlier loader has left behind may hang."""
    expected = drawn(1, 12)
    for calls in ([(0, 1), (0, 2), (4, 1)], [(1, 1)]):  # each: loader processes, ranks
        ended = succeeded(run_workers("support.augmented_samples:loaded_by", calls, 12, processes=1))
        assert ended.results[0] == [expected] * len(calls), calls
