"""What ``-amp`` computes in half precision on a GPU, for a network of each task, asked of the installed Paddle.

At level O1; at O2 at night.
"""

import json
import os
import subprocess
import sys
from typing import Any

import paddle
import pytest
from support.networks.half_on_gpu import LOG
from support.processes import ROOT, environment

HAS_TIMM = hasattr(paddle, "compat")  # Paddle 3.3, where timm's own files run

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
    # One block of six products and one with its attention in two parts; two predictions.
    "eomt": {"conv2d": 1, "depthwise_conv2d": 2, "matmul_v2": 6 + 8 + 2 * (1 + 3 + 1 + 1)},
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
    # A block has five layers and two products; changes of level have three, and there is the classifier.
    "ptv3": {"matmul": 5, "bmm": 5, "matmul_v2": 4 * 7 + 3 + 1},
    "utonia": {"matmul": 4, "bmm": 4, "matmul_v2": 1 + 4 * 7 + 3 + 1},
    "pointgroup": {"matmul": 27, "bmm": 29, "matmul_v2": 9},
    "landmarks": {"conv3d": 10},
}
if HAS_TIMM:
    PRODUCTS["timm vit"] = {"conv2d": 1, "matmul_v2": 1 + 6 * 5}  # one product of q, k and v
    PRODUCTS["timm resnet"] = {"conv2d": 15, "matmul_v2": 1}
    PRODUCTS["timm convnext"] = {"conv2d": 4, "depthwise_conv2d": 9, "matmul_v2": 1 + 9 * 2}


# Products that are none of the network: the costs of DETR's matching, masks that are resized to the patches, and sums
# over the voxels of heatmaps.
IN_FLOAT32 = {"detr": {"matmul": 1}, "eomt": {"matmul": 2}, "landmarks": {"matmul": 1 + 4}}
FLOAT32_AT_O1 = {"softmax", "layer_norm", "exp", "log", "pow", "softplus", "reduce_sum", "reduce_mean", "roi_align"}
FLOAT32_AT_O1 |= {"softmax_with_cross_entropy", "sigmoid_cross_entropy_with_logits", "index_add_"}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What each network does at the level; see ``half_on_gpu``."""
    return observe("O1")


def observe(*levels: str) -> dict[str, Any]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    command = [sys.executable, "-m", "support.networks.half_on_gpu", "float16", *levels]
    own = {**environment(), "PYTHONPATH": paths, **LOG}
    ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def products(counts: dict[str, int]) -> dict[str, int]:
    return {name: number for name, number in counts.items() if "matmul" in name or "conv" in name or name == "bmm"}


@pytest.mark.parametrize("network", PRODUCTS)
def test_all_products_of_a_network_are_computed_in_half_precision(seen, network):
    require_products_in_half_precision(seen["O1"][network], network)


def require_products_in_half_precision(seen: dict[str, Any], network: str) -> None:
    assert products(seen["half"]) == PRODUCTS[network]
    assert products(seen["float32"]) == IN_FLOAT32.get(network, {})


@pytest.mark.parametrize("network", PRODUCTS)
def test_what_loses_its_meaning_in_half_precision_stays_float32(seen, network):
    assert not FLOAT32_AT_O1 & set(seen["O1"][network]["half"])


def test_activations_follow_their_products_and_a_residual_stream_is_float32(seen):
    vit, convnext, resnet = (seen["O1"][name] for name in ("vit", "convnext", "resnet"))
    assert vit["half"]["gelu"] == 2 and "gelu" not in vit["float32"]
    assert vit["half"]["elementwise_add"] == 1 + 2 * 4  # biases
    assert vit["float32"]["elementwise_add"] == 1 + 1 + 2 * 2  # the patches' bias, positions, two branches a block
    assert convnext["float32"]["elementwise_add"] == 4 and convnext["half"]["gelu"] == 4
    assert resnet["half"]["relu"] == 17 and resnet["half"]["batch_norm"] == 20  # a ResNet has no such stream
    assert "relu" not in seen["O1"]["landmarks"]["float32"]


@pytest.mark.skipif(not HAS_TIMM, reason="models of timm need Paddle 3.3")
def test_biases_and_activations_of_timm_follow_their_products(seen):
    """A bias in float32 would make float32 of all that follows."""
    vit, convnext, resnet = (seen["O1"][f"timm {name}"] for name in ("vit", "convnext", "resnet"))
    assert vit["half"]["gelu"] == 6 and convnext["half"]["gelu"] == 9 and resnet["half"]["relu"] == 12
    assert vit["float32"]["elementwise_add"] == 1 + 2 * 6  # positions, and two branches of each block
    assert convnext["float32"]["elementwise_add"] == 9
    assert vit["results"] == convnext["results"] == resnet["results"] == ["float32", "float16"]


def test_images_are_normalized_in_float32_and_losses_are_float32(seen):
    require_float32_of_images_and_losses(seen["O1"])


def require_float32_of_images_and_losses(seen: dict[str, Any]) -> None:
    for network in ("vit", "swin", "convnext", "resnet", "frozen", "pvt"):
        images, logits = seen[network]["results"]
        assert (images, logits) == ("float32", "float16")
        assert seen[network]["float32"]["batch_norm"] == 1  # the normalizer
    for network in ("segformer", "upernet"):  # their task makes logits float32 before it enlarges them
        assert set(seen[network]["results"]) == {"float16"}
    for network in ("detr", "rtdetr", "dfine", "mask_rcnn", "landmarks"):
        assert set(seen[network]["results"]) == {"float32"}


def test_the_fused_attention_gets_half_precision(seen):
    assert seen["O1"]["fused attention"]["results"] == ["float16"] * 2 * 3
