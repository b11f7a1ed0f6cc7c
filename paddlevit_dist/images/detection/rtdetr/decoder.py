"""RT-DETR's decoder: queries look at each other and at a few points of the maps, and their boxes move from layer to
layer; and D-FINE's, in which each side of a box is a distribution over distances that every layer refines.

Sources: Zhu et al., Deformable DETR, ICLR 2021, arXiv 2010.04159, section 4.1 and equation 3; Zhao et al., DETRs Beat
YOLOs on Real-time Object Detection, CVPR 2024; Lv et al., RT-DETRv2, arXiv 2407.17140, section 2; Peng et al., D-FINE,
ICLR 2025, arXiv 2410.13842, section 4, with the authors' ``dfine_decoder.py``. Names are those of transformers 5.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....runtime.transfers import constant
from ...models.attention import head_dim
from ...models.layers import LayerNorm, Linear
from ..detector import Outputs, single_or_double, without_gradient, zeros
from ..detr.transformer import HeadMlp, xavier
from .deformable import PointSampling, Sizes
from .distributions import DistanceBins
from .encoder import EncoderMlp, PositionAttention

_EPSILON = 1e-5
_SCALE = 0.5  # of the points' offsets, in sizes of the box
_LEAST = 1e-5  # of a share and of its complement, before the logarithm
_FARTHEST = 10.0  # of a number of a position of D-FINE's
_RARE = 0.01  # how likely a class is to a new classifier


class SamplingPoints(NamedTuple):
    """Where a query looks.

    Attributes:
        numbers: of points on each level.
        is_discrete: the nearest cell is taken, without interpolation (RT-DETRv2).
    """

    numbers: tuple[int, ...]
    is_discrete: bool = False


class DeformableAttention(nn.Layer):
    """Attention of each query to points around its box.

    Args:
        has_values: values and outputs have layers of their own; D-FINE's have none.
    """

    def __init__(self, dim: int, num_heads: int, points: SamplingPoints, has_values: bool = True):
        super().__init__()
        head_dim("EMBED_DIM", dim, num_heads)
        self._heads, self._points, total = num_heads, points, sum(points.numbers)
        self.sampling_offsets = Linear(
            dim,
            num_heads * total * 2,
            weight_attr=zeros(),
            bias_attr=paddle.ParamAttr(initializer=nn.initializer.Assign(_stars(num_heads, points.numbers))),
        )
        self.attention_weights = Linear(dim, num_heads * total, weight_attr=zeros(), bias_attr=zeros())
        self.sampling = PointSampling(points.numbers, points.is_discrete)
        self.value_proj = xavier(dim, dim) if has_values else nn.Identity()
        self.output_proj = xavier(dim, dim) if has_values else nn.Identity()

    def forward(self, queries, references, memory, sizes: Sizes):
        """(batch, queries, dim).

        Args:
            queries: (batch, queries, dim), with their positions.
            references: boxes (batch, queries, 4), center, width and height as shares.
            memory: (batch, cells of all maps, dim); sizes: of the maps.
        """
        _, number, dim = queries.shape  # of a graph the number of images is not known
        values = self.value_proj(memory).reshape([-1, memory.shape[1], self._heads, dim // self._heads])
        per_head = [-1, number, self._heads, sum(self._points.numbers)]
        offsets = single_or_double(self.sampling_offsets(queries)).reshape([*per_head, 2])
        weights = F.softmax(single_or_double(self.attention_weights(queries)).reshape(per_head), axis=-1)
        shares = constant(_shares, self._points.numbers).astype(offsets.dtype)  # (points, 1)
        boxes = references.astype(offsets.dtype).unsqueeze([2, 3])  # (batch, queries, 1, 1, 4)
        places = boxes[..., :2] + offsets * shares * boxes[..., 2:]
        return self.output_proj(self.sampling(values, sizes, places, weights))


def _shares(numbers: tuple[int, ...]) -> np.ndarray:
    return (_SCALE / np.repeat(np.array(numbers, np.float64), numbers))[:, None]


def _stars(heads: int, numbers: Sequence[int]) -> np.ndarray:
    """Offsets to begin with, float32 (heads * points * 2,): a direction for each head, farther with each point."""
    angles = np.arange(heads) * (2 * math.pi / heads)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    directions /= np.abs(directions).max(axis=1, keepdims=True)
    steps = np.concatenate([np.arange(1, number + 1) for number in numbers])
    return (directions[:, None] * steps[None, :, None]).reshape(-1).astype(np.float32)


class FusionGate(nn.Layer):
    """How much of what came and of what attention found goes on."""

    def __init__(self, dim: int):
        super().__init__()
        self.gate = Linear(2 * dim, 2 * dim, weight_attr=zeros(), bias_attr=zeros())
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, found):
        own, other = F.sigmoid(self.gate(paddle.concat([x, found], axis=-1))).chunk(2, axis=-1)
        return self.norm(own * x + other * found)


class RtDetrDecoderLayer(nn.Layer):
    """Args:
    is_fine: D-FINE's, with a gate behind the attention to points, which reads the maps as they are.
    """

    def __init__(self, dim: int, num_heads: int, feedforward: int, points: SamplingPoints, is_fine: bool = False):
        super().__init__()
        self.self_attn = PositionAttention(dim, num_heads)
        self.self_attn_layer_norm = LayerNorm(dim, epsilon=_EPSILON)
        self.encoder_attn = DeformableAttention(dim, num_heads, points, has_values=not is_fine)
        self.is_fine = is_fine
        if is_fine:
            self.gateway = FusionGate(dim)
        else:
            self.encoder_attn_layer_norm = LayerNorm(dim, epsilon=_EPSILON)
        self.mlp = EncoderMlp(dim, feedforward, F.relu)
        self.final_layer_norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, position, references, memory, sizes: Sizes, blocked: paddle.Tensor | None = None):
        """(batch, queries, dim) of ``x``; see ``PositionAttention`` and ``DeformableAttention``."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, position, blocked))
        found = self.encoder_attn(x + position, references, memory, sizes)
        x = self.gateway(x, found) if self.is_fine else self.encoder_attn_layer_norm(x + found)
        return self.final_layer_norm(x + self.mlp(x))


class RtDetrDecoder(nn.Layer):
    """RT-DETR's, with classifiers of one class until the network has others."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, layers: int, points: SamplingPoints):
        super().__init__()
        self.layers = nn.LayerList([RtDetrDecoderLayer(dim, num_heads, feedforward, points) for _ in range(layers)])
        self.query_pos_head = HeadMlp(4, 2 * dim, dim, 2)
        self.class_embed = nn.LayerList([classifier(dim, 1) for _ in range(layers)])
        self.bbox_embed = nn.LayerList([HeadMlp(dim, dim, 4, 3, starts_at_zero=True) for _ in range(layers)])

    def forward(self, x, starts, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Outputs:
        """What each of L layers says of the queries: ``layer_logits`` (L, batch, queries, classes) and ``layer_boxes``
        (L, batch, queries, 4), center, width and height as shares.

        Args:
            x: (batch, queries, dim).
            starts: their boxes before the sigmoid, (batch, queries, 4).
            memory: (batch, cells, dim); sizes: of the maps.
            blocked: (batch, queries, queries), see ``PositionAttention``.
        """
        references = before = F.sigmoid(single_or_double(starts))
        logits, boxes = [], []
        for layer, classify, move in zip(self.layers, self.class_embed, self.bbox_embed):
            position = self.query_pos_head(references.astype(x.dtype))
            x = layer(x, position, references, memory, sizes, blocked)
            step = single_or_double(move(x))
            # The box that is judged has the gradient of the layer before, too ("look forward twice": Zhang et al.,
            # DINO, ICLR 2023, section 3.5); the one that the next layer looks around has none.
            boxes.append(F.sigmoid(step + before_sigmoid(before)))
            logits.append(classify(x))
            before = F.sigmoid(step + before_sigmoid(references))
            references = without_gradient(before)
        return {"layer_logits": paddle.stack(logits), "layer_boxes": paddle.stack(boxes)}


class LocalizationQualityHead(nn.Layer):
    """What the sharpness of a box's sides adds to the logits of its classes.

    Args:
        highest: shares of a side's bins that tell how sure it is.
        dim, layers: of what judges them.
    """

    def __init__(self, highest: int = 4, dim: int = 64, layers: int = 2) -> None:
        super().__init__()
        self._highest = highest
        self.reg_conf = HeadMlp(4 * (highest + 1), dim, 1, layers, starts_at_zero=True)

    def forward(self, corners):
        """(..., 1) of (..., 4 * bins), float32 or float64."""
        shares = F.softmax(corners.reshape([*corners.shape[:-1], 4, -1]), axis=-1)
        highest = paddle.topk(shares, self._highest, axis=-1)[0]  # (..., 4, highest)
        return self.reg_conf(paddle.concat([highest, highest.mean(-1, keepdim=True)], axis=-1).flatten(-2))


class FineDecoder(nn.Layer):
    """As ``RtDetrDecoder``; ``bins`` are of the distances of sides."""

    def __init__(
        self, dim: int, num_heads: int, feedforward: int, layers: int, points: SamplingPoints, bins: DistanceBins
    ):
        super().__init__()
        self._bins = bins
        self.layers = nn.LayerList(
            [RtDetrDecoderLayer(dim, num_heads, feedforward, points, True) for _ in range(layers)]
        )
        self.query_pos_head = HeadMlp(4, 2 * dim, dim, 2)
        self.pre_bbox_head = HeadMlp(dim, dim, 4, 3, starts_at_zero=True)
        self.lqe_layers = nn.LayerList([LocalizationQualityHead() for _ in range(layers)])
        self.class_embed = nn.LayerList([classifier(dim, 1) for _ in range(layers)])
        self.bbox_embed = nn.LayerList(
            [HeadMlp(dim, dim, 4 * (bins.number + 1), 3, starts_at_zero=True) for _ in range(layers)]
        )

    def forward(self, x, starts, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Outputs:
        """As ``RtDetrDecoder.forward``, with ``layer_corners`` (L, batch, queries, 4 * bins), of the distances of the
        sides; ``first_logits`` and ``first_boxes`` (batch, queries, ...) of the first layer's plain head, and
        ``references``, its boxes without gradient."""
        references = F.sigmoid(single_or_double(starts))
        first_boxes = first_logits = anchors = None
        seen, corners = 0.0, 0.0  # of the layer before
        parts = []
        heads = zip(self.layers, self.class_embed, self.bbox_embed, self.lqe_layers)
        for layer, classify, refine, judge in heads:
            position = paddle.clip(self.query_pos_head(references.astype(x.dtype)), -_FARTHEST, _FARTHEST)
            x = layer(x, position, references, memory, sizes, blocked)
            if anchors is None:
                first_boxes = F.sigmoid(single_or_double(self.pre_bbox_head(x)) + before_sigmoid(references))
                first_logits, anchors = classify(x), without_gradient(first_boxes)
            corners = single_or_double(refine(x + seen)) + corners
            boxes = self._boxes(anchors, corners)
            parts.append((classify(x) + judge(corners), boxes, corners))
            references, seen = without_gradient(boxes), without_gradient(x)
        names = ("layer_logits", "layer_boxes", "layer_corners")
        outputs = {name: paddle.stack(part) for name, part in zip(names, zip(*parts))}
        return {**outputs, "first_logits": first_logits, "first_boxes": first_boxes, "references": anchors}

    def _boxes(self, anchors, corners):
        """(..., 4) of boxes (..., 4) and distributions (..., 4 * bins) of what their sides are away from them."""
        shares = F.softmax(corners.reshape([*corners.shape[:-1], 4, -1]), axis=-1)
        table = constant(DistanceBins.distances, self._bins).astype(shares.dtype)
        ways = (shares * table).sum(-1) + 0.5 * self._bins.reg_scale  # left, top, right, bottom
        unit = anchors[..., 2:] / self._bins.reg_scale
        low, high = anchors[..., :2] - ways[..., :2] * unit, anchors[..., :2] + ways[..., 2:] * unit
        return paddle.concat([(low + high) / 2, high - low], axis=-1)


def classifier(dim: int, classes: int) -> nn.Layer:
    """A linear layer that begins with every class unlikely."""
    start = nn.initializer.Constant(-math.log((1 - _RARE) / _RARE))
    bound = dim**-0.5
    weight = paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))
    return Linear(dim, classes, weight_attr=weight, bias_attr=paddle.ParamAttr(initializer=start))


def before_sigmoid(shares: paddle.Tensor) -> paddle.Tensor:
    """The inverse of the sigmoid, of shares clipped to [0, 1]."""
    shares = paddle.clip(shares, 0.0, 1.0)
    return paddle.log(paddle.clip(shares, min=_LEAST) / paddle.clip(1.0 - shares, min=_LEAST))
