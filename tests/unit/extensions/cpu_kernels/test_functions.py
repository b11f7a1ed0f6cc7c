"""Compiled parts of self-distillation: the last layer of its head, and the average that teaches."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.extensions.cpu_kernels import layers
from paddlevit_dist.images.pretraining.self_distillation.network import WeightNormLinear


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape)


@pytest.mark.parametrize("learned", [("x", "v"), ("v", "g"), ("x", "v", "g"), ("x",)])
def test_outputs_and_gradients_of_normalized_weights_are_those_in_float64(learned):
    values = {"x": draw(5, 8), "v": draw(11, 8), "g": np.abs(draw(11)) + 0.5}
    upward, found = draw(5, 11), {}
    for dtype in ("float32", "float64"):
        given = {name: paddle.to_tensor(value.astype(dtype)) for name, value in values.items()}
        for name in learned:
            given[name].stop_gradient = False
        if dtype == "float32":
            out = layers.normalized_linear(*given.values())
        else:
            directions = given["v"] / given["v"].square().sum(axis=1, keepdim=True).sqrt()
            out = paddle.matmul(given["x"], directions * given["g"].unsqueeze(1), transpose_y=True)
        gradients = paddle.grad((out * paddle.to_tensor(upward.astype(dtype))).sum(), [given[name] for name in learned])
        found[dtype] = [each.numpy() for each in (out, *gradients)]
    for one, other in zip(found["float32"], found["float64"]):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_layer_computes_other_types_as_well():
    paddle.seed(0)
    layer = WeightNormLinear(8, 11, True)
    x = paddle.to_tensor(draw(5, 8).astype("float32"))
    fast = layer(x).numpy()
    layer.to(dtype="float64")
    np.testing.assert_allclose(layer(x.astype("float64")).numpy(), fast, rtol=1e-5, atol=1e-6)


def test_tensors_move_by_a_share_unless_one_is_of_another_type():
    own, goals = [draw(3, 4), draw(5)], [draw(4, 3).T, draw(6)[:5]]
    tensors = [paddle.to_tensor(value.astype("float32")) for value in own]
    others = [paddle.to_tensor(value.astype("float32")) for value in goals]
    assert layers.move_toward(tensors, others, 0.25)
    for tensor, value, goal in zip(tensors, own, goals):
        np.testing.assert_allclose(tensor.numpy(), value + 0.25 * (goal - value), rtol=1e-6, atol=1e-6)
    before = tensors[0].numpy()
    assert not layers.move_toward(tensors, [others[0], others[1].astype("float64")], 0.25)
    np.testing.assert_array_equal(tensors[0].numpy(), before)
