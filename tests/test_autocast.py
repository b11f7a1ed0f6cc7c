"""What ``-amp`` computes in half precision on a GPU, for a network of each task, asked of the installed Paddle."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from support.half_on_gpu import LOG
from support.plain_layers import plain_layers
from support.processes import ROOT, environment

from paddlevit_dist import create_model
from paddlevit_dist.runtime import autocast

# How many there are. In a ViT: patches; the classifier, and in each block four layers and two products.
PRODUCTS = {
    "vit": {"conv2d": 1, "matmul_v2": 1 + 2 * 6},
    "fused attention": {"conv2d": 1, "matmul_v2": 1 + 2 * 4},
    "swin": {"conv2d": 1, "matmul_v2": 1 + 4 * 6 + 1},  # the last is the merging of patches
    "convnext": {"conv2d": 4, "depthwise_conv2d": 4, "matmul_v2": 1 + 4 * 2},
    "resnet": {"conv2d": 20, "matmul_v2": 1},
    "frozen": {"conv2d": 20, "matmul_v2": 1},
    "pvt": {"conv2d": 4 + 2 * 3, "depthwise_conv2d": 8, "matmul_v2": 1 + 8 * 7},  # no reduction in the last stage
    # MiT has PVTv2's; the head multiplies four maps, and before that two pairs of weights of each.
    "segformer": {"conv2d": 4 + 2 * 3 + 1, "depthwise_conv2d": 8, "matmul_v2": 8 * 7 + 4 + 2 * 4},
    "upernet": {"conv2d": 4 + 2 * 3 + 4 + 1 + 3 + 3 + 1 + 1 + 2, "depthwise_conv2d": 8, "matmul_v2": 8 * 7},
    "detr": {"conv2d": 7, "matmul_v2": 6 + 2 * 2 * (4 + 2) + 10},
    # Attention to cells has 8 products, the choice of queries 5; convolutions: backbone, projections, fusing twice.
    "rtdetr": {"conv2d": 11 + 2 * 2 + (1 + 5) * 2, "matmul_v2": 8 + 5 + 2 * (6 + 4 + 2 + 2 + 1 + 3)},
    "dfine": {
        "conv2d": 11 + 2 + (1 + 12) * 2,
        "depthwise_conv2d": 1,
        "matmul_v2": 8 + 5 + 2 * (6 + 2 + 1 + 2 + 2 + 1 + 3 + 2) + 4,
    },
    "mask_rcnn": {"conv2d": 38, "conv2d_transpose": 1, "matmul_v2": 4},
    "minkunet": {"matmul": 1, "bmm": 3, "matmul_v2": 1},
    "pointgroup": {"matmul": 27, "bmm": 29, "matmul_v2": 9},
    "landmarks": {"conv3d": 10},
}
# Products that are none of the network: the costs of DETR's matching, and sums over the voxels of heatmaps.
IN_FLOAT32 = {"detr": {"matmul": 1}, "landmarks": {"matmul": 1 + 4}}
FLOAT32_AT_O1 = {"softmax", "layer_norm", "exp", "log", "pow", "softplus", "reduce_sum", "reduce_mean", "roi_align"}
FLOAT32_AT_O1 |= {"softmax_with_cross_entropy", "sigmoid_cross_entropy_with_logits", "index_add_"}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What each network does at each level; see ``half_on_gpu``."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    command = [sys.executable, "-m", "support.half_on_gpu", "float16", "O1", "O2"]
    own = {**environment(), "PYTHONPATH": paths, **LOG}
    ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def products(counts: dict[str, int]) -> dict[str, int]:
    return {name: number for name, number in counts.items() if "matmul" in name or "conv" in name or name == "bmm"}


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("network", PRODUCTS)
def test_all_products_of_a_network_are_computed_in_half_precision(seen, network, level):
    assert products(seen[level][network]["half"]) == PRODUCTS[network]
    assert products(seen[level][network]["float32"]) == IN_FLOAT32.get(network, {})


@pytest.mark.parametrize("network", PRODUCTS)
def test_what_loses_its_meaning_in_half_precision_stays_float32(seen, network):
    assert not FLOAT32_AT_O1 & set(seen["O1"][network]["half"])
    assert FLOAT32_AT_O1 & set(seen["O2"][network]["half"]) <= {"softmax", "layer_norm"}


def test_activations_follow_their_products_and_a_residual_stream_is_float32(seen):
    vit, convnext, resnet = (seen["O1"][name] for name in ("vit", "convnext", "resnet"))
    assert vit["half"]["gelu"] == 2 and "gelu" not in vit["float32"]
    assert vit["half"]["elementwise_add"] == 1 + 2 * 4  # biases
    assert vit["float32"]["elementwise_add"] == 1 + 1 + 2 * 2  # the patches' bias, positions, two branches a block
    assert convnext["float32"]["elementwise_add"] == 4 and convnext["half"]["gelu"] == 4
    assert resnet["half"]["relu"] == 17 and resnet["half"]["batch_norm"] == 20  # a ResNet has no such stream
    assert "relu" not in seen["O1"]["landmarks"]["float32"]


def test_o2_computes_norms_and_softmax_in_half_precision_where_nothing_else_came_in(seen):
    assert seen["O2"]["vit"]["half"]["softmax"] == 2 and seen["O2"]["vit"]["float32"]["layer_norm"] == 5
    assert seen["O2"]["pvt"]["half"]["layer_norm"] == 30


def test_a_vit_with_fused_attention_computes_the_same_at_both_levels(seen):
    assert seen["O2"]["fused attention"] == seen["O1"]["fused attention"]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_images_are_normalised_in_float32_and_losses_are_float32(seen, level):
    for network in ("vit", "swin", "convnext", "resnet", "frozen", "pvt"):
        images, logits = seen[level][network]["results"]
        assert (images, logits) == ("float32", "float16")
        assert seen[level][network]["float32"]["batch_norm"] == 1  # the normaliser
    for network in ("segformer", "upernet"):  # their task makes logits float32 before it enlarges them
        assert set(seen[level][network]["results"]) == {"float16"}
    for network in ("detr", "rtdetr", "dfine", "mask_rcnn", "landmarks"):
        assert set(seen[level][network]["results"]) == {"float32"}


def test_the_fused_attention_gets_half_precision(seen):
    assert seen["O1"]["fused attention"]["results"] == ["float16"] * 2 * 3


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
