"""RT-DETR, RT-DETRv2 and D-FINE: a backbone, an encoder that fuses its maps, queries that begin at the best cells.

Sources: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, arXiv 2304.08069; Lv et al., RT-DETRv2,
arXiv 2407.17140; Peng et al., D-FINE, ICLR 2025, arXiv 2410.13842.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....runtime.errors import UserError
from ....runtime.transfers import constant
from ....tasks.model import ClassLayout
from ...models.layers import Conv2D, LayerNorm
from ..detector import (
    DetectionTargets,
    Outputs,
    QueryDetector,
    TopDetections,
    build_backbone,
    corners_of_best,
    single_or_double,
    without_gradient,
)
from ..detr.criterion import solver
from ..detr.transformer import HeadMlp, xavier
from ..variants import RTDETR
from . import key_names
from .criterion import VarifocalCriterion
from .decoder import FineDecoder, RtDetrDecoder, SamplingPoints, classifier
from .denoising import PREFIX, ContrastiveNoise
from .distributions import DistanceBins
from .encoder import HybridEncoder
from .fine_criterion import FineCriterion

_EPSILON = 1e-5
_ANCHOR = 0.05  # side of the boxes of the finest map's cells; twice as large on each further map
_EDGE = 0.01  # anchors nearer to the border are not taken


class RtDetr(QueryDetector):
    """Objects in real time, in images of one size, of any that 32 divides.

    The parameters of the backbone begin with ``backbone.``.

    Args:
        num_classes: outputs of the classifiers; 0 for a network that is trained for nothing yet.
        backbone: name of a model that has ``features``; backbone_options: of that model.
        frozen_batch_norm, frozen_stages: of the backbone, see ``ResNet``.
        feature_levels: which of its maps are used, the finest first, counted as Python counts.
        encoder_dim, encoder_layers, encoder_heads, encoder_feedforward: of the maps and of the attention on the last.
        blocks, expansion: of the layers that fuse maps, see ``HybridEncoder``.
        embed_dim, num_heads, feedforward, decoder_layers: of the decoder.
        num_queries: the most objects that can be found in an image.
        denoising: pairs of denoising queries of an image, see ``ContrastiveNoise``; 0: there are none.
        points: that a query looks at, on each level, or one number for all.
        is_discrete: RT-DETRv2's sampling of the nearest cell.
        is_fine: D-FINE's encoder, decoder and losses.
        bins, up, reg_scale: of D-FINE's distances of sides, see ``DistanceBins``.
    """

    has_no_object = False
    takes_padding = False  # boxes would be shares of the padded image
    variants = RTDETR
    coco_outputs = 80
    key_maps = key_names.RTDETR
    classifier_layers = ("enc_score_head", "decoder.class_embed", "denoising_class_embed")
    published_input = ("DATA.IMAGENET_MEAN", "[0.0,0.0,0.0]", "DATA.IMAGENET_STD", "[1.0,1.0,1.0]")
    reference_normalizer = "as RT-DETR's authors do: by the mean of the devices' objects, at least 1"

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "resnet18d",
        backbone_options: Mapping[str, Any] | None = None,
        frozen_batch_norm: bool = False,
        frozen_stages: int = 0,
        feature_levels: Sequence[int] = (-3, -2, -1),
        encoder_dim: int = 256,
        encoder_layers: int = 1,
        encoder_heads: int = 8,
        encoder_feedforward: int = 1024,
        blocks: int = 3,
        expansion: float = 1.0,
        embed_dim: int = 256,
        num_heads: int = 8,
        feedforward: int = 1024,
        decoder_layers: int = 6,
        num_queries: int = 300,
        denoising: int = 100,
        points: int | Sequence[int] = 4,
        is_discrete: bool = False,
        is_fine: bool = False,
        bins: int = 32,
        up: float = 0.5,
        reg_scale: float = 4.0,
    ):
        super().__init__()
        fixed = {"frozen_batch_norm": frozen_batch_norm, "frozen_stages": frozen_stages}
        self.backbone = build_backbone(backbone, fixed, backbone_options, feature_levels)
        self.feature_levels, self.in_channels, levels = tuple(feature_levels), 3, len(feature_levels)
        widths = [self.backbone.feature_channels[level] for level in feature_levels]
        strides = [self.backbone.feature_strides[level] for level in feature_levels]
        if any(after != 2 * before for before, after in zip(strides, strides[1:])):
            raise UserError(
                f"backbone '{backbone}' has maps of strides {', '.join(map(str, strides))}, and RT-DETR fuses maps of "
                "which each is half as large as the one before: take a ResNet, for example, or a ViT with a pyramid"
            )
        self.side_multiple, self.strides = strides[-1], strides
        self.encoder_input_proj = nn.LayerList([_projection(width, encoder_dim) for width in widths])
        attention = (encoder_layers, encoder_heads, encoder_feedforward)
        self.encoder = HybridEncoder(encoder_dim, levels, *attention, blocks, expansion, is_fine)
        is_wide = not (is_fine and encoder_dim == embed_dim)
        self.decoder_input_proj = nn.LayerList(
            [_projection(encoder_dim, embed_dim) if is_wide else nn.Identity() for _ in widths]
        )
        self.enc_output = nn.Sequential(xavier(embed_dim, embed_dim), LayerNorm(embed_dim, epsilon=_EPSILON))
        self.enc_bbox_head = HeadMlp(embed_dim, embed_dim, 4, 3, starts_at_zero=True)
        numbers = (points,) * levels if isinstance(points, int) else tuple(points)
        if len(numbers) != levels:
            raise UserError(f"points {list(numbers)} are of {len(numbers)} maps, and there are {levels}: change them")
        of_decoder = embed_dim, num_heads, feedforward, decoder_layers, SamplingPoints(numbers, is_discrete)
        self.decoder = (
            FineDecoder(*of_decoder, DistanceBins(bins, up, reg_scale)) if is_fine else RtDetrDecoder(*of_decoder)
        )
        self.embed_dim, self.num_queries, self.denoising = embed_dim, num_queries, denoising
        self.reset_classifier(num_classes)

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> VarifocalCriterion:
        solver()  # before anything else is done for a training
        chosen = {**cls.options(), **cls.variants.get(name, {}), **options}
        noise = ContrastiveNoise(num_classes, chosen["denoising"], mirrors=chosen["is_fine"])
        losses = {"noise": noise if chosen["denoising"] else None, **(losses or {})}
        sizes = num_classes, chosen["num_queries"], chosen["decoder_layers"]
        if chosen["is_fine"]:
            return FineCriterion(*sizes, bins=DistanceBins(chosen["bins"], chosen["up"], chosen["reg_scale"]), **losses)
        return VarifocalCriterion(*sizes, **losses)

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """``logits`` (N, queries, classes) and ``boxes`` (N, queries, 4), center, width and height as shares; with
        targets, and in training, what the criterion needs of all layers (``layer_``), the encoder and denoising."""
        memory, grids = self.memory(images)
        starts, scores, chosen, content = self.select(memory, grids)
        denoising = targets.denoising if targets is not None else None
        blocked, extra, begin, content = None, 0, without_gradient(starts), without_gradient(content)
        if denoising is not None:
            extra, blocked = denoising.labels.shape[1], denoising.blocked(self.num_queries).astype(starts.dtype)
            table = self.denoising_class_embed.weight  # of which the last row, the padding's, is read as zeros
            own = F.embedding(denoising.labels, table, padding_idx=table.shape[0] - 1)
            content = paddle.concat([own.astype(content.dtype), content], axis=1)
            begin = paddle.concat([denoising.boxes.astype(starts.dtype), begin], axis=1)
        found = self.decoder(content, begin, memory, grids, blocked)
        outputs = {**_of_queries(found, extra, None), "encoder_logits": scores, "encoder_boxes": chosen}
        if extra:
            outputs.update({PREFIX + name: part for name, part in _of_queries(found, 0, extra).items()})
        return {"logits": outputs["layer_logits"][-1], "boxes": outputs["layer_boxes"][-1], **outputs}

    def count_cells(self, height: int, width: int) -> int:
        return sum((height // stride) * (width // stride) for stride in self.strides)

    def memory(self, images: paddle.Tensor) -> tuple[paddle.Tensor, list[tuple[int, int]]]:
        """What the decoder looks at, (N, cells of all maps, dim), and height and width of the maps."""
        height, width = images.shape[2:]
        if height % self.side_multiple or width % self.side_multiple:
            raise UserError(
                f"RT-DETR takes images whose sides {self.side_multiple} divides, and these are {height} x {width} "
                "pixels: for training, set DATA.RESIZE_TO_SQUARE true; otherwise set DETECTION.EVAL_BATCHING one_size; "
                "use multiples in DATA.SHORTEST_SIDES and DATA.EVAL_SHORTEST_SIDE (-image_size of an export)"
            )
        maps = self.backbone.features(images)
        maps = [project(maps[level]) for level, project in zip(self.feature_levels, self.encoder_input_proj)]
        maps = [project(one) for one, project in zip(self.encoder(maps), self.decoder_input_proj)]
        grids = [(one.shape[2], one.shape[3]) for one in maps]
        return paddle.concat([one.flatten(2).transpose([0, 2, 1]) for one in maps], axis=1), grids

    def select(self, memory: paddle.Tensor, grids: Sequence[tuple[int, int]]):
        """The best cells as queries: their boxes before the sigmoid (N, Q, 4), logits (N, Q, classes), boxes as shares
        and contents (N, Q, dim)."""
        total = sum(height * width for height, width in grids)
        if total < self.num_queries:
            raise UserError(
                f"the maps of these images have {total} cells, fewer than MODEL.NUM_QUERIES {self.num_queries}: lower "
                "it, or take larger images"
            )
        inside = constant(_inside, tuple(grids)).astype(memory.dtype)  # (1, cells, 1)
        cells = self.enc_output(memory * inside)
        logits = self.enc_score_head(cells)  # (N, cells, classes)
        best = paddle.topk(single_or_double(logits).max(-1), self.num_queries, axis=1)[1]  # (N, Q)
        images = memory.shape[0] if paddle.in_dynamic_mode() else paddle.shape(memory)[0]
        first = paddle.arange(images, dtype=best.dtype).unsqueeze(1) * total
        places = (best + first).flatten()

        def of_best(values: paddle.Tensor) -> paddle.Tensor:
            return paddle.gather(values.flatten(0, 1), places).reshape([*best.shape, values.shape[-1]])

        content = of_best(cells)
        moves = single_or_double(self.enc_bbox_head(content))
        anchors = paddle.gather(constant(_anchors, tuple(grids)).astype(moves.dtype), best.flatten())
        starts = moves + anchors.reshape([*best.shape, 4])
        return starts, of_best(logits), F.sigmoid(starts), content

    def best(self, outputs: Outputs) -> TopDetections:
        """The best pairs of a query and a class, as many as there are queries."""
        logits = outputs["logits"].astype("float32")
        classes = logits.shape[2]
        scores, places = paddle.topk(F.sigmoid(logits).flatten(1), logits.shape[1], axis=1)  # (N, Q)
        return TopDetections(places % classes, corners_of_best(outputs["boxes"], places // classes), scores)

    def reset_classifier(self, num_classes: int) -> None:
        self.num_classes = num_classes
        outputs = max(num_classes, 1)
        self.enc_score_head = classifier(self.embed_dim, outputs)
        self.decoder.class_embed = nn.LayerList([classifier(self.embed_dim, outputs) for _ in self.decoder.layers])
        self.denoising_class_embed = nn.Embedding(
            outputs + 1,
            self.embed_dim,
            weight_attr=paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 1.0), trainable=self.denoising > 0),
        )

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Rows of classifiers of Objects365 for COCO's 80 categories."""
        is_embedding = name.startswith("denoising_class_embed.")
        if not is_embedding and not name.startswith(("enc_score_head.", "decoder.class_embed.")):
            return None
        return key_names.rows_of_objects365(value, self.num_classes, is_embedding)

    def class_layout(self, name: str) -> ClassLayout:
        return ClassLayout(after=1, axis=0) if name.startswith("denoising_class_embed.") else ClassLayout()

    def published_classes(self, classes: int) -> list[str] | None:
        return key_names.names_of_objects365(classes)

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        return [key_names.OBJECTS365_TAKEN] if any(name.startswith("enc_score_head.") for name in names) else []

    def recomputed_layers(self) -> list[nn.Layer]:
        return list(self.decoder.layers)


def _of_queries(found: Outputs, begin: int, end: int | None) -> Outputs:
    """What a decoder says of the queries from ``begin`` to ``end``."""
    return {
        name: value[:, :, begin:end] if name.startswith("layer_") else value[:, begin:end]
        for name, value in found.items()
    }


def _projection(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        Conv2D(inputs, outputs, 1, bias_attr=False), nn.BatchNorm2D(outputs, momentum=0.9, epsilon=_EPSILON)
    )


def _cells(grids: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of the cells of all maps, float64 (cells, 4), as shares; and which may be chosen, bool (cells, 1)."""
    parts = []
    for level, (height, width) in enumerate(grids):
        rows, columns = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
        side = np.full(rows.size, _ANCHOR * 2.0**level)
        parts.append(np.stack([columns.ravel() / width, rows.ravel() / height, side, side], axis=1))
    boxes = np.concatenate(parts)
    return boxes, ((boxes > _EDGE) & (boxes < 1 - _EDGE)).all(axis=1, keepdims=True)


def _inside(grids: Sequence[tuple[int, int]]) -> np.ndarray:
    """1 for cells that may be chosen, else 0, float32 (1, cells, 1)."""
    return _cells(grids)[1].astype(np.float32)[None]


def _anchors(grids: Sequence[tuple[int, int]]) -> np.ndarray:
    """Before the sigmoid; those at the border so large that the sigmoid is 1."""
    boxes, is_inside = _cells(grids)
    return np.where(is_inside, np.log(boxes / (1 - boxes)), np.finfo(np.float32).max)
