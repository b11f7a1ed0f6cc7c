"""RT-DETR's and D-FINE's decoders, whose queries attend to each other and to a few points of the maps.

Boxes are refined from layer to layer. In D-FINE, each side of a box is a distribution over distances that every layer
refines.

Sources: Zhu et al., Deformable DETR, ICLR 2021, arXiv 2010.04159, section 4.1 and equation 3; Zhao et al., DETRs Beat
YOLOs on Real-time Object Detection, CVPR 2024; Lv et al., RT-DETRv2, arXiv 2407.17140, section 2; Peng et al., D-FINE,
ICLR 2025, arXiv 2410.13842, section 4, with the authors' ``dfine_decoder.py``. Names are those in transformers 5.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.transfers import constant
from ...models.attention import head_dim
from ...models.layers import LayerNorm, Linear
from ..detector import Outputs, single_or_double, without_gradient, zeros
from ..detr.transformer import HeadMlp, xavier
from .deformable import PointSampling, Sizes
from .distributions import DistanceBins
from .encoder import EncoderMlp, PositionAttention

_EPSILON = 1e-5
_SCALE = 0.5  # of the points' offsets, in sizes of the box
_LOG_EPSILON = 1e-5  # smallest fraction and complement, for the logarithm
_MAX_POSITION = 10.0  # limit of D-FINE's position embeddings
_PRIOR = 0.01  # probability of a class in a new classifier

ACTIVATIONS: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {"relu": F.relu, "silu": F.silu}


class SamplingPoints(NamedTuple):
    """Points sampled for a query."""

    numbers: tuple[int, ...]  # number of points on each level
    is_discrete: bool = False  # use the nearest cell, without interpolation (RT-DETRv2)


class DecoderConfig(NamedTuple):
    """Dimensions of a decoder."""

    dim: int  # width of the queries
    num_heads: int  # number of attention heads
    feedforward: int  # hidden width of the layers' MLPs
    layers: int  # number of layers
    points: SamplingPoints  # points of a query
    activation: str = "relu"  # activation of all MLPs, a key of ``ACTIVATIONS``; DEIM's is SiLU
    deep_positions: bool = False  # positions of queries by three layers of width ``dim`` (DEIM), not two of 2 dim
    sampling_heads: int | None = None  # number of heads of the attention to points; None: ``num_heads``

    def build_mlp(self, inputs: int, hidden: int, outputs: int, layers: int, starts_at_zero: bool = False) -> HeadMlp:
        """Build an MLP with this activation."""
        return HeadMlp(inputs, hidden, outputs, layers, starts_at_zero, ACTIVATIONS[self.activation])

    def build_positions(self) -> HeadMlp:
        """Build the MLP of the queries' positions."""
        hidden, layers = (self.dim, 3) if self.deep_positions else (2 * self.dim, 2)
        return self.build_mlp(4, hidden, self.dim, layers)


class DeformableAttention(nn.Layer):
    """Attention of each query to places around its box, or around its point, whose offsets are in cells of each map.

    D-FINE's has no projections of values and outputs.
    """

    def __init__(self, dim: int, num_heads: int, points: SamplingPoints, has_values: bool = True):
        super().__init__()
        head_dim("EMBED_DIM", dim, num_heads)
        self._heads, self._points, total = num_heads, points, sum(points.numbers)
        self.sampling_offsets = Linear(
            dim,
            num_heads * total * 2,
            weight_attr=zeros(),
            bias_attr=paddle.ParamAttr(initializer=nn.initializer.Assign(_initial_offsets(num_heads, points.numbers))),
        )
        self.attention_weights = Linear(dim, num_heads * total, weight_attr=zeros(), bias_attr=zeros())
        self.sampling = PointSampling(points.numbers, points.is_discrete)
        self.value_proj = xavier(dim, dim) if has_values else nn.Identity()
        self.output_proj = xavier(dim, dim) if has_values else nn.Identity()

    def forward(self, queries, references, memory, sizes: Sizes):
        """Return the output (batch, queries, dim).

        Args:
            queries: (batch, queries, dim), with their positions.
            references: boxes (batch, queries, 4), center, width and height as fractions, or points (batch, queries, 2).
            memory: (batch, cells of all maps, dim).
            sizes: height and width of the maps.
        """
        _, number, dim = queries.shape  # the number of images is unknown in a static graph
        values = self.value_proj(memory).reshape([-1, memory.shape[1], self._heads, dim // self._heads])
        per_head = [-1, number, self._heads, sum(self._points.numbers)]
        offsets = single_or_double(self.sampling_offsets(queries)).reshape([*per_head, 2])
        weights = F.softmax(single_or_double(self.attention_weights(queries)).reshape(per_head), axis=-1)
        centers = references.astype(offsets.dtype).unsqueeze([2, 3])  # (batch, queries, 1, 1, 4 or 2)
        if centers.shape[-1] == 2:
            places = centers + offsets * constant(_cell_sides, tuple(sizes), self._points.numbers).astype(offsets.dtype)
        else:
            scales = constant(_offset_scales, self._points.numbers).astype(offsets.dtype)  # (points, 1)
            places = centers[..., :2] + offsets * scales * centers[..., 2:]
        return self.output_proj(self.sampling(values, sizes, places, weights))


def _offset_scales(numbers: tuple[int, ...]) -> np.ndarray:
    """Return the scale of each point's offsets, float64 (points, 1)."""
    return (_SCALE / np.repeat(np.array(numbers, np.float64), numbers))[:, None]


def _cell_sides(sizes: tuple[tuple[int, int], ...], numbers: tuple[int, ...]) -> np.ndarray:
    """Return width and height of a cell of each point's map as fractions, float64 (points, 2)."""
    return np.repeat(1.0 / np.array(sizes, np.float64)[:, ::-1], numbers, axis=0)


def _initial_offsets(heads: int, numbers: Sequence[int]) -> np.ndarray:
    """Return initial offsets, float32 (heads * points * 2,): a direction for each head, growing with each point."""
    angles = np.arange(heads) * (2 * math.pi / heads)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    directions /= np.abs(directions).max(axis=1, keepdims=True)
    steps = np.concatenate([np.arange(1, number + 1) for number in numbers])
    return (directions[:, None] * steps[None, :, None]).reshape(-1).astype(np.float32)


class FusionGate(nn.Layer):
    """Gated sum of a layer's input and its attention's output."""

    def __init__(self, dim: int):
        super().__init__()
        self.gate = Linear(2 * dim, 2 * dim, weight_attr=zeros(), bias_attr=zeros())
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, attended):
        """Return (..., dim) from the input and the attention's output of this shape."""
        input_gate, attention_gate = F.sigmoid(self.gate(paddle.concat([x, attended], axis=-1))).chunk(2, axis=-1)
        return self.norm(input_gate * x + attention_gate * attended)


class RtDetrDecoderLayer(nn.Layer):
    """Self-attention, attention to points (D-FINE's without projections, and with a gate after it), and an MLP."""

    def __init__(self, config: DecoderConfig, is_fine: bool = False):
        super().__init__()
        dim, num_heads = config.dim, config.num_heads
        self.self_attn = PositionAttention(dim, num_heads)
        self.self_attn_layer_norm = LayerNorm(dim, epsilon=_EPSILON)
        self.encoder_attn = DeformableAttention(
            dim, config.sampling_heads or num_heads, config.points, has_values=not is_fine
        )
        self.is_fine = is_fine
        if is_fine:
            self.gateway = FusionGate(dim)
        else:
            self.encoder_attn_layer_norm = LayerNorm(dim, epsilon=_EPSILON)
        self.mlp = EncoderMlp(dim, config.feedforward, ACTIVATIONS[config.activation])
        self.final_layer_norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, position, references, memory, sizes: Sizes, blocked: paddle.Tensor | None = None):
        """Return (batch, queries, dim); see ``PositionAttention`` and ``DeformableAttention`` for arguments."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, position, blocked))
        attended = self.encoder_attn(x + position, references, memory, sizes)
        x = self.gateway(x, attended) if self.is_fine else self.encoder_attn_layer_norm(x + attended)
        return self.final_layer_norm(x + self.mlp(x))


class RtDetrDecoder(nn.Layer):
    """RT-DETR's decoder; classifiers have one class until the network sets others."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        dim, steps = config.dim, range(config.layers)
        self.layers = nn.LayerList([RtDetrDecoderLayer(config) for _ in steps])
        self.query_pos_head = config.build_positions()
        self.class_embed = nn.LayerList([build_classifier(dim, 1) for _ in steps])
        self.bbox_embed = nn.LayerList([config.build_mlp(dim, dim, 4, 3, starts_at_zero=True) for _ in steps])

    def forward(self, x, starts, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Outputs:
        """Return ``layer_logits`` (L, batch, queries, classes), ``layer_boxes`` (L, batch, queries, 4) of L layers.

        Boxes are center, width and height as fractions.

        Args:
            x: (batch, queries, dim).
            starts: initial boxes before the sigmoid, (batch, queries, 4).
            memory: (batch, cells, dim).
            sizes: height and width of the maps.
            blocked: (batch, queries, queries), see ``PositionAttention``.
        """
        references = before = F.sigmoid(single_or_double(starts))
        logits, boxes = [], []
        for layer, classify, move in zip(self.layers, self.class_embed, self.bbox_embed):
            position = self.query_pos_head(references.astype(x.dtype))
            x = layer(x, position, references, memory, sizes, blocked)
            delta = single_or_double(move(x))
            # The loss's box also has the gradient of the previous layer ("look forward twice": Zhang et al., DINO,
            # ICLR 2023, section 3.5); the next layer's reference has none.
            boxes.append(F.sigmoid(delta + inverse_sigmoid(before)))
            logits.append(classify(x))
            before = F.sigmoid(delta + inverse_sigmoid(references))
            references = without_gradient(before)
        return {"layer_logits": paddle.stack(logits), "layer_boxes": paddle.stack(boxes)}


class LocalizationQualityHead(nn.Layer):
    """Predicts a correction of class logits from the ``highest`` largest probabilities of each side of a box."""

    def __init__(self, highest: int = 4, dim: int = 64, layers: int = 2, activation: str = "relu") -> None:
        super().__init__()
        self._highest = highest
        inputs = 4 * (highest + 1)
        self.reg_conf = HeadMlp(inputs, dim, 1, layers, starts_at_zero=True, activation=ACTIVATIONS[activation])

    def forward(self, corners):
        """Return corrections (..., 1) for (..., 4 * bins), float32 or float64."""
        probabilities = F.softmax(corners.reshape([*corners.shape[:-1], 4, -1]), axis=-1)
        highest = paddle.topk(probabilities, self._highest, axis=-1)[0]  # (..., 4, highest)
        return self.reg_conf(paddle.concat([highest, highest.mean(-1, keepdim=True)], axis=-1).flatten(-2))


class FineDecoder(nn.Layer):
    """D-FINE's decoder; ``bins`` are the distances of sides."""

    def __init__(self, config: DecoderConfig, bins: DistanceBins):
        super().__init__()
        self._bins = bins
        dim, steps, sides = config.dim, range(config.layers), 4 * (bins.number + 1)
        self.layers = nn.LayerList([RtDetrDecoderLayer(config, is_fine=True) for _ in steps])
        self.query_pos_head = config.build_positions()
        self.pre_bbox_head = config.build_mlp(dim, dim, 4, 3, starts_at_zero=True)
        self.lqe_layers = nn.LayerList([LocalizationQualityHead(activation=config.activation) for _ in steps])
        self.class_embed = nn.LayerList([build_classifier(dim, 1) for _ in steps])
        self.bbox_embed = nn.LayerList([config.build_mlp(dim, dim, sides, 3, starts_at_zero=True) for _ in steps])

    def forward(self, x, starts, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Outputs:
        """Return the outputs of each of L layers; see ``RtDetrDecoder.forward`` for arguments.

        Returns:
            The outputs of ``RtDetrDecoder``; ``layer_corners`` (L, batch, queries, 4 * bins), distributions of the
            distances of sides; ``first_logits`` and ``first_boxes`` (batch, queries, ...) of the first layer's
            plain head; and ``references``, its boxes without gradient.
        """
        references = F.sigmoid(single_or_double(starts))
        first_boxes = first_logits = anchors = None
        previous, corners = 0.0, 0.0  # of the previous layer
        parts = []
        heads = zip(self.layers, self.class_embed, self.bbox_embed, self.lqe_layers)
        for layer, classify, refine, judge in heads:
            position = paddle.clip(self.query_pos_head(references.astype(x.dtype)), -_MAX_POSITION, _MAX_POSITION)
            x = layer(x, position, references, memory, sizes, blocked)
            if anchors is None:
                first_boxes = F.sigmoid(single_or_double(self.pre_bbox_head(x)) + inverse_sigmoid(references))
                first_logits, anchors = classify(x), without_gradient(first_boxes)
            corners = single_or_double(refine(x + previous)) + corners
            boxes = self._boxes(anchors, corners)
            parts.append((classify(x) + judge(corners), boxes, corners))
            references, previous = without_gradient(boxes), without_gradient(x)
        names = ("layer_logits", "layer_boxes", "layer_corners")
        outputs = {name: paddle.stack(part) for name, part in zip(names, zip(*parts))}
        return {**outputs, "first_logits": first_logits, "first_boxes": first_boxes, "references": anchors}

    def _boxes(self, anchors, corners):
        """Return boxes (..., 4) from reference boxes (..., 4) and distributions (..., 4 * bins) of distances."""
        distances = self._bins.expected(corners.reshape([*corners.shape[:-1], 4, -1]))
        distances = distances + 0.5 * self._bins.reg_scale  # left, top, right, bottom
        unit = anchors[..., 2:] / self._bins.reg_scale
        low, high = anchors[..., :2] - distances[..., :2] * unit, anchors[..., :2] + distances[..., 2:] * unit
        return paddle.concat([(low + high) / 2, high - low], axis=-1)


def build_classifier(dim: int, classes: int) -> nn.Layer:
    """Build a linear layer that starts with a low probability of every class."""
    initializer = nn.initializer.Constant(-math.log((1 - _PRIOR) / _PRIOR))
    bound = dim**-0.5
    weight = paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))
    return Linear(dim, classes, weight_attr=weight, bias_attr=paddle.ParamAttr(initializer=initializer))


def inverse_sigmoid(fractions: paddle.Tensor) -> paddle.Tensor:
    """Return the inverse sigmoid of fractions clipped to [0, 1]."""
    fractions = paddle.clip(fractions, 0.0, 1.0)
    return paddle.log(paddle.clip(fractions, min=_LOG_EPSILON) / paddle.clip(1.0 - fractions, min=_LOG_EPSILON))
