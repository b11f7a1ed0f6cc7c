"""Tables of images are joined in the order of the images, and are small."""

import pickle

import numpy as np
import pytest
from support.networks import coco_peer

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.packed_columns import pack_columns
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, decide_matches, match


def test_tables_of_ranks_join_to_the_same_in_any_order():
    dataset, results = coco_peer.random_case(8, num_images=9)
    whole, _ = coco_peer.make_table(dataset, results)
    parts = [coco_peer.make_table(dataset, results, whole.image_ids[rank::3].tolist())[0] for rank in (2, 0, 1)]
    ours, expected = MatchTable.joined(pickle.loads(pickle.dumps(parts))).to_arrays(), whole.to_arrays()
    for name, column in expected.items():
        assert np.array_equal(ours[name], column) and ours[name].dtype == column.dtype, name
    for read, column in zip(MatchTable.from_arrays(expected), whole):
        assert read is column or read == column == 4  # classes


def test_an_image_in_two_tables_is_refused():
    table, _ = coco_peer.make_table(*coco_peer.random_case(8))
    with pytest.raises(UserError, match="evaluated twice"):
        MatchTable.joined([table, table])


def test_what_crosses_is_at_most_one_megabyte_per_thousand_images():
    rng = np.random.default_rng(0)
    tables = []
    for image_id in range(40):
        boxes = rng.uniform(0, 300, (7, 4))
        labels = rng.integers(0, 80, 7)
        truth = BoxGroundTruth(boxes, labels, boxes[:, 2] * boxes[:, 3], rng.random(7) < 0.1)
        near = boxes[rng.integers(0, 7, 100)] + rng.normal(0, 6, (100, 4))
        corners = np.concatenate([near[:, :2], near[:, :2] + near[:, 2:]], axis=1).astype(np.float32)
        found = DetectedObjects(corners, rng.random(100).astype(np.float32), rng.choice(labels, 100))
        tables.append(match(image_id, truth, found, 80))
    assert sum(len(table.labels) for table in tables) == 4000
    column = np.empty(40, object)
    for image, table in enumerate(tables):
        column[image] = table
    assert len(pack_columns({"boxes": column})) < 40 * 1000


def test_classes_are_numbers_of_sixteen_bits():
    truth = BoxGroundTruth(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
    found = DetectedObjects(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    assert len(match(7, truth, found, 65_536).labels) == 0
    for number, said in ((0, "0"), (65_537, "65,537")):
        with pytest.raises(UserError, match=f"^{said} classes: expected 1 to 65,536$"):
            match(7, truth, found, number)


def choose_match(overlaps, order, is_taken, needed):
    """The annotation of the largest overlap in ``order``, of equal ones the last; -1 if all are taken or too far."""
    free = [place for place in order if not is_taken[place] and overlaps[place] >= needed]
    return max(reversed(free), key=lambda place: overlaps[place], default=-1)


def test_matches_are_those_of_the_rules_whatever_counts():
    """Overlaps and areas have few values, many of them equal to a threshold or to the end of a range."""
    random, thresholds = np.random.default_rng(0), np.array([0.5, 0.75, 1.0])
    ranges = np.array([[0.0, 1e10], [0.0, 32.0], [32.0, 96.0]])
    for _ in range(60):
        numbers, true_numbers = random.integers(0, 5, 2), random.integers(0, 5, 2)
        ends, true_ends = np.cumsum([0, *numbers]), np.cumsum([0, *true_numbers])
        groups = np.stack([[2, 0], ends[:-1], ends[1:], true_ends[:-1], true_ends[1:]], axis=1)
        pairs = [random.choice([0.3, 0.5, 0.6, 0.75, 0.9, 1.0], pair) for pair in zip(numbers, true_numbers)]
        areas, true_areas = (random.choice([31.0, 32.0, 60.0, 96.0, 97.0], end) for end in (ends[-1], true_ends[-1]))
        is_crowd = random.random(true_ends[-1]) < 0.2
        is_excluded = is_crowd | (random.random(true_ends[-1]) < 0.2)
        totals, expected_totals = np.ones((3, 3), np.int64), np.ones((3, 3), np.int64)
        flat = np.concatenate([each.ravel() for each in pairs])
        found = decide_matches(groups, flat, areas, true_areas, is_crowd, is_excluded, ranges, thresholds, totals)
        right, ignored, matches = [0] * ends[-1], [0] * ends[-1], [-1] * ends[-1]
        for group, area, step in np.ndindex(2, 3, 3):
            first, true_first = ends[group], true_ends[group]
            own = slice(true_first, true_ends[group + 1])
            is_out = is_excluded[own] | (true_areas[own] < ranges[area, 0]) | (true_areas[own] > ranges[area, 1])
            expected_totals[groups[group, 0], area] += (~is_out).sum() if step == 0 else 0
            is_taken = np.zeros(len(is_out), bool)
            for row, overlaps in enumerate(pairs[group]):
                place = choose_match(overlaps, np.flatnonzero(~is_out), is_taken, thresholds[step])
                if place < 0:
                    place = choose_match(overlaps, np.flatnonzero(is_out), is_taken & ~is_crowd[own], thresholds[step])
                bit, is_outside = 1 << (3 * area + step), not ranges[area, 0] <= areas[first + row] <= ranges[area, 1]
                if place >= 0:
                    is_taken[place] = True
                    matches[first + row] = true_first + place if (area, step) == (0, 0) else matches[first + row]
                right[first + row] |= bit * (place >= 0 and not is_out[place])
                ignored[first + row] |= bit * (is_out[place] if place >= 0 else is_outside)
        assert [part.tolist() for part in found] == [right, ignored, matches]
        np.testing.assert_array_equal(totals, expected_totals)
