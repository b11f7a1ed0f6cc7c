"""Sums of many values on CPUs against float64: float32 sums of equal values are off by 1e-4 to 1e-2."""

import numpy as np
import paddle
import paddle.nn.functional as F
from support.networks.timm_zoo import needs_compat

from paddlevit_dist.core.losses import dice_losses, lovasz_softmax, scene_dice_losses
from paddlevit_dist.core.runtime.autocast import widen_for_sum
from paddlevit_dist.points.sparse.coordinate_plan import SceneRanges
from paddlevit_dist.points.sparse.pooling import reduce_by_scene
from paddlevit_dist.volumes.segmentation.losses import region_losses
from paddlevit_dist.volumes.unet3d import InstanceNorm3D

NUMBER = 1 << 17


def mostly_equal(*shape: int) -> np.ndarray:
    values = np.full(shape, 0.37, np.float32)
    values.reshape(-1)[: values.size // 50] = np.random.default_rng(0).standard_normal(values.size // 50)
    return values


def normalized(values: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    exact = values.astype(np.float64)
    return (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + epsilon)


def test_only_many_float32_values_are_widened():
    small, large = paddle.zeros([2048]), paddle.zeros([2049])
    assert widen_for_sum(small, 2048) is small
    assert (
        widen_for_sum(large, 2049).dtype == paddle.float64
        and widen_for_sum(large.astype("int32"), 2049).dtype == paddle.int32
    )


def test_a_norm_over_volumes():
    values = mostly_equal(2, 3, 32, 64, 64)
    found = InstanceNorm3D(3)(paddle.to_tensor(values))
    expected = normalized(values.reshape(6, -1)).reshape(values.shape)
    assert found.dtype == paddle.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@needs_compat
def test_a_norm_over_groups():
    from paddlevit_dist.images.models.bridges.torch_functions import group_norm

    values = mostly_equal(2, 4, 256, 128)
    expected = normalized(values.reshape(4, -1)).reshape(values.shape)
    weight, bias = paddle.full([4], 2.0), paddle.full([4], 1.0)
    found = group_norm(paddle.to_tensor(values), 2, weight, bias)
    np.testing.assert_allclose(found.numpy(), 2 * expected + 1, rtol=1e-5, atol=1e-5)


def test_an_instance_norm_learns_as_in_double_precision():
    values, slope = mostly_equal(1, 2, 16, 32, 32), mostly_equal(1, 2, 16, 32, 32)[:, :, ::-1].copy()
    gradients = []
    for dtype in ("float32", "float64"):
        layer, x = InstanceNorm3D(2).to(dtype=dtype), paddle.to_tensor(values, dtype=dtype, stop_gradient=False)
        (layer(x) * paddle.to_tensor(slope, dtype=dtype)).sum().backward()
        gradients.append([tensor.grad.numpy() for tensor in (x, layer.scale, layer.bias)])
    for found, expected in zip(*gradients):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_means_of_scenes():
    values = mostly_equal(NUMBER, 2)
    scenes = SceneRanges(paddle.zeros([NUMBER], "int32"), paddle.zeros([0], "int32"), [NUMBER])
    found = reduce_by_scene(paddle.to_tensor(values), scenes, paddle.mean)
    np.testing.assert_allclose(found.numpy()[0], values.astype(np.float64).mean(0), rtol=1e-6)


def test_dice_and_lovasz_of_many_elements():
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, (1, NUMBER))
    logits = np.where(np.arange(2)[None, :, None] == labels[:, None], 1.3, -0.4).astype(np.float32)
    p = np.exp(1.3) / (np.exp(1.3) + np.exp(-0.4))  # of the label, everywhere
    counts = np.bincount(labels[0])
    dice = sum(1 - 2 * p * n / (p * n + (1 - p) * (NUMBER - n) + n) for n in counts)
    tensors = paddle.to_tensor(logits), paddle.to_tensor(labels)
    assert abs(float(dice_losses(*tensors, 255, 0)[0]) / dice - 1) < 2e-6
    rows = tensors[0][0].t(), tensors[1][0]
    assert abs(float(scene_dice_losses(*rows, paddle.zeros([NUMBER], "int64"), 1, 255)[0]) / dice - 1) < 2e-6
    assert abs(float(lovasz_softmax(*rows, 255)[0]) / (2 * (1 - p)) - 1) < 2e-6
    regions = region_losses(paddle.to_tensor(logits[:, 1:]), tensors[1], [(1,)])
    q = 1 / (1 + np.exp([-1.3, 0.4]))
    overlap, predicted = q[0] * counts[1], q[0] * counts[1] + q[1] * counts[0]
    expected = 1 - (2 * overlap + 1e-5) / (predicted + counts[1] + 1e-5)
    assert abs(float(regions.dice) / expected - 1) < 2e-6
    entropy = F.binary_cross_entropy_with_logits(tensors[0][0, 1].astype("float64"), tensors[1][0].astype("float64"))
    assert abs(float(regions.cross_entropy) / NUMBER / float(entropy) - 1) < 1e-5
