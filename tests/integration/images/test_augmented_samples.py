"""Samples with everything enabled are the same arrays whatever reads them."""

import pytest
from support.processes import run_workers, succeeded
from support.samples.augmented_samples import drawn


def test_samples_do_not_depend_on_loader_processes():
    """In processes of their own: a fork beside threads that an earlier loader has left behind may hang."""
    expected = drawn(1, 12)
    for calls in ([(0, 1), (0, 2), (4, 1)], [(1, 1)]):  # each: loader processes, ranks
        ended = succeeded(run_workers("support.samples.augmented_samples:loaded_by", calls, 12, processes=1))
        assert ended.results[0] == [expected] * len(calls), calls


def test_samples_of_a_users_file_and_composed_images_do_not_depend_on_processes(tmp_path):
    pytest.importorskip("albumentations")
    calls = [(0, 1), (0, 2), (0, 3), (2, 1)]  # loader processes, ranks
    ended = succeeded(run_workers("support.samples.augmented_objects:load_with", calls, str(tmp_path), processes=1))
    first, *others = ended.results[0]
    assert others == [first] * 3
    assert all(len(set(digests)) >= 24 for digests in first.values()), first
