"""DETR: a backbone, a transformer, and for each query a class and a box.

Source: Carion et al., End-to-End Object Detection with Transformers, ECCV 2020, arXiv 2005.12872.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.errors import UserError
from ....core.tasks.model import ClassLayout, Variants
from ....core.tasks.model_factory import model_options
from ...mask_queries.matching import load_solver
from ...models.layers import Conv2D
from ...models.resnet import RESNET_FACTS
from .. import key_names
from ..detector import (
    DetectionTargets,
    Outputs,
    QueryDetector,
    TopDetections,
    build_backbone,
    dense,
    select_corners,
    single_or_double,
    uniform,
)
from .criterion import SetCriterion
from .transformer import (
    AnchorPoints,
    GridPointInitializer,
    HeadMlp,
    Transformer,
    ValidCells,
    find_valid_cells,
    sine_embedding,
)

_MASKED = -1e9  # exp(-1e9) is 0 in every precision


# Carion et al., End-to-End Object Detection with Transformers, 2020, section 4 and table 1. The stem, the first stage
# and all batch norms of the backbone are frozen; DC5 dilates the last stage. Recipes set dropout, 0.1 in the paper.
_PUBLISHED = {
    "embed_dim": 256,
    "num_heads": 8,
    "feedforward": 2048,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "num_queries": 100,
    "frozen_batch_norm": True,
    "frozen_stages": 2,
}
# For images of 48 to 96 pixels, on CPUs: a backbone of two narrow stages with stride 8, trained from scratch, and
# queries initialized as points on a grid.
_SMALL = {
    "backbone": "resnet18",
    "backbone_options": {"depths": (2, 2), "dims": (32, 64)},
    "embed_dim": 128,
    "num_heads": 4,
    "feedforward": 256,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "num_queries": 25,
    "frozen_batch_norm": False,
    "frozen_stages": 0,
    "anchors": True,
}

VARIANTS: Variants = {
    "detr": dict(backbone="resnet50", **_PUBLISHED),  # a start for configurations that give their own dimensions
    "detr_resnet18": dict(backbone="resnet18", **_PUBLISHED),
    "detr_resnet34": dict(backbone="resnet34", **_PUBLISHED),
    "detr_resnet50": dict(backbone="resnet50", **_PUBLISHED),
    "detr_resnet50_dc5": dict(backbone="resnet50", dilation=True, **_PUBLISHED),
    "detr_resnet101": dict(backbone="resnet101", **_PUBLISHED),
    "detr_resnet101_dc5": dict(backbone="resnet101", dilation=True, **_PUBLISHED),
    "detr_small": _SMALL,
}


class Detr(QueryDetector):
    """Detector whose transformer predicts objects as a set; names of the backbone's parameters begin with "backbone.".

    Args:
        num_classes: number of classes without "no object", which is one more output; 0: return the decoder's outputs.
        backbone: name of a model that has ``feature_maps``.
        feature_level: index of the map that the transformer uses; -1 is the coarsest.
        dilation: dilate the backbone's last stage, see ``ResNet``; ignored by backbones without this option.
        frozen_batch_norm: freeze the backbone's batch norms, likewise.
        frozen_stages: number of the backbone's frozen stages, likewise.
        mask_padding: set the padding to zero after each layer of the backbone, so that an image in a padded batch gives
            the numbers of the image alone. The authors do not, so that padding changes them.
        embed_dim: width of the transformer.
        feedforward: hidden width of the transformer's MLPs.
        num_queries: largest number of objects detected in an image.
        anchors: initialize queries at points on a grid and predict boxes relative to them, unlike the authors; see
            ``AnchorPoints``.
    """

    variants = VARIANTS
    coco_outputs = key_names.DETR_OUTPUTS
    key_maps = key_names.DETR
    telling_name = "query_embed.weight"
    classifier_layers = ("class_embed",)

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "resnet50",
        backbone_options: Mapping[str, Any] | None = None,
        feature_level: int = -1,
        dilation: bool = False,
        frozen_batch_norm: bool = True,
        frozen_stages: int = 2,
        mask_padding: bool = False,
        embed_dim: int = 256,
        num_heads: int = 8,
        feedforward: int = 2048,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        num_queries: int = 100,
        dropout: float = 0.0,
        anchors: bool = False,
    ):
        super().__init__()
        if embed_dim % 4:
            raise UserError(f"EMBED_DIM {embed_dim}: expected a multiple of 4 for the sine embedding")
        if decoder_layers < 1 or num_queries < 1:
            raise UserError(f"DETR needs at least one decoder layer and query, got {decoder_layers} and {num_queries}")
        backbone_defaults = model_options(backbone).defaults
        if mask_padding and "mask_padding" not in backbone_defaults:
            raise UserError(f"MODEL.MASK_PADDING: backbone '{backbone}' does not support it: use a ResNet")
        if dilation and "dilation" not in backbone_defaults:
            raise UserError(f"backbone '{backbone}' has no dilation (DC5): use a ResNet")
        fixed = {"dilation": dilation, "frozen_batch_norm": frozen_batch_norm, "frozen_stages": frozen_stages}
        fixed["mask_padding"] = mask_padding
        self.backbone = build_backbone(backbone, fixed, backbone_options, [feature_level])
        self.feature_level, self.mask_padding, self.in_channels = feature_level, mask_padding, 3
        self.stride = self.backbone.feature_strides[feature_level]
        channels = self.backbone.feature_channels[feature_level]
        bound = channels**-0.5
        self.input_proj = Conv2D(channels, embed_dim, 1, weight_attr=uniform(bound), bias_attr=uniform(bound))
        self.transformer = Transformer(embed_dim, num_heads, feedforward, dropout, encoder_layers, decoder_layers)
        initializer = GridPointInitializer() if anchors else nn.initializer.Normal(0.0, 1.0)
        self.query_embed = nn.Embedding(num_queries, embed_dim, weight_attr=paddle.ParamAttr(initializer=initializer))
        self.bbox_embed = HeadMlp(embed_dim, embed_dim, 4, 3)
        self.anchors = AnchorPoints(num_queries) if anchors else None
        self.embed_dim = embed_dim
        self._facts = {
            "decoder_attention_heads": num_heads,
            "encoder_attention_heads": num_heads,
            "num_queries": num_queries,
            "dilation": dilation,
            "backbone_kwargs": {"output_stride": 16 if dilation else 32},
        }
        self.reset_classifier(num_classes)

    def network_facts(self) -> Mapping[str, Any]:
        """Return what no shape tells, see ``Model.network_facts``."""
        usual = {"activation_function": "relu", "position_embedding_type": "sine", "backbone_config": RESNET_FACTS}
        return {"model_type": ("detr",), **usual, **self._facts} if self.anchors is None else {}

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> SetCriterion:
        """Build the losses of a model without building the model."""
        load_solver()  # so that its error is raised before training starts
        arguments = {**cls.options(), **cls.variants.get(name, {}), **options}
        return SetCriterion.build(name, losses, num_classes, arguments["num_queries"], arguments["decoder_layers"])

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Return class logits and boxes of all queries.

        Returns:
            ``logits`` (N, queries, classes + 1), the last class is "no object", and ``boxes`` (N, queries, 4): center,
            width and height as fractions of the image without padding; ``layer_logits`` and ``layer_boxes``,
            (layers, ...), of every decoder layer including the last.
        """
        decoded, _ = self.encode(images, sizes)
        logits, boxes = single_or_double(self.class_embed(decoded)), single_or_double(self.bbox_embed(decoded))
        if self.anchors is not None:
            boxes = self.anchors(boxes)
        boxes = F.sigmoid(boxes)
        return {"logits": logits[-1], "boxes": boxes[-1], "layer_logits": logits, "layer_boxes": boxes}

    def encode(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return outputs of decoder, (layers, N, queries, embed_dim), and encoder, (N, cells, embed_dim)."""
        features = self.feature_map(images, sizes)  # (N, channels, height, width)
        cells = self.cells(images, features, sizes)
        position = sine_embedding(cells, self.embed_dim, _find_position_precision(features)).astype(features.dtype)
        bias = None
        if sizes is not None:
            # Paddle 2.6 cannot flatten bools without views
            padding = cells.padding().astype(_find_position_precision(features))
            bias = _MASKED * padding.flatten(1).unsqueeze([1, 2])  # (N or 1, 1, 1, cells)
        x = self.input_proj(features).flatten(2).transpose([0, 2, 1])  # (N, cells, embed_dim)
        memory = self.transformer.encoder(x, position, bias)
        queries = self.query_embed.weight.unsqueeze(0)  # (1, queries, embed_dim)
        if self.anchors is None:
            start = paddle.zeros([images.shape[0], *queries.shape[1:]], dtype=memory.dtype)
        else:
            start = self.anchors.start(memory, cells)
        return self.transformer.decoder(start, queries, position, memory, bias), memory

    def feature_map(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return the map that the transformer uses, (N, channels, height, width)."""
        return self.backbone.feature_maps(images, sizes)[self.feature_level]

    def cells(self, images: paddle.Tensor, features: paddle.Tensor, sizes: paddle.Tensor | None) -> ValidCells:
        """Return which cells of the map ``features`` are inside an image."""
        padded, grid = tuple(images.shape[2:]), tuple(features.shape[2:])
        return find_valid_cells(sizes, padded, grid, self.stride if self.mask_padding else None)

    def best(self, outputs: Outputs) -> TopDetections:
        """Return a detection for every query, of its best class other than "no object"."""
        probabilities = F.softmax(outputs["logits"], axis=-1).astype("float32")[..., :-1]
        scores, places = paddle.topk(probabilities.max(axis=-1), probabilities.shape[1], axis=1)
        labels = paddle.take_along_axis(probabilities.argmax(axis=-1), places, axis=1)
        return TopDetections(labels, select_corners(outputs["boxes"], places), scores)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by a new one."""
        self.num_classes = num_classes
        self.class_embed = dense(self.embed_dim, num_classes + 1) if num_classes > 0 else nn.Identity()

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Select the rows of COCO's 80 categories from the authors' classifiers, which have one for each id."""
        if not name.startswith("class_embed."):
            return super().resize_parameter(name, value)
        return key_names.select_category_rows(value, self.num_classes, key_names.DETR_OUTPUTS, key_names.DETR_ROWS)

    def class_layout(self, name: str) -> ClassLayout:
        """Return how a classifier's outputs are ordered."""
        return ClassLayout(after=1)

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the class names of the authors' classifiers."""
        return key_names.published_names(0, classes - 1) if classes == key_names.DETR_OUTPUTS - 1 else None

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return a notice if the classifier's rows were selected."""
        return (
            [key_names.ROWS_TAKEN] if self.classifier_layers[0] in {name.rpartition(".")[0] for name in names} else []
        )

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the layers that can be recomputed: of the backbone and of the encoder."""
        return [*self.backbone.recomputed_layers(), *self.transformer.encoder.layers]


def _find_position_precision(x: paddle.Tensor) -> str:
    """Return the dtype to compute positions in; half precision cannot count cells."""
    return "float64" if x.dtype == paddle.float64 else "float32"
