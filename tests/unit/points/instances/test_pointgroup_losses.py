"""PointGroup's losses against plain formulas in float64."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.points.instances.pointgroup import PointGroup, offset_losses, score_loss

GENERATOR = np.random.default_rng(0)
XYZ, CENTERS = GENERATOR.random((40, 3)), GENERATOR.random((40, 3))
INSTANCES = np.where(np.arange(40) % 3 == 0, -100, np.arange(40) % 4)


def tensors(offsets):
    return [paddle.to_tensor(a, dtype="float32") for a in (offsets, XYZ, CENTERS)] + [paddle.to_tensor(INSTANCES)]


def test_offsets_are_compared_in_length_and_direction_where_there_is_an_instance():
    offsets = GENERATOR.standard_normal((40, 3))
    distance, direction = offset_losses(*tensors(offsets))
    valid, truth = INSTANCES >= 0, CENTERS - XYZ
    cosine = (offsets * truth).sum(axis=1) / np.linalg.norm(offsets, axis=1) / np.linalg.norm(truth, axis=1)
    np.testing.assert_allclose(distance.item(), abs(offsets - truth)[valid].sum(), rtol=1e-5)
    np.testing.assert_allclose(direction.item(), -cosine[valid].sum(), atol=1e-5)


def test_normalizations_add_the_papers_epsilon_to_the_variance():
    layers = [str(layer) for layer in PointGroup(4, width=2, repeats=1).sublayers()]
    found = [text for text in layers if text.startswith("BatchNorm(")]
    assert len(found) > 40 and all(text.endswith("epsilon=0.0001)") for text in found)


def test_an_offset_of_length_0_has_a_bounded_gradient():
    given = tensors(np.zeros((40, 3)))
    given[0].stop_gradient = False
    distance, direction = offset_losses(*given)
    (distance + direction).backward()
    gradient = given[0].grad.numpy()
    assert direction.item() == 0.0 and np.isfinite(gradient).all() and abs(gradient).max() < 1e4
    assert (gradient[INSTANCES < 0] == 0).all()


def test_a_point_at_the_center_and_no_valid_point():
    given = tensors(np.ones((40, 3)))
    given[2] = given[1]  # an instance of one point
    distance, direction = offset_losses(*given)
    assert direction.item() == 0.0 and np.isclose(distance.item(), 3.0 * (INSTANCES >= 0).sum())
    given[3] = paddle.full([40], -100)
    assert [value.item() for value in offset_losses(*given)] == [0.0, 0.0]


def test_a_direction_shorter_than_the_published_epsilon_counts_in_part():
    offsets, xyz = np.tile([0.0, 2.0, 0.0], (3, 1)), np.zeros((3, 3))
    given = [paddle.to_tensor(a, dtype="float32") for a in (offsets, xyz, [[0, 1e-8, 0], [0, 3e-8, 0], [0, 4.0, 0]])]
    assert offset_losses(*given, paddle.zeros([3], "int64"))[1].item() == pytest.approx(-(0.5 + 0.75 + 1), abs=1e-4)


def test_scores_are_compared_with_soft_targets():
    scores, targets = GENERATOR.standard_normal(9), np.linspace(0, 1, 9)
    share = 1 / (1 + np.exp(-scores))
    expected = -(targets * np.log(share) + (1 - targets) * np.log(1 - share)).sum()
    found = score_loss(*(paddle.to_tensor(a, dtype="float32") for a in (scores, targets)))
    np.testing.assert_allclose(found.item(), expected, rtol=1e-5)
