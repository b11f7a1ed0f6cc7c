"""Mask R-CNN's losses against loops in float64, and their normalization over devices."""

import math

import numpy as np
import paddle
import pytest
from support.networks import mask_rcnn_peers as peers
from support.samples import mask_rcnn_batches as batches

from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.mask_rcnn.criterion import (
    MaskRcnnCriterion,
    crop_mask_targets,
    sample_region_targets,
)
from paddlevit_dist.images.detection.mask_rcnn.network import MaskRCNN
from paddlevit_dist.images.detection.mask_rcnn.rules import MaskRcnnRules


def make_outputs(rng, used, regions, masks):
    """Made-up outputs: ``used`` of 6 anchors in each image, regions and regions with masks in each image."""
    images, classes = len(used), 4
    positive = (rng.random((images, 6)) < 0.5) * 1.0
    shares = np.array([[1 / number if j < number else 0.0 for j in range(6)] for number in used])
    total, with_masks = sum(regions), sum(masks)
    return {
        "anchor_logits": rng.normal(size=(images, 6)),
        "anchor_positive": positive,
        "anchor_shares": shares,
        "anchor_changes": rng.normal(size=(images, 6, 4)) * 0.2,
        "anchor_offsets": rng.normal(size=(images, 6, 4)) * 0.2,
        "region_logits": rng.normal(size=(total, classes)),
        "region_labels": rng.integers(0, classes, total),
        "region_changes": rng.normal(size=(total, 4)) * 0.2,
        "region_offsets": rng.normal(size=(total, 4)) * 0.2,
        "region_shares": np.repeat(1 / np.maximum(regions, 1), regions),
        "mask_logits": rng.normal(size=(with_masks, 4, 4)),
        "mask_targets": rng.random((with_masks, 4, 4)),
        "mask_shares": np.repeat(1 / np.maximum(masks, 1), masks),
    }


def by_hand(out, betas):
    """For each term its losses and the share of each in its image."""
    objectness, moved = [], []
    for image, j in np.ndindex(out["anchor_shares"].shape):
        share, positive = out["anchor_shares"][image, j], out["anchor_positive"][image, j]
        pairs = zip(out["anchor_changes"][image, j], out["anchor_offsets"][image, j])
        objectness.append((peers.cross_entropy(out["anchor_logits"][image, j], positive), share))
        moved.append((positive * sum(peers.smooth(a - b, betas[0]) for a, b in pairs), share))
    classes, boxes = [], []
    for row, share in enumerate(out["region_shares"]):
        label, logits = out["region_labels"][row], out["region_logits"][row]
        pairs = zip(out["region_changes"][row], out["region_offsets"][row])
        classes.append((math.log(sum(math.exp(logit) for logit in logits)) - logits[label], share))
        boxes.append(((label > 0) * sum(peers.smooth(a - b, betas[1]) for a, b in pairs), share))
    masks = []
    for logits, targets, share in zip(out["mask_logits"], out["mask_targets"], out["mask_shares"]):
        pairs = zip(logits.reshape(-1), targets.reshape(-1))
        masks.append((np.mean([peers.cross_entropy(a, b) for a, b in pairs]), share))
    return {"objectness": objectness, "anchor_boxes": moved, "classes": classes, "boxes": boxes, "masks": masks}


@pytest.mark.parametrize("betas", [(1 / 9, 1 / 9), (1 / 9, 1e-9), (0.5, 0.05)])
def test_the_terms_are_those_of_a_loop(betas):
    out = make_outputs(np.random.default_rng(0), used=[6, 3], regions=[4, 2], masks=[3, 0])
    tensors = {name: paddle.to_tensor(value) for name, value in out.items()}
    for normalizer in ("global", "reference"):
        terms = MaskRcnnCriterion(*betas, normalizer=normalizer).terms(tensors, None)
        for name, losses in by_hand(out, betas).items():
            if normalizer == "global":  # the mean over an image's samples, then over the images
                expected, count = sum(loss * share for loss, share in losses), 2
            else:  # the mean over the samples of the device
                used = [loss for loss, share in losses if share > 0]
                expected, count = sum(used), len(used)
            np.testing.assert_allclose(terms[name].sum.item(), expected, rtol=1e-6, err_msg=f"{normalizer} {name}")
            assert float(terms[name].count) == count


def test_the_classes_may_weigh_more():
    out = make_outputs(np.random.default_rng(2), used=[6], regions=[5], masks=[1])
    tensors = {name: paddle.to_tensor(value) for name, value in out.items()}
    terms = MaskRcnnCriterion(class_weight=2.0).terms(tensors, None)
    assert {name: term.weight for name, term in terms.items()} == {**dict.fromkeys(terms, 1.0), "classes": 2.0}


@pytest.mark.parametrize("has_masks", [True, False])
def test_boxes_alone_are_learned_by_all_terms_but_that_of_masks(has_masks):
    out = make_outputs(np.random.default_rng(2), used=[6], regions=[5], masks=[1])
    tensors = {name: paddle.to_tensor(value) for name, value in out.items() if has_masks or "mask" not in name}
    terms = MaskRcnnCriterion(has_masks=has_masks).terms(tensors, None)
    assert list(terms) == ["objectness", "anchor_boxes", "classes", "boxes", *["masks"] * has_masks]
    assert all(term.sum.item() > 0 for term in terms.values())


def test_a_straight_line_is_the_limit_of_the_smooth_one():
    out = make_outputs(np.random.default_rng(1), used=[6], regions=[5], masks=[1])
    tensors = {name: paddle.to_tensor(value) for name, value in out.items()}
    line, nearly = (MaskRcnnCriterion(1 / 9, beta).terms(tensors, None)["boxes"].sum.item() for beta in (0.0, 1e-12))
    assert line == pytest.approx(nearly, rel=1e-9)


def make_gradients(model, arrays, ranks, normalizer="global"):
    """Of the weights after an update in which each of ``ranks`` has the rows of a list, one micro-batch after the
    other, by the engine's own formula."""
    criterion = MaskRCNN.criterion(batches.NAME, batches.CLASSES, {"normalizer": normalizer})
    parts = [rows for rank in ranks for rows in rank]
    counts = [criterion.loss_normalizers({"labels": arrays[2][rows]}) for rows in parts]
    total = {name: sum(count[name] for count in counts) for name in criterion.normalizer_names}
    model.clear_gradients()
    for rows in parts:
        images, targets = batches.batch(arrays, rows)
        terms = criterion.terms(model(images, targets.sizes, targets), targets)
        (compute_loss(terms, total, len(ranks[0]), len(ranks)) / len(ranks)).backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if not p.stop_gradient}


def test_one_device_two_devices_and_accumulation_give_the_same_gradients():
    model = batches.model(**batches.EVERY_SAMPLE)
    model.eval()  # batch norms of several devices are another matter
    arrays = batches.images([3, 0, 1, 2])
    whole = make_gradients(model, arrays, [[slice(0, 4)]])
    assert all(abs(gradient).max() > 0 for name, gradient in whole.items() if "norm" not in name)
    for ranks in ([[slice(0, 2)], [slice(2, 4)]], [[slice(0, 1), slice(1, 2)], [slice(2, 3), slice(3, 4)]]):
        for name, gradient in make_gradients(model, arrays, ranks).items():
            np.testing.assert_allclose(
                gradient, whole[name], atol=1e-10 * max(abs(whole[name]).max(), 1e-6), err_msg=name
            )


def test_one_image_a_device_is_the_same_by_either_normalizer():
    model = batches.model(**batches.EVERY_SAMPLE)
    model.eval()
    arrays = batches.images([2, 1], seed=3)
    ranks = [[slice(0, 1)], [slice(1, 2)]]
    reference = make_gradients(model, arrays, ranks, "reference")
    for name, gradient in make_gradients(model, arrays, ranks).items():
        np.testing.assert_allclose(gradient, reference[name], atol=1e-10 * max(abs(reference[name]).max(), 1e-6))


def test_regions_learn_the_object_that_they_overlap_half_and_what_is_left_of_its_mask():
    _, targets = batches.batch(batches.images([2, 0, 1], seed=5))
    rng = np.random.default_rng(6)
    proposals = [np.concatenate([peers.boxes(rng, 12, 60), np.zeros((0, 4))]) for _ in range(3)]
    objects = targets.boxes.numpy()
    proposals[0][:3] = objects[0, 0] + [1, 0, 2, -1], objects[0, 1] + [-2, 1, 0, 0], objects[0, 0] + [0, 0, 3, 4]
    rules = MaskRcnnRules(reference_size=56, region_samples=1000)
    taught = sample_region_targets([paddle.to_tensor(boxes) for boxes in proposals], targets, 4, rules)
    boxes, images = taught.regions.boxes.numpy(), taught.regions.images
    assert np.bincount(images).tolist() == [14, 12, 13]  # with the objects themselves
    for row, box in enumerate(boxes):
        count = int(targets.box_counts[images[row]])
        ious = [peers.overlap(one, box) for one in objects[images[row], :count]]
        is_object = count > 0 and max(ious) >= 0.5
        label = targets.labels[int(images[row]), int(np.argmax(ious))].item() + 1 if is_object else 0
        assert taught.labels[row].item() == label
        assert (row in taught.positive) == is_object
        wanted = objects[images[row], np.argmax(ious)] if is_object else box
        size = box[2:] - box[:2]
        moved = (wanted[:2] + wanted[2:] - box[:2] - box[2:]) / 2 / size * 10
        grown = np.log((wanted[2:] - wanted[:2]) / size) * 5
        np.testing.assert_allclose(taught.offsets[row].numpy(), [*moved, *grown], atol=1e-12)
    assert len(taught.positive) >= 6
    of_masks = crop_mask_targets(taught, targets, 4)
    for row, number in enumerate(taught.positive):
        mask = targets.masks[int(images[number]), int(taught.objects[row])].numpy().astype(np.float64)
        expected = peers.cut_out(mask, boxes[number], 1.0, 4, -1, False)
        np.testing.assert_allclose(of_masks.masks[row].numpy(), expected, atol=1e-12)
        assert of_masks.labels[row] == taught.labels[int(number)]
    np.testing.assert_allclose(
        of_masks.shares.numpy(), 1 / np.bincount(of_masks.regions.images)[of_masks.regions.images]
    )


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("objects", "samples"), [(0, 512), (1, 1)])  # a quarter of one sample is no object
def test_a_batch_without_sampled_regions_learns_nothing_of_a_placeholder(images, objects, samples):
    _, targets = batches.batch(batches.images([objects] * images, seed=5))
    rules = MaskRcnnRules(region_samples=samples)
    found = sample_region_targets([paddle.zeros([0, 4], "float64")] * images, targets, 4, rules)
    assert found.regions.boxes.tolist() == [[0, 0, 1, 1]] and found.labels.tolist() == [0]
    assert found.shares.tolist() == [0] and found.offsets.tolist() == [[0, 0, 0, 0]]
    assert len(found.positive) == len(found.objects) == 0 and found.shares.dtype == paddle.float64
    with pytest.raises(ValueError, match="^the targets have no box_counts$"):
        sample_region_targets([paddle.zeros([0, 4])], targets._replace(box_counts=None), 4, rules)
