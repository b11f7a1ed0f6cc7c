"""Fused kernels by Triton's interpreter, against NumPy's float64."""

import math

import numpy as np
import paddle
import pytest
from support.networks.fused_dropout import drop_path, dropout

from paddlevit_dist.extensions.gpu_kernels import launches
from paddlevit_dist.extensions.gpu_kernels.functions import TENSORS, name_dtype
from paddlevit_dist.extensions.gpu_kernels.launches import (
    AddNorm,
    AddNormBackward,
    BiasGelu,
    BiasGeluBackward,
    CastFive,
    DropRates,
    KernelTile,
    SumTypes,
)

# Half the distance of two numbers, as a share of the smaller; the interpreter does not round bfloat16 but cuts it.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-7}
EPSILON = 1e-6


def draw(seed: int, *shape: int, dtype: str = "float32") -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4")).astype(dtype)


def wide(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy().astype("f8")


def check(found: paddle.Tensor, expected: np.ndarray) -> None:
    """To one rounding, and a few of float32 on the way."""
    rounding = ROUNDING[name_dtype(found)]
    np.testing.assert_allclose(wide(found), expected, rtol=rounding, atol=32 * 2.0**-24 * np.abs(expected).max())


SEEDS = paddle.to_tensor(np.random.default_rng(8).integers(-(2**31), 2**31, 10, dtype="i4"))


# dtype of branch and norm, that of the sum, items, tokens of an item, width, has a branch, a bias, a norm, what drops
CASES = [
    ("float32", "float32", 1, 1, 1, True, True, True, DropRates()),
    ("float32", "float32", 3, 5, 77, True, True, True, DropRates(1, 0.3, 0.4)),
    ("float32", "float32", 2, 3, 12, False, False, True, DropRates()),
    ("float32", "float32", 1, 7, 192, True, False, True, DropRates()),
    ("float32", "float32", 5, 2, 40, True, True, False, DropRates(3, 0.2, 0.5)),
    ("float16", "float32", 4, 2, 33, True, True, True, DropRates(3, 0.0, 0.5)),
    ("bfloat16", "float32", 2, 3, 48, True, True, True, DropRates(1, 0.5, 0.0)),
    ("bfloat16", "bfloat16", 3, 2, 9, True, False, True, DropRates(1, 0.0, 0.3)),
    ("float16", "float16", 2, 2, 1030, False, False, True, DropRates()),
]


@pytest.mark.parametrize("dtype, sum_dtype, items, tokens, width, has_branch, has_bias, has_norm, drops", CASES)
def test_a_sum_and_its_norm_have_the_values_and_gradients_of_the_formula(
    dtype, sum_dtype, items, tokens, width, has_branch, has_bias, has_norm, drops
):
    shape = items, tokens, width
    x, total_gradient = (draw(seed, *shape, dtype=sum_dtype) for seed in (1, 2))
    branch, normal_gradient = (draw(seed, *shape, dtype=dtype) for seed in (3, 4))
    weight, shift, bias = (draw(seed, width) for seed in (5, 6, 7))
    types = SumTypes(
        *(sum_dtype, dtype if has_branch else None, "float32" if has_bias else None),
        *("float32" if has_norm else None, sum_dtype, dtype if has_norm else None),
    )
    seeds = SEEDS if drops.is_any else None
    compute = AddNorm(TENSORS, shape, types, EPSILON, drops)
    found = compute(x, branch if has_branch else None, bias if has_bias else None, weight, shift, seeds)
    factor = dropout(SEEDS.numpy(), drops.site, items * tokens, width, drops.rate).reshape(shape) if drops.rate else 1.0
    if drops.path_rate:
        factor = factor * drop_path(SEEDS.numpy(), drops.site + 1, items, drops.path_rate)[:, None, None]
    added = factor * (wide(branch) + (wide(bias) if has_bias else 0.0)) if has_branch else 0.0
    check(found.total, wide(x) + added)
    total = wide(found.total)  # what is normalized is rounded
    mean, scale = total.mean(-1, keepdims=True), 1 / np.sqrt(total.var(-1, keepdims=True) + EPSILON)
    standard = (total - mean) * scale
    if has_norm:
        check(found.normal, standard * wide(weight) + wide(shift))
    compute_backward = AddNormBackward(TENSORS, shape, types, drops, has_total_gradient=has_branch)
    gradients = compute_backward(
        *(found.total, found.statistics if has_norm else None, normal_gradient if has_norm else None),
        *(total_gradient if has_branch else None, weight if has_norm else None, seeds),
    )
    weighted = wide(normal_gradient) * wide(weight)
    along = weighted.mean(-1, keepdims=True) + standard * (weighted * standard).mean(-1, keepdims=True)
    expected = scale * (weighted - along) * has_norm + (wide(total_gradient) if has_branch else 0.0)
    check(gradients.x, expected)
    if has_norm:
        check(gradients.weight, (wide(normal_gradient) * standard).sum((0, 1)))
        check(gradients.shift, wide(normal_gradient).sum((0, 1)))
    if has_branch:
        check(gradients.branch, factor * expected)
    if has_bias:
        check(gradients.bias, (factor * expected).sum((0, 1)))
    assert [gradients.branch is None, gradients.bias is None] == [not has_branch, not has_bias]


@pytest.mark.parametrize(
    "dtype, rows, width, rate",
    [("float32", 1, 1, 0.0), ("float32", 5, 300, 0.25), ("float16", 7, 129, 0.0), ("bfloat16", 3, 40, 0.5)],
)
def test_a_gelu_has_the_values_and_gradients_of_the_formula(dtype, rows, width, rate):
    x, gradient, bias = draw(1, rows, width, dtype=dtype) * 2, draw(2, rows, width, dtype=dtype), draw(3, width)
    value = wide(x) + wide(bias)
    below = 0.5 * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))
    slope = below + value * np.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)
    drops, factor = DropRates(rate=rate), dropout(SEEDS.numpy(), 0, rows, width, rate) if rate else 1.0
    seeds = SEEDS if rate else None
    check(BiasGelu(TENSORS, [rows, width], dtype, "float32", drops)(x, bias, seeds), factor * value * below)
    compute_backward = BiasGeluBackward(TENSORS, [rows, width], dtype, dtype, "float32", drops)
    x_gradient, bias_gradient = compute_backward(gradient, x, bias, seeds)
    check(x_gradient, factor * wide(gradient) * slope)
    check(bias_gradient, (factor * wide(gradient) * slope).sum(0))


def test_a_program_adds_several_groups_of_rows_and_the_programs_are_added():
    rows, width = 23, 10
    x, gradient, bias = draw(1, rows, width), draw(2, rows, width), draw(3, width)
    tile = KernelTile(rows=2, columns=8, warps=1, programs=3)
    of_gelu = TENSORS, [rows, width], "float32", "float32", "float32"
    found, expected = (BiasGeluBackward(*of_gelu, tile=one)(gradient, x, bias)[1] for one in (tile, None))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    of_sum = TENSORS, [rows, width], SumTypes(*["float32"] * 6)
    saved = AddNorm(*of_sum, EPSILON, tile=KernelTile(4, 16, 1))(x, x, bias, bias, bias)
    found, expected = (
        AddNormBackward(*of_sum, tile=one)(saved.total, saved.statistics, gradient, x, bias)
        for one in (KernelTile(2, 16, 1, 3), None)
    )
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_a_share_of_the_values_is_dropped_independently_of_neighbors_sites_and_seeds():
    rows, width, rate = 512, 96, 0.25
    ones, zeros = paddle.ones([rows, 1, width]), paddle.zeros([width])
    types = SumTypes("float32", "float32", "float32", None, "float32", None)

    def draw_kept(seeds: paddle.Tensor, site: int) -> np.ndarray:
        compute = AddNorm(TENSORS, ones.shape, types, drops=DropRates(site, rate), tile=KernelTile(256, 128, 4))
        return compute(0.0 * ones, ones, zeros, seeds=seeds).total.numpy()[:, 0] != 0

    kept = draw_kept(SEEDS, 1)
    number = rows * width
    deviation = math.sqrt(rate * (1 - rate) / number)
    assert abs(kept.mean() - (1 - rate)) < 4 * deviation
    assert abs(kept.mean(0) - (1 - rate)).max() < 5 * deviation * math.sqrt(width)
    assert abs(kept.mean(1) - (1 - rate)).max() < 5 * deviation * math.sqrt(rows)
    centered = kept - kept.mean()
    others = [draw_kept(SEEDS, 3), draw_kept(SEEDS + paddle.to_tensor([0, 0, 1] + [0] * 7, "int32"), 1)]
    shifts = [np.roll(kept, (down, right), (0, 1)) for down, right in ((0, 1), (1, 0), (1, 1), (0, 2), (3, 0))]
    for other in [*others, *shifts]:  # correlations are normal with deviation 1 / sqrt(number)
        correlation = (centered * (other - other.mean())).mean() / (rate * (1 - rate))
        assert abs(correlation) < 4.5 / math.sqrt(number)


def test_tensors_are_cast_together():
    tensors = [draw(seed, size) for seed, size in enumerate((1, 5000, 4096, 3), 1)]
    copies = [paddle.empty(one.shape, "float16") for one in tensors]
    CastFive([one.size for one in tensors], ["float32"] * 4, "float16")(tensors, copies)
    for one, copy in zip(tensors, copies):
        np.testing.assert_array_equal(copy.numpy(), one.numpy().astype("f2"))


@pytest.mark.parametrize("width", [1, 7, 64, 192, 256, 257, 768, 1024, 1280, 3072, 5001, 20000])
def test_tiles_have_the_sizes_that_triton_takes(width):
    norms = launches.norm_tile(width), launches.norm_backward_tile(width)
    for tile in (*norms, launches.gelu_tile(width), launches.gelu_backward_tile(width)):
        assert all(size & (size - 1) == 0 and size > 0 for size in tile[:3])
    assert all(tile.columns >= width and tile.rows * tile.columns <= 32768 for tile in norms)
