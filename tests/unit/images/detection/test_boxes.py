"""Boxes against boxes: overlaps, differences, borders; against loops in float64."""

import numpy as np
import paddle
import pytest
from support.networks import mask_rcnn_peers as peers

from paddlevit_dist.images.detection.boxes import box_iou, clip_boxes, decode_boxes, encode_boxes


def tensor(values, dtype="float64"):
    return paddle.to_tensor(np.asarray(values, dtype))


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-13)])
def test_overlaps_are_those_of_single_pairs(dtype, tolerance):
    rng = np.random.default_rng(0)
    one, other = peers.boxes(rng, 5), peers.boxes(rng, 9)
    one[1], other[2], other[3] = [4, 4, 4, 9], [4, 4, 4, 4], one[0]  # without width, a point, the same
    expected = [[peers.overlap(a, b) for b in other] for a in one]
    found = box_iou(tensor(one, dtype), tensor(other, dtype))
    np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


def test_a_box_is_found_again_from_its_difference_to_another():
    rng = np.random.default_rng(1)
    boxes, references = peers.boxes(rng, 20), peers.boxes(rng, 20)
    weights = (10.0, 10.0, 5.0, 5.0)
    changes = encode_boxes(tensor(boxes), tensor(references), weights)
    np.testing.assert_allclose(decode_boxes(changes, tensor(references), weights).numpy(), boxes, atol=1e-10)
    # R-CNN's equations by hand: one to the right by half a width, twice as high
    by_hand = encode_boxes(tensor([[15.0, 5, 25, 25]]), tensor([[10.0, 10, 20, 20]]), weights)
    np.testing.assert_allclose(by_hand.numpy(), [[5.0, 0.0, 0.0, 5 * np.log(2)]], atol=1e-12)


def test_a_box_grows_by_a_factor_of_62_5_at_most_however_large_the_change():
    box = decode_boxes(tensor([[0.0, 0, 1e9, 0]], "float32"), tensor([[0.0, 0, 2, 2]], "float32")).numpy()[0]
    np.testing.assert_allclose(box, [1 - 62.5, 0, 1 + 62.5, 2], rtol=1e-5)


def test_boxes_are_cut_at_the_borders_of_their_own_image():
    boxes = tensor([[[-5.0, -5, 50, 50]], [[-5.0, 3, 50, 50]]])
    assert clip_boxes(boxes, tensor([[20, 30], [60, 10]], "int64")).numpy().tolist() == [
        [[0, 0, 30, 20]],
        [[0, 3, 10, 50]],
    ]
