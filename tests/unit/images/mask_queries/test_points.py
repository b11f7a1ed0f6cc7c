"""Truths at points, of masks and of maps of numbers, and losses that do not depend on the company of an image."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from paddlevit_dist.images.mask_queries.criterion import MaskQueryCriterion, QueryTargets
from paddlevit_dist.images.mask_queries.points import MaskStack, NumberMaps, sample_truth


def _masks(images=2, classes=3, size=(5, 8)):
    """Label maps with a border, and the masks of their classes."""
    labels = np.random.default_rng(0).integers(0, classes + 1, (images, *size)).astype(np.uint8)
    labels[labels == classes] = 255
    return labels, np.stack([labels == each for each in range(classes)], axis=1).astype(np.uint8)


@pytest.mark.parametrize("is_soft", [True, False])
def test_maps_of_numbers_and_masks_have_the_truth_of_a_resampled_mask(is_soft):
    labels, masks = _masks()
    points = np.random.default_rng(1).random((6, 50, 2))
    points[:, :4] = [[0.001, 0.001], [0.9999, 0.9999], [0.01, 0.5], [0.45, 0.99]]  # none between two pixels
    objects = paddle.arange(6).unsqueeze(1)
    numbers = paddle.to_tensor(np.arange(3) * np.ones((2, 1), np.int64))
    stack, maps = MaskStack(paddle.to_tensor(masks)), NumberMaps(paddle.to_tensor(labels), numbers.astype("int64"))
    found = [sample_truth(each, objects, paddle.to_tensor(points), is_soft).numpy() for each in (stack, maps)]
    mode, flat = "bilinear" if is_soft else "nearest", paddle.to_tensor(masks.reshape(6, 1, 5, 8).astype("float64"))
    grid = paddle.to_tensor(2 * points - 1).unsqueeze(2)
    expected = F.grid_sample(flat, grid, mode=mode, padding_mode="zeros", align_corners=False)
    np.testing.assert_allclose(found[0], expected.numpy()[:, 0, :, 0], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found[0], found[1])


def _terms(labels, masks, counts, outputs, classes=3, **options):
    criterion = MaskQueryCriterion(classes, 4, 2, points=32, random_samples=False, **options)
    return criterion.terms(outputs, QueryTargets(MaskStack(paddle.to_tensor(masks)), paddle.to_tensor(labels), counts))


def _outputs(images=2):
    random = np.random.default_rng(2)
    outputs = {}
    for number in range(2):
        outputs[f"classes_{number}"] = paddle.to_tensor(random.standard_normal((images, 4, 4)))
        outputs[f"masks_{number}"] = paddle.to_tensor(3 * random.standard_normal((images, 4, 5, 8)))
    return outputs


def test_evenly_spread_points_give_an_image_the_same_losses_in_any_company():
    _, masks = _masks()
    labels, counts, outputs = np.array([[0, 1, 2], [2, -1, -1]]), np.array([3, 1]), _outputs()
    together = _terms(labels, masks, counts, outputs)
    alone = [
        _terms(labels[[i]], masks[[i]], counts[[i]], {name: value[i : i + 1] for name, value in outputs.items()})
        for i in range(2)
    ]
    for name, term in together.items():
        np.testing.assert_allclose(float(term.sum), sum(float(part[name].sum) for part in alone), rtol=1e-12)
        np.testing.assert_allclose(term.count, sum(part[name].count for part in alone), rtol=1e-12)


@pytest.mark.parametrize("part", ["classes_1", "masks_0"])
def test_predictions_that_are_not_finite_make_the_loss_so(part):
    _, masks = _masks()
    outputs = _outputs()
    outputs[part][0, 0] = np.nan
    terms = _terms(np.array([[0, 1, 2], [2, -1, -1]]), masks, np.array([3, 1]), outputs)
    assert not np.isfinite(sum(float(term.sum) * term.weight for term in terms.values()))
