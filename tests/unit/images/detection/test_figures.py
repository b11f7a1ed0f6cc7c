"""Curves, confused classes and the images that went worst."""

import numpy as np
import pytest
from support.filled_cells import to_dense
from support.networks import coco_peer
from support.samples.drawn_detections import NOTHING_FOUND

from paddlevit_dist.images.detection import figures, records
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation import images
from paddlevit_dist.images.detection.evaluation.curves import DetectionCurves
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, match
from paddlevit_dist.images.detection.evaluation.operating_points import split_by_class

NOTHING = 3  # of three classes


def truth(*rows):
    """Rows x, y, width, height, class, crowd."""
    table = np.array(rows, float).reshape(-1, 6)
    return BoxGroundTruth(table[:, :4], table[:, 4].astype(int), table[:, 2] * table[:, 3], table[:, 5] > 0)


def found(*rows):
    """Rows x, y, width, height, class, score."""
    table = np.array(rows, np.float32).reshape(-1, 6)
    corners = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:4]], axis=1)
    return DetectedObjects(corners, table[:, 5], table[:, 4].astype(int))


def test_what_is_taken_for_what():
    image = truth((0, 0, 10, 10, 0, 0), (50, 50, 10, 10, 1, 0), (100, 0, 40, 40, 2, 1), (0, 100, 10, 10, 2, 0))
    detections = found(
        (1, 0, 10, 10, 1, 0.9),  # overlaps the first annotation, of another class
        (0, 0, 10, 10, 0, 0.6),  # the same exactly
        (50, 52, 10, 10, 2, 0.8),  # confused
        (110, 10, 10, 10, 2, 0.8),  # in a crowd
        (0, 100, 10, 10, 2, 0.4),  # too uncertain
        (0, 0, 0, 0, 1, 0.9),  # no area
    )
    pairs = records.match_across_classes(image, detections, 3, 0.5)
    assert sorted(map(tuple, pairs.tolist())) == [(0, 0), (1, 2), (2, NOTHING), (NOTHING, 1), (NOTHING, 1)]
    matrix = to_dense(figures.count_pairs([pairs, pairs], 3), 4)
    assert matrix.sum() == 10 and matrix[NOTHING, 1] == 4 and matrix[0, 0] == 2 and matrix[1, 2] == 2
    assert records.match_across_classes(truth(), NOTHING_FOUND, 3, 0.5).shape == (0, 2)
    halves = truth((0, 0, 10, 10, 0, 0), (100, 0, 40, 40, 2, 1))  # an IoU and a share of one half are enough
    pairs = records.match_across_classes(halves, found((0, 0, 10, 5, 1, 0.5), (130, 0, 20, 10, 1, 0.9)), 3, 0.5)
    assert pairs.tolist() == [[0, 1]]
    two = truth((0, 0, 10, 10, 0, 0), (0, 0, 10, 9, 1, 0))  # one detection is not both of them
    pairs = records.match_across_classes(two, found((0, 0, 10, 10, 2, 0.9)), 3, 0.5)
    assert sorted(map(tuple, pairs.tolist())) == [(0, 2), (1, NOTHING)]
    equal = found(*([(0, 0, 10, 10, 1, 0.9)] + [(0, 0, 10, 10, 2, 0.9)] * 99))  # the first one counts
    assert records.match_across_classes(truth((0, 0, 10, 10, 0, 0)), equal, 3, 0.5)[0].tolist() == [0, 1]


def test_the_hardest_images():
    one = truth((0, 0, 10, 10, 0, 0), (50, 50, 10, 10, 1, 0))
    right = found((0, 0, 10, 10, 0, 0.9), (50, 50, 10, 10, 1, 0.9))
    half = found((0, 0, 10, 10, 0, 0.9), (50, 50, 10, 10, 1, 0.1))
    tables = [
        match(4, one, right, 3),
        match(5, one, half, 3),
        match(6, one, NOTHING_FOUND, 3),
        match(7, truth(), NOTHING_FOUND, 3),
        match(8, truth(), right, 3),
        match(9, truth((0, 0, 10, 10, 0, 1)), right, 3),  # one lies in the crowd
    ]
    quality = figures.compute_image_quality(MatchTable.joined(tables), 0.5)
    assert quality.right.tolist() == [2, 1, 0, 0, 0, 0]
    assert quality.wrong.tolist() == [0, 0, 0, 0, 2, 1]
    assert quality.missed.tolist() == [0, 1, 2, 0, 0, 0]
    assert np.allclose(quality.f1, [1, 2 / 3, 0, 1, 0, 0])
    assert quality.find_hardest(10).tolist() == [2, 4, 5, 1] and quality.find_hardest(2).tolist() == [2, 4]
    assert quality.explain_empty([2, 4], 0.5) == ""
    assert quality.explain_empty([2, 3], 0.5) == "nothing in them is detected with a score of at least 0.5"


def test_numbers_of_each_image_are_pycocotools_of_this_image_alone():
    dataset, results = coco_peer.random_case(3, num_images=8)
    results = [result for result in results if result["category_id"] in {c["id"] for c in dataset["categories"]}]
    table, categories = coco_peer.make_table(dataset, results)
    names = [f"c{number}" for number in categories]
    columns = images.build_image_columns(table, DetectionCurves.from_table(table), names, 0.5)
    for row, image_id in enumerate(sorted(image["id"] for image in dataset["images"])):
        own = {
            **dataset,
            "images": [image for image in dataset["images"] if image["id"] == image_id],
            "annotations": [one for one in dataset["annotations"] if one["image_id"] == image_id],
        }
        found = [result for result in results if result["image_id"] == image_id]
        counted = [result for result in found if result["score"] >= 0.5]
        for name, rows in (
            ("truth", [one for one in own["annotations"] if not one["iscrowd"]]),
            ("prediction", counted),
        ):
            numbers = [sum(one["category_id"] == category for one in rows) for category in categories]
            listed = ", ".join(f"{label} {number}" for label, number in zip(names, numbers) if number)
            assert columns[name][row] == listed, image_id
        highest = max((result["score"] for result in found), default=np.nan)
        np.testing.assert_allclose(columns["highest score"][row], highest, rtol=1e-6)
        if not own["annotations"] or not found:
            continue
        theirs = coco_peer.evaluated(own, found)
        stats = {"AP": 0, "AP50": 1, "AP75": 2, "AR_100": 8}
        for name, place in stats.items():
            assert np.nan_to_num(columns[name][row], nan=-1) == pytest.approx(theirs.stats[place], abs=1e-12)
        right = wrong = annotated = 0
        for place in range(len(categories)):
            match = theirs.evalImgs[place * 4]  # of four ranges of areas the first one is all
            if match is None:
                continue
            is_counted = (np.array(match["dtScores"]) >= 0.5) & ~match["dtIgnore"][0]
            right += int((is_counted & (match["dtMatches"][0] > 0)).sum())
            wrong += int((is_counted & (match["dtMatches"][0] == 0)).sum())
            annotated += int((np.array(match["gtIgnore"]) == 0).sum())
        found_numbers = [columns[name][row] for name in ("true positives", "false positives", "missed")]
        assert found_numbers == [right, wrong, annotated - right], image_id


def test_curves_are_those_of_pycocotools():
    dataset, results = coco_peer.random_case(2, num_images=20)
    table, theirs = coco_peer.make_table(dataset, results)[0], coco_peer.evaluated(dataset, results)
    defined = [k for k in range(4) if theirs.eval["recall"][5, k, 0, 2] > -1]
    classes = split_by_class(table)
    precision = {label: classes[label].sample_precision() for label in defined}
    for labels in (*([label] for label in defined), defined):
        expected = theirs.eval["precision"][0][:, labels, 0, 2].mean(axis=1)
        np.testing.assert_allclose(np.mean([precision[k] for k in labels], axis=0), expected, rtol=1e-14)
