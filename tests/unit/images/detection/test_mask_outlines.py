"""Outlines of masks give the same masks again, also in COCO's own tools."""

import numpy as np
from pycocotools import mask as coco_masks

from paddlevit_dist.images.detection.mask_outlines import join_outlines, trace_outlines
from paddlevit_dist.images.run_lengths import encode


def _fill(outlines, size):
    polygons = [outline.reshape(-1).tolist() for outline in outlines]
    return coco_masks.decode(coco_masks.merge(coco_masks.frPyObjects(polygons, *size)))


def test_coco_s_tools_fill_the_same_pixels():
    """Many parts and holes, some of which touch at corners and at the border."""
    random, num_with_holes = np.random.default_rng(0), 0
    for _ in range(150):
        size = random.integers(1, 14, 2).tolist()
        mask = (random.random(size) < random.choice([0.2, 0.5, 0.8])).astype(np.uint8)
        outlines = trace_outlines(encode(mask), *size)
        assert bool(outlines) == mask.any()
        if outlines:
            for each in (outlines, [join_outlines(outlines)]):
                np.testing.assert_array_equal(_fill(each, size), mask)
            shares = (join_outlines(outlines) / size[::-1]).round(7)  # as in YOLO's files
            np.testing.assert_array_equal(_fill([shares * size[::-1]], size), mask)
            num_with_holes += len(outlines) == 1 and len(np.unique(outlines[0], axis=0)) < len(outlines[0])
    assert num_with_holes > 20


def test_parts_are_apart_and_straight_lines_have_two_corners():
    mask = np.zeros((9, 12), np.uint8)
    mask[1:4, 2:7] = mask[4:8, 7:9] = 1  # they touch at a corner
    left, right = sorted(
        (set(map(tuple, outline.tolist())) for outline in trace_outlines(encode(mask), 9, 12)), key=min
    )
    assert left == {(2, 1), (7, 1), (7, 4), (2, 4)} and right == {(7, 4), (9, 4), (9, 8), (7, 8)}
