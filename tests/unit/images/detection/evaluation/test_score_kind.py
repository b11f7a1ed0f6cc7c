"""Arrays of a file of detections' matches: what they must be, and how many annotations each image has."""

import numpy as np
import pytest
from support.networks import coco_peer

from paddlevit_dist.images.detection.evaluation.match_tables import AREA_RANGES
from paddlevit_dist.images.detection.evaluation.score_kind import BoxScores


@pytest.fixture(scope="module")
def case():
    dataset, results = coco_peer.random_case(5, num_images=7)
    table, categories = coco_peer.make_table(dataset, results)
    ids = np.random.default_rng(0).permutation(table.image_ids)  # samples are not in the order of ids
    arrays = {**table.to_arrays(), "ids": ids, "limits": np.array([1, 10, 100])}
    return dataset, categories, arrays, BoxScores([f"c{number}" for number in categories])


def test_annotations_of_each_sample_are_counted_by_class_and_area(case):
    dataset, categories, arrays, scores = case
    found = scores.truth(arrays)
    expected = np.zeros((7, 4, 4), int)
    places = {image: place for place, image in enumerate(arrays["ids"].tolist())}
    for annotation in dataset["annotations"]:
        if not annotation["iscrowd"]:
            in_range = [low <= annotation["area"] <= high for low, high in AREA_RANGES]
            expected[places[annotation["image_id"]], categories.index(annotation["category_id"])] += in_range
    np.testing.assert_array_equal(found, expected)
    assert scores.counts(arrays) == {"images": 7} and expected.any(axis=(0, 1)).all()


def replaced(name, place, value):
    """Arrays in which one number of an array is another."""

    def change(arrays):
        column = arrays[name].copy()
        column[place] = value
        return {**arrays, name: column}

    return change


def converted(name, function):
    return lambda arrays: {**arrays, name: function(arrays[name])}


def with_masks(change):
    """Arrays of boxes and of masks, of which the latter are changed."""

    def add(arrays):
        names = [name for name in arrays if name not in ("ids", "limits")]
        changed = change(arrays)
        return {**arrays, **{f"mask {name}": changed[name] for name in names}}

    return add


WRONG = {
    "an id that no image has": replaced("ids", 2, 1000),
    "an id twice": lambda arrays: replaced("ids", 0, arrays["ids"][1])(arrays),
    "images out of order": lambda arrays: {**arrays, "image_ids": arrays["image_ids"][::-1]},
    "an image twice": lambda arrays: {
        **replaced("image_ids", 1, arrays["image_ids"][0])(arrays),
        "ids": np.array([arrays["image_ids"][0], *arrays["image_ids"][[0, *range(2, 7)]]]),
    },
    "fewer counts": converted("counts", lambda counts: counts[:-1]),
    "fewer numbers of annotations": converted("num_true", lambda numbers: numbers[1:]),
    "a negative count": lambda arrays: {
        **arrays, "counts": arrays["counts"] + np.array([-100, 100, 0, 0, 0, 0, 0], np.int32)
    },
    "counts that are no integers": converted("counts", lambda counts: counts.astype(float)),
    "more detections than rows": replaced("counts", 0, 99),
    **{f"a row less of {name}": converted(name, lambda rows: rows[:-1])
       for name in ("labels", "scores", "true_positives", "ignored")},
    **{f"bits of {name} of another type": converted(name, lambda bits: bits.astype(np.int64))
       for name in ("true_positives", "ignored")},
    "a label that is no class": replaced("labels", 3, 4),
    "totals of other classes": converted("totals", lambda totals: totals[:3]),
    "totals of other areas": converted("totals", lambda totals: totals[:, :3]),
    "annotations of other areas": converted("annotated", lambda rows: rows[:, :5]),
    "annotations of an image behind the last": replaced("annotated", (0, 0), 7),
    "annotations of an image before the first": replaced("annotated", (0, 0), -1),
    "annotations of a class behind the last": replaced("annotated", (0, 1), 4),
    "two limits": converted("limits", lambda limits: limits[:2]),
    "limits that fall": converted("limits", lambda limits: limits[::-1]),
    "a negative limit": replaced("limits", 0, -1),
}  # fmt: skip


def test_arrays_that_fit_one_another_are_valid(case):
    _, _, arrays, scores = case
    assert scores.is_valid(arrays, 7, 4) and scores.is_valid(with_masks(dict)(arrays), 7, 4)
    assert scores.is_valid({name: array for name, array in arrays.items() if name != "limits"}, 7, 4)
    assert scores.is_valid({**arrays, "limits": np.array([1, 10, 10])}, 7, 4)  # of -max_detections=10
    assert not scores.is_valid(arrays, 6, 4) and not scores.is_valid(arrays, 7, 5)
    with pytest.raises(KeyError):  # which ``compare`` refuses, too
        scores.is_valid({name: array for name, array in arrays.items() if name != "image_ids"}, 7, 4)


@pytest.mark.parametrize("case_of", WRONG)
def test_arrays_that_do_not_fit_are_not_valid(case, case_of):
    _, _, arrays, scores = case
    assert not scores.is_valid(WRONG[case_of](arrays), 7, 4)
    if "limit" not in case_of and " id " not in case_of and " image twice" not in case_of:
        assert not scores.is_valid(with_masks(WRONG[case_of])(arrays), 7, 4)
