"""COCO's numbers of drawn images are those of an annotation file that has each image so often."""

import numpy as np
import pytest
from support.networks import coco_peer

from paddlevit_dist.images.detection.evaluation.accumulation import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, CandidateDetections, match_detections
from paddlevit_dist.images.detection.evaluation.resampling import DetectionCurves
from paddlevit_dist.intervals import bootstrap

CLASSES = 5


def make_tables(images: int, seed: int, decimals: int | None = None) -> list[MatchTable]:
    """Images with objects of all sizes, some of them crowds, found well, badly, twice or not at all."""
    generator, tables = np.random.default_rng(seed), []
    for number in range(images):
        count = int(generator.integers(0, 8))
        shapes = np.exp(generator.uniform(1.5, 5.5, (count, 2)))
        boxes = np.concatenate([generator.uniform(0, 400, (count, 2)), shapes], axis=1)
        labels = generator.integers(0, CLASSES, count)
        truth = BoxGroundTruth(boxes, labels, 0.8 * shapes.prod(axis=1), generator.random(count) < 0.1)
        near = np.repeat(np.arange(count), generator.integers(0, 3, count))
        others = int(generator.integers(0, 12))
        places, sizes = generator.uniform(0, 400, (others, 2)), np.exp(generator.uniform(1.5, 5.5, (others, 2)))
        found = np.concatenate(
            [boxes[near] * generator.normal(1, 0.08, (len(near), 4)), np.concatenate([places, sizes], axis=1)]
        )
        scores = generator.random(len(found))
        if decimals is not None:  # equal scores, in different images
            scores = np.round(scores, decimals) + 1e-6 * np.arange(len(found))
        found_labels = np.concatenate([labels[near], generator.integers(0, CLASSES, others)])
        image_id = 10 + 3 * number if number % 2 else 10_000 - number  # other than their order
        tables.append(match_detections(image_id, truth, CandidateDetections(found, scores, found_labels), CLASSES))
    return tables


def repeated(tables: list[MatchTable], counts: np.ndarray) -> MatchTable:
    """Each image so often, under an id of its own beside the first's."""
    copies = [
        table._replace(image_ids=100 * table.image_ids + copy)
        for table, count in zip(tables, counts.tolist())
        for copy in range(count)
    ]
    return MatchTable.joined([MatchTable.empty(CLASSES), *copies])


@pytest.mark.parametrize("decimals", [None, 1])
def test_numbers_of_a_draw_are_those_of_repeated_images(decimals):
    tables = make_tables(30, 0, decimals)
    weights = np.random.default_rng(1).integers(0, 4, (30, 30))
    weights[0], weights[1] = 0, 1
    weights[2, 4:] = 0
    order = np.argsort([int(table.image_ids[0]) for table in tables])  # in which a joined table has them
    stats, class_ap = DetectionCurves.from_table(MatchTable.joined(tables)).scores(weights[:, order])
    for draw, counts in enumerate(weights):
        whole_stats, whole_class_ap = coco_peer.score(repeated(tables, counts))
        np.testing.assert_allclose(np.nan_to_num(stats[draw], nan=-1), whole_stats, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.nan_to_num(class_ap[draw], nan=-1), whole_class_ap, rtol=0, atol=1e-12)
    assert (stats[0] != stats[0]).all() and 0.01 < stats[1, 0] < 1


def test_an_interval_covers_the_mean_score_of_such_sets():
    """AP of few images is larger than that of many, and an interval is about sets of its size."""
    values, intervals = [], []
    for seed in range(100):
        curves = DetectionCurves.from_table(MatchTable.joined(make_tables(40, seed)))
        found = bootstrap(lambda weights, c=curves: {"AP": c.scores(weights)[0][:, 0]}, 40, resamples=200)["AP"]
        values.append(found.value)
        intervals.append(found)
    share = np.mean([interval.low <= np.mean(values) <= interval.high for interval in intervals])
    assert 0.88 <= share <= 1.0  # three deviations of 100 draws
