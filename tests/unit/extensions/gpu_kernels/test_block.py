"""A block behind its attention as one node of the graph, against Paddle's operations."""

import contextlib
from collections.abc import Iterator

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F
from support.half_on_cpu import products_in
from support.networks.fused_dropout import drop_path, dropout

from paddlevit_dist.extensions.gpu_kernels import block, weight_gradients
from paddlevit_dist.extensions.gpu_kernels.block import BlockLaunches, FusedBlockOptions, compute_block
from paddlevit_dist.extensions.gpu_kernels.launches import DropRates

BATCH, TOKENS, WIDTH, HIDDEN, HEADS = 2, 3, 8, 20, 6
EPSILONS = 1e-6, 1e-5
SEEDS = np.random.default_rng(8).integers(-(2**31), 2**31, 10, dtype="i4")
# attended, input of the block, then its parameters and those of the next block.
SHAPES = [
    *([BATCH, TOKENS, 12], [BATCH, TOKENS, WIDTH], [12, WIDTH], [WIDTH], [WIDTH], [WIDTH], [WIDTH, HIDDEN], [HIDDEN]),
    *([HIDDEN, WIDTH], [WIDTH], [WIDTH], [WIDTH], [WIDTH, HEADS * 4], [HEADS * 4]),
]
NAMES = "attended x proj proj_bias norm shift fc1 fc1_bias fc2 fc2_bias next next_shift qkv qkv_bias".split()


def make_options(rate: float = 0.0, path_rate: float = 0.0) -> FusedBlockOptions:
    return FusedBlockOptions(EPSILONS, rate, DropRates(1, rate, path_rate), DropRates(3, rate, path_rate))


def draw(shape: list[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def fused(inputs: list[paddle.Tensor], options: FusedBlockOptions, dtype: str = "float32"):
    attended, x, *parameters = inputs
    heads = HEADS if len(parameters) > 8 else 0
    return compute_block(attended.astype(dtype), x, parameters, options, BlockLaunches(), heads)


def plain(inputs: list[paddle.Tensor], options: FusedBlockOptions):
    """The same in the seeds of the tests."""
    attended, x, proj, proj_bias, norm, shift, fc1, fc1_bias, fc2, fc2_bias, *following = inputs

    def normalize(total, weight, bias, epsilon):  # a CPU has a wrong gradient beside a frozen weight
        return bias + weight * F.layer_norm(total, [WIDTH], epsilon=epsilon)

    def factors(drops: DropRates) -> paddle.Tensor:
        values = dropout(SEEDS, drops.site, BATCH * TOKENS, WIDTH, drops.rate).reshape([BATCH, TOKENS, WIDTH])
        items = drop_path(SEEDS, drops.site + 1, BATCH, drops.path_rate)[:, None, None]
        return paddle.to_tensor((values * items).astype("f4"))

    total = x + factors(options.attention_drops) * (attended @ proj + proj_bias)
    hidden = F.gelu(normalize(total, norm, shift, EPSILONS[0]) @ fc1 + fc1_bias)
    kept = dropout(SEEDS, 0, BATCH * TOKENS, HIDDEN, options.hidden_rate).reshape(hidden.shape)
    total = total + factors(options.mlp_drops) * ((hidden * paddle.to_tensor(kept.astype("f4"))) @ fc2 + fc2_bias)
    if not following:
        return total
    product = normalize(total, *following[:2], EPSILONS[1]) @ following[2]
    product = product + following[3] if len(following) > 3 else product
    return total, product.reshape([BATCH, TOKENS, HEADS, -1])


def compute(function, number: int, frozen: tuple[str, ...], *arguments) -> list[np.ndarray | None]:
    """Results and gradients of the first ``number`` inputs, of which some are frozen; the block's input is a view."""
    inputs = [paddle.to_tensor(draw(shape, seed)) for seed, shape in enumerate(SHAPES[:number])]
    inputs[1] = paddle.to_tensor(draw([BATCH, WIDTH, TOKENS], 1)).transpose([0, 2, 1]).detach()
    for name, one in zip(NAMES, inputs):
        one.stop_gradient = name in frozen
    results = function(inputs, *arguments)
    results = list(results) if isinstance(results, tuple) else [results]
    read = [one for one in results if not one.stop_gradient]
    gradients = [paddle.to_tensor(draw(one.shape, 20 + number)) for number, one in enumerate(read)]
    paddle.autograd.backward(read, gradients)
    return [*(one.numpy() for one in results), *(None if one.grad is None else one.grad.numpy() for one in inputs)]


def check(found: list, expected: list, share: float = 2e-5) -> None:
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        name = f"{number} of {len(found)}"  # results, then gradients
        assert (one is None) == (other is None), name
        if other is not None:
            np.testing.assert_allclose(one, other, rtol=share, atol=share * np.abs(other).max(), err_msg=name)


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    monkeypatch.setattr(block, "draw_seeds", lambda: paddle.to_tensor(SEEDS))


@pytest.mark.parametrize("number", [10, 13, 14])  # no next block; one whose product for q, k and v has no bias
def test_a_block_has_the_values_and_gradients_of_its_operations(number):
    for options in (make_options(), make_options(0.3, 0.5)):
        check(compute(fused, number, (), options), compute(plain, number, (), options))


@pytest.mark.parametrize("number", [10, 14])
@pytest.mark.parametrize(
    "drops", [(0.3, 0, 0, 0, 0), (0, 0.3, 0, 0, 0), (0, 0, 0.5, 0, 0), (0, 0, 0, 0.3, 0), (0, 0, 0, 0, 0.5)]
)
def test_each_kind_of_drop_alone_is_drawn_and_has_its_gradient(number, drops):
    hidden, *rates = drops
    options = FusedBlockOptions(EPSILONS, hidden, DropRates(1, *rates[:2]), DropRates(3, *rates[2:]))
    found, expected = compute(fused, number, (), options), compute(plain, number, (), options)
    check(found, expected)
    assert (found[0] != compute(plain, number, (), make_options())[0]).any()


@pytest.mark.parametrize(
    "frozen",
    [("attended", "x"), ("proj", "norm", "fc1", "fc2_bias", "qkv"), tuple(NAMES[2:10]), ("attended", *NAMES[2:])],
)
def test_what_is_frozen_gets_no_gradient(frozen):
    check(compute(fused, 14, frozen, make_options()), compute(plain, 14, frozen, make_options()))


@contextlib.contextmanager
def half_products() -> Iterator[dict[str, int]]:
    """Products in half precision on a CPU, which rounds their results; returns how often those of GPUs were called."""
    calls = {"fused_linear": 0, "weight_gradient": 0}
    matmul = paddle._C_ops.matmul

    def multiply(x, y, transpose_x=False, transpose_y=False):
        if x.element_size() == 4:
            return matmul(x, y, transpose_x, transpose_y)
        assert x.dtype == y.dtype
        return matmul(x.astype("float32"), y.astype("float32"), transpose_x, transpose_y).astype(x.dtype)

    def add(x, y):
        assert x.dtype == y.dtype
        return (x.astype("float32") + y.astype("float32")).astype(x.dtype)

    def fused_linear(x, weight, bias):
        calls["fused_linear"] += 1
        return add(multiply(x, weight, False, False), bias)

    def weight_gradient(x, gradient, weight, bias, is_wide, has_bias):
        assert (weight, bias, is_wide, has_bias) == (None, None, True, False)
        calls["weight_gradient"] += 1
        return matmul(x.astype("float32"), gradient.astype("float32"), True, False), None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paddle._C_ops, "matmul", multiply)
        patch.setattr(paddle._C_ops, "add", add)
        patch.setattr(paddle._C_ops, "fused_linear_param_grad_add", weight_gradient, raising=False)
        patch.setattr(block.biases, "fused_linear", fused_linear)
        yield calls


@pytest.mark.parametrize("dtype, share", [("float16", 2.0**-8), ("bfloat16", 2.0**-5)])
@pytest.mark.parametrize("is_agreed", [False, True])  # by the GPU, to compute a bias or a weight's gradient in one
def test_in_half_precision_results_are_rounded_and_gradients_are_float32(monkeypatch, dtype, share, is_agreed):
    monkeypatch.setattr(block.biases, "has_epilogue", lambda *arguments: is_agreed)
    monkeypatch.setattr(weight_gradients, "is_right", lambda *arguments: is_agreed)
    options = make_options(0.3, 0.5)
    found_types = []

    def in_half(inputs, options):
        with products_in(dtype):
            total, packed = fused(inputs, options, dtype)
        found_types.append([str(one.dtype).rpartition(".")[2] for one in (total, packed)])
        return total, packed.astype("float32")

    with half_products() as calls:
        found = compute(in_half, 14, (), options)
    assert found_types == [["float32", dtype]]
    assert all(one.dtype == np.float32 for one in found)
    assert list(calls.values()) == ([1, 4] if is_agreed else [0, 0])
    check(found, compute(plain, 14, (), options), share)


def test_weights_that_were_cast_before_get_gradients_in_half_precision():
    """As where a run casts the weights of all layers together, which also casts the gradients back."""
    inputs = [paddle.to_tensor(draw(shape, seed)) for seed, shape in enumerate(SHAPES)]
    weights = [position for position, name in enumerate(NAMES) if name in ("proj", "fc1", "fc2", "qkv")]
    inputs = [one.astype("float16") if number in weights else one for number, one in enumerate(inputs)]
    for one in inputs:
        one.stop_gradient = False
    with half_products():
        with products_in("float16"):
            total, packed = fused(inputs, make_options(), "float16")
        paddle.autograd.backward([total, packed], [paddle.ones_like(total), paddle.ones_like(packed)])
    assert [one.grad.dtype == paddle.float16 for one in inputs] == [number in weights for number in range(len(NAMES))]
    wide = [one.detach().astype("float32") for one in inputs]
    for one in wide:
        one.stop_gradient = False
    expected = plain(wide, make_options())
    paddle.autograd.backward([*expected], [paddle.ones_like(one) for one in expected])
    found = [one.detach().astype("float32").numpy() for one in (total, packed, *(one.grad for one in inputs))]
    check(found, [one.detach().numpy() for one in (*expected, *(one.grad for one in wide))], 2.0**-7)


def test_copies_of_weights_follow_the_weights_and_inputs_may_have_other_sizes():
    kept, options = BlockLaunches(), make_options()
    inputs = [paddle.to_tensor(draw(shape, seed)) for seed, shape in enumerate(SHAPES[:10])]
    found = []
    with half_products(), products_in("float16"):
        for _ in range(2):
            inputs[6].set_value(inputs[6] * 2.0)
            compute_block(inputs[0][:1].astype("float16"), inputs[1][:1], inputs[2:], options, kept)
            found.append(compute_block(inputs[0].astype("float16"), inputs[1], inputs[2:], options, kept).numpy())
            expected = compute_block(inputs[0].astype("float16"), inputs[1], inputs[2:], options, BlockLaunches())
            np.testing.assert_array_equal(found[-1], expected.numpy())
    assert (found[0] != found[1]).any()


def test_without_gradients_the_values_are_the_same_and_a_gradient_of_a_gradient_is_refused():
    inputs = [paddle.to_tensor(draw(shape, seed), stop_gradient=False) for seed, shape in enumerate(SHAPES)]
    expected = fused(inputs, make_options(0.3, 0.5))
    with paddle.no_grad():
        found = fused(inputs, make_options(0.3, 0.5))
    for one, other in zip(found, expected):
        assert one.stop_gradient and not other.stop_gradient
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    with pytest.raises(Exception, match="create_graph.*GPU_KERNELS"):
        paddle.grad(fused(inputs, make_options())[0].sum(), [inputs[0]], create_graph=True)


@pytest.mark.parametrize("position", [0, 1])
def test_only_the_total_or_only_the_next_attention_is_read(position):
    """A block that is skipped does not read its q, k and v, and a sum may be read by nobody."""
    found, expected = (
        compute(lambda inputs, options, function=one: function(inputs, options)[position], 14, (), make_options())
        for one in (fused, plain)
    )
    check(found, expected)
