"""What is in a region: its class, its exact box, and its mask.

Source: He et al., Mask R-CNN, 2017, section 3; layers and first values are torchvision's.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence, Tuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....transfers import constant, read
from ...kernels.layers import Conv2D, Conv2DTranspose
from ..detector import dense, normal, single_or_double, zeros
from .pooling import cut_out, levels_of
from .variants import Rules


class Regions(NamedTuple):
    """Boxes in a batch of pictures.

    Attributes:
        boxes: (n, 4) in pixels.
        pictures: int64 (n,), ascending, on the host.
        levels: int64 (n,), of the pyramid, on the host.
    """

    boxes: paddle.Tensor
    pictures: np.ndarray
    levels: np.ndarray


def stand_in(like: paddle.Tensor) -> Regions:
    """One region of one pixel, for layers that must compute where there is none; what comes of it is ignored."""
    box = constant(np.array, ((0.0, 0.0, 1.0, 1.0),), "float32")
    return Regions(box.astype(like.dtype), np.zeros(1, np.int64), np.zeros(1, np.int64))


class BoxHead(nn.Layer):
    """Two dense layers on the map of a region."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.fc6, self.fc7 = dense(inputs, outputs), dense(outputs, outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(1)))))


class BoxPredictor(nn.Layer):
    """Logits (n, classes), and changes (n, classes, 4) of the region for each class."""

    def __init__(self, inputs: int, classes: int):
        super().__init__()
        self.cls_score, self.bbox_pred = dense(inputs, classes), dense(inputs, 4 * classes)

    def forward(self, x: paddle.Tensor) -> Tuple[paddle.Tensor, paddle.Tensor]:
        logits, changes = single_or_double(self.cls_score(x)), single_or_double(self.bbox_pred(x))
        return logits, changes.reshape([logits.shape[0], -1, 4])


class MaskPredictor(nn.Layer):
    """A mask of twice the resolution for each class, as logits (n, classes, side, side)."""

    def __init__(self, inputs: int, channels: int, classes: int):
        super().__init__()
        self.conv5_mask = Conv2DTranspose(
            inputs, channels, 2, stride=2, weight_attr=normal(math.sqrt(2.0 / (inputs * 4))), bias_attr=zeros()
        )
        self.mask_fcn_logits = Conv2D(
            channels, classes, 1, weight_attr=normal(math.sqrt(2.0 / classes)), bias_attr=zeros()
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.mask_fcn_logits(F.relu(self.conv5_mask(x)))


class RegionHeads(nn.Layer):
    """The heads on regions of a pyramid.

    Args:
        classes: with the background, which is the first.
        channels: of the pyramid's maps.
        strides: of the maps that regions are cut out of.
        hidden: width of the dense layers.
        mask_channels: of each convolution before the mask's predictor; none: no masks.
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        strides: Sequence[int],
        hidden: int,
        mask_channels: Sequence[int],
        rules: Rules,
    ):
        super().__init__()
        self.strides, self.rules, self.hidden = tuple(strides), rules, hidden
        self.mask_width = mask_channels[-1] if mask_channels else 0
        self.box_head = BoxHead(channels * rules.box_size**2, hidden)
        widths = (channels, *mask_channels)
        convolutions = [_convolution(*pair) for pair in zip(widths[:-1], widths[1:])]
        self.mask_head = nn.Sequential(*convolutions) if mask_channels else None
        self.reset(classes)

    def reset(self, classes: int) -> None:
        """New last layers."""
        self.box_predictor = BoxPredictor(self.hidden, classes)
        self.mask_predictor = MaskPredictor(self.mask_width, self.mask_width, classes) if self.mask_width else None

    def regions(self, boxes: paddle.Tensor, pictures: np.ndarray) -> Regions:
        """Regions of boxes (n, 4), n at least 1; the host waits for the device to know their levels."""
        (levels,) = read(levels_of(boxes, len(self.strides), self.rules.reference_size))
        return Regions(boxes, pictures, levels)

    def classify(self, maps: Sequence[paddle.Tensor], regions: Regions) -> Tuple[paddle.Tensor, paddle.Tensor]:
        """Logits (n, classes) and changes (n, classes, 4) of the regions."""
        return self.box_predictor(self.box_head(self._cut_out(maps, regions, self.rules.box_size)))

    def masks(self, maps: Sequence[paddle.Tensor], regions: Regions, labels: paddle.Tensor) -> paddle.Tensor:
        """Logits (n, side, side) of the masks of the regions, each for its class, int64 (n,), counted from the
        background."""
        logits = self.mask_predictor(self.mask_head(self._cut_out(maps, regions, self.rules.mask_size)))
        number, classes, side = logits.shape[:3]
        chosen = paddle.arange(number, dtype="int64") * classes + labels
        return single_or_double(paddle.gather(logits.reshape([-1, side, side]), chosen))

    def _cut_out(self, maps: Sequence[paddle.Tensor], regions: Regions, size: int) -> paddle.Tensor:
        rules = self.rules
        maps = [single_or_double(x) for x in maps[: len(self.strides)]]
        return cut_out(maps, self.strides, *regions, size, rules.samples_per_bin, rules.aligned)


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    first = normal(math.sqrt(2.0 / (9 * outputs)))
    return nn.Sequential(Conv2D(inputs, outputs, 3, padding=1, weight_attr=first, bias_attr=zeros()), nn.ReLU())
