"""Rows of several ranks: ordered by their samples, or, where these are unknown, those of one rank after another's."""

import pickle

import numpy as np
import pytest
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.tasks.metrics import gather_columns
from paddlevit_dist.core.tasks.packed_columns import pack_columns


def gather(parts):
    """Gather the (columns, indices) of each rank, and return what each one gets."""
    return ThreadRanks(len(parts)).run(lambda rank: gather_columns(*parts[rank]))


def rows(*numbers):
    """A column of one number a sample, and one of two."""
    widths = np.array(numbers, np.float64)
    return {"widths": widths, "pairs": np.stack([widths, -widths], axis=1)}


@pytest.mark.parametrize("padded", [[], [0]], ids=["each sample once", "a sample on two ranks"])
def test_rows_are_ordered_by_samples(padded):
    parts = [(rows(4.0, 1.0, 3.0), [4, 1, 3]), ({}, []), (rows(2.0, 0.0, *padded), [2, 0, *padded])]
    for indices, columns in gather(parts):
        assert indices.tolist() == [0, 1, 2, 3, 4] and indices.dtype == np.int64
        assert list(columns) == ["widths", "pairs"]
        assert columns["pairs"].tolist() == [[n, -n] for n in range(5)] and columns["widths"].tolist() == [*range(5)]


@pytest.mark.parametrize("unknown", [None, [7]], ids=["none", "another number than rows"])
def test_where_a_rank_does_not_know_its_samples_ranks_follow_one_another(unknown):
    parts = [(rows(4.0, 1.0, 3.0), [4, 1, 3]), ({}, []), (rows(2.0, 0.0), unknown)]
    for indices, columns in gather(parts):
        assert indices is None and columns["widths"].tolist() == [4, 1, 3, 2, 0]


def test_a_rank_with_samples_and_without_rows_hides_the_order():
    ((indices, columns), _) = gather([(rows(4.0, 1.0), [4, 1]), ({}, [2])])
    assert indices is None and columns["widths"].tolist() == [4, 1]


def test_objects_are_ordered_like_numbers_and_are_sent_compressed():
    def make_rows(*numbers):
        objects = np.empty(len(numbers), object)
        objects[:] = [{"matches": np.full(50, number)} for number in numbers]
        return {"ids": np.array(numbers), "tables": objects}

    for indices, columns in gather([(make_rows(2, 0), [2, 0]), ({}, []), (make_rows(1), [1])]):
        assert indices.tolist() == columns["ids"].tolist() == [0, 1, 2]
        assert [table["matches"].tolist() for table in columns["tables"]] == [[n] * 50 for n in range(3)]
    many = make_rows(*range(100))
    assert len(pack_columns(many)) < len(pickle.dumps(many, pickle.HIGHEST_PROTOCOL)) / 4
    assert pack_columns(rows(1.0, 2.0)).keys() == {"widths", "pairs"}  # numbers are sent as they are


def test_no_rows_at_all_are_no_columns():
    for indices, columns in gather([({}, []), ({}, [])]):
        assert indices.tolist() == [] and columns == {}


def test_other_columns_are_refused():
    with pytest.raises(ValueError, match=r"columns \['widths'\] and \['widths', 'pairs'\]: add the same"):
        gather([(rows(1.0), [0]), ({"widths": np.ones(1)}, [1])])
