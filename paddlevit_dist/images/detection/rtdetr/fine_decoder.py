"""D-FINE's decoder: each side of a box is a distribution over distances, which every layer refines.

Source: Peng et al., D-FINE: Redefine Regression Task in DETRs as Fine-grained Distribution Refinement, ICLR 2025, arXiv
2410.13842, section 4, with the authors' ``dfine_decoder.py``. Names are those of transformers 5.
"""

import paddle
from paddle import nn
from paddle.nn import functional as F

from ....runtime.transfers import constant
from ...models.layers import LayerNorm, Linear
from ..detector import single_or_double, without_gradient, zeros
from .decoder import DeformableAttention, Found, HeadMlp, Points, before_sigmoid, classifier
from .deformable import Sizes
from .distributions import Bins
from .encoder import Attention, Mlp

_EPSILON = 1e-5
_FARTHEST = 10.0  # of a number of a position
_HIGHEST, _QUALITY_DIM = 4, 64  # shares of a side's bins that tell how sure it is; of the layer that judges them


class Gate(nn.Layer):
    """How much of what came and of what attention found goes on."""

    def __init__(self, dim: int):
        super().__init__()
        self.gate = Linear(2 * dim, 2 * dim, weight_attr=zeros(), bias_attr=zeros())
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, found):
        own, other = F.sigmoid(self.gate(paddle.concat([x, found], axis=-1))).chunk(2, axis=-1)
        return self.norm(own * x + other * found)


class Quality(nn.Layer):
    """What the sharpness of a box's sides adds to the logits of its classes."""

    def __init__(self) -> None:
        super().__init__()
        self.reg_conf = HeadMlp(4 * (_HIGHEST + 1), _QUALITY_DIM, 1, 2, starts_at_zero=True)

    def forward(self, corners):
        """(..., 1) of (..., 4 * bins), float32 or float64."""
        shares = F.softmax(corners.reshape([*corners.shape[:-1], 4, -1]), axis=-1)
        highest = paddle.topk(shares, _HIGHEST, axis=-1)[0]  # (..., 4, 4)
        return self.reg_conf(paddle.concat([highest, highest.mean(-1, keepdim=True)], axis=-1).flatten(-2))


class FineLayer(nn.Layer):
    def __init__(self, dim: int, num_heads: int, feedforward: int, points: Points):
        super().__init__()
        self.self_attn = Attention(dim, num_heads)
        self.self_attn_layer_norm = LayerNorm(dim, epsilon=_EPSILON)
        self.encoder_attn = DeformableAttention(dim, num_heads, points, has_values=False)
        self.gateway = Gate(dim)
        self.mlp = Mlp(dim, feedforward, F.relu)
        self.final_layer_norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, position, references, memory, sizes: Sizes, blocked: paddle.Tensor | None = None):
        """As ``DecoderLayer``."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, position, blocked))
        x = self.gateway(x, self.encoder_attn(x + position, references, memory, sizes))
        return self.final_layer_norm(x + self.mlp(x))


class FineDecoder(nn.Layer):
    """As ``Decoder``; ``bins`` are of the distances of sides."""

    def __init__(
        self, dim: int, num_heads: int, feedforward: int, layers: int, points: Points, classes: int, bins: Bins
    ):
        super().__init__()
        self._bins = bins
        self.layers = nn.LayerList([FineLayer(dim, num_heads, feedforward, points) for _ in range(layers)])
        self.query_pos_head = HeadMlp(4, 2 * dim, dim, 2)
        self.pre_bbox_head = HeadMlp(dim, dim, 4, 3, starts_at_zero=True)
        self.lqe_layers = nn.LayerList([Quality() for _ in range(layers)])
        self.class_embed = nn.LayerList([classifier(dim, classes) for _ in range(layers)])
        self.bbox_embed = nn.LayerList(
            [HeadMlp(dim, dim, 4 * (bins.number + 1), 3, starts_at_zero=True) for _ in range(layers)]
        )

    def forward(self, x, starts, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Found:
        """As ``Decoder.forward``."""
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
        logits, boxes, corners = (paddle.stack(part) for part in zip(*parts))
        return Found(logits, boxes, corners, first_logits, first_boxes, anchors)

    def _boxes(self, anchors, corners):
        """(..., 4) of boxes (..., 4) and distributions (..., 4 * bins) of what their sides are away from them."""
        shares = F.softmax(corners.reshape([*corners.shape[:-1], 4, -1]), axis=-1)
        table = constant(Bins.distances, self._bins).astype(shares.dtype)
        ways = (shares * table).sum(-1) + 0.5 * self._bins.reg_scale  # left, top, right, bottom
        unit = anchors[..., 2:] / self._bins.reg_scale
        low, high = anchors[..., :2] - ways[..., :2] * unit, anchors[..., :2] + ways[..., 2:] * unit
        return paddle.concat([(low + high) / 2, high - low], axis=-1)
