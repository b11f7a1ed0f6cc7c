"""DETRPose's decoder: every query is an object's token and a token for each of its points.

Tokens attend to the others of their query, then to the tokens of the same point of all queries, then to places of the
maps around their point. Each coordinate of a point is a distribution over distances that every layer refines, as the
sides of D-FINE's boxes.

Source: Janampa and Pattichis, DETRPose, 2025, arXiv 2506.13027, section 3, with the authors' ``transformer.py``
(SebastianJanampa/DETRPose, a6ca202). There an addition in place lets the attention's values, the residual sums and the
poses that the next layer's head reads contain the positions, too. Published weights are trained so, so this is the same
here.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.transfers import constant
from ...detection.detector import Outputs, single_or_double, without_gradient
from ...detection.detr.transformer import HeadMlp
from ...detection.rtdetr.decoder import DeformableAttention, FusionGate, SamplingPoints, build_classifier
from ...detection.rtdetr.deformable import PointSampling, Sizes
from ...detection.rtdetr.distributions import DistanceBins
from ...detection.rtdetr.encoder import EncoderMlp, PositionAttention
from ...models.layers import LayerNorm

_EPSILON = 1e-5
_TEMPERATURE = 10000.0  # of positions
_LOG_EPSILON = 1e-3  # smallest fraction and complement, for the logarithm
_QUALITY_DIM, _QUALITY_HIGHEST = 256, 4  # hidden width of a quality head, and the channels of a point that it reads


class PoseDecoderConfig(NamedTuple):
    """Dimensions of a decoder."""

    dim: int  # width of the tokens
    num_heads: int  # number of attention heads
    feedforward: int  # hidden width of the layers' MLPs
    layers: int  # number of layers
    points: tuple[int, ...]  # places sampled on each map
    keypoints: int  # points of an object, K


class PoseDecoderLayer(nn.Layer):
    """Attention among the tokens of a query, among the queries, and to places of the maps, and an MLP."""

    def __init__(self, config: PoseDecoderConfig):
        super().__init__()
        dim, num_heads = config.dim, config.num_heads
        self.within_attn, self.across_attn = PositionAttention(dim, num_heads), PositionAttention(dim, num_heads)
        self.within_norm, self.across_norm = (LayerNorm(dim, epsilon=_EPSILON) for _ in range(2))
        self.cross_attn = DeformableAttention(dim, num_heads, SamplingPoints(config.points), has_values=False)
        self.gateway = FusionGate(dim)
        self.mlp = EncoderMlp(dim, config.feedforward, F.relu)
        self.final_norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, position, references, memory, sizes: Sizes, blocked: paddle.Tensor | None = None):
        """Return tokens (batch, queries, 1 + K, dim).

        Args:
            x: (batch, queries, 1 + K, dim), which contains ``position`` already.
            position: (batch, queries, 1 + K, dim), zeros for the token of the object.
            references: (batch, queries, 1 + K, 2), x and y of the object's center and of its points, as fractions.
            memory: (batch, cells of all maps, dim).
            sizes: height and width of the maps.
            blocked: (batch, queries, queries), 1 if a row must not attend to a column.
        """
        _, queries, tokens, dim = x.shape
        within = x.reshape([-1, tokens, dim])
        within = self.within_norm(within + self.within_attn(within))
        across = within.reshape([-1, queries, tokens, dim]).transpose([0, 2, 1, 3]).reshape([-1, queries, dim])
        across = self.across_norm(across + self.across_attn(across, None, blocked, copies=tokens))
        x = across.reshape([-1, tokens, queries, dim]).transpose([0, 2, 1, 3]) + position
        attended = self.cross_attn(x.flatten(1, 2), references.flatten(1, 2), memory, sizes)
        x = self.gateway(x, attended.reshape([-1, queries, tokens, dim]))
        return self.final_norm(x + self.mlp(x))


class PoseQualityHead(nn.Layer):
    """Predicts a correction of class logits from the largest channels of the finest map at each point of a pose."""

    def __init__(self, keypoints: int):
        super().__init__()
        self.reg_conf = HeadMlp(keypoints * (_QUALITY_HIGHEST + 1), _QUALITY_DIM, 1, 2, starts_at_zero=True)
        self.sampling = PointSampling((1,))

    def forward(self, poses, finest, size: tuple[int, int]):
        """Return corrections (batch, queries, 1) of poses (batch, queries, K, 2).

        ``finest`` is the finest map of height and width ``size``, (batch, cells, dim).
        """
        _, queries, points, _ = poses.shape
        places = poses.reshape([-1, queries * points, 1, 1, 2])
        values = self.sampling(
            finest.astype(poses.dtype).unsqueeze(2), [size], places, paddle.ones_like(places[..., 0])
        )
        highest = paddle.topk(values, _QUALITY_HIGHEST, axis=-1)[0]  # (batch, queries * K, 4)
        highest = paddle.concat([highest, highest.mean(-1, keepdim=True)], axis=-1)
        return self.reg_conf(highest.reshape([-1, queries, points * (_QUALITY_HIGHEST + 1)]))


class PoseDecoder(nn.Layer):
    """The decoder's layers and their heads; ``bins`` are the distances of coordinates."""

    def __init__(self, config: PoseDecoderConfig, bins: DistanceBins):
        super().__init__()
        self._config, self._bins = config, bins
        dim, steps = config.dim, range(config.layers)
        self.layers = nn.LayerList([PoseDecoderLayer(config) for _ in steps])
        self.query_pos_head = HeadMlp(dim, dim, dim, 2)
        self.pre_pose_head = HeadMlp(dim, dim, 2, 3, starts_at_zero=True)
        self.pose_embed = nn.LayerList(
            [HeadMlp(dim, dim, 2 * (bins.number + 1), 3, starts_at_zero=True) for _ in steps]
        )
        self.lqe_layers = nn.LayerList([PoseQualityHead(config.keypoints) for _ in steps])
        self.class_embed = nn.LayerList([build_classifier(dim, 1) for _ in steps])

    def forward(self, x, references, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Outputs:
        """Return the outputs of each of L layers.

        Args:
            x: (batch, queries, 1 + K, dim).
            references: poses (batch, queries, K, 2) at the start, x and y as fractions.
            memory: (batch, cells of all maps, dim), the finest map first.
            sizes: height and width of the maps.
            blocked: (batch, queries, queries), see ``PoseDecoderLayer``.

        Returns:
            ``layer_logits`` (L, batch, queries, classes), ``layer_poses`` (L, batch, queries, 2 K), x and y of each
            point as fractions; ``layer_corners`` (L, batch, queries, 2 K * bins), distributions of the distances of
            coordinates; ``first_logits`` and ``first_poses`` (batch, queries, ...) of the first layer's plain head.
        """
        references = single_or_double(references)
        first_poses: Any = None
        first_logits = anchors = None
        corners, parts = 0.0, []
        height, width = sizes[0]
        finest = memory[:, : height * width]
        heads = zip(self.layers, self.class_embed, self.pose_embed, self.lqe_layers)
        for number, (layer, classify, refine, judge) in enumerate(heads):
            x, position, tokens = self._place(x, references)
            previous = without_gradient(x[:, :, 1:]) if number else None
            x = layer(x, position, tokens, memory, sizes, blocked)
            instance, points = x[:, :, 0], x[:, :, 1:]
            scores = classify(instance)
            if anchors is None:
                moved = single_or_double(self.pre_pose_head(points))
                first_poses, first_logits = F.sigmoid(moved + _inverse_sigmoid(references)), scores
                anchors = without_gradient(first_poses)
            corners = single_or_double(refine(points if previous is None else points + previous)) + corners
            shifts = self._bins.expected(corners.reshape([*corners.shape[:-1], 2, -1])) / self._bins.reg_scale
            poses = anchors + shifts  # (batch, queries, K, 2)
            parts.append((scores + judge(poses, finest, (height, width)), poses.flatten(2), corners.flatten(2)))
            references = without_gradient(poses)
        names = ("layer_logits", "layer_poses", "layer_corners")
        outputs = {name: paddle.stack(part) for name, part in zip(names, zip(*parts))}
        return {**outputs, "first_logits": first_logits, "first_poses": first_poses.flatten(2)}

    def _place(self, x, references):
        """Return tokens with their positions, the positions, and the references of all tokens with the center."""
        wavelengths = constant(_wavelengths, self._config.dim // 2).astype(references.dtype)  # (dim / 4,)
        angles = references.flip([-1]).unsqueeze(-1) * (2 * math.pi) / wavelengths  # (batch, queries, K, 2, dim / 4)
        waves = paddle.stack([paddle.sin(angles), paddle.cos(angles)], axis=-1).flatten(3)  # of y, then of x
        position = self.query_pos_head(waves.astype(x.dtype))
        position = paddle.concat([paddle.zeros_like(x[:, :, :1]), position], axis=2)
        tokens = paddle.concat([references.mean(axis=2, keepdim=True), references], axis=2)
        return x + position, position, tokens


def _wavelengths(channels: int) -> np.ndarray:
    """Return the wavelengths of the positions' pairs of channels, float64 (channels / 2,), rounded as the authors'."""
    exponents = np.arange(0, channels, 2) / channels
    return (_TEMPERATURE**exponents).astype(np.float32).astype(np.float64)


def _inverse_sigmoid(fractions: paddle.Tensor) -> paddle.Tensor:
    """Return the inverse sigmoid of fractions clipped to [0, 1], as the authors' with an epsilon of 0.001."""
    fractions = paddle.clip(fractions, 0.0, 1.0)
    return paddle.log(paddle.clip(fractions, min=_LOG_EPSILON) / paddle.clip(1.0 - fractions, min=_LOG_EPSILON))
