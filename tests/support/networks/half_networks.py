"""A small network of each task, and a forward pass of each as in a training step: ``run(start)`` calls ``start`` where
autocast begins, and returns tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from paddlevit_dist import create_model
from paddlevit_dist.core.distributed.batch_norm import convert_batch_norm
from paddlevit_dist.images.detection.mask_rcnn.network import MaskRCNN
from paddlevit_dist.images.models.attention import attention
from paddlevit_dist.images.transforms.on_device import PixelNormalizer
from paddlevit_dist.points.sparse import SparseTensor
from paddlevit_dist.points.sparse.device_plan import batch_products
from paddlevit_dist.volumes.landmarks.heatmaps import gaussian_factors
from paddlevit_dist.volumes.landmarks.losses import focal_loss
from support.networks import small_detr
from support.samples import mask_rcnn_batches, rtdetr_batches

SMALL = {"num_classes": 3, "image_size": 32}
VIT = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, **SMALL}
SORTED = {"strides": (2,), "encoder_depths": (2, 1), "encoder_channels": (6, 12), "encoder_heads": (1, 2)}
SORTED |= {"decoder_depths": (1,), "decoder_channels": (6,), "decoder_heads": (1,), "patch_size": 16}
_QUERIED = {name: VIT[name] for name in ("patch_size", "embed_dim", "depth", "num_heads")}
SWIN = {"depths": (2, 2), "num_heads": (2, 4), "embed_dim": 32, **SMALL}


def _classifier(name: str, **options: Any) -> Callable:
    def run(start: Callable) -> list[paddle.Tensor]:
        model = create_model(name, **options)
        originals = paddle.randint(0, 256, [2, 3, 32, 32]).astype("uint8")
        start()
        images = PixelNormalizer([0.5, 0.4, 0.3], [0.2, 0.2, 0.2])(originals)
        return [images, model(images)]

    return run


def _segmenter(name: str, **options: Any) -> Callable:
    def run(start: Callable) -> list[paddle.Tensor]:
        model = create_model(name, num_classes=3, channels=16, **options)
        images = paddle.randint(0, 256, [2, 3, 32, 64]).astype("uint8")
        start()
        outputs = model(PixelNormalizer([0.5, 0.4, 0.3], [0.2, 0.2, 0.2])(images))
        return list(outputs) if isinstance(outputs, tuple) else [outputs]

    return run


def _fused(start: Callable) -> list[paddle.Tensor]:
    """What a ViT gives to the fused attention."""
    given: list[paddle.Tensor] = []

    def attend(q: Any, k: Any, v: Any, **_: Any) -> Any:
        given.extend([q, k, v])
        return v

    plain, F.scaled_dot_product_attention = F.scaled_dot_product_attention, attend
    with attention(fused=True):
        _classifier("vit", **VIT)(start)
    F.scaled_dot_product_attention = plain
    return given


def _detr(start: Callable) -> list[paddle.Tensor]:
    model, sizes = small_detr.small_detr(), [(64, 48), (40, 64)]
    images, targets = small_detr.make_images(sizes)[0], small_detr.make_targets((1, 2), sizes)
    criterion = small_detr.make_criterion(model)
    start()
    terms = criterion.terms(model(images, targets.sizes, targets), targets)
    return [term.sum for term in terms.values()]


def _real_time(name: str) -> Callable:
    def run(start: Callable) -> list[paddle.Tensor]:
        model = create_model(name, num_classes=rtdetr_batches.CLASSES)
        targets = rtdetr_batches.make_targets(rtdetr_batches.make_batch((1, 2)))
        start()
        found = model(paddle.randn([2, 3, 64, 96]), targets.sizes, targets)
        return [found["layer_boxes"], found["denoising_layer_boxes"], found["encoder_boxes"]]

    return run


def _with_queries(start: Callable) -> list[paddle.Tensor]:
    """EoMT's predictions before and after a block whose attention is masked."""
    model = create_model(
        "eomt_panoptic_shapes", 3, image_size=32, backbone_options=_QUERIED, num_queries=4, num_blocks=1
    )
    start()
    first, last = model.predict_all(paddle.randn([2, 3, 32, 32]), [1.0])
    return [first.classes, first.masks, last.classes, last.masks]


def _mask_rcnn(start: Callable) -> list[paddle.Tensor]:
    model = mask_rcnn_batches.model("float32")
    images, targets = mask_rcnn_batches.batch(mask_rcnn_batches.images([2, 1]), dtype="float32")
    start()
    criterion = MaskRCNN.criterion(mask_rcnn_batches.NAME, mask_rcnn_batches.CLASSES)
    return [term.sum for term in criterion.terms(model(images, targets.sizes, targets), targets).values()]


def _on_voxels(name: str, **options: Any) -> Callable:
    def run(start: Callable) -> list[paddle.Tensor]:
        model = create_model(name, num_classes=4, **options)
        coordinates = np.argwhere(np.random.default_rng(0).random((1, 10, 12, 14)) < 0.1).astype(np.int32)
        features = paddle.randn([len(coordinates), model.in_channels])
        start()
        with batch_products(True):
            output = model(SparseTensor(features, coordinates))
        return [output] if isinstance(output, paddle.Tensor) else [output.semantic_scores, output.offsets]

    return run


def _landmarks(start: Callable) -> list[paddle.Tensor]:
    model = create_model("unet3d", num_classes=2, width=4, depth=1)
    points = paddle.to_tensor([[[3.0, 3.0, 3.0], [4.0, 2.0, 5.0]]])
    start()
    maps = model(paddle.randn([1, 1, 8, 6, 10])).astype("float32")
    return [focal_loss(maps, gaussian_factors(points, [8, 6, 10], [1.0, 1.5, 0.8]), points)]


def _over_all_ranks(start: Callable) -> list[paddle.Tensor]:
    model = convert_batch_norm(create_model("resnet18", num_classes=3, dims=(4, 8, 8, 8)))
    start()
    return [model(paddle.randn([2, 3, 32, 64]))]


NETWORKS: dict[str, Callable] = {
    "vit": _classifier("vit", **VIT),
    "fused attention": _fused,
    "swin": _classifier("swin_tiny_patch4_window7_224", **SWIN),
    "convnext": _classifier("convnext_tiny", depths=(1, 1, 1, 1), dims=(8, 8, 8, 8), num_classes=3),
    "resnet": _classifier("resnet18", dims=(4, 8, 8, 8), num_classes=3),
    "frozen": _classifier("resnet18", dims=(4, 8, 8, 8), num_classes=3, frozen_batch_norm=True),
    "pvt": _classifier("pvt_v2_b0", **SMALL),
    "segformer": _segmenter("segformer_b0"),
    "upernet": _segmenter("upernet_pvtv2_b0", auxiliary_channels=8),
    "eomt": _with_queries,
    "detr": _detr,
    "rtdetr": _real_time("rtdetr_small"),
    "dfine": _real_time("dfine_small"),
    "mask_rcnn": _mask_rcnn,
    "minkunet": _on_voxels("minkunet_tutorial"),
    "ptv3": _on_voxels("ptv3", **SORTED),
    "utonia": _on_voxels("utonia", **{**SORTED, "encoder_heads": (1, 1), "decoder_heads": (1,)}),
    "pointgroup": _on_voxels("pointgroup", width=4, repeats=1),
    "landmarks": _landmarks,
}
if hasattr(paddle, "compat"):  # timm's own files, on Paddle 3.3
    NETWORKS["timm vit"] = _classifier("timm:test_vit", **SMALL)
    NETWORKS["timm resnet"] = _classifier("timm:test_resnet", num_classes=3)
    NETWORKS["timm convnext"] = _classifier("timm:test_convnext", num_classes=3)
