"""Segments are made from what people have, or refused in one line."""

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist.images.panoptic.data.segments import Segments, make_segments, number_segments

MAP = [[0, 5, 5], [70_000, 70_000, 5]]
ROWS = [{"id": 70_000, "label": 1, "iscrowd": 1, "area": 3}, {"id": 5, "label": "cat", "area": 3}]
NAMES = ["cat", "sky"]


def made(segment_map=MAP, segments=ROWS, **options):
    given = {"segment_map": segment_map, "segments": segments}
    return make_segments(given, 2, NAMES, **options)


def test_a_map_and_a_list_of_segments():
    found = made(size=(2, 3))
    assert found.places.tolist() == [[-1, 1, 1], [0, 0, 1]] and found.places.dtype == np.int32
    assert found.labels.tolist() == [1, 0] and found.is_crowd.tolist() == [True, False]
    assert found.areas.tolist() == [3, 3] and found.ids.tolist() == [70_000, 5] and found.scores is None
    assert found.class_map.tolist() == [[-1, 0, 0], [1, 1, 0]]
    assert make_segments(found, 2, NAMES, (2, 3)) is found


def test_maps_that_people_have():
    colors = np.array([[(value & 255, value >> 8 & 255, value >> 16) for value in row] for row in MAP], np.uint8)
    small = [[0, 5, 5], [7, 7, 5]]
    rows = [{**ROWS[0], "id": 7}, ROWS[1]]
    forms = [np.array(MAP, np.uint32), np.array(MAP, np.float64), colors, Image.fromarray(colors)]
    forms = [(form, ROWS) for form in forms] + [(Image.fromarray(np.array(small, np.uint8)), rows)]
    for form, of_form in forms:
        assert made(form, of_form).places.tolist() == made().places.tolist()
    void = np.where(np.array(MAP) == 0, -1, MAP)
    assert made(void).places.tolist() == made().places.tolist()


def test_zero_is_a_segment_if_one_has_it():
    found = made(
        [[0, 1], [-1, 1]], [{"id": 0, "label": 0}, {"id": 1, "label": 1, "score": 0.5}][:1] + [{"id": 1, "label": 1}]
    )
    assert found.places.tolist() == [[0, 1], [-1, 1]] and found.areas.tolist() == [1, 2]


def test_chosen_segments_leave_void():
    found = made().choose(np.array([1]))
    assert found.places.tolist() == [[-1, 0, 0], [-1, -1, 0]] and found.ids.tolist() == [5]


def test_an_image_may_have_no_segment():
    assert made(np.zeros((2, 3), int), []).labels.shape == (0,)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"segment_map": [[0, 6], [5, 5]]}, "pixel (0, 1) has the number 6, which no segment has"),
        ({"segments": [ROWS[1], {**ROWS[1], "label": 1}]}, "two segments have the id 5"),
        ({"segments": [{"label": 1}]}, "segments[0] has no id"),
        ({"segments": [{"id": 5}]}, "segments[0] has no label"),
        ({"segments": [{"id": 5, "category_id": 17}]}, "instead of a category's id"),
        ({"segments": [{"id": 5, "label": 2}]}, "segments[0]: label 2 is out of range"),
        ({"segments": [{"id": 5, "label": "dog"}]}, "segments[0]: label is 'dog'"),
        ({"segments": [{"id": 5, "label": 0, "is_crowd": 2}]}, "segments[0].is_crowd is 2"),
        ({"segments": [{"id": 5, "label": 0, "area": -1}]}, "segments[0].area is -1"),
        ({"segments": [{"id": 5, "label": 0, "score": 1.5}]}, "segments[0].score is 1.5"),
        ({"segments": [{**ROWS[0], "score": 0.5}, ROWS[1]]}, "segments[1] has no score"),
        ({"segments": {"id": 5}}, '"segments" is'),
        ({"segment_map": [[0.5, 5], [5, 5]]}, "with fractions"),
        ({"segment_map": [[-2, 5], [5, 5]]}, "numbers from -2 to 5"),
        ({"segment_map": [0, 5, 5]}, "expected whole numbers (height, width)"),
        ({"segment_map": [[5, 5]]}, "expected (2, 3), like the image"),
        ({"segment_map": Image.new("RGBA", (3, 2))}, "mode RGBA"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_is_named(change, words):
    size = (2, 3) if "like the image" in words else None
    assert words in refusal_of(made, **change, size=size)


@pytest.mark.parametrize("given", [None, [1], {"segments": []}, {"segment_map": MAP, "segments": [], "more": 1}])
def test_other_forms_are_refused(given):
    assert 'expected a dictionary with "segment_map"' in refusal_of(make_segments, given)


def test_segments_of_the_type_are_checked():
    good = number_segments(np.array(MAP), [70_000, 5], [1, 0], [False, True])
    for name, value, words in (
        ("labels", np.array([1, 2]), "labels[1] is 2"),
        ("areas", np.array([1]), "areas are"),
        ("places", good.places.astype(np.uint8), "places are"),
        ("places", good.places + 1, "places go from 0 to 2"),
        ("ids", np.array([0.5, 1.5]), "ids are"),
    ):
        wrong: Segments = good._replace(**{name: value})
        assert words in refusal_of(make_segments, wrong, 2)
