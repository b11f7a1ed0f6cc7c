"""DETR's matching and losses, against brute force, and what they make of batches that are empty or broken."""

import itertools
import pickle
import sys

import numpy as np
import paddle
import pytest
from support.networks.small_detr import (
    CLASSES,
    QUERIES,
    make_criterion,
    make_images,
    make_objects,
    make_targets,
    small_detr,
)

from paddlevit_dist import UserError
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.detection.boxes import center_to_corners, generalized_paired_iou, to_relative
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.detr.criterion import SetCriterion
from paddlevit_dist.images.detection.mask_rcnn.criterion import MaskRcnnCriterion

SIZES = [(40, 32), (24, 40), (40, 40), (9, 30)]


def make_outputs(layers, images, queries, seed=0):
    """Logits and boxes as a network gives them, float64."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((layers, images, queries, CLASSES + 1))
    boxes = random.uniform(0.1, 0.6, (layers, images, queries, 4))
    return {"layer_logits": paddle.to_tensor(logits), "layer_boxes": paddle.to_tensor(boxes)}


def giou_by_hand(a, b):
    """Of two boxes given by their corners."""
    across = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    down = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - across * down
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return across * down / union - (hull - union) / hull


def losses_by_hand(logits, boxes, truth, labels):
    """Sums of one image and layer, with the assignment of least cost found by trying all."""
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exponents / exponents.sum(axis=-1, keepdims=True)
    ends = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
    true_ends = np.concatenate([truth[:, :2] - truth[:, 2:] / 2, truth[:, :2] + truth[:, 2:] / 2], axis=1)
    distance = np.abs(boxes[:, None] - truth[None]).sum(axis=-1)  # (Q, M)
    giou = np.array([[giou_by_hand(a, b) for b in true_ends] for a in ends]).reshape(distance.shape)
    cost = 5 * distance - probabilities[:, labels] - 2 * giou
    queries, objects = range(len(boxes)), range(len(labels))
    if len(labels) <= len(boxes):
        pairs = [list(zip(chosen, objects)) for chosen in itertools.permutations(queries, len(labels))]
    else:
        pairs = [list(zip(queries, chosen)) for chosen in itertools.permutations(objects, len(boxes))]
    best = min(pairs, key=lambda some: sum(cost[pair] for pair in some))
    classes = np.full(len(boxes), CLASSES)
    for query, number in best:
        classes[query] = labels[number]
    entropy = -np.log(probabilities[queries, classes]) * np.where(classes == CLASSES, 0.1, 1.0)
    return entropy.sum(), sum(distance[pair] for pair in best), sum(1 - giou[pair] for pair in best)


@pytest.mark.parametrize("numbers", [(2, 0, 1, 3), (0, 0, 0, 0), (6, 1, 7, 0)])
def test_losses_are_those_of_the_best_of_all_assignments(numbers):
    outputs, targets = make_outputs(2, 4, QUERIES), make_targets(numbers, SIZES)
    criterion = SetCriterion(CLASSES, QUERIES, 2)
    losses = criterion.layer_losses(outputs["layer_logits"], outputs["layer_boxes"], targets)
    truth = to_relative(targets.boxes.astype("float64"), targets.sizes).numpy()
    terms = criterion.terms(outputs, targets)  # the first layer is the other one
    for name, by_layer in (("class", losses.label), ("box", losses.box), ("giou", losses.giou)):
        told = [terms[name + suffix].sum.item() for suffix in ("_auxiliary", "")]
        np.testing.assert_allclose(told, by_layer.numpy(), rtol=1e-12)
    for layer in range(2):
        sums = np.zeros(3)
        for image, number in enumerate(numbers):
            logits, boxes = (outputs[name].numpy()[layer, image] for name in ("layer_logits", "layer_boxes"))
            labels = targets.labels.numpy()[image, :number]
            sums += losses_by_hand(logits, boxes, truth[image, :number], labels)
        found = [losses.label[layer].item(), losses.box[layer].item(), losses.giou[layer].item()]
        np.testing.assert_allclose(found, sums, rtol=1e-6)


def test_counts_are_objects_and_the_weights_of_all_queries():
    _, labels = make_objects((2, 0, 7, 1), SIZES)
    criterion = pickle.loads(pickle.dumps(SetCriterion(CLASSES, QUERIES, 2)))
    counts = criterion.loss_normalizers({"labels": labels})
    matched = 2 + 5 + 1
    assert counts["box"] == counts["giou"] == counts["box_auxiliary"] == 10
    assert counts["class"] == counts["class_auxiliary"] == pytest.approx(matched + 0.1 * (4 * QUERIES - matched))
    assert tuple(counts) == criterion.normalizer_names
    own = SetCriterion(CLASSES, QUERIES, 1, normalizer="reference")
    assert own.normalizer_names == ("box", "giou")
    assert own.loss_normalizers({"labels": labels}) == {"box": 10, "giou": 10}


@pytest.mark.parametrize("kind, arguments", [(SetCriterion, (CLASSES, QUERIES, 2)), (MaskRcnnCriterion, ())])
def test_another_normalizer_is_refused(kind, arguments):
    with pytest.raises(UserError, match="normalizer 'local': expected one of global, reference"):
        kind(*arguments, normalizer="local")


def make_gradients(groups, normalizer):
    """Gradients of one update: ``groups`` are the images of each process, in micro-batches."""
    model = small_detr("float64")
    criterion = make_criterion(model, normalizer=normalizer)
    images, sizes = make_images(SIZES, "float64")
    boxes, labels = make_objects((3, 0, 1, 7), SIZES)
    totals = criterion.loss_normalizers({"labels": labels})
    for micro_batches in groups:
        for originals in micro_batches:
            targets = DetectionTargets(
                paddle.to_tensor(boxes[originals]), paddle.to_tensor(labels[originals]), sizes[originals]
            )
            terms = criterion.terms(model(images[originals], sizes[originals], targets), targets)
            (compute_loss(terms, totals, len(micro_batches), len(groups)) / len(groups)).backward()
    return {name: parameter.grad.numpy() for name, parameter in model.named_parameters() if parameter.grad is not None}


def largest_difference(first, second):
    assert set(first) == set(second)
    return max(np.abs(first[name] - second[name]).max() for name in first)


def test_gradients_do_not_depend_on_processes_and_micro_batches():
    whole = make_gradients([[[0, 1, 2, 3]]], "global")
    assert max(np.abs(gradient).max() for gradient in whole.values()) > 0.01
    for groups in ([[[0, 1]], [[2, 3]]], [[[0, 1], [2, 3]]], [[[1], [3]], [[2], [0]]], [[[1]], [[0, 2, 3]]]):
        assert largest_difference(make_gradients(groups, "global"), whole) < 1e-12


def test_the_reference_weighs_the_images_of_each_device_by_themselves():
    whole = make_gradients([[[0, 1, 2, 3]]], "global")
    assert largest_difference(make_gradients([[[0, 1, 2, 3]]], "reference"), whole) < 1e-12
    assert largest_difference(make_gradients([[[1]], [[0, 2, 3]]], "reference"), whole) > 1e-3


@pytest.mark.parametrize("numbers", [(0, 0), (1, 0), (0, 9)])
def test_every_parameter_has_a_gradient_whatever_the_images_hold(numbers):
    model, sizes = small_detr(), SIZES[:2]
    criterion, targets = make_criterion(model), make_targets(numbers, sizes)
    images, shapes = make_images(sizes)
    terms = criterion.terms(model(images, shapes, targets), targets)
    counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
    loss = compute_loss(terms, {name: max(count, 1) for name, count in counts.items()}, 1, 1)
    loss.backward()
    assert np.isfinite(loss.item())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and np.isfinite(parameter.grad.numpy()).all(), name
    if not any(numbers):
        assert terms["box"].sum.item() == terms["giou"].sum.item() == 0 and terms["class"].sum.item() > 0


@pytest.mark.parametrize("broken", ["layer_logits", "layer_boxes"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_that_are_not_finite_make_a_loss_that_is_not(broken, value):
    outputs, targets = make_outputs(2, 4, QUERIES), make_targets((2, 0, 1, 3), SIZES)
    array = outputs[broken].numpy()
    array[0, 2] = value
    outputs[broken] = paddle.to_tensor(array)
    terms = SetCriterion(CLASSES, QUERIES, 2).terms(outputs, targets)
    assert not np.isfinite(sum(term.sum.item() for term in terms.values() if term.weight))


def test_boxes_without_area_cost_no_division_by_zero():
    boxes = paddle.to_tensor([[0.2, 0.2, 0.2, 0.2], [0.5, 0.1, 0.5, 0.7], [0.0, 0.0, 0.0, 0.0]], stop_gradient=False)
    overlap = generalized_paired_iou(boxes.unsqueeze(0), boxes.unsqueeze(1))
    overlap.sum().backward()
    assert np.isfinite(overlap.numpy()).all() and np.isfinite(boxes.grad.numpy()).all()
    assert np.abs(overlap.numpy()).max() <= 1


def test_corners_and_shares_of_an_image():
    pixels = paddle.to_tensor([[[10.0, 20.0, 30.0, 60.0]]])
    shares = to_relative(pixels, paddle.to_tensor([[80, 40]]))  # 80 high, 40 wide
    np.testing.assert_allclose(shares.numpy(), [[[0.5, 0.5, 0.5, 0.5]]])
    np.testing.assert_allclose(center_to_corners(shares).numpy(), [[[0.25, 0.25, 0.75, 0.75]]])


def test_scipy_is_asked_for_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UserError, match=r"SciPy, which is not installed: pip install '\.\[detection\]'"):
        SetCriterion(CLASSES, QUERIES, 2).terms(make_outputs(2, 4, QUERIES), make_targets((1, 1, 1, 1), SIZES))


def test_accuracy_is_of_objects_that_have_a_query():
    outputs, targets = make_outputs(2, 4, QUERIES), make_targets((2, 0, 7, 1), SIZES)
    criterion = SetCriterion(CLASSES, QUERIES, 2)
    logits, classes = outputs["layer_logits"].numpy(), targets.labels.numpy()
    found = criterion.match(*outputs.values(), to_relative(targets.boxes.astype("float64"), targets.sizes), targets)
    expected = 0
    for image, query in np.ndindex(4, QUERIES):
        own = found.object_of[1, image, query]  # of the last layer; 7 for none
        expected += own < 7 and classes[image, own] == logits[1, image, query].argmax()
    outputs["layer_logits"] = paddle.to_tensor(logits, stop_gradient=False)
    term = criterion.terms(outputs, targets)["accuracy"]
    assert term.weight == 0 and term.count == 10 and term.sum.item() == expected > 1 and term.sum.stop_gradient


def test_objects_without_a_query_are_told_once():
    criterion = SetCriterion(CLASSES, QUERIES, 2)
    criterion.note_objects(np.array([1, 2, 0, 5]), StepPosition(1, 0, 9))
    assert criterion.epoch_lines() == []
    for step in (
        StepPosition(1, 1, 9),
        StepPosition(1, 1, 9, micro=1),
        StepPosition(1, 1, 9),
        StepPosition(1, 1, 9, micro=1),
    ):  # passes run again
        criterion.note_objects(np.array([(1, 8), (0, 6)][step.micro]), step)
    (line,) = criterion.epoch_lines()
    assert line.startswith("4 of 15 objects on the first device had no query: images have up to 8, but")
    assert "MODEL.NUM_QUERIES is 5" in line and criterion.epoch_lines() == []
