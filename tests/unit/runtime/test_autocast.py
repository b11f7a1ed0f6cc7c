"""What is computed in which precision under ``-amp``."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.plain_layers import plain_layers

from paddlevit_dist import create_model
from paddlevit_dist.runtime import autocast


def test_outside_of_mixed_precision_nothing_is_cast():
    tensor = paddle.ones([2])
    assert autocast.product_dtype() is None
    assert autocast.like_products(tensor) is tensor and autocast.like_products(None) is None
    assert autocast.as_dtype(tensor, paddle.float32) is tensor
    assert autocast.as_dtype(tensor, paddle.float64).dtype == paddle.float64


@pytest.fixture
def fused(monkeypatch) -> list[tuple[int, ...]]:
    """The weights' shapes of the products that are computed with their bias, of a process that takes float32 for half
    precision and has that operation on a CPU."""
    seen: list[tuple[int, ...]] = []

    def fused_linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        seen.append(tuple(weight.shape))
        return paddle.matmul(x, weight) + bias

    monkeypatch.setattr(autocast, "product_dtype", lambda: paddle.float32)
    monkeypatch.setattr(autocast, "fused_linear", fused_linear)
    monkeypatch.setattr(autocast, "_chosen", {})
    return seen


def test_biases_are_fused_in_mixed_precision_with_the_same_results(fused, monkeypatch):
    images = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f4"))
    paddle.seed(1)
    model = create_model("vit", num_classes=3, image_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2)
    model.blocks[0].mlp.fc1.weight.stop_gradient = True  # Paddle 2.6 has no gradient of its bias then
    outcomes = []
    for used in (False, True):
        model.clear_gradients()
        with plain_layers(), autocast.epilogues(used):
            logits = model(images)
            (logits * paddle.arange(1.0, 4.0)).sum().backward()
        assert len(fused) == (4 * 2 + 1 - 1 if used else 0)
        outcomes.append([logits.numpy(), *(p.grad.numpy() for p in model.parameters() if p.grad is not None)])
    for expected, got in zip(*outcomes, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    with plain_layers(), autocast.epilogues(True):  # neither a program nor float32 has them
        compiled = paddle.jit.to_static(model.head, full_graph=True)
        compiled(paddle.ones([1, 16]))
        monkeypatch.setattr(autocast, "product_dtype", lambda: None)
        model(images)
    assert len(fused) == 8


def test_a_gpu_is_tried_once_for_rows_shape_and_precision(fused, monkeypatch):
    tried, place = [], SimpleNamespace(is_gpu_place=lambda: True)
    monkeypatch.setattr(autocast, "_is_faster", lambda x, weight, bias: not tried.append(weight.shape))

    def is_fused(rows: int, *shape: int) -> bool:
        weight = SimpleNamespace(shape=shape, stop_gradient=False)
        x = SimpleNamespace(place=place, ndim=3, shape=[1, rows, shape[0]])
        return autocast._is_fused(x, weight, None, paddle.float16)

    assert [is_fused(*case) for case in ((5, 8, 4), (7, 8, 4), (8, 8, 4), (5, 4, 8), (0, 8, 4))] == [True] * 4 + [False]
    assert tried == [(8, 4), (8, 4), (4, 8)]
    place.is_gpu_place = lambda: False
    assert not is_fused(5, 8, 4)


def repeated(times: int, wrong_by: float = 0.0) -> Callable:
    """A product with its bias that takes so many times as long."""

    def product(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        for _ in range(times):
            result = paddle.matmul(x, weight) + bias
        return result + wrong_by * weight.sum()

    return product


def fails(*_: paddle.Tensor) -> paddle.Tensor:
    raise RuntimeError("No GEMM epilogue algorithm support!")


@pytest.mark.parametrize(
    "plain, candidate, expected",
    [
        (repeated(60), repeated(1), True),
        (repeated(1), repeated(60), False),
        (repeated(60), repeated(1, wrong_by=0.1), False),
        (repeated(60), fails, False),
    ],
    ids=["faster", "slower", "not the same", "not there"],
)
def test_a_trial_takes_what_is_faster_and_the_same_and_leaves_nothing_behind(
    fused, monkeypatch, plain, candidate, expected
):
    monkeypatch.setattr(autocast, "linear", plain)
    monkeypatch.setattr(autocast, "fused_linear", candidate)
    inputs = [
        paddle.to_tensor(np.random.default_rng(0).random(shape).astype("f4") + 1) for shape in ([9, 4], [4, 8], [8])
    ]
    inputs[1].stop_gradient = False
    paddle.seed(5)
    with paddle.no_grad():  # as in an evaluation, and the first pass of a recomputed block
        assert autocast._is_faster(*inputs) == expected
    assert [one.grad for one in inputs] == [None] * 3 and [one.stop_gradient for one in inputs] == [True, False, True]
    drawn = paddle.rand([3])
    assert (paddle.seed(5) and paddle.rand([3]) == drawn).all()


def test_where_results_repeat_no_trial_decides(fused, monkeypatch):
    monkeypatch.setattr(autocast, "linear", repeated(60))
    monkeypatch.setattr(paddle.base.core, "globals", lambda: {"FLAGS_cudnn_deterministic": True})
    assert not autocast._is_faster(paddle.ones([9, 4]), paddle.ones([4, 8]), paddle.ones([8]))
