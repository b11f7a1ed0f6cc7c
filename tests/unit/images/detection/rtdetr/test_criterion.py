"""The losses of RT-DETR and D-FINE, against brute force in NumPy, and denoising queries."""

import itertools
import pickle

import numpy as np
import paddle
import pytest
from support.networks.small_detr import CLASSES, QUERIES, make_objects
from support.samples.rtdetr_batches import (
    BINS,
    LAYERS,
    NOISE,
    SIZES,
    make_arrays,
    make_batch,
    make_index,
    make_targets,
)

from paddlevit_dist.core.data.sampler import SampleKey, sample_generator
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.boxes import to_relative
from paddlevit_dist.images.detection.denoising import ContrastiveNoise
from paddlevit_dist.images.detection.rtdetr.criterion import VarifocalCriterion
from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.detection.rtdetr.fine_criterion import FineCriterion, unite_matchings


def make_outputs(denoising):
    return {name: paddle.to_tensor(array) for name, array in make_arrays(denoising).items()}


def make_ends(box):
    half = np.maximum(box[2:], 0) / 2
    return np.concatenate([box[:2] - half, box[:2] + half])


def overlap_by_hand(first, second):
    """IoU and generalized IoU of two boxes given by center and sides."""
    a, b = make_ends(first), make_ends(second)
    inside = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return inside / union, inside / union - (hull - union) / hull


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def best_pairs(logits, boxes, truth, labels):
    """The cheapest of all assignments: [(query, object)]."""
    cost = np.zeros((len(boxes), len(labels)))
    for query, number in np.ndindex(*cost.shape):
        p = sigmoid(logits[query, labels[number]])
        focal = 0.25 * (1 - p) ** 2 * -np.log(p + 1e-8) - 0.75 * p**2 * -np.log(1 - p + 1e-8)
        _, giou = overlap_by_hand(boxes[query], truth[number])
        cost[query, number] = 2 * focal + 5 * np.abs(boxes[query] - truth[number]).sum() - 2 * giou
    queries, objects = range(len(boxes)), range(len(labels))
    if len(labels) <= len(boxes):
        every = [list(zip(chosen, objects)) for chosen in itertools.permutations(queries, len(labels))]
    else:
        every = [list(zip(queries, chosen)) for chosen in itertools.permutations(objects, len(boxes))]
    return min(every, key=lambda pairs: sum(cost[pair] for pair in pairs))


def varifocal_by_hand(logits, boxes, pairs, truth, labels, weights):
    total, object_of = 0.0, dict(pairs)
    for query, name in np.ndindex(*logits.shape):
        p, target, strength = sigmoid(logits[query, name]), 0.0, 0.75 * sigmoid(logits[query, name]) ** 2
        if query in object_of and labels[object_of[query]] == name:
            target = strength = overlap_by_hand(boxes[query], truth[object_of[query]])[0]
        entropy = -target * np.log(p) - (1 - target) * np.log(1 - p)
        total += strength * entropy * weights[query]
    return total


def boxes_by_hand(boxes, pairs, truth):
    """L1 distance and 1 - generalized IoU."""
    distance = sum(np.abs(boxes[query] - truth[number]).sum() for query, number in pairs)
    return distance, sum(1 - overlap_by_hand(boxes[query], truth[number])[1] for query, number in pairs)


def make_truth(targets, image):
    labels = targets.labels.numpy()[image]
    labels = labels[labels >= 0]
    return to_relative(targets.boxes.astype("float64"), targets.sizes).numpy()[image, : len(labels)], labels


def denoising_pairs(targets, image):
    objects = targets.denoising.objects.numpy()[image]
    return [(query, number) for query, number in enumerate(objects) if number < targets.labels.shape[1]]


def make_sums(criterion, outputs, targets):
    heads = criterion.heads(outputs)
    matches = criterion.matches(heads, targets)
    return matches, {
        name: value.numpy() for name, value in criterion.layer_sums(outputs, heads, targets, matches).items()
    }


def make_numpy(outputs):
    return {name: value.numpy() for name, value in outputs.items()}


def sums_by_hand(arrays, others, targets, prefix="", shared=None):
    """``class``, ``box`` and ``giou`` of each head, layers and then ``others``, of the outputs that begin so.

    Args:
        shared: pairs of queries and objects for the boxes of all heads, of each image; None: each head's own.
    """
    logits, boxes = (
        np.concatenate([arrays[f"{prefix}layer_{name}"], *(arrays[f"{prefix}{one}_{name}"][None] for one in others)])
        for name in ("logits", "boxes")
    )
    weights = targets.denoising.weights.numpy() if prefix else np.ones(logits.shape[1:3])
    found = {name: np.zeros(len(logits)) for name in ("class", "box", "giou")}
    for head, image in np.ndindex(*logits.shape[:2]):
        (truth, labels), given = make_truth(targets, image), (logits[head, image], boxes[head, image])
        pairs = denoising_pairs(targets, image) if prefix else best_pairs(*given, truth, labels)
        found["class"][head] += varifocal_by_hand(*given, pairs, truth, labels, weights[image])
        distance, overlap = boxes_by_hand(given[1], pairs if shared is None else shared[image], truth)
        found["box"][head] += distance * weights[image, 0]
        found["giou"][head] += overlap * weights[image, 0]
    return {name + ("_denoising" if prefix else ""): values for name, values in found.items()}


@pytest.mark.parametrize("numbers", [(2, 0, 1, 3), (0, 0, 0, 0), (6, 1, 7, 0)])
def test_losses_of_rtdetr_are_those_of_the_best_assignments_and_of_the_known_ones(numbers):
    targets = make_targets(make_batch(numbers))
    outputs = make_outputs(targets.denoising.labels.shape[1])
    _, found = make_sums(VarifocalCriterion(CLASSES, QUERIES, LAYERS, noise=NOISE), outputs, targets)
    arrays = make_numpy(outputs)
    expected = {**sums_by_hand(arrays, ["encoder"], targets), **sums_by_hand(arrays, [], targets, "denoising_")}
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-9, err_msg=name)


def union_by_hand(matchings, image, most):
    result = np.full(matchings.shape[2], most)
    for query in range(matchings.shape[2]):
        said = [one for one in matchings[:, image, query] if one < most]
        if said:
            result[query] = max(sorted(set(said)), key=said.count)
    return result


def test_a_batch_without_its_denoising_queries_is_refused():
    targets = make_targets(make_batch((2, 0, 1, 3)))
    outputs = make_outputs(targets.denoising.labels.shape[1])
    criterion = VarifocalCriterion(CLASSES, QUERIES, LAYERS, noise=NOISE)
    with pytest.raises(ValueError, match="has no denoising queries: see DetectionTargets.denoising$"):
        make_sums(criterion, outputs, targets._replace(denoising=None))


def test_the_union_takes_what_most_layers_say():
    random = np.random.default_rng(0)
    matchings = random.integers(0, 5, (7, 3, 20))
    matchings[:, 1] = 4  # an image without objects
    expected = np.stack([union_by_hand(matchings, image, 4) for image in range(3)])
    np.testing.assert_array_equal(unite_matchings(matchings, 4), expected, strict=True)
    assert (expected[1] == 4).all() and (expected[0] < 4).any()


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def fine_by_hand(logits, reference, box, wanted):
    """Cross-entropy of the two bins beside each side's distance, times the overlap."""
    table, (x, y, w, h), ends = BINS.distances(), reference, make_ends(wanted)
    distances = [(x - ends[0]) / w, (y - ends[1]) / h, (ends[2] - x) / w, (ends[3] - y) / h]
    total = 0.0
    for side, distance in enumerate(np.array(distances) * BINS.reg_scale - 0.5 * BINS.reg_scale):
        logs = np.log(softmax(logits[side]))
        below = np.searchsorted(table, distance, side="right") - 1
        if below < 0 or below >= BINS.number:
            total -= logs[0 if below < 0 else -1]
        else:
            right = (distance - table[below]) / (table[below + 1] - table[below])
            total -= (1 - right) * logs[below] + right * logs[below + 1]
    return total * overlap_by_hand(box, wanted)[0]


def divergence_by_hand(logits, teacher):
    return 25 * np.mean(
        [(softmax(t / 5) * np.log(softmax(t / 5) / softmax(s / 5))).sum() for s, t in zip(logits, teacher)]
    )


def distill_by_hand(arrays, prefix, layer, object_of, targets, weights, sizes):
    """Mean of the matched and mean of the others, weighted by the roots of ``sizes``."""
    sums, counts = np.zeros(2), np.zeros(2)
    for image, query in np.ndindex(*object_of.shape):
        corners = arrays[f"{prefix}layer_corners"][:, image, query].reshape(LAYERS, 4, -1)
        truth, labels = make_truth(targets, image)
        is_other = object_of[image, query] >= len(labels)
        if is_other:
            weight = sigmoid(arrays[f"{prefix}layer_logits"][-1, image, query]).max()
        else:
            box = arrays[f"{prefix}layer_boxes"][layer, image, query]
            weight = overlap_by_hand(box, truth[object_of[image, query]])[0]
        sums[int(is_other)] += weights[image, query] * weight * divergence_by_hand(corners[layer], corners[-1])
        counts[int(is_other)] += weights[image, query]
    roots = np.sqrt(sizes)
    return (sums / np.maximum(counts, 1) * roots).sum() / roots.sum()


@pytest.mark.parametrize("numbers", [(2, 0, 1, 3), (0, 0, 0, 0), (1, 1, 7, 0)])
def test_losses_of_dfine_with_the_union_and_distributions(numbers):
    targets = make_targets(make_batch(numbers))
    outputs = make_outputs(targets.denoising.labels.shape[1])
    matches, found = make_sums(FineCriterion(CLASSES, QUERIES, LAYERS, noise=NOISE, bins=BINS), outputs, targets)
    arrays, most = make_numpy(outputs), targets.labels.shape[1]
    union = np.stack([union_by_hand(matches.object_of, image, most) for image in range(4)])
    assert found["pairs"] == (union < most).sum()
    own, weights = targets.denoising.objects.numpy(), targets.denoising.weights.numpy()
    sizes, ones = np.array([(union < most).sum(), (union == most).sum()]), np.ones(union.shape)
    shared = [[(query, number) for query, number in enumerate(of_image) if number < most] for of_image in union]
    expected = sums_by_hand(arrays, ["first", "encoder"], targets, shared=shared)
    expected.update(sums_by_hand(arrays, ["first"], targets, "denoising_"))
    expected.update({"fine": np.zeros(LAYERS), "fine_denoising": np.zeros(LAYERS)})
    for name, prefix, objects, weight in (("", "", union, ones), ("_denoising", "denoising_", own, weights)):
        expected[f"distill{name}"] = [
            distill_by_hand(arrays, prefix, layer, objects, targets, weight, sizes) for layer in range(LAYERS - 1)
        ]
    for image, layer in np.ndindex(4, LAYERS):
        truth, _ = make_truth(targets, image)
        for prefix, some in (("", shared[image]), ("denoising_", denoising_pairs(targets, image))):
            for query, number in some:
                sides = arrays[f"{prefix}layer_corners"][layer, image, query].reshape(4, -1)
                reference = arrays[f"{prefix}references"][image, query]
                box = arrays[f"{prefix}layer_boxes"][layer, image, query]
                value = fine_by_hand(sides, reference, box, truth[number])
                expected["fine_denoising" if prefix else "fine"][layer] += value * (weights[image, 0] if prefix else 1)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-9, err_msg=name)


def test_bins_are_those_of_the_paper():
    table = DistanceBins(32, 0.5, 4.0).distances()
    step = 3 ** (2 / 30)
    expected = [-4, *(1 - step**i for i in range(15, 0, -1)), 0, *(step**i - 1 for i in range(1, 16)), 4]
    np.testing.assert_allclose(table, expected, rtol=1e-12)


def test_targets_have_the_distance_as_their_mean_and_end_at_the_last_bin():
    bins, table = DistanceBins(), DistanceBins().distances()
    references = paddle.to_tensor([[0.5, 0.5, 0.2, 0.2]] * 3, dtype="float64")
    wanted = paddle.to_tensor([[0.48, 0.5, 0.25, 0.17], [0.5, 0.5, 0.9, 0.9], [0.9, 0.5, 0.1, 0.1]], dtype="float64")
    target = bins.target(references, wanted).numpy()
    assert ((target > 0).sum(axis=-1) <= 2).all()
    np.testing.assert_allclose(target.sum(axis=-1), 1, rtol=1e-12)
    distance = (0.5 - (0.48 - 0.125)) / 0.2 * 4 - 2  # to the left, in sides / reg_scale
    np.testing.assert_allclose((target[0, 0] * table).sum(), distance, rtol=1e-9)
    np.testing.assert_allclose((target[1] * table).sum(axis=-1), 4)  # farther than any bin
    assert target[2, 0, 0] == 1  # the object lies right of the reference: less than the first bin


def loss_in_parts(kind, groups, normalizer="global"):
    """Gradients of the outputs of one update, for the images of each micro-batch of one process."""
    numbers = (3, 0, 1, 6)
    batch = make_batch(numbers)
    criterion = kind(
        CLASSES, QUERIES, LAYERS, normalizer, noise=NOISE, **({"bins": BINS} if kind is FineCriterion else {})
    )
    criterion = pickle.loads(pickle.dumps(criterion))
    totals = criterion.loss_normalizers(batch)
    assert set(totals) == set(criterion.normalizer_names)
    gradients = {}
    outputs = make_outputs(batch["denoising_labels"].shape[1])
    for rows in groups:
        own = {name: make_part(value, rows, name) for name, value in outputs.items()}
        for tensor in own.values():
            tensor.stop_gradient = False
        terms = criterion.terms(own, make_targets(batch, rows))
        compute_loss(terms, totals, len(groups), 1).backward()
        for name, tensor in own.items():
            if tensor.grad is not None:
                full = gradients.setdefault(name, np.zeros(outputs[name].shape))
                full[make_index(rows, name)] = tensor.grad.numpy()
    return gradients


def make_part(value, rows, name):
    return paddle.to_tensor(value.numpy()[make_index(rows, name)])


def test_gradients_of_rtdetr_do_not_depend_on_micro_batches():
    whole = loss_in_parts(VarifocalCriterion, [[0, 1, 2, 3]])
    assert {"layer_logits", "layer_boxes", "encoder_boxes", "denoising_layer_logits"} <= set(whole)
    for groups in ([[0, 1], [2, 3]], [[3], [1], [0, 2]]):
        for name, gradient in loss_in_parts(VarifocalCriterion, groups).items():
            assert np.abs(gradient - whole[name]).max() < 1e-12 and np.abs(gradient).max() > 0, name


def count_pairs(rows):
    """Of the union in these images of ``loss_in_parts``."""
    batch = make_batch((3, 0, 1, 6))
    outputs = make_outputs(batch["denoising_labels"].shape[1])
    outputs = {name: make_part(value, rows, name) for name, value in outputs.items()}
    criterion, targets = FineCriterion(CLASSES, QUERIES, LAYERS, noise=NOISE, bins=BINS), make_targets(batch, rows)
    return make_sums(criterion, outputs, targets)[1]["pairs"].item()


@pytest.mark.parametrize("groups", [([0, 1], [2, 3]), ([0], [1], [2], [3])])
def test_boxes_of_dfine_in_micro_batches_differ_from_the_batch_by_pairs_for_each_object(groups):
    (whole, parts), numbers = (loss_in_parts(FineCriterion, each) for each in ([[0, 1, 2, 3]], groups)), (3, 0, 1, 6)
    pairs_per_object = count_pairs([0, 1, 2, 3]) / sum(numbers)
    for rows in groups:
        objects = sum(numbers[row] for row in rows)
        ratio = pairs_per_object / (count_pairs(rows) / objects) if objects else 1.0
        for name in ("layer_boxes", "first_boxes", "encoder_boxes"):
            index = make_index(rows, name)
            np.testing.assert_allclose(parts[name][index], ratio * whole[name][index], rtol=1e-9, atol=1e-15)
    for name in ("layer_logits", "denoising_layer_boxes"):  # divided by objects
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("kind", [VarifocalCriterion, FineCriterion])
@pytest.mark.parametrize("broken", ["layer_logits", "layer_boxes", "encoder_boxes", "denoising_layer_logits"])
def test_outputs_that_are_not_finite_make_a_loss_that_is_not(kind, broken):
    batch = make_batch((2, 0, 1, 3))
    outputs = make_outputs(batch["denoising_labels"].shape[1])
    bins = {"bins": BINS} if kind is FineCriterion else {}
    array = outputs[broken].numpy()
    array[(0, 0) if "layer" in broken else 0] = np.nan
    outputs[broken] = paddle.to_tensor(array)
    terms = kind(CLASSES, QUERIES, LAYERS, noise=NOISE, **bins).terms(outputs, make_targets(batch))
    assert not np.isfinite(sum(term.sum.item() for term in terms.values() if term.weight))


def test_denoising_queries_follow_from_seed_epoch_and_image_alone():
    boxes, labels = make_objects((3, 1, 0, 6), SIZES)

    def drawn(row, number, epoch=1):
        generator = sample_generator(7, SampleKey(epoch, row, 0))
        return NOISE.draw(boxes[row, :number], labels[row, :number], SIZES[row], generator)

    one = NOISE.collate([drawn(0, 3), drawn(1, 1)], [3, 1], 3)
    other = NOISE.collate([drawn(1, 1), drawn(3, 6), drawn(2, 0)], [1, 6, 0], 6)
    for name in ("labels", "places", "groups", "weights"):
        np.testing.assert_array_equal(one[f"denoising_{name}"][1], other[f"denoising_{name}"][0], strict=True)
    assert (drawn(0, 3, epoch=2).places != drawn(0, 3).places).mean() > 0.5
    assert other["denoising_weights"][2].sum() == 0 and len(drawn(2, 0).labels) == 0


def test_denoising_boxes_move_by_up_to_half_a_side_and_negative_ones_farther():
    noise = ContrastiveNoise(CLASSES, queries=4000)
    box = np.array([[40.0, 45.0, 60.0, 55.0]])  # far from the edges of 125 x 100 pixels
    drawn = noise.draw(box, np.array([2]), (125, 100), np.random.default_rng(0))
    shares = 1 / (1 + np.exp(-drawn.places.astype(np.float64))).reshape(4000, 2, 4)
    ends = np.concatenate([shares[..., :2] - shares[..., 2:] / 2, shares[..., :2] + shares[..., 2:] / 2], -1)
    moved = np.abs(ends * ([100, 125] * 2) - box[0]) / ([20, 10] * 2) * 2  # in halves of the sides
    assert moved[:, 0].max() < 1.001 and 0.45 < moved[:, 0].mean() < 0.55
    is_whole = (shares[:, 1, 2:] > 1e-4).all(axis=-1)  # not turned inside out
    assert moved[is_whole, 1].min() > 0.999 and moved[is_whole, 1].max() < 2.001
    replaced = np.mean(drawn.labels != 2)
    assert abs(replaced - 0.25 * (CLASSES - 1) / CLASSES) < 0.02


def test_noise_stays_inside_of_the_image_and_has_a_group_of_many_objects():
    box = np.array([[0.0, 0.0, 50.0, 40.0]])  # the whole image
    drawn = ContrastiveNoise(CLASSES, queries=300).draw(box, np.array([1]), (40, 50), np.random.default_rng(0))
    x, y, width, height = (1 / (1 + np.exp(-drawn.places.astype(np.float64)))).T
    for center, side in ((x, width), (y, height)):
        assert (center - side / 2).min() > -1e-4 and (center + side / 2).max() < 1 + 1e-4
    assert ContrastiveNoise(CLASSES, queries=3).draw(
        np.tile(box, (5, 1)), np.zeros(5, int), (40, 50), np.random.default_rng(0)
    ).labels.shape == (10,)


@pytest.mark.parametrize("mirrors", [False, True])
def test_a_box_that_noise_turns_inside_out(mirrors):
    noise = ContrastiveNoise(CLASSES, queries=500, mirrors=mirrors)
    drawn = noise.draw(np.array([[40.0, 40.0, 60.0, 60.0]]), np.array([0]), (100, 100), np.random.default_rng(0))
    widths = 1 / (1 + np.exp(-drawn.places[:, 2]))
    assert (widths < 1e-4).any() != mirrors


@pytest.mark.parametrize("mirrors", [False, True])
def test_noise_is_that_of_a_loop_over_corners(mirrors):
    boxes, labels = np.array([[8.0, 5, 40, 20], [60, 30, 80, 45], [0, 40, 16, 50]]), np.array([2, 0, 3])
    noise, size = ContrastiveNoise(CLASSES, queries=7, mirrors=mirrors), (50, 80)  # two groups of three pairs
    drawn = noise.draw(boxes, labels, size, np.random.default_rng(3))
    random, shape = np.random.default_rng(3), (2, 2, 3, 4)
    shares, signs = random.random(shape), random.choice([-1.0, 1.0], shape)
    is_replaced, others = random.random(12) < 0.25, random.integers(CLASSES, size=12)
    for query, (group, is_negative, number) in enumerate(np.ndindex(2, 2, 3)):
        ends = []
        for corner in range(4):
            axis = corner % 2
            length = (80, 50)[axis]
            side = boxes[number, axis + 2] - boxes[number, axis]
            place = group, is_negative, number, corner
            moved = boxes[number, corner] + signs[place] * (shares[place] + is_negative) * side / 2
            ends.append(min(max(moved / length, 0), 1))
        width, height = (abs(end - start) if mirrors else max(end - start, 0) for start, end in zip(ends, ends[2:]))
        expected = np.array([(ends[0] + ends[2]) / 2, (ends[1] + ends[3]) / 2, width, height])
        np.testing.assert_allclose(1 / (1 + np.exp(-drawn.places[query].astype(float))), expected, atol=2e-5)
        assert drawn.labels[query] == (others[query] if is_replaced[query] else labels[number])
    assert 0 < is_replaced.sum() < 12 and drawn.places.shape == (12, 4)


def test_groups_see_the_ordinary_queries_and_themselves():
    batch = make_batch((2, 0, 3, 1))
    blocked = make_targets(batch).denoising.blocked(QUERIES).numpy()
    groups = batch["denoising_groups"]
    number = groups.shape[1]
    assert blocked.shape == (4, number + QUERIES, number + QUERIES)
    for image, row, column in np.ndindex(*blocked.shape):
        expected = 0 if column >= number else row >= number or groups[image, row] != groups[image, column]
        assert blocked[image, row, column] == expected
    assert [len(set(groups[image])) for image in range(4)] == [3, 1, 2, 6]
    positives = (batch["denoising_objects"] < 3).sum(axis=1)
    np.testing.assert_array_equal(positives, [6, 0, 6, 6], strict=True)
    np.testing.assert_allclose(
        (batch["denoising_weights"] * (batch["denoising_objects"] < 3)).sum(axis=1), [2, 0, 3, 1]
    )
