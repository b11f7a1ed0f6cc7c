"""Losses over elements with classes: against their definitions in plain numpy, values and slopes."""

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.waits import counted_waits

from paddlevit_dist.core.losses import (
    adjusted_losses,
    choose_cross_entropy,
    cross_entropies,
    cross_entropy,
    dice_losses,
    look_up_weights,
    lovasz_softmax,
    mark_hardest,
    overlap,
    resized_cross_entropy,
    row_lovasz_softmax,
    scene_dice_losses,
    summed_cross_entropy,
)
from paddlevit_dist.core.registry.names import REGISTRY

CLASSES, NONE = 5, 255


RIGHT = cross_entropy.CANDIDATES


@pytest.fixture(params=RIGHT, autouse=True)
def way(request):
    """Compute cross-entropies in each way that a run may choose."""
    cross_entropy.use(RIGHT[request.param])
    yield request.param
    cross_entropy.use(next(iter(RIGHT.values())))


def points(number=40, unlabeled=0.3, seed=0):
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (number, CLASSES)).astype(np.float32)
    labels = generator.integers(0, CLASSES - 1, number)  # the last class does not occur
    labels[generator.random(number) < unlabeled] = NONE
    return paddle.to_tensor(logits, stop_gradient=False), paddle.to_tensor(labels)


def images(seed=0):
    """Of 2 x 4 x 5 pixels."""
    logits, labels = points(seed=seed)
    moved = logits.detach().reshape([2, 4, 5, CLASSES]).transpose([0, 3, 1, 2])
    return paddle.to_tensor(moved.numpy(), stop_gradient=False), labels.reshape([2, 4, 5])


def make_shares(logits, axis=1):
    exponents = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponents / exponents.sum(axis=axis, keepdims=True)


def assert_gradient_is_slope(loss, logits, places=((0, 0), (3, 2), (7, 4))):
    loss(logits).backward()
    start, gradient = logits.numpy().copy(), logits.grad.numpy()
    for place in places:
        values = []
        for step in (-1e-2, 1e-2):
            moved = start.copy()
            moved[place] += step
            values.append(loss(paddle.to_tensor(moved)).item())
        assert gradient[place] == pytest.approx((values[1] - values[0]) / 2e-2, abs=2e-3)
    assert np.abs(gradient).max() > 0


def test_cross_entropy_is_the_sum_over_labeled_elements():
    logits, labels = points()
    shares, known = make_shares(logits.numpy().astype(np.float64)), labels.numpy() != NONE
    expected = -np.log(shares[known, labels.numpy()[known]]).sum()
    assert summed_cross_entropy(logits, labels, NONE).item() == pytest.approx(expected, rel=1e-5)
    for shape in ([40], [4, 10]):  # the classes are in the last axis
        given = logits.reshape([*shape, CLASSES]), labels.reshape(shape), NONE
        assert summed_cross_entropy(*given).item() == pytest.approx(expected, rel=1e-5)
        each = cross_entropies(*given).numpy().ravel()
        assert each.sum() == pytest.approx(expected, rel=1e-5) and not each[~known].any()
    np.testing.assert_array_equal(adjusted_losses(logits, labels, NONE).numpy(), each, strict=True)


def test_classes_may_stand_in_the_middle_and_have_weights():
    weights = (0.5, 2.0, 1.0, 0.0, 3.0)
    logits, labels = images()
    flat = logits.numpy().astype(np.float64).transpose(0, 2, 3, 1).reshape(-1, CLASSES)
    true = labels.numpy().reshape(-1)
    known = true != NONE
    chosen = np.array(weights)[true[known]]
    expected = -(np.log(make_shares(flat)[known, true[known]]) * chosen).sum()
    loss = summed_cross_entropy(logits, labels, NONE, axis=1, weights=weights)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert look_up_weights(labels, NONE, weights).numpy().sum() == pytest.approx(chosen.sum())
    loss.backward()
    slope = make_shares(flat) * np.where(known, np.array(weights)[np.where(known, true, 0)], 0)[:, None]
    slope[np.flatnonzero(known), true[known]] -= chosen
    found = logits.grad.numpy().transpose(0, 2, 3, 1).reshape(-1, CLASSES)
    np.testing.assert_allclose(found, slope, atol=1e-5)


@pytest.mark.parametrize("threshold, kept", [(0.7, 3), (0.05, 3), (0.05, 15), (0.7, 1000)])
def test_hard_elements_are_the_unsure_ones_and_at_least_so_many(threshold, kept):
    logits, labels = images()
    losses = cross_entropies(logits, labels, NONE, axis=1).reshape([2, -1])
    found = mark_hardest(losses, labels.reshape([2, -1]), NONE, threshold, kept).numpy() > 0
    for hard, loss, true in zip(found, losses.numpy(), labels.numpy().reshape(2, -1)):
        shares, known = np.exp(-loss), true != NONE
        expected = known & (shares < threshold)
        expected[np.argsort(np.where(known, shares, 2.0))[: min(kept, known.sum())]] = True
        np.testing.assert_array_equal(hard, expected, strict=True)
        assert hard.sum() >= min(kept, known.sum()) > 0


def make_dice(logits, labels):
    """Of shares (rows, classes, elements), class by class."""
    total, number = 0.0, 0
    for row, true in zip(make_shares(logits.astype(np.float64)), labels):
        for one in range(row.shape[0]):
            truth, valid = true == one, true != NONE
            if truth.any():
                total += 1 - 2 * row[one][truth].sum() / (row[one][valid].sum() + truth.sum())
                number += 1
    return total, number


def test_dice_is_that_of_each_image_and_of_each_class_in_it():
    logits, labels = images()
    labels[1, :2] = 3  # the second has fewer classes
    flat, true = logits.reshape([2, CLASSES, -1]), labels.reshape([2, -1])
    flat, true = paddle.concat([flat, 0.5 * flat[:1]]), paddle.concat([true, true[:1].flip(1)])
    total, number = dice_losses(flat, true, NONE)
    expected, present = make_dice(flat.numpy(), true.numpy())
    assert (total.item(), number.item()) == (pytest.approx(expected, rel=1e-5), present)
    start = paddle.to_tensor(flat.numpy(), stop_gradient=False)
    places = ((0, 0, 3), (1, 2, 11), (1, 4, 19))
    assert_gradient_is_slope(lambda moved: dice_losses(moved, true, NONE)[0], start, places)


def test_dice_of_a_class_with_one_element_is_that_of_the_formula():
    logits = np.array([[[0.0], [2.0], [0.0]]], np.float32)
    total, number = dice_losses(paddle.to_tensor(logits), paddle.to_tensor([[2]]), NONE)
    share = 1 / (2 + np.e**2)
    assert (total.item(), number.item()) == (pytest.approx(1 - 2 * share / (share + 1), rel=1e-5), 1)


def test_sums_of_overlap_are_told_over_how_many_elements_they_go(monkeypatch):
    """Paddle's own sums of more than 2,048 elements may be off by 1e-3."""
    told = []
    monkeypatch.setattr(overlap, "widen_for_sum", lambda x, number: told.append((x.shape, number)) or x)
    logits, labels = images()
    dice_losses(logits.reshape([2, CLASSES, -1]), labels.reshape([2, -1]), NONE)
    assert told == [([40], 40), ([40], 40), ([2, 20], 20)]
    told.clear()
    logits, labels = points(number=30)
    scene_dice_losses(logits, labels, paddle.zeros_like(labels), 3, NONE)
    assert told == [([30], 30), ([30], 30), ([3, 30], 30)]
    told.clear()
    lovasz_softmax(logits, labels, NONE)
    assert told == [([30, CLASSES], 30)]


def test_dice_of_scenes_is_that_of_each_scene_by_itself():
    logits, labels = points(number=30)
    scenes = paddle.to_tensor(np.repeat([0, 2], [12, 18]))  # the second has no points
    total, number = scene_dice_losses(logits, labels, scenes, 3, NONE)
    parts = [make_dice(logits.numpy()[part].T[None], labels.numpy()[part][None]) for part in (slice(12), slice(12, 30))]
    assert total.item() == pytest.approx(sum(part for part, _ in parts), rel=1e-5)
    assert number.item() == sum(present for _, present in parts)
    assert_gradient_is_slope(lambda moved: scene_dice_losses(moved, labels, scenes, 3, NONE)[0], logits)


@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0, 0.0, 3.0)], ids=["equal", "weighted"])
@pytest.mark.parametrize("smoothing, focus", [(0.2, 0.0), (0.0, 2.0), (0.1, 0.5), (0.0, 0.0)])
def test_adjusted_losses_are_their_formula(weights, smoothing, focus):
    logits, labels = points()
    shares, true = make_shares(logits.numpy().astype(np.float64)), labels.numpy()
    factors, expected = np.array(weights or (1.0,) * CLASSES), np.zeros(len(true))
    for row in np.flatnonzero(true != NONE):
        own, others = -np.log(shares[row, true[row]]) * factors[true[row]], -np.log(shares[row]) * factors
        mixed = (1 - smoothing) * own + smoothing * others.sum() / CLASSES
        expected[row] = (1 - shares[row, true[row]]) ** focus * mixed
    found = adjusted_losses(logits, labels, NONE, weights, smoothing, focus)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6)
    assert_gradient_is_slope(
        lambda moved: adjusted_losses(moved, labels, NONE, weights, smoothing, focus).sum(), logits
    )


def test_a_focus_has_a_finite_slope_where_nothing_is_wrong():
    logits = paddle.to_tensor([[50.0, 0.0]], stop_gradient=False)
    adjusted_losses(logits, paddle.to_tensor([0]), NONE, focus=0.5).sum().backward()
    assert np.isfinite(logits.grad.numpy()).all()
    smoothed = adjusted_losses(logits, paddle.to_tensor([0]), NONE, None, 0.25, 0.5)
    assert smoothed.item() == pytest.approx(0.25 * (0 + 50) / 2 * 1e-7**0.5, rel=1e-4)


def test_without_a_labeled_element_losses_are_zero_with_zero_gradients():
    logits, _ = points(number=7)
    labels = paddle.full([7], NONE, dtype="int64")
    total, present = lovasz_softmax(logits, labels, NONE)
    dice, number = dice_losses(logits.transpose([1, 0]).unsqueeze(0), labels.unsqueeze(0), NONE)
    losses = cross_entropies(logits, labels, NONE).unsqueeze(0)
    dice += scene_dice_losses(logits, labels, paddle.zeros_like(labels), 1, NONE)[0]
    dice += adjusted_losses(logits, labels, NONE, smoothing=0.1, focus=2.0).sum()
    assert not mark_hardest(losses, labels.unsqueeze(0), NONE, 0.7, 3).numpy().any()
    (summed_cross_entropy(logits, labels, NONE, weights=(1.0,) * CLASSES) + total + dice).backward()
    assert present.item() == number.item() == 0 and not logits.grad.numpy().any()


def test_lovasz_is_the_extension_of_the_jaccard_loss():
    """Equation 8 of the paper by its definition: sets of elements that grow in the order of their errors."""
    logits, labels = points()
    shares, known = make_shares(logits.numpy().astype(np.float64)), labels.numpy() != NONE
    shares, truth = shares[known], labels.numpy()[known]
    expected, present = 0.0, 0
    for number in range(CLASSES):
        positive = truth == number
        if not positive.any():
            continue
        present += 1
        errors = np.abs(positive - shares[:, number])
        wrong, before = np.zeros(len(truth), bool), 0.0
        for point in np.argsort(-errors):
            wrong[point] = True
            jaccard = 1.0 - (positive & ~wrong).sum() / (positive | wrong).sum()
            expected += errors[point] * (jaccard - before)
            before = jaccard
    total, number = lovasz_softmax(logits, labels, NONE)
    assert number.item() == present == CLASSES - 1
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_gradient_of_lovasz_is_its_slope():
    logits, labels = points(number=12)
    assert_gradient_is_slope(lambda moved: lovasz_softmax(moved, labels, NONE)[0], logits)


def test_no_loss_makes_the_host_wait():
    logits, labels = images()
    flat, true = logits.reshape([2, CLASSES, -1]), labels.reshape([2, -1])
    with counted_waits() as waits:
        losses = cross_entropies(logits, labels, NONE, axis=1).reshape([2, -1])
        total = (losses * mark_hardest(losses, true, NONE, 0.7, 5)).sum()
        total += summed_cross_entropy(logits, labels, NONE, axis=1, weights=(1.0, 2.0, 1.0, 1.0, 0.5))
        total += dice_losses(flat, true, NONE)[0]
        points_of_one = flat[0].transpose([1, 0])
        total += lovasz_softmax(points_of_one, true[0], NONE)[0]
        total += adjusted_losses(points_of_one, true[0], NONE, (1.0, 2.0, 1.0, 1.0, 0.5), 0.1, 2.0).sum()
        total += scene_dice_losses(points_of_one, true[0], paddle.zeros_like(true[0]), 1, NONE)[0]
        total.backward()
    assert len(waits) == 0, str(waits)


def in_place(logits: paddle.Tensor, losses: paddle.Tensor, amount: float) -> paddle.Tensor:
    """The same losses; the backward pass overwrites them after it has computed right gradients."""

    class Overwritten(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, values):
            ctx.result = values.clone()
            return ctx.result

        @staticmethod
        def backward(ctx, gradient):
            with paddle.no_grad():
                paddle.assign(ctx.result.detach() + amount, output=ctx.result)
            return gradient

    return Overwritten.apply(losses)


PADDLES = next(iter(RIGHT.values()))
WRONG = {
    "losses": lambda logits, *rest: PADDLES(logits, *rest) * 1.001,
    "losses of voxels": lambda logits, *rest: PADDLES(logits, *rest) * (1.01 if logits.ndim == 5 else 1.0),
    "losses of rows": lambda logits, *rest: PADDLES(logits, *rest) * (1.01 if logits.ndim == 2 else 1.0),
    "gradients": lambda logits, *rest: PADDLES(logits * 1.01 - (logits * 0.01).detach(), *rest),
    "losses after their gradients": lambda logits, *rest: in_place(logits, PADDLES(logits, *rest), 0.5),
    "not a number": lambda logits, *rest: PADDLES(logits, *rest) * float("nan"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_each_way_is_right_here_and_the_first_is_used_without_a_line(name):
    used = []
    candidates = {name: lambda *given: used.append(given) or RIGHT[name](*given), "another": WRONG["losses"]}
    assert choose_cross_entropy(candidates) == []
    used.clear()
    logits, labels = images()
    cross_entropies(logits, labels, NONE, axis=1)
    assert len(used) == 1


@pytest.mark.parametrize("wrong", WRONG)
def test_the_first_way_that_is_right_is_used_and_named(wrong):
    candidates = {"the wrong one": WRONG[wrong], "its twin": WRONG[wrong], **RIGHT}
    (line,) = choose_cross_entropy(candidates)
    assert line.startswith("cross-entropy on this device: Paddle's cross-entropy; the wrong one is off by ")
    logits, labels = images()
    expected = -np.log(np.take_along_axis(make_shares(logits.numpy()), labels.numpy()[:, None] % CLASSES, 1))[:, 0]
    expected[labels.numpy() == NONE] = 0
    np.testing.assert_allclose(cross_entropies(logits, labels, NONE, axis=1).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_device_that_computes_none_as_numpy_does_ends_the_run_in_a_line(wrong):
    text = refusal_of(choose_cross_entropy, {"one": WRONG[wrong], "another": WRONG["losses"]})
    assert "one is off by " in text and "another is off by " in text and "softmax" in text
    assert text.endswith("or train with -device=cpu")
    logits, labels = images()
    cross_entropies(logits, labels, NONE, axis=1)  # what was in use before


@pytest.mark.parametrize("factor, is_right", [(1.00005, True), (1.00025, False)])
def test_a_way_may_be_off_by_a_ten_thousandth(factor, is_right):
    lines = choose_cross_entropy({"near": lambda *given: PADDLES(*given) * factor, **RIGHT})
    assert (lines == []) is is_right


@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3, 4), (2, 5, 3, 2, 4)])
def test_losses_far_from_zero_do_not_overflow_by_plain_operations(way, shape):
    if way != "plain operations":
        pytest.skip("Paddle's own operation ends at 64 on a CPU")
    logits = np.random.default_rng(0).standard_normal(shape).astype("f4") * 1e4
    labels = paddle.zeros([shape[0], *shape[2:]], "int64")
    found = cross_entropies(paddle.to_tensor(logits), labels, NONE, axis=1).numpy()
    expected = logits.max(axis=1) - logits[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-2)
    summed = summed_cross_entropy(paddle.to_tensor(logits), labels, NONE, axis=1)
    assert summed.item() == pytest.approx(expected.sum(), rel=1e-5)


def test_dice_leaves_out_the_classes_before_the_first():
    logits, labels = images()
    flat, true = logits.reshape([2, CLASSES, -1]).numpy(), labels.reshape([2, -1]).numpy()
    total, number = dice_losses(paddle.to_tensor(flat), paddle.to_tensor(true), NONE, first=1)
    background = make_dice(flat, np.where((true == 0) | (true == NONE), true, 77))  # no other class occurs
    whole = make_dice(flat, true)
    assert number.item() == whole[1] - background[1] == 6
    assert total.item() == pytest.approx(whole[0] - background[0], rel=1e-4)


def test_lovasz_of_rows_is_that_of_each_row():
    logits, labels = images()
    labels[1, :2] = 3
    flat, true = logits.reshape([2, CLASSES, -1]), labels.reshape([2, -1])
    total, number = row_lovasz_softmax(flat, true, NONE)
    parts = [lovasz_softmax(flat[row].t(), true[row], NONE) for row in range(2)]
    assert total.item() == pytest.approx(sum(part.item() for part, _ in parts), rel=1e-5)
    assert number.item() == sum(present.item() for _, present in parts) > 4


@pytest.mark.parametrize("weights", [None, (0.5, 2.0)])
def test_maps_are_resized_between_the_centers_of_pixels_unless_they_fit_or_a_faster_function_does_it(
    monkeypatch, weights
):
    """One row of two pixels for labels of four: the outer ones are repeated, the inner ones mixed 3 to 1."""
    monkeypatch.delitem(REGISTRY.functions, "resized_cross_entropy", raising=False)
    small = np.array([[[[0.0, 4.0]], [[1.0, -3.0]]]], np.float32)
    large = small @ np.array([[1, 0.75, 0.25, 0], [0, 0.25, 0.75, 1]], np.float32)
    labels = np.array([[[1, 0, NONE, 1]]])
    shares, known = make_shares(large.astype(np.float64)), np.array([0, 1, 3])
    true = labels[0, 0, known]
    factors = np.array(weights or (1.0, 1.0))[true]
    expected = -(np.log(shares[0, true, 0, known]) * factors).sum()
    for logits in (small, large):
        loss = resized_cross_entropy(paddle.to_tensor(logits), paddle.to_tensor(labels), NONE, weights)
        assert loss.item() == pytest.approx(expected, rel=1e-5)
    given = []
    fast = [paddle.to_tensor(7.0), None]
    monkeypatch.setitem(REGISTRY.functions, "resized_cross_entropy", lambda *all_: given.append(all_) or fast.pop(0))
    arguments = paddle.to_tensor(small), paddle.to_tensor(labels), NONE, weights
    assert resized_cross_entropy(*arguments).item() == 7.0
    assert resized_cross_entropy(*arguments).item() == pytest.approx(expected, rel=1e-5)
    assert all(one is other for one, other in zip(given[0], arguments))
