"""D-FINE's decoder: each side of a box is a distribution over distances, which every layer refines.

Source: Peng et al., D-FINE: Redefine Regression Task in DETRs as Fine-grained Distribution Refinement, ICLR 2025, arXiv
2410.13842, section 4, with the authors' ``dfine_decoder.py``. Names are those of transformers 5.
"""

import paddle
from paddle import nn
from paddle.nn import functional as F

from ....runtime.transfers import constant
from ..detector import Outputs, single_or_double, without_gradient
from ..detr.transformer import HeadMlp
from .decoder import DecoderLayer, Points, before_sigmoid, classifier
from .deformable import Sizes
from .distributions import Bins

_FARTHEST = 10.0  # of a number of a position
_HIGHEST, _QUALITY_DIM = 4, 64  # shares of a side's bins that tell how sure it is; of the layer that judges them


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


class FineDecoder(nn.Layer):
    """As ``Decoder``; ``bins`` are of the distances of sides."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, layers: int, points: Points, bins: Bins):
        super().__init__()
        self._bins = bins
        self.layers = nn.LayerList([DecoderLayer(dim, num_heads, feedforward, points, True) for _ in range(layers)])
        self.query_pos_head = HeadMlp(4, 2 * dim, dim, 2)
        self.pre_bbox_head = HeadMlp(dim, dim, 4, 3, starts_at_zero=True)
        self.lqe_layers = nn.LayerList([Quality() for _ in range(layers)])
        self.class_embed = nn.LayerList([classifier(dim, 1) for _ in range(layers)])
        self.bbox_embed = nn.LayerList(
            [HeadMlp(dim, dim, 4 * (bins.number + 1), 3, starts_at_zero=True) for _ in range(layers)]
        )

    def forward(self, x, starts, memory, sizes: Sizes, blocked: paddle.Tensor | None = None) -> Outputs:
        """As ``Decoder.forward``, with ``layer_corners`` (L, batch, queries, 4 * bins), of the distances of the sides;
        ``first_logits`` and ``first_boxes`` (batch, queries, ...) of the first layer's plain head, and ``references``,
        its boxes without gradient."""
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
        table = constant(Bins.distances, self._bins).astype(shares.dtype)
        ways = (shares * table).sum(-1) + 0.5 * self._bins.reg_scale  # left, top, right, bottom
        unit = anchors[..., 2:] / self._bins.reg_scale
        low, high = anchors[..., :2] - ways[..., :2] * unit, anchors[..., :2] + ways[..., 2:] * unit
        return paddle.concat([(low + high) / 2, high - low], axis=-1)
