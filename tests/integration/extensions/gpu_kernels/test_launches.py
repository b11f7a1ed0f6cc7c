"""Fused kernels by Triton's interpreter, against NumPy's float64."""

import math

import numpy as np
import paddle
import pytest

from paddlevit_dist.extensions.gpu_kernels import launches
from paddlevit_dist.extensions.gpu_kernels.functions import _TENSORS
from paddlevit_dist.extensions.gpu_kernels.launches import KernelTile

# Half the distance of two numbers, as a share of the smaller; the interpreter does not round bfloat16 but cuts it.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-7}
EPSILON = 1e-6


def draw(seed: int, *shape: int, dtype: str = "float32") -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4")).astype(dtype)


def wide(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy().astype("f8")


def check(found: paddle.Tensor, expected: np.ndarray) -> None:
    """To one rounding, and a few of float32 on the way."""
    rounding = ROUNDING[_TENSORS.name(found)]
    np.testing.assert_allclose(wide(found), expected, rtol=rounding, atol=32 * 2.0**-24 * np.abs(expected).max())


# dtype of branch and norm, that of the sum, items, tokens of an item, width, has a branch, a bias, a factor
CASES = [
    ("float32", "float32", 1, 1, 1, True, True, True),
    ("float32", "float32", 3, 5, 77, True, True, True),
    ("float32", "float32", 2, 3, 12, False, False, False),
    ("float32", "float32", 1, 7, 192, True, False, False),
    ("float16", "float32", 4, 2, 33, True, True, True),
    ("bfloat16", "float32", 2, 3, 48, True, True, False),
    ("bfloat16", "bfloat16", 3, 2, 9, True, False, True),
    ("float16", "float16", 2, 2, 1030, False, False, False),
]


@pytest.mark.parametrize("dtype, sum_dtype, items, tokens, width, has_branch, has_bias, has_keep", CASES)
def test_a_sum_and_its_norm_have_the_values_and_gradients_of_the_formula(
    dtype, sum_dtype, items, tokens, width, has_branch, has_bias, has_keep
):
    shape = items, tokens, width
    x, total_gradient = (draw(seed, *shape, dtype=sum_dtype) for seed in (1, 2))
    branch, normal_gradient = (draw(seed, *shape, dtype=dtype) for seed in (3, 4))
    weight, shift, bias = (draw(seed, width) for seed in (5, 6, 7))
    keep = paddle.to_tensor(np.resize([0.0, 1.25], [items, 1, 1]).astype("f4"))
    options = {"bias": bias if has_bias else None, "keep": keep if has_keep else None}
    found = launches.add_norm(
        *(_TENSORS, x, branch if has_branch else None, (weight, shift)),
        **{**options, "epsilon": EPSILON, "dtype": dtype, "total_dtype": sum_dtype},
    )
    factor = wide(keep) if has_keep else 1.0
    added = factor * (wide(branch) + (wide(bias) if has_bias else 0.0)) if has_branch else 0.0
    check(found.total, wide(x) + added)
    total = wide(found.total)  # what is normalized is rounded
    mean, scale = total.mean(-1, keepdims=True), 1 / np.sqrt(total.var(-1, keepdims=True) + EPSILON)
    standard = (total - mean) * scale
    check(found.normal, standard * wide(weight) + wide(shift))
    gradients = launches.add_norm_backward(
        *(_TENSORS, found, normal_gradient, total_gradient if has_branch else None, weight),
        keep=options["keep"],
        branch_dtype=dtype if has_branch else None,
        bias_dtype="float32" if has_bias else None,
        x_dtype=sum_dtype,
    )
    weighted = wide(normal_gradient) * wide(weight)
    along = weighted.mean(-1, keepdims=True) + standard * (weighted * standard).mean(-1, keepdims=True)
    expected = scale * (weighted - along) + (wide(total_gradient) if has_branch else 0.0)
    check(gradients.x, expected)
    check(gradients.weight, (wide(normal_gradient) * standard).sum((0, 1)))
    check(gradients.shift, wide(normal_gradient).sum((0, 1)))
    if has_branch:
        check(gradients.branch, factor * expected)
    if has_bias:
        check(gradients.bias, (factor * expected).sum((0, 1)))
    assert [gradients.branch is None, gradients.bias is None] == [not has_branch, not has_bias]


@pytest.mark.parametrize(
    "dtype, rows, width", [("float32", 1, 1), ("float32", 5, 300), ("float16", 7, 129), ("bfloat16", 3, 40)]
)
def test_a_gelu_has_the_values_and_gradients_of_the_formula(dtype, rows, width):
    x, gradient, bias = draw(1, rows, width, dtype=dtype) * 2, draw(2, rows, width, dtype=dtype), draw(3, width)
    value = wide(x) + wide(bias)
    below = 0.5 * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))
    slope = below + value * np.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)
    check(launches.bias_gelu(_TENSORS, x, bias), value * below)
    x_gradient, bias_gradient = launches.bias_gelu_backward(_TENSORS, gradient, x, bias)
    check(x_gradient, wide(gradient) * slope)
    check(bias_gradient, (wide(gradient) * slope).sum(0))


def test_a_program_adds_several_groups_of_rows_and_the_programs_are_added():
    rows, width = 23, 10
    x, gradient, bias = draw(1, rows, width), draw(2, rows, width), draw(3, width)
    tile = KernelTile(rows=2, columns=8, warps=1, programs=3)
    _, expected = launches.bias_gelu_backward(_TENSORS, gradient, x, bias)
    _, found = launches.bias_gelu_backward(_TENSORS, gradient, x, bias, tile=tile)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    saved = launches.add_norm(_TENSORS, x, x, (bias, bias), epsilon=EPSILON, dtype="float32", tile=KernelTile(4, 16, 1))
    options = {"branch_dtype": "float32", "bias_dtype": "float32"}
    found = launches.add_norm_backward(_TENSORS, saved, gradient, x, bias, tile=KernelTile(2, 16, 1, 3), **options)
    expected = launches.add_norm_backward(_TENSORS, saved, gradient, x, bias, **options)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 7, 64, 192, 256, 257, 768, 1024, 1280, 3072, 5001, 20000])
def test_tiles_have_the_sizes_that_triton_takes(width):
    norms = launches.norm_tile(width), launches.norm_backward_tile(width)
    for tile in (*norms, launches.gelu_tile(width), launches.gelu_backward_tile(width)):
        assert all(size & (size - 1) == 0 and size > 0 for size in tile[:3])
    assert all(tile.columns >= width and tile.rows * tile.columns <= 32768 for tile in norms)
