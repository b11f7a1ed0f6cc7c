"""DETR: a backbone, a transformer, and for each query a class and a box.

Source: Carion et al., End-to-End Object Detection with Transformers, ECCV 2020, arXiv 2005.12872.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....models import model_options
from ....runtime.errors import UserError
from ....tasks.model import ClassLayout
from ...models.layers import Conv2D
from .. import key_names
from ..detector import (
    DetectionTargets,
    Outputs,
    QueryDetector,
    TopDetections,
    build_backbone,
    corners_of_best,
    dense,
    single_or_double,
    uniform,
)
from ..variants import DETR
from .criterion import SetCriterion, solver
from .transformer import AnchorPoints, AtPoints, HeadMlp, Transformer, ValidCells, find_valid_cells, sine_embedding

_MASKED = -1e9  # exp(-1e9) is 0 in every precision


class Detr(QueryDetector):
    """Objects as a set that a transformer predicts at once.

    The parameters of the backbone begin with ``backbone.``.

    Args:
        num_classes: without "no object", which is one more output; 0 for the outputs of the decoder alone.
        backbone: name of a model that has ``features``.
        backbone_options: of that model.
        feature_level: which of its maps the transformer sees, counted as Python counts; -1 is the coarsest.
        dilation, frozen_batch_norm, frozen_stages: of the backbone, see ``ResNet``; one that has no such option takes
            none of them.
        mask_padding: the backbone zeroes what is padded after each layer, and an image in a padded batch gives the
            numbers of the image alone. Otherwise a batch is as the authors have it, where padding changes them.
        embed_dim, num_heads, feedforward, encoder_layers, decoder_layers: of the transformer.
        num_queries: the most objects that can be found in an image.
        dropout: rate in the transformer.
        anchors: queries begin at points on a grid, and boxes are told from them (see ``AnchorPoints``). The authors' do
            not.
    """

    variants = DETR
    coco_outputs = key_names.DETR_OUTPUTS
    key_maps = key_names.DETR
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
            raise UserError(f"EMBED_DIM {embed_dim} is not a multiple of 4, which the sine embedding needs: change it")
        if decoder_layers < 1 or num_queries < 1:
            raise UserError(f"DETR needs a decoder layer and a query: {decoder_layers} and {num_queries} were given")
        known = model_options(backbone).defaults
        if mask_padding and "mask_padding" not in known:
            raise UserError(f"MODEL.MASK_PADDING: backbone '{backbone}' cannot do without what is padded: use a ResNet")
        if dilation and "dilation" not in known:
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
        start = AtPoints() if anchors else nn.initializer.Normal(0.0, 1.0)
        self.query_embed = nn.Embedding(num_queries, embed_dim, weight_attr=paddle.ParamAttr(initializer=start))
        self.bbox_embed = HeadMlp(embed_dim, embed_dim, 4, 3)
        self.anchors = AnchorPoints(num_queries) if anchors else None
        self.embed_dim = embed_dim
        self.reset_classifier(num_classes)

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> SetCriterion:
        solver()  # before anything else is done for a training
        chosen = {**cls.options(), **cls.variants.get(name, {}), **options}
        return SetCriterion(num_classes, chosen["num_queries"], chosen["decoder_layers"], **(losses or {}))

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """``logits`` (N, queries, classes + 1), the last of them "no object", and ``boxes`` (N, queries, 4): center,
        width and height as shares of the image without padding; ``layer_logits`` and ``layer_boxes``, (layers, ...):
        the same of every decoder layer, the last of them included."""
        found, _ = self.encode(images, sizes)
        logits, boxes = single_or_double(self.class_embed(found)), single_or_double(self.bbox_embed(found))
        if self.anchors is not None:
            boxes = self.anchors(boxes)
        boxes = F.sigmoid(boxes)
        return {"logits": logits[-1], "boxes": boxes[-1], "layer_logits": logits, "layer_boxes": boxes}

    def encode(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> tuple[paddle.Tensor, paddle.Tensor]:
        """The outputs of the decoder, (layers, N, queries, embed_dim), and of the encoder, (N, cells, embed_dim)."""
        found = self.feature_map(images, sizes)  # (N, channels, height, width)
        cells = self.cells(images, found, sizes)
        position = sine_embedding(cells, self.embed_dim, _find_position_precision(found)).astype(found.dtype)
        bias = None
        if sizes is not None:
            padding = cells.padding().astype(
                _find_position_precision(found)
            )  # Paddle 2.6 cannot flatten bools without views
            bias = _MASKED * padding.flatten(1).unsqueeze([1, 2])  # (N or 1, 1, 1, cells)
        x = self.input_proj(found).flatten(2).transpose([0, 2, 1])  # (N, cells, embed_dim)
        memory = self.transformer.encoder(x, position, bias)
        queries = self.query_embed.weight.unsqueeze(0)  # (1, queries, embed_dim)
        if self.anchors is None:
            start = paddle.zeros([images.shape[0], *queries.shape[1:]], dtype=memory.dtype)
        else:
            start = self.anchors.start(memory, cells)
        return self.transformer.decoder(start, queries, position, memory, bias), memory

    def feature_map(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> paddle.Tensor:
        """The map that the transformer sees, (N, channels, height, width)."""
        masked = self.mask_padding and sizes is not None
        maps = self.backbone.features(images, sizes) if masked else self.backbone.features(images)
        return maps[self.feature_level]

    def cells(self, images: paddle.Tensor, found: paddle.Tensor, sizes: paddle.Tensor | None) -> ValidCells:
        """Which cells of the map ``found`` hold an image."""
        padded, grid = tuple(images.shape[2:]), tuple(found.shape[2:])
        return find_valid_cells(sizes, padded, grid, self.stride if self.mask_padding else None)

    def best(self, outputs: Outputs) -> TopDetections:
        """Every query is an object of the class it prefers, even where it prefers none."""
        probabilities = F.softmax(outputs["logits"], axis=-1).astype("float32")[..., :-1]
        scores, places = paddle.topk(probabilities.max(axis=-1), probabilities.shape[1], axis=1)
        labels = paddle.take_along_axis(probabilities.argmax(axis=-1), places, axis=1)
        return TopDetections(labels, corners_of_best(outputs["boxes"], places), scores)

    def reset_classifier(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.class_embed = dense(self.embed_dim, num_classes + 1) if num_classes > 0 else nn.Identity()

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Rows of the authors' classifiers, which have one for each id of COCO's categories, for its 80 categories."""
        if not name.startswith("class_embed."):
            return None
        return key_names.rows_of_categories(value, self.num_classes, key_names.DETR_OUTPUTS, key_names.DETR_ROWS)

    def class_layout(self, name: str) -> ClassLayout:
        return ClassLayout(after=1)

    def published_classes(self, classes: int) -> list[str] | None:
        return key_names.published_names(0, classes - 1) if classes == key_names.DETR_OUTPUTS - 1 else None

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        return (
            [key_names.ROWS_TAKEN] if self.classifier_layers[0] in {name.rpartition(".")[0] for name in names} else []
        )

    def recomputed_layers(self) -> list[nn.Layer]:
        """The blocks of the backbone that can be, and the encoder's layers."""
        return [*self.backbone.recomputed_layers(), *self.transformer.encoder.layers]


def _find_position_precision(x: paddle.Tensor) -> str:
    """Return what positions are computed in: half precision counts no cells."""
    return "float64" if x.dtype == paddle.float64 else "float32"
