"""Heads on regions: classes, refined boxes, and masks.

Source: He et al., Mask R-CNN, 2017, section 3; layers and initial values are torchvision's.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.transfers import constant, read, to_device, to_device_together
from ...models.layers import Conv2D, Conv2DTranspose
from ..boxes import box_areas
from ..detector import dense, normal, single_or_double, zeros
from .rules import MaskRcnnRules

_LEVEL_EPSILON = 1e-6  # torchvision's: a side of exactly 2 x 224 belongs to the next level
_MASK_THRESHOLD = 0.5  # pixels above belong to the object
_REFERENCE_LEVEL = 2  # level, from 0, from which boxes of the reference size are pooled


def assign_levels(boxes: paddle.Tensor, number: int, reference_size: float) -> paddle.Tensor:
    """Return the level from 0 to ``number`` - 1 that each box (n, 4) is pooled from, int64 (n,).

    It is one coarser for each doubling of the side. Source: Lin et al., Feature Pyramid Networks, 2017, equation 1.
    """
    side = paddle.sqrt(paddle.clip(box_areas(boxes), min=1e-12))
    level = paddle.floor(_REFERENCE_LEVEL + paddle.log2(side / reference_size) + _LEVEL_EPSILON)
    return paddle.clip(level, 0, number - 1).astype("int64")


def pool_regions(
    maps: Sequence[paddle.Tensor],
    strides: Sequence[int],
    boxes: paddle.Tensor,
    images: np.ndarray,
    levels: np.ndarray,
    size: int,
    samples: int = 2,
    aligned: bool = False,
) -> paddle.Tensor:
    """Pool (n, channels, size, size) for boxes (n, 4), each from one map.

    Each bin of a box is the mean of bilinear samples. A box narrower than a position of its map is widened to one, at
    the right or the bottom. This also applies with ``aligned``, where the authors leave it narrow: Paddle's gradients
    for such boxes are wrong on CPUs. Source: He et al., Mask R-CNN, 2017, section 3.

    Args:
        maps: (N, channels, height, width) of each level, all of one dtype.
        strides: stride in pixels of each level.
        boxes: (n, 4), x0, y0, x1, y1 in pixels.
        images: int (n,), the image of each box, ascending.
        levels: int (n,), the map of each box.
        samples: samples in each direction of a bin; -1: the number of positions of the map, rounded up.
        aligned: whether position i of a map is at i + 0.5 strides, not at i.
    """
    order = np.argsort(levels, kind="stable")
    used_levels, starts = np.unique(levels[order], return_index=True)
    level_boxes = np.split(order, starts[1:])  # the boxes of each level
    counts = [np.bincount(images[indices], minlength=maps[0].shape[0]) for indices in level_boxes]
    by_level, back = to_device_together(*(array.astype(np.int32) for array in (order, np.argsort(order))))
    boxes = paddle.gather(boxes, by_level).astype(maps[0].dtype)
    parts: list[paddle.Tensor] = []
    for level, start, chosen, number in zip(used_levels.tolist(), starts.tolist(), level_boxes, counts):
        level_rois, stride = boxes[start : start + len(chosen)], strides[level]
        if aligned:
            level_rois = level_rois - 0.5 * stride
        parts.append(roi_align(maps[level], level_rois, number, size, 1.0 / stride, samples))
    return paddle.gather(paddle.concat(parts), back) if len(parts) > 1 else parts[0]


def roi_align(
    x: paddle.Tensor, boxes: paddle.Tensor, numbers: np.ndarray, size: int, scale: float, samples: int
) -> paddle.Tensor:
    """Apply Paddle's operator to ``x`` (N, channels, height, width), without a wait for the device.

    If ``numbers``, the boxes of each image, is a tensor, the host copies it back from a GPU, forward and backward
    (``roi_align_kernel.cu``); the kernels do not need it if the boxes contain their numbers. The result is (n,
    channels, size, size); ``scale`` is the operator's ``spatial_scale``, ``samples`` its ``sampling_ratio``.

    Args:
        boxes: (n, 4), ascending by image; their numbers are attached to them.
        numbers: int (N,), boxes of each image.
    """
    if not (boxes.place.is_cpu_place() or boxes.place.is_gpu_place()):  # on other devices Paddle loses attached numbers
        counts = to_device(numbers.astype(np.int32))
        return paddle._C_ops.roi_align(x, boxes, counts, size, size, scale, samples, False)
    boxes.value().get_tensor().set_lod([[0, *np.cumsum(numbers).tolist()]])
    return paddle._C_ops.roi_align(x, boxes, None, size, size, scale, samples, False)


def paste(mask: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the mask of a detection in an image of height and width ``size``, uint8, 1 on the object.

    As in torchvision, the mask (side, side) of probabilities gets a border of zeros, the box (4,), x0, y0, x1, y1 in
    pixels, grows accordingly and is truncated to integers, and the mask is resized to it (bilinear) and pasted into the
    image.
    """
    side = len(mask)
    padded = np.pad(np.asarray(mask, dtype=np.float32), 1)
    center, half = (box[2:] + box[:2]) * 0.5, (box[2:] - box[:2]) * 0.5 * ((side + 2) / side)
    x0, y0, x1, y1 = (int(value) for value in np.concatenate([center - half, center + half]))
    width, height = max(x1 - x0 + 1, 1), max(y1 - y0 + 1, 1)
    rows = np.arange(max(y0, 0), min(y0 + height, size[0]))
    columns = np.arange(max(x0, 0), min(x0 + width, size[1]))
    result = np.zeros(size, dtype=np.uint8)
    if len(rows) and len(columns):
        down = _weights(rows - y0, height, side + 2)
        across = _weights(columns - x0, width, side + 2)
        values = down @ padded @ across.T
        result[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = values > _MASK_THRESHOLD
    return result


def _weights(positions: np.ndarray, length: int, side: int) -> np.ndarray:
    """Return the weights of ``side`` values in the positions of ``length`` resized ones, float32 (positions, side)."""
    place = np.clip((positions + 0.5) * (side / length) - 0.5, 0, None)
    low = np.minimum(place.astype(np.int64), side - 1)
    high = np.minimum(low + 1, side - 1)
    fraction = (place - low).astype(np.float32)
    weights = np.zeros((len(positions), side), dtype=np.float32)
    each = np.arange(len(positions))
    weights[each, low] += 1 - fraction
    weights[each, high] += fraction
    return weights


class RegionBatch(NamedTuple):
    """Boxes in a batch of images."""

    boxes: paddle.Tensor  # (n, 4) in pixels
    images: np.ndarray  # int64 (n,), ascending, on the host
    levels: np.ndarray  # int64 (n,), levels of the pyramid, on the host


def build_placeholder_region(like: paddle.Tensor) -> RegionBatch:
    """Return one region of one pixel, for layers that must run without regions; its results are ignored."""
    box = constant(np.array, ((0.0, 0.0, 1.0, 1.0),), "float32")
    return RegionBatch(box.astype(like.dtype), np.zeros(1, np.int64), np.zeros(1, np.int64))


class BoxHead(nn.Layer):
    """Two dense layers on the map of a region."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.fc6, self.fc7 = dense(inputs, outputs), dense(outputs, outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return features (n, outputs) of pooled maps (n, channels, size, size)."""
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(1)))))


class BoxPredictor(nn.Layer):
    """Predicts class logits and box changes of regions."""

    def __init__(self, inputs: int, classes: int):
        super().__init__()
        self.cls_score, self.bbox_pred = dense(inputs, classes), dense(inputs, 4 * classes)

    def forward(self, x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return logits (n, classes), and changes (n, classes, 4) of the region for each class."""
        logits, changes = single_or_double(self.cls_score(x)), single_or_double(self.bbox_pred(x))
        return logits, changes.reshape([logits.shape[0], -1, 4])


class MaskPredictor(nn.Layer):
    """Predicts a mask of twice the resolution for each class."""

    def __init__(self, inputs: int, channels: int, classes: int):
        super().__init__()
        self.conv5_mask = Conv2DTranspose(
            inputs, channels, 2, stride=2, weight_attr=normal(math.sqrt(2.0 / (inputs * 4))), bias_attr=zeros()
        )
        self.mask_fcn_logits = Conv2D(
            channels, classes, 1, weight_attr=normal(math.sqrt(2.0 / classes)), bias_attr=zeros()
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return mask logits (n, classes, side, side)."""
        return self.mask_fcn_logits(F.relu(self.conv5_mask(x)))


class RegionHeads(nn.Layer):
    """Heads on regions of a pyramid.

    Args:
        classes: number of classes including the background, which is the first.
        strides: strides of the maps that regions are pooled from.
        hidden: width of the dense layers.
        mask_channels: channels of each convolution before the mask predictor; empty: no masks.
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        strides: Sequence[int],
        hidden: int,
        mask_channels: Sequence[int],
        rules: MaskRcnnRules,
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
        """Replace the last layers."""
        self.box_predictor = BoxPredictor(self.hidden, classes)
        self.mask_predictor = MaskPredictor(self.mask_width, self.mask_width, classes) if self.mask_width else None

    def regions(self, boxes: paddle.Tensor, images: np.ndarray) -> RegionBatch:
        """Assign levels to boxes (n, 4), n at least 1; the host waits for the device."""
        (levels,) = read(assign_levels(boxes, len(self.strides), self.rules.reference_size))
        return RegionBatch(boxes, images, levels)

    def classify(self, maps: Sequence[paddle.Tensor], regions: RegionBatch) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return logits (n, classes) and changes (n, classes, 4) of the regions."""
        return self.box_predictor(self.box_head(self._pool_regions(maps, regions, self.rules.box_size)))

    def masks(self, maps: Sequence[paddle.Tensor], regions: RegionBatch, labels: paddle.Tensor) -> paddle.Tensor:
        """Return mask logits (n, side, side) of n regions for their classes, int64 (n,), counted from the background.

        Raises:
            ValueError: the network has no masks.
        """
        if self.mask_head is None or self.mask_predictor is None:
            raise ValueError("the network has no masks")
        logits = self.mask_predictor(self.mask_head(self._pool_regions(maps, regions, self.rules.mask_size)))
        number, classes, side = logits.shape[:3]
        rows = paddle.arange(number, dtype="int64") * classes + labels
        return single_or_double(paddle.gather(logits.reshape([-1, side, side]), rows))

    def _pool_regions(self, maps: Sequence[paddle.Tensor], regions: RegionBatch, size: int) -> paddle.Tensor:
        rules = self.rules
        maps = [single_or_double(x) for x in maps[: len(self.strides)]]
        return pool_regions(maps, self.strides, *regions, size, rules.samples_per_bin, rules.aligned)


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    initializer = normal(math.sqrt(2.0 / (9 * outputs)))
    return nn.Sequential(Conv2D(inputs, outputs, 3, padding=1, weight_attr=initializer, bias_attr=zeros()), nn.ReLU())
