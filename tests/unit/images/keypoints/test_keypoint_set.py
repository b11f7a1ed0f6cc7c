"""The points of a category."""

import numpy as np
from pycocotools.cocoeval import Params

from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON, KeypointSet


def test_sigmas_of_a_person_are_those_of_pycocotools():
    np.testing.assert_allclose(COCO_PERSON.sigmas, Params("keypoints").kpt_oks_sigmas, rtol=1e-12)


def test_a_mirror_exchanges_left_and_right_and_keeps_the_rest():
    exchanged = [COCO_PERSON.names[other] for other in COCO_PERSON.mirror.tolist()]
    expected = [
        name.replace("left", "r").replace("right", "left").replace("r_", "right_") if "_" in name else name
        for name in COCO_PERSON.names
    ]
    assert exchanged == expected


def test_points_without_pairs_stay():
    assert KeypointSet(("tip", "tail"), (), (0.05, 0.05), ()).mirror.tolist() == [0, 1]
