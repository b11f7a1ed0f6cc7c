"""RF-DETR: DINOv2 with windowed attention, and a decoder whose queries start at the best cells of its maps.

Sources: Robinson et al., RF-DETR, arXiv 2511.09554, with the code of roboflow/rf-detr; Chen et al., LW-DETR, arXiv
2406.03458; Chen et al., Group DETR, ICCV 2023, arXiv 2207.13085.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ....core.tasks.model import group_by_layers
from ...mask_queries.matching import load_solver
from ...models.layers import LayerNorm
from ...models.vit import VisionTransformer
from ..detector import (
    COCO_CATEGORIES,
    DetectionTargets,
    Outputs,
    QueryDetector,
    TopDetections,
    build_backbone,
    normal,
    single_or_double,
    without_gradient,
    zeros,
)
from ..detr.transformer import HeadMlp, sine_waves, xavier
from ..key_names import published_names, select_category_rows
from ..rtdetr.decoder import DecoderConfig, RtDetrDecoderLayer, SamplingPoints, build_classifier
from ..rtdetr.hybrid_network import cell_boxes, choose_cells, flatten_maps
from . import key_names
from .criterion import GroupCriterion
from .projector import COARSE, FINE, PLAIN, MapScaler, Projector

_EPSILON = 1e-5
_OUTPUTS = 91  # of the authors' classifiers for COCO: one for each id from 0
# for images of 64 to 96 pixels, on CPUs, trained from scratch
SMALL = {
    "backbone_options": {
        "embed_dim": 48,
        "depth": 4,
        "num_heads": 3,
        "image_size": 64,
        "patch_size": 8,
        "windows": 2,
        "feature_depths": (2, 4),
        "init_values": 1.0,  # 1e-5 is for pretrained blocks
    },
    "embed_dim": 64,
    "num_heads": 4,
    "sampling_heads": 8,
    "feedforward": 128,
    "decoder_layers": 2,
    "num_queries": 25,
    "groups": 3,
}


def size_options(side: int, patch: int, windows: int, depths: Sequence[int], layers: int) -> dict[str, Any]:
    """Return the arguments of a published size; ``side`` is that of the backbone's table of positions."""
    own = {"image_size": side, "patch_size": patch, "windows": windows, "feature_depths": tuple(depths)}
    return {"backbone_options": own, "decoder_layers": layers}


class GroupedLayer(RtDetrDecoderLayer):
    """A decoder layer whose queries attend to the ``size`` queries of their group only."""

    def __init__(self, config: DecoderConfig, size: int):
        super().__init__(config)
        self.size = size

    def forward(self, x, position, references, memory, sizes, blocked=None):
        """Return (batch, groups * size, dim); see ``RtDetrDecoderLayer``."""
        _, queries, dim = x.shape
        parts = [part.reshape([-1, self.size, dim]) for part in (x, position)]
        x = self.self_attn_layer_norm(x + self.self_attn(*parts).reshape([-1, queries, dim]))
        x = self.encoder_attn_layer_norm(x + self.encoder_attn(x + position, references, memory, sizes))
        return self.final_layer_norm(x + self.mlp(x))


class RfDetr(QueryDetector):
    """Detector for images of one size, whose sides are multiples of a window's.

    Training has several groups of queries with heads of their own, evaluation the first. Names of the backbone's
    parameters begin with ``backbone.``.

    Args:
        num_classes: number of outputs of the classifiers; 0: a network without a task yet.
        backbone: name of a Vision Transformer.
        num_heads: heads of the self-attention of queries.
        sampling_heads: heads of the deformable cross-attention.
        points: sampling points per query and head.
        num_queries: largest number of objects detected in an image.
        groups: groups of queries in training.
        levels: maps of the decoder, from fine to coarse: 3 is twice as fine as the backbone's, 4 as fine, 5 half as
            fine.
    """

    has_no_object = False
    takes_padding = False  # boxes would be fractions of the padded image
    batch_filter = "bilinear"
    variants = {
        "rfdetr": {},  # a start for configurations that give their own dimensions
        "rfdetr_shapes": SMALL,
        "rfdetr_nano": size_options(384, 16, 2, (3, 6, 9, 12), 2),
        "rfdetr_small": size_options(512, 16, 2, (3, 6, 9, 12), 3),
        "rfdetr_medium": size_options(576, 16, 2, (3, 6, 9, 12), 4),
        "rfdetr_large": size_options(704, 16, 2, (3, 6, 9, 12), 4),
        "rfdetr_base": size_options(518, 14, 4, (2, 5, 8, 11), 3),
    }
    coco_outputs = _OUTPUTS
    key_maps = key_names.RFDETR
    telling_name = "refpoint_embed.weight"
    criterion_kind: type[GroupCriterion] = GroupCriterion
    classifier_layers = ("class_embed", "enc_out_class_embed")
    reference_normalizer = "as by RF-DETR's authors: by the mean of the devices' objects, at least 1"

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "vit_small_patch14_dinov2",
        backbone_options: Mapping[str, Any] | None = None,
        embed_dim: int = 256,
        num_heads: int = 8,
        sampling_heads: int = 16,
        points: int = 2,
        feedforward: int = 2048,
        decoder_layers: int = 3,
        num_queries: int = 300,
        groups: int = 13,
        levels: Sequence[int] = (PLAIN,),
    ):
        super().__init__()
        self.backbone = build_backbone(backbone, {"norm_features": True}, backbone_options, [-1])
        strides = set(self.backbone.feature_strides)
        if len(strides) > 1:
            raise UserError(f"backbone '{backbone}' has maps of several sizes, but RF-DETR needs a plain ViT")
        (self.stride,), self.in_channels = strides, 3
        is_vit = isinstance(self.backbone, VisionTransformer)  # one of timm has no windows
        self.side_multiple = self.stride * (self.backbone.config.windows if is_vit else 1)
        self.embed_dim, self.num_queries, self.groups = embed_dim, num_queries, groups
        self.levels = tuple(levels)
        self.scalers = nn.LayerList([MapScaler(self.backbone.feature_channels, level) for level in levels])
        self.projector, *others = (Projector(scaler.channels, embed_dim) for scaler in self.scalers)
        self.other_projectors = nn.LayerList(others)
        self.refpoint_embed = nn.Embedding(groups * num_queries, 4, weight_attr=zeros())
        self.query_feat = nn.Embedding(groups * num_queries, embed_dim, weight_attr=normal(1.0))
        self.enc_output = nn.LayerList([xavier(embed_dim, embed_dim) for _ in range(groups)])
        self.enc_output_norm = nn.LayerList([LayerNorm(embed_dim, epsilon=_EPSILON) for _ in range(groups)])
        self.enc_out_bbox_embed = nn.LayerList([self._build_box_head() for _ in range(groups)])
        self.ref_point_head = HeadMlp(2 * embed_dim, embed_dim, embed_dim, 2)
        config = DecoderConfig(
            embed_dim,
            num_heads,
            feedforward,
            decoder_layers,
            SamplingPoints((points,) * len(self.levels)),
            sampling_heads=sampling_heads,
        )
        self.layers = nn.LayerList([GroupedLayer(config, num_queries) for _ in range(decoder_layers)])
        self.norm = LayerNorm(embed_dim, epsilon=_EPSILON)
        self.bbox_embed = self._build_box_head()
        self.reset_classifier(num_classes)

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> GroupCriterion:
        """Build the losses of a model without building the model."""
        load_solver()  # so that its error is raised before training starts
        arguments = {**cls.options(), **cls.variants.get(name, {}), **options}
        sizes = (arguments[key] for key in ("num_queries", "decoder_layers", "groups"))
        return cls.criterion_kind.build(name, losses, num_classes, *sizes)

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Return class logits and boxes of all queries: of the first group, or with targets of all.

        Returns:
            ``logits`` (N, queries, classes) and ``boxes`` (N, queries, 4), center, width and height as fractions; and
            the outputs of all layers (``layer_``) and of the encoder for the criterion.
        """
        maps = self.encode(images)
        memory, grids = flatten_maps(maps)
        groups = 1 if targets is None else self.groups
        selected = [self.select_queries(memory, grids, group) for group in range(groups)]
        logits, starts, content = (paddle.concat(parts, axis=1) for parts in zip(*selected))
        number = groups * self.num_queries
        deltas = single_or_double(self.refpoint_embed.weight[:number]).unsqueeze(0)
        references = apply_deltas(without_gradient(starts), deltas)
        waves = [sine_waves(2 * math.pi * references[..., axis], self.embed_dim // 2) for axis in (1, 0, 2, 3)]
        position = self.ref_point_head(paddle.concat(waves, axis=-1).astype(memory.dtype))
        x = self.query_feat.weight[:number].unsqueeze(0).astype(memory.dtype) + paddle.zeros_like(position)
        hidden = []
        for layer in self.layers:
            x = layer(x, position, references, memory, grids)
            hidden.append(self.norm(x))
        decoded = paddle.stack(hidden)  # (L, N, queries, dim)
        layer_boxes = apply_deltas(references, single_or_double(self.bbox_embed(decoded)))
        outputs = {"layer_logits": self.class_embed(decoded), "layer_boxes": layer_boxes}
        outputs.update({"encoder_logits": logits, "encoder_boxes": starts})
        outputs.update(self.build_masks(maps[0], images.shape[2:], hidden, None if targets is None else content))
        return {"logits": outputs["layer_logits"][-1], "boxes": layer_boxes[-1], **outputs}

    def build_masks(
        self, x: paddle.Tensor, image_size: Sequence[int], hidden: list[paddle.Tensor], selected: paddle.Tensor | None
    ) -> Outputs:
        """Return the outputs for masks: none, but of a network with masks.

        Args:
            x: the decoder's first map, (N, dim, height, width).
            image_size: height and width of the images.
            hidden: normalized outputs of each decoder layer, (N, queries, dim).
            selected: cells of the encoder's selection, (N, queries, dim); None: in an evaluation.
        """
        return {}

    def best(self, outputs: Outputs) -> TopDetections:
        """Return the best pairs of a query and a class, whose boxes end at the image's border."""
        found = QueryDetector.best(self, outputs)
        return found._replace(boxes=paddle.clip(found.boxes, 0.0, 1.0))

    def count_cells(self, height: int, width: int) -> int:
        """Count the cells of the maps for an image of this size."""
        return sum(rows * columns for rows, columns in self._find_grids(height // self.stride, width // self.stride))

    def _find_grids(self, rows: int, columns: int) -> list[tuple[int, int]]:
        """Return height and width of each level's map, of the backbone's map of this size."""
        sides = {FINE: (2 * rows, 2 * columns), PLAIN: (rows, columns), COARSE: (-(-rows // 2), -(-columns // 2))}
        return [sides[level] for level in self.levels]

    def encode(self, images: paddle.Tensor) -> list[paddle.Tensor]:
        """Return the decoder's maps, (N, dim, height, width), from fine to coarse."""
        height, width = images.shape[2:]
        if height % self.side_multiple or width % self.side_multiple:
            raise UserError(
                f"this RF-DETR takes images whose sides are multiples of {self.side_multiple}, not {height} x {width} "
                "pixels: for training, set DATA.RESIZE_TO_SQUARE true; otherwise set DETECTION.EVAL_BATCHING one_size; "
                "use multiples in DATA.SHORTEST_SIDES and DATA.EVAL_SHORTEST_SIDE (-image_size of an export)"
            )
        maps = self.backbone.feature_maps(images)
        projectors = [self.projector, *self.other_projectors]
        return [project(scale(maps)) for scale, project in zip(self.scalers, projectors)]

    def select_queries(
        self, memory: paddle.Tensor, grids: Sequence[tuple[int, int]], group: int
    ) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Select a group's best cells of all maps, whose heights and widths are ``grids``.

        Returns:
            Logits (N, Q, classes), boxes (N, Q, 4), center and sides as fractions, and contents (N, Q, dim).
        """
        total = sum(height * width for height, width in grids)
        if total < self.num_queries:
            raise UserError(
                f"the map of these images has {total} cells, fewer than MODEL.NUM_QUERIES {self.num_queries}: lower "
                "it, or use larger images"
            )
        kind = "float64" if memory.dtype == paddle.float64 else "float32"
        anchors = constant(_anchors, tuple(grids), kind)  # (cells, 4), zeros for cells that may not be used
        usable = (anchors[:, 2:3] > 0).astype(memory.dtype)
        cells = self.enc_output_norm[group](self.enc_output[group](memory * usable))
        logits = self.enc_out_class_embed[group](cells)  # (N, cells, classes)
        best = choose_cells(logits, self.num_queries, memory)
        content = best.gather(cells)
        deltas = single_or_double(self.enc_out_bbox_embed[group](content))
        chosen = paddle.gather(anchors.astype(deltas.dtype), best.numbers.flatten()).reshape([-1, self.num_queries, 4])
        return best.gather(logits), apply_deltas(chosen, deltas), content

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifiers by new ones."""
        self.num_classes = num_classes
        outputs = max(num_classes, 1)
        self.class_embed = build_classifier(self.embed_dim, outputs)
        self.enc_out_class_embed = nn.LayerList([build_classifier(self.embed_dim, outputs) for _ in range(self.groups)])

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Select the rows of COCO's 80 categories from the authors' classifiers, or resample the table of positions."""
        if name.startswith(key_names.BACKBONE):
            return self.backbone.resize_parameter(name[len(key_names.BACKBONE) :], value)
        if not name.startswith(self.classifier_layers):
            return None
        return select_category_rows(value, self.num_classes, _OUTPUTS, [*COCO_CATEGORIES])

    def begin_classifier(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Repeat the outputs of ``value``, as the authors do: also of other classes, they know what an object is."""
        return value.take(np.arange(self.num_classes) % value.shape[-1], axis=-1) if value.shape[-1] else None

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the class names of the authors' classifiers for COCO."""
        return published_names(0, _OUTPUTS - 1) if classes == _OUTPUTS else None

    def find_named_rows(self, names: int, rows: int) -> Sequence[int] | None:
        """Return the rows of the named classes: the authors' last row is of none, in some versions the first, too."""
        return {names + 1: range(names), names + 2: range(1, names + 1)}.get(rows)

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return a notice if the classifier's rows were selected."""
        if not any(name.startswith("class_embed.") for name in names):
            return []
        return [
            f"of the classifier's {_OUTPUTS} outputs, the outputs of COCO's {len(COCO_CATEGORIES)} categories were used"
        ]

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of parameters that are not decayed: the backbone's."""
        return tuple(f"backbone.{name}" for name in self.backbone.no_weight_decay())

    def layer_groups(self) -> list[list[str]]:
        """Group the parameters for TRAIN.LAYER_DECAY: the embedding, each block of the backbone, and all others."""
        return group_by_layers([name for name, _ in self.named_parameters()], r"backbone\.blocks\.\d+")

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the layers that can be recomputed: of the backbone and of the decoder."""
        return [*self.backbone.recomputed_layers(), *self.layers]

    def _build_box_head(self) -> HeadMlp:
        return HeadMlp(self.embed_dim, self.embed_dim, 4, 3, starts_at_zero=True)


def apply_deltas(boxes: paddle.Tensor, deltas: paddle.Tensor) -> paddle.Tensor:
    """Move the centers of boxes (..., 4) by deltas (..., 4) in sizes of the box, and scale them by exponentials."""
    center = deltas[..., :2] * boxes[..., 2:] + boxes[..., :2]
    return paddle.concat([center, paddle.exp(deltas[..., 2:]) * boxes[..., 2:]], axis=-1)


def _anchors(grids: Sequence[tuple[int, int]], dtype: str) -> np.ndarray:
    """Return a box for each cell of all maps, row by row, as fractions, (cells, 4); zeros at the border."""
    boxes, is_usable = cell_boxes(grids)
    return np.where(is_usable, boxes, 0).astype(dtype)
