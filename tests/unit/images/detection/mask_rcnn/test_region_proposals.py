"""Anchors, matching, sampling and suppression, against loops in float64."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks import mask_rcnn_peers as peers

from paddlevit_dist.images.detection.boxes import box_iou
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.mask_rcnn.region_proposals import (
    ProposalNetwork,
    build_base_anchors,
    build_level_anchors,
    match,
    sample,
    suppress,
)
from paddlevit_dist.images.detection.mask_rcnn.rules import MaskRcnnRules


def tensor(values, dtype="float64"):
    return paddle.to_tensor(np.asarray(values, dtype))


def test_anchors_are_those_that_the_published_weights_were_trained_with():
    # of torchvision's maskrcnn_resnet50_fpn, first level
    expected = [[-23, -11, 23, 11], [-16, -16, 16, 16], [-11, -23, 11, 23]]
    assert build_base_anchors(32, (0.5, 1.0, 2.0), rounds=True).tolist() == expected
    exact = build_base_anchors(32, (0.5, 2.0), rounds=False)
    sides = exact[:, 2:] - exact[:, :2]
    np.testing.assert_allclose(sides.prod(axis=1), 32**2)
    np.testing.assert_allclose(sides[:, 1] / sides[:, 0], [0.5, 2.0])


def test_anchors_go_row_by_row_and_position_by_position():
    anchors = build_level_anchors((2, 3), 8, 16, (1.0, 2.0), True).reshape(2, 3, 2, 4)
    first = build_base_anchors(16, (1.0, 2.0), True)
    for row, column in np.ndindex(2, 3):
        np.testing.assert_array_equal(anchors[row, column], first + 8 * np.array([column, row] * 2))


@pytest.mark.parametrize("rule", [(0.5, 0.5, None), (0.7, 0.3, 0.0), (0.7, 0.3, 0.3), (0.5, 0.4, 0.6)])
def test_matches_are_those_of_a_loop(rule):
    rng = np.random.default_rng(2)
    objects, boxes = peers.boxes(rng, 6, smallest=20), peers.boxes(rng, 80, smallest=20)
    boxes[:4] = objects[0] + 1, objects[0] + 1, objects[1], objects[1]  # equally close to an object
    objects[5] = [500, 500, 510, 510]  # overlaps nothing
    matches = match(box_iou(tensor(objects), tensor(boxes)), *rule)
    expected = peers.matched(objects, boxes, *rule)
    assert (matches.objects.numpy().tolist(), matches.states.numpy().tolist()) == expected


def test_without_objects_all_boxes_are_negative():
    nothing = tensor([[0.0, 0, 0, 0]])  # what an empty list of objects is padded with
    matches = match(box_iou(nothing, tensor(peers.boxes(np.random.default_rng(3), 7))), 0.7, 0.3, 0.0)
    assert (matches.states == 0).all()


CASES = [
    (3, 50, 16, 0.5),
    (30, 50, 16, 0.5),
    (30, 2, 16, 0.5),
    (0, 20, 8, 0.25),
    (4, 0, 8, 0.5),
    (0, 0, 8, 0.5),
    (2, 2, 999, 0.5),
]


@pytest.mark.parametrize("at_random", [True, False])
@pytest.mark.parametrize("positive, negative, number, share", CASES)
def test_a_sample_has_its_share_of_positive_boxes_and_is_filled_up_with_negative_ones(
    positive, negative, number, share, at_random
):
    states = np.array([1] * positive + [0] * negative + [-1] * 5, np.int32)
    np.random.default_rng(4).shuffle(states)
    paddle.seed(5)
    chosen, is_positive, is_used = (part.numpy() for part in sample(tensor(states, "int32"), number, share, at_random))
    assert len(chosen) == min(number, len(states)) == len(set(chosen.tolist()))
    expected = min(positive, int(number * share))
    assert states[chosen[is_positive]].tolist() == [1] * expected
    used = chosen[is_used & ~is_positive]
    assert states[used].tolist() == [0] * min(negative, number - expected)
    assert is_positive[:expected].all() and not is_positive[expected:].any()  # they come first
    assert is_used[: expected + len(used)].all() and not is_used[expected + len(used) :].any()


def test_each_box_is_as_likely_and_the_same_seed_draws_the_same():
    states = tensor([1] * 6 + [0] * 10, "int32")
    counts = np.zeros(16)
    for seed in range(400):
        paddle.seed(seed)
        chosen = sample(states, 8, 0.5).boxes.numpy()
        counts[chosen] += 1
    paddle.seed(399)
    assert sample(states, 8, 0.5).boxes.numpy().tolist() == chosen.tolist()
    # 4 of 6 and 4 of 10: five standard deviations of a binomial number
    assert (abs(counts[:6] - 400 * 4 / 6) < 5 * np.sqrt(400 * 2 / 9)).all()
    assert (abs(counts[6:] - 400 * 4 / 10) < 5 * np.sqrt(400 * 0.24)).all()


def test_without_chance_any_seed_samples_the_same_and_every_part_of_the_list():
    states = tensor([0] * 1000, "int32")
    found = []
    for seed in (1, 2):
        paddle.seed(seed)
        found.append(sorted(sample(states, 100, 0.5, at_random=False).boxes.tolist()))
    assert found[0] == found[1]
    assert max(np.diff([0, *found[0], 1000])) < 25  # one in ten


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", [0, 1, 2, 63, 64, 65, 150])
def test_suppression_keeps_what_a_loop_keeps(number, dtype):
    rng = np.random.default_rng(number)
    boxes = peers.boxes(rng, number).astype(dtype)
    scores, groups = rng.permutation(number) / max(number, 1), rng.integers(0, 3, number)
    best = np.argsort(-scores)
    found = suppress(tensor(boxes[best], dtype), tensor(groups[best], "int64"), 0.3, 1000)
    assert best[found.numpy()].tolist() == peers.suppressed(boxes.astype(np.float64), scores, groups, 0.3)


def test_suppression_knows_the_same_box_collapsed_boxes_and_a_limit():
    boxes = tensor([[0.0, 0, 9, 9], [3, 3, 3, 3], [3, 3, 3, 3], [0, 0, 9, 9], [0, 0, 9, 9]])
    groups = tensor([0, 0, 0, 1, 0], "int64")
    assert suppress(boxes, groups, 0.5, 9).numpy().tolist() == [0, 1, 2, 3]
    assert suppress(boxes, groups, 0.5, 2).numpy().tolist() == [0, 1]


@pytest.mark.parametrize("is_training", [True, False])
def test_the_best_anchors_of_each_level_are_clipped_and_suppressed(is_training):
    rng = np.random.default_rng(7)
    sizes, numbers = np.array([[70, 90], [40, 60]]), (40, 12)
    anchors = [peers.boxes(rng, number, 80.0) - 15 for number in numbers]
    logits = [rng.normal(size=(2, number)) for number in numbers]
    changes = [rng.normal(size=(2, number, 4)) / 10 for number in numbers]
    anchors[0][:3] += 200  # outside of both images, so that nothing is left of them
    logits[0][:, :3] = 9.0
    logits[1][0, 4], changes[1][1, 5] = np.nan, np.inf
    limits = {"proposals": (25, 9), "evaluated": (20, 99)}
    rules = {f"{kind}_{when}": number for kind in limits for when, number in zip(("before", "after"), limits[kind])}
    network = SimpleNamespace(rules=SimpleNamespace(proposal_overlap=0.5, **rules))
    given = [list(map(tensor, part)) for part in (logits, changes, anchors)]
    found = ProposalNetwork.propose(network, *given, tensor(sizes, "int64"), is_training)
    before, after = limits["proposals" if is_training else "evaluated"]
    for image, (height, width) in enumerate(sizes):
        boxes, scores, levels = [], [], []
        for level, number in enumerate(numbers):
            order = np.argsort(-np.nan_to_num(logits[level][image], nan=99))[: min(before, number)]
            for place in order:
                x0, y0, x1, y1 = anchors[level][place]
                x, y, w, h = changes[level][image, place]
                center = np.array([(x0 + x1) / 2 + x * (x1 - x0), (y0 + y1) / 2 + y * (y1 - y0)])
                half = 0.5 * np.array([x1 - x0, y1 - y0]) * np.exp(np.minimum([w, h], np.log(62.5)))
                box = np.clip([*center - half, *center + half], 0, [width, height] * 2)
                if np.isfinite([*box, logits[level][image, place]]).all() and (box[2:] - box[:2] >= 1e-3).all():
                    boxes.append(box)
                    scores.append(logits[level][image, place])
                    levels.append(level)
        kept = peers.suppressed(np.array(boxes), np.array(scores), levels, 0.5)[:after]
        np.testing.assert_allclose(found[image].numpy(), np.array(boxes)[kept], rtol=1e-9)
        assert len(kept) == after if is_training else 0 < len(kept) <= len(boxes) < 32
    nothing = [tensor(np.full((2, 3), np.nan)), tensor(np.zeros((2, 3, 4))), tensor(np.ones((3, 4)))]
    empty = ProposalNetwork.propose(network, *([part] for part in nothing), tensor(sizes, "int64"), is_training)
    assert [part.shape for part in empty] == [[0, 4], [0, 4]]


@pytest.mark.parametrize("overlaps", [(0.5, 0.3, 0.2), (2.0, 0.0, 2.0)])  # with the latter no anchor is used
def test_anchors_learn_the_objects_that_a_loop_finds(overlaps):
    rng, names = np.random.default_rng(8), ("positive_overlap", "negative_overlap", "lowest_overlap")
    options = {
        "anchor_sizes": (12, 24),
        "anchor_ratios": (0.5, 1.0),
        "anchor_samples": 999,
        **dict(zip(names, overlaps)),
    }
    paddle.seed(2)
    network = ProposalNetwork(3, (4, 8), MaskRcnnRules(**options)).to(dtype="float64")
    network.head.conv[0][0].bias.set_value(np.full(3, 9.0))  # so that the logits of no two anchors are equal
    maps = [tensor(50 * rng.normal(size=(2, 3, *grid))) for grid in ((4, 5), (2, 3))]
    objects, nothing = np.array([[1.0, 2, 12, 13], [6, 1, 20, 9]]), np.zeros((1, 4))
    labels = tensor([[3, 0], [-1, -1]], "int64")
    boxes = tensor(np.stack([objects, np.zeros((2, 4))]))
    targets = DetectionTargets(boxes, labels, tensor([[16, 20]] * 2, "int64"), box_counts=np.array([2, 0]))
    found = {name: part.numpy() for name, part in network(maps, targets.sizes, targets)[1].items()}
    levels = [((4, 5), 4, 12), ((2, 3), 8, 24)]
    anchors = np.concatenate([build_level_anchors(*level, (0.5, 1.0), True) for level in levels]).astype(np.float64)
    logits, changes = (np.concatenate(parts, 1) for parts in zip(*([p.numpy() for p in network.head(x)] for x in maps)))
    for image, own in enumerate((objects, nothing)):
        order = np.abs(found["anchor_logits"][image][:, None] - logits[image]).argmin(axis=1)
        assert sorted(order.tolist()) == list(range(52))
        np.testing.assert_allclose(found["anchor_logits"][image], logits[image][order], rtol=1e-12)
        np.testing.assert_allclose(found["anchor_changes"][image], changes[image][order], rtol=1e-12)
        matches, states = map(np.array, peers.matched(own, anchors, *overlaps))
        is_used, is_positive = (states >= 0)[order], (states == 1)[order]
        assert (is_positive.sum() > 2, is_used.any()) == (len(own) == 2 and overlaps[0] < 1, overlaps[0] < 1)
        np.testing.assert_array_equal(found["anchor_positive"][image], is_positive)
        np.testing.assert_allclose(found["anchor_shares"][image], is_used / max(is_used.sum(), 1), rtol=1e-12)
        start, wanted = anchors[order], own[matches[order]]
        size = start[:, 2:] - start[:, :2]
        with np.errstate(divide="ignore"):
            grown = np.log((wanted[:, 2:] - wanted[:, :2]) / size)
        moved = (wanted[:, :2] + wanted[:, 2:] - start[:, :2] - start[:, 2:]) / 2 / size
        expected = np.where(is_positive[:, None], np.concatenate([moved, grown], axis=1), 0)
        np.testing.assert_allclose(found["anchor_offsets"][image], expected, rtol=1e-9, atol=1e-12)
