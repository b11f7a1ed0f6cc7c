"""What networks with a hybrid encoder share: a backbone, the encoder of its maps, and queries at the best cells.

Source: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, sections 4.1 and 4.2.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ....core.tasks.model import ClassLayout
from ...mask_queries.matching import load_solver
from ...models.layers import Conv2D
from ..denoising import PREFIX
from ..detector import Outputs, QueryDetector, build_backbone, single_or_double
from .decoder import build_classifier
from .distributions import DistanceBins

_EPSILON = 1e-5
_ANCHOR = 0.05  # side of the anchors on the finest map; doubled on each further map
_EDGE = 0.01  # anchors closer to the border are not used

Grids = list[tuple[int, int]]  # height and width of the maps, the finest first


class ChosenCells(NamedTuple):
    """The cells at which the queries of N images start."""

    numbers: paddle.Tensor  # int64 (N, Q), of all maps
    rows: paddle.Tensor  # int64 (N * Q,), positions among the cells of all images

    def gather(self, values: paddle.Tensor) -> paddle.Tensor:
        """Return the chosen rows (N, Q, n) of values of all cells (N, cells, n)."""
        return paddle.gather(values.flatten(0, 1), self.rows).reshape([*self.numbers.shape, values.shape[-1]])


class HybridNetwork(QueryDetector):
    """Base class of networks for images of one size, whose sides are multiples of the coarsest map's stride.

    Queries start at the best cells of all maps, and in training others restore objects with noise. A subclass sets the
    layers below, and ``embed_dim``, ``num_queries`` and ``denoising``; it calls ``reset_classifier`` last.
    """

    #: name of the architecture in messages
    architecture: ClassVar[str] = "RT-DETR"
    has_no_object = False
    takes_padding = False  # places would be fractions of the padded image
    published_input = ("DATA.IMAGENET_MEAN", "[0.0,0.0,0.0]", "DATA.IMAGENET_STD", "[1.0,1.0,1.0]")
    classifier_layers = ("enc_score_head", "decoder.class_embed", "denoising_class_embed")
    encoder: nn.Layer  # a ``HybridEncoder``
    enc_output: nn.Layer  # of cells before they are ranked
    decoder: Any  # with ``layers``
    embed_dim: int  # width of the decoder
    denoising: int  # pairs of denoising queries of an image; 0: none

    def build_maps(
        self,
        backbone: str,
        options: Mapping[str, Any] | None,
        feature_levels: Sequence[int],
        encoder_dim: int,
        **fixed: Any,
    ) -> None:
        """Build the backbone and the projections of its maps to ``encoder_dim``, see ``build_backbone``.

        Raises:
            UserError: a map is not half as large as the one before.
        """
        self.backbone = build_backbone(backbone, fixed, options, feature_levels)
        self.feature_levels, self.in_channels = tuple(feature_levels), 3
        widths = [self.backbone.feature_channels[level] for level in feature_levels]
        self.strides = [self.backbone.feature_strides[level] for level in feature_levels]
        if any(after != 2 * before for before, after in zip(self.strides, self.strides[1:])):
            raise UserError(
                f"backbone '{backbone}' has maps of strides {', '.join(map(str, self.strides))}, but "
                f"{self.architecture} needs each map half as large as the one before: use a ResNet, for example, or a "
                "ViT with a pyramid"
            )
        self.side_multiple = self.strides[-1]
        self.encoder_input_proj = nn.LayerList([project_map(width, encoder_dim) for width in widths])

    def count_cells(self, height: int, width: int) -> int:
        """Count the cells of all maps for an image of this size."""
        return sum((height // stride) * (width // stride) for stride in self.strides)

    def encode_maps(self, images: paddle.Tensor) -> list[paddle.Tensor]:
        """Return the encoder's maps (N, encoder_dim, height, width), from fine to coarse."""
        height, width = images.shape[2:]
        if height % self.side_multiple or width % self.side_multiple:
            raise UserError(
                f"{self.architecture} takes images whose sides are multiples of {self.side_multiple}, not {height} x "
                f"{width} pixels: for training, set DATA.RESIZE_TO_SQUARE true; otherwise set DETECTION.EVAL_BATCHING "
                "one_size; use multiples in DATA.SHORTEST_SIDES and DATA.EVAL_SHORTEST_SIDE (-image_size of an export)"
            )
        maps = self.backbone.feature_maps(images)
        return self.encoder(
            [project(maps[level]) for level, project in zip(self.feature_levels, self.encoder_input_proj)]
        )

    def embed_labels(self, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the embeddings (N, D, dim) of the classes of denoising queries (N, D)."""
        table = self.denoising_class_embed.weight  # its last row, the padding, is read as zeros
        return F.embedding(labels, table, padding_idx=table.shape[0] - 1)

    @classmethod
    def read_loss_options(cls, name: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], DistanceBins]:
        """Return the arguments of a model as the losses need them, with its steps of distances."""
        load_solver()  # so that its error is raised before training starts
        arguments = {**cls.options(), **cls.variants.get(name, {}), **options}
        return arguments, DistanceBins(arguments["bins"], arguments["up"], arguments["reg_scale"])

    def choose_queries(self, memory: paddle.Tensor, grids: Grids) -> tuple[ChosenCells, paddle.Tensor, paddle.Tensor]:
        """Choose the best cells, and return them with their contents (N, Q, dim) and logits (N, Q, classes)."""
        self.require_cells(grids)
        cells = self.enc_output(memory * _inside_cells(grids, memory.dtype))
        logits = self.enc_score_head(cells)  # (N, cells, classes)
        best = choose_cells(logits, self.num_queries, memory)
        return best, best.gather(cells), best.gather(logits)

    @staticmethod
    def split_outputs(decoded: Outputs, extra: int, chosen: Outputs) -> Outputs:
        """Return the decoder's outputs, named with ``PREFIX`` for the ``extra`` denoising queries, and ``chosen``."""
        outputs = {**_slice_queries(decoded, extra, None), **chosen}
        if extra:
            outputs.update({PREFIX + name: part for name, part in _slice_queries(decoded, 0, extra).items()})
        return outputs

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifiers by new ones."""
        self.num_classes, dim, outputs = num_classes, self.embed_dim, max(num_classes, 1)
        self.enc_score_head = build_classifier(dim, outputs)
        self.decoder.class_embed = nn.LayerList([build_classifier(dim, outputs) for _ in self.decoder.layers])
        initial = paddle.ParamAttr(initializer=self.label_initializer(), trainable=self.denoising > 0)
        self.denoising_class_embed = nn.Embedding(outputs + 1, dim, weight_attr=initial)

    def label_initializer(self) -> Any:
        """Return the initializer of the embeddings of denoising queries' classes."""
        return nn.initializer.Normal(0.0, 1.0)

    def class_layout(self, name: str) -> ClassLayout:
        """Return how a classifier's outputs are ordered."""
        return ClassLayout(after=1, axis=0) if name.startswith("denoising_class_embed.") else ClassLayout()

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the layers that can be recomputed: the decoder's."""
        return list(self.decoder.layers)

    def require_cells(self, grids: Grids) -> int:
        """Return the number of cells of all maps; raise UserError if there are fewer than queries."""
        total = sum(height * width for height, width in grids)
        if total < self.num_queries:
            raise UserError(
                f"the maps of these images have {total} cells, fewer than MODEL.NUM_QUERIES {self.num_queries}: lower "
                "it, or use larger images"
            )
        return total


def count_sampled_points(points: int | Sequence[int], levels: int) -> tuple[int, ...]:
    """Return the number of points that are sampled on each map; UserError: ``points`` is a list for other maps."""
    numbers = (points,) * levels if isinstance(points, int) else tuple(points)
    if len(numbers) != levels:
        raise UserError(f"points {list(numbers)}: expected {levels} numbers, one for each map")
    return numbers


def flatten_maps(maps: Sequence[paddle.Tensor]) -> tuple[paddle.Tensor, Grids]:
    """Return the cells of maps (N, dim, height, width) as (N, cells of all maps, dim), and the maps' sizes."""
    grids = [(x.shape[2], x.shape[3]) for x in maps]
    return paddle.concat([x.flatten(2).transpose([0, 2, 1]) for x in maps], axis=1), grids


def choose_cells(logits: paddle.Tensor, number: int, memory: paddle.Tensor) -> ChosenCells:
    """Choose the ``number`` cells of each image with the highest ``logits`` (N, cells, classes) of any class.

    ``memory`` is (N, cells, n).
    """
    best = paddle.topk(single_or_double(logits).max(-1), number, axis=1)[1]  # (N, Q)
    first = paddle.arange(memory.shape[0], dtype=best.dtype).unsqueeze(1) * memory.shape[1]
    return ChosenCells(best, (best + first).flatten())


def _slice_queries(outputs: Outputs, start: int, end: int | None) -> Outputs:
    """Return a decoder's outputs for the queries from ``start`` to ``end``."""
    return {
        name: value[:, :, start:end] if name.startswith("layer_") else value[:, start:end]
        for name, value in outputs.items()
    }


def _inside_cells(grids: Grids, dtype: paddle.dtype) -> paddle.Tensor:
    """Return 1 for cells that may be used, else 0, (1, cells, 1)."""
    return constant(_inside, tuple(grids)).astype(dtype)


def project_map(inputs: int, outputs: int) -> nn.Sequential:
    """Build a point-wise convolution without bias and a batch norm."""
    return nn.Sequential(Conv2D(inputs, outputs, 1, bias_attr=False), nn.BatchNorm2D(outputs, epsilon=_EPSILON))


def cell_boxes(grids: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes of the cells of all maps as fractions, float64 (cells, 4), and whether usable, bool (cells, 1)."""
    parts = []
    for level, (height, width) in enumerate(grids):
        rows, columns = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
        side = np.full(rows.size, _ANCHOR * 2.0**level)
        parts.append(np.stack([columns.ravel() / width, rows.ravel() / height, side, side], axis=1))
    boxes = np.concatenate(parts)
    return boxes, ((boxes > _EDGE) & (boxes < 1 - _EDGE)).all(axis=1, keepdims=True)


def _inside(grids: Sequence[tuple[int, int]]) -> np.ndarray:
    return cell_boxes(grids)[1].astype(np.float32)[None]
