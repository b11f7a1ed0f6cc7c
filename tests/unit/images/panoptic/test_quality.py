"""Panoptic quality of pictures equals panopticapi's, and that of sets of pixels compared pair by pair."""

import numpy as np
import pytest
from support.networks.golden import arrays, description
from support.samples.panoptic_pictures import CLASSES, IS_THING, brute_force, draw_prediction, draw_truth

from paddlevit_dist.images.panoptic.data.segments import Segments, number_segments
from paddlevit_dist.images.panoptic.metrics import PanopticMetrics
from paddlevit_dist.images.panoptic.quality import count_image

STORED = description("eomt")["panoptic"]
IDS = [category["id"] for category in STORED["categories"]]
THINGS = np.array([bool(category["isthing"]) for category in STORED["categories"]])


def golden_pictures() -> list[tuple[Segments, Segments]]:
    """The pictures' segments and their predictions."""
    maps, pictures = arrays("eomt"), []
    for number, pair in enumerate(zip(STORED["annotations"], STORED["predictions"], strict=True)):
        sides = []
        for word, entry in zip(("truth", "prediction"), pair):
            rows = entry["segments_info"]
            columns = [row["id"] for row in rows], [IDS.index(row["category_id"]) for row in rows]
            crowds, areas = [bool(row.get("iscrowd")) for row in rows], [row.get("area") for row in rows]
            numbers = maps[f"panoptic/{word}{number}"].astype(np.int64)
            sides.append(number_segments(numbers, *columns, crowds, areas if word == "truth" else None))
        pictures.append(tuple(sides))
    return pictures


def drawn_metrics(numbers) -> PanopticMetrics:
    metrics = PanopticMetrics(CLASSES, IS_THING)
    for number in numbers:
        truth = draw_truth(number)
        metrics.update(truth, draw_prediction(number, truth))
    return metrics


def test_golden_eomt_counts_of_each_picture():
    for (truth, found), expected in zip(golden_pictures(), STORED["counts_per_picture"], strict=True):
        counts, ious = count_image(truth, found, len(IDS))
        assert {str(of): [int(n) for n in counts[:3, row]] for row, of in enumerate(IDS)} == {
            of: numbers[1:] for of, numbers in expected.items()
        }
        np.testing.assert_allclose(ious, [numbers[0] for numbers in expected.values()], rtol=0, atol=1e-12)


def test_golden_eomt_scores():
    names = [str(of) for of in IDS]
    metrics = PanopticMetrics(names, THINGS)
    for truth, found in golden_pictures():
        metrics.update(truth, found)
    values = metrics.compute({})
    for part, suffix in (("All", ""), ("Things", "_things"), ("Stuff", "_stuff")):
        for name in ("pq", "sq", "rq"):
            assert values[f"{name.upper()}{suffix}"] == pytest.approx(STORED["results"][part][name], abs=1e-12)
    for name, expected in STORED["per_class"].items():
        has_segments = any(STORED["counts"][name])
        for of in ("pq", "sq", "rq"):
            found = values.get(f"{of.upper()} {name}")
            assert found == (pytest.approx(expected[of], abs=1e-12) if has_segments else None)
    assert any(not any(numbers) for numbers in STORED["counts"].values())  # a class without a segment is among them


@pytest.mark.parametrize("number", range(6))
def test_pairs_of_sets_of_pixels_give_the_same(number):
    truth = draw_truth(number, 24, 30)
    found = draw_prediction(number, truth)
    counts, ious = count_image(truth, found, len(CLASSES))
    for label, expected in brute_force([(truth, found)]).items():
        assert (*counts[:3, label].tolist(),) == expected[1:]
        assert ious[label] == pytest.approx(expected[0], abs=1e-12)


def test_pixels_are_those_outside_of_void():
    truth = draw_truth(3)
    found = draw_prediction(3, truth)
    counts, _ = count_image(truth, found, len(CLASSES))
    true, predicted = truth.class_map, found.class_map
    known = true >= 0
    for row, chosen in ((3, known & (true == predicted)), (4, known), (5, known & (predicted >= 0))):
        labels = (predicted if row == 5 else true)[chosen]
        assert counts[row].tolist() == np.bincount(labels, minlength=len(CLASSES)).tolist()


def test_half_of_a_prediction_on_void_is_an_error_and_more_is_none():
    for in_void, errors in ((5, 1), (6, 0)):
        truth = number_segments(np.repeat([[0, 7]], [10, 10], axis=1), [7], [3], [False])
        numbers = np.zeros((1, 20), np.int64)
        numbers[0, 10 - in_void : 20 - in_void] = 9
        counts, _ = count_image(truth, number_segments(numbers, [9], [0], [False]), len(CLASSES))
        assert counts[1].sum() == errors and counts[2].tolist() == [0, 0, 0, 1, 0, 0]


def test_only_the_last_crowd_of_a_class_excuses():
    numbers = np.repeat([[1, 2, 3]], 10, axis=1)
    for crowds, classes, errors in (([1, 2], [1, 1], 1), ([2, 1], [1, 1], 0), ([1, 2], [1, 2], 0)):
        truth = number_segments(numbers, [*crowds, 3], [*classes, 3], [True, True, False])
        found = number_segments(np.where(numbers == 2, 0, numbers), [1, 3], [1, 3], [False] * 2)
        counts, ious = count_image(truth, found, len(CLASSES))
        assert counts[1, 1] == errors and counts[2].sum() == 0 and ious.tolist() == [0, 0, 0, 1, 0, 0]


def test_scores_of_a_draw_are_those_of_repeated_pictures():
    metrics, weights = drawn_metrics(range(4)), np.array([[1.0, 1, 1, 1], [0, 2, 1, 0], [3, 0, 1, 2]])
    found = metrics.bootstrap_values(metrics.per_sample(), weights)
    for draw, times in enumerate(weights.astype(int)):
        expected = drawn_metrics(np.repeat(np.arange(4), times)).compute({})
        names = {name for name in found if not np.isnan(found[name][draw])}
        assert names >= {"PQ", "SQ_things", "RQ_stuff", "PQ_dagger"} and names == {*expected} - {"segments"}
        assert {name: found[name][draw] for name in names} == pytest.approx({name: expected[name] for name in names})


def test_a_table_is_checked_and_read_back():
    metrics = drawn_metrics(range(5))
    values = metrics.compute({})
    table = metrics.to_sample_table(metrics.per_sample())
    assert metrics.scores.is_valid(table.arrays, 5, len(CLASSES))
    for name in table.arrays:
        assert not metrics.scores.is_valid({**table.arrays, name: table.arrays[name][..., :-1]}, 5, len(CLASSES))
    again = metrics.scores.recompute([table.arrays], CLASSES)(np.ones((1, 5)))
    assert again["PQ"][0] == values["PQ"] and f"PQ {values['PQ']:.4f}" in metrics.summary(values)
    columns = metrics.scores.columns(table.arrays)
    assert sum(columns["segments"]) == values["segments"] == sum(columns["matched"]) + sum(columns["missed"])


def test_nothing_at_all_is_undefined():
    empty = number_segments(np.zeros((4, 5), np.int64), [], [], [])
    metrics = PanopticMetrics(CLASSES, IS_THING)
    metrics.update(empty, empty)
    values = metrics.compute({})
    assert values == {"segments": 0} and metrics.summary(values).startswith("PQ not defined")
