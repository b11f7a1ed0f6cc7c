"""Tables of images are joined in the order of the images, and are small."""

import pickle

import numpy as np
import pytest
from support.networks import coco_peer

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, match
from paddlevit_dist.tasks.packed_columns import pack_columns


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
