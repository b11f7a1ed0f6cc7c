"""The losses of RF-DETR's and RF-DETR Seg's authors, reproduced from their weights and from arrays alone."""

import numpy as np
import paddle
import pytest
from support.networks.golden import recipe
from support.networks.golden_rfdetr import EXACT, GOLDEN, cases, require_losses, stored

from paddlevit_dist.images.detection.rfdetr.criterion import GroupCriterion
from paddlevit_dist.images.detection.rfdetr.mask_criterion import MaskGroupCriterion
from paddlevit_dist.images.detection.rfdetr.masks import MaskVectors
from paddlevit_dist.images.detection.rtdetr.criterion import HeadOutputs, MatchedTargets
from paddlevit_dist.images.mask_queries.points import MaskStack, sample_between, sample_truth

PIECES = GOLDEN["pieces"]


def _random(name):
    return recipe()._rng(GOLDEN["seed"], f"pieces/{name}")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "case"), cases(is_large=False))
def test_golden_matches_losses_and_gradients(model, case, dtype):
    require_losses(model, case, dtype)


def _masks():
    shape = PIECES["target_mask_shape"]
    bits = np.unpackbits(stored()["pieces/masks"], count=int(np.prod(shape)))
    logits = 3 * _random("mask_logits").standard_normal(PIECES["mask_shape"])
    return paddle.to_tensor(logits), paddle.to_tensor(bits.reshape(1, *shape))


def test_golden_losses_of_masks_at_points():
    logits, masks = _masks()
    criterion, number = MaskGroupCriterion(3, 5, 2, 1), iter(range(len(PIECES["draws"])))

    def draw(*shape):
        i = next(number)
        assert PIECES["draws"][i] == [*shape, 2]
        return paddle.to_tensor(_random(f"points/rand{i}").random((*shape, 2), dtype=np.float32))

    criterion.draw = draw
    maps, places = logits.unsqueeze(1), paddle.arange(len(logits)).unsqueeze(1)
    losses = [float(part) / PIECES["num_masks"] for part in criterion.point_sums(maps, places, masks)]
    np.testing.assert_allclose(losses, [PIECES["loss_mask_ce"], PIECES["loss_mask_dice"]], rtol=EXACT)
    points = paddle.to_tensor(stored()["pieces/point_coordinates"].astype("float64"))
    found = sample_between(maps, points).squeeze(1).numpy()
    np.testing.assert_allclose(found, stored()["pieces/point_logits"].reshape(found.shape), rtol=0, atol=EXACT)
    labels = sample_truth(MaskStack(masks), places, points, False).numpy()
    np.testing.assert_array_equal(labels, stored()["pieces/point_labels"].reshape(labels.shape))


@pytest.mark.parametrize(("costs", "name"), [((1.0, 0.0), "cost_ce"), ((0.0, 1.0), "cost_dice")])
def test_golden_costs_of_masks(costs, name):
    logits, masks = _masks()
    criterion = MaskGroupCriterion(3, len(logits), 2, 1, cost_mask=costs[0], cost_dice=costs[1])
    drawn = _random("cost_points").random(PIECES["cost_points"], dtype=np.float32)
    criterion.draw = lambda images, number: paddle.to_tensor(drawn)
    queries = paddle.eye(len(logits), dtype="float64").unsqueeze(0)
    head = MaskVectors(queries, logits.transpose([1, 2, 0]).unsqueeze(0), paddle.zeros([1, len(logits), 1], "float64"))
    found = criterion.compare_masks(head, masks[:, :3])[0, 0].numpy()
    np.testing.assert_allclose(found, stored()[f"pieces/{name}"], rtol=0, atol=EXACT)


def test_golden_loss_of_classes():
    """The authors' ``ia_bce``."""
    logits = paddle.to_tensor(2 * _random("logits").standard_normal((2, 12, 5)))
    logits.stop_gradient = False
    boxes = paddle.to_tensor(_random("boxes").random((2, 12, 4)) * 0.4 + 0.2)
    classes, values, matched = np.full((1, 2, 12), 5), np.zeros((1, 2, 12, 4)), np.zeros((1, 2, 12))
    for image, (queries, objects) in enumerate(PIECES["matching"]):
        classes[0, image, queries] = _random(f"labels{image}").integers(0, 5, 4)[objects]
        values[0, image, queries] = (_random(f"target_boxes{image}").random((4, 4)) * 0.4 + 0.2)[objects]
        matched[0, image, queries] = 1
    heads = HeadOutputs(logits.unsqueeze(0), boxes.unsqueeze(0))
    targets = MatchedTargets(*map(paddle.to_tensor, (classes, values, matched)))
    loss = GroupCriterion(5, 12, 1, 1).class_sums(heads, targets)["class"].sum() / 8
    loss.backward()
    expected = PIECES["class_losses"]["ia_bce"]
    np.testing.assert_allclose(float(loss), expected["loss"], rtol=EXACT)
    np.testing.assert_allclose(float(logits.grad.norm()), expected["gradient_norm"], rtol=EXACT)
