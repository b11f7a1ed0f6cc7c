"""Compute the class of every pixel of a stored image from a network's logits.

The protocol alone can change a score by a point: whole images or windows, one scale or several, mirrored or not, and
how logits are resized. The rules are mmsegmentation's (version 1.2.2, mmseg/models/segmentors/encoder_decoder.py,
base.py and seg_tta.py): the last window of a row or column is moved back to be whole, summed logits are divided by the
number of windows over each pixel, logits are resized to the network's input and then to the stored size, and the
softmax of several views is averaged. One difference: an input at a scale other than 1 is resized from the input at
scale 1, and its levels are not rounded.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.registry.lookup import resolve
from ...core.runtime.transfers import to_device
from ..models.segmenter import resize_maps
from .data.segmentation_dataset import IGNORED
from .settings import SegmentationSettings
from .transforms import Size, scaled_size

Network = Callable[[paddle.Tensor], paddle.Tensor]  # pixels (n, 3, h, w), 0 to 255 -> logits (n, classes, h', w')
_WINDOWS_AT_ONCE = 4
_LARGEST_BYTES = 1 << 30  # of logits at image size that exist at once


class EvaluationProtocol(NamedTuple):
    """How an image is evaluated."""

    crop: Size | None = None  # height and width of the sliding windows; None: whole images
    stride: Size | None = (1, 1)  # rows and columns from one window to the next; None: as few as cover a side
    scales: tuple[float, ...] = (1.0,)  # of the network's input
    flips: bool = False  # also use the mirrored image
    is_direct: bool = False  # logits are resized to the stored image in one step, as in transformers
    divisor: int = 1  # sides at a scale other than 1 are enlarged to multiples of it
    of_probabilities: bool = False  # the network computes probabilities, which several views average unchanged

    def __str__(self) -> str:
        crop, stride = ("x".join(map(str, sides or ())) for sides in (self.crop, self.stride))
        text = f"windows of {crop}, {f'stride {stride}' if stride else 'spread'}" if self.crop else "whole images"
        scales = ", ".join(f"{scale:g}" for scale in self.scales)
        text += "" if self.scales == (1.0,) else f"; mean of scales {scales}"
        resized = "directly to the stored size" if self.is_direct else "to the input's size, then the stored one"
        kind = "probabilities" if self.of_probabilities else "logits"
        return f"{text}{'; also mirrored' if self.flips else ''}; {kind} bilinear {resized}"


def read_crop(config: SegmentationSettings) -> Size:
    """Return height and width of a window, and of the input of an exported model."""
    height, width = config.SEGMENTATION.CROP or config.DATA.CROP_SIZE
    return height, width


def read_protocol(config: SegmentationSettings) -> EvaluationProtocol:
    """Return the evaluation protocol that SEGMENTATION configures."""
    keys, crop = config.SEGMENTATION, read_crop(config)
    rows, columns = keys.STRIDE or (max(1, 2 * side // 3) for side in crop)
    of_probabilities = getattr(resolve("model", config.MODEL.NAME), "gives_probabilities", False)
    more = tuple(keys.SCALES), keys.FLIP, keys.RESIZE_LOGITS_VIA == "stored", config.DATA.EVAL_DIVISOR
    stride = None if keys.PROTOCOL == "spread" else (rows, columns)
    return EvaluationProtocol(None if keys.PROTOCOL == "whole" else crop, stride, *more, of_probabilities)


def describe_protocol(config: SegmentationSettings) -> str:
    """Describe what a score depends on in addition to the weights and the data."""
    data, text = config.DATA, "stored size"
    if data.EVAL_SHORTEST_SIDE is not None:
        text = f"shorter side {data.EVAL_SHORTEST_SIDE}"
        text += f", longer at most {data.EVAL_LONGEST_SIDE}" if data.EVAL_LONGEST_SIDE is not None else ""
    text += f", multiples of {data.EVAL_DIVISOR}" if data.EVAL_DIVISOR > 1 else ""
    return f"{text}{'' if text == 'stored size' else f', bilinear of {data.RESIZE}'}; {read_protocol(config)}"


View = tuple[paddle.Tensor, Size]  # logits float32 (1, classes, h, w) of one view of an image, and its input size


def class_map(network: Network, image: paddle.Tensor, size: Size, protocol: EvaluationProtocol) -> paddle.Tensor:
    """Compute the class of each pixel, uint8 (*size); ``IGNORED`` where logits are not finite, and around them.

    The result is deterministic and does not depend on other images.

    Args:
        network: maps pixels to logits.
        image: (1, 3, height, width), levels 0 to 255, the network's input.
        size: height and width of the result.
    """
    if protocol.crop and protocol.scales == (1.0,) and not protocol.flips and tuple(image.shape[2:]) == tuple(size):
        # For images of any size, only the logits of rows that a window still covers are stored.
        bands = slide_windows(network, image, protocol.crop, protocol.stride)
        return paddle.concat([most_likely([(band, band.shape[2:])], band.shape[2:]) for band in bands])
    views = list(_views(network, image, protocol))
    return most_likely(views, size, protocol.is_direct, protocol.of_probabilities)


def image_logits(network: Network, image: paddle.Tensor, size: Size, protocol: EvaluationProtocol) -> paddle.Tensor:
    """Compute the logits of each pixel, float32 (1, classes, *size), which ``class_map`` need not store as a whole.

    Of several views they are the logarithm of the mean probability.
    """
    resized = [_resize(*view, size, protocol.is_direct) for view in _views(network, image, protocol)]
    if len(resized) == 1 and not protocol.of_probabilities:
        return resized[0]
    shares = [view if protocol.of_probabilities else F.softmax(view, axis=1) for view in resized]
    return paddle.log(paddle.add_n(shares) / len(shares) + 1e-37)


def starts(side: int, length: int, step: int | None) -> list[int]:
    """Return where windows of ``length`` begin along a side; a shorter side has one window of the side's length.

    Without a ``step``, as few windows as cover the side overlap equally, as in EoMT's code.
    """
    if step is None:
        number = -(-side // length)
        overlap = (number * length - side) / max(1, number - 1)
        return [int(place * (length - overlap)) if number > 1 else 0 for place in range(number)]
    number = max(side - length + step - 1, 0) // step + 1
    return [max(min(place * step, side - length), 0) for place in range(number)]


def count_windows(side: int, length: int, step: int | None) -> np.ndarray:
    """Count the windows over each position along a side, float32 (side,); a pixel's count is the product of both."""
    counts = np.zeros(side, np.float32)
    for start in starts(side, length, step):
        counts[start : start + length] += 1
    return counts


def slide_windows(network: Network, image: paddle.Tensor, crop: Size, stride: Size | None) -> Iterator[paddle.Tensor]:
    """Yield the mean logits of the windows over each pixel, float32 (1, classes, rows, width).

    All rows of the image come in order, some at a time, as soon as no further window covers them. A window's logits are
    first resized to the window.
    """
    sides = tuple(image.shape[2:])
    axes = list(zip(sides, crop, stride or (None, None)))
    tops, lefts = (starts(*axis) for axis in axes)
    row_counts, column_counts = (to_device(count_windows(*axis)) for axis in axes)
    height, width = min(crop[0], sides[0]), min(crop[1], sides[1])
    total: Any = None  # (1, classes, height, all columns) from the first window on
    done = 0  # the number of its complete rows
    for top, following in zip(tops, [*tops[1:], sides[0]]):
        total = None if total is None else F.pad(total[:, :, done:], [0, 0, 0, done])
        for first in range(0, len(lefts), _WINDOWS_AT_ONCE):
            group = lefts[first : first + _WINDOWS_AT_ONCE]
            windows = paddle.concat([image[:, :, top : top + height, start : start + width] for start in group])
            logits = upsample(network(windows), (height, width))
            if total is None:
                total = paddle.zeros([1, logits.shape[1], height, sides[1]])
            for left, window_logits in zip(group, paddle.split(logits, len(group))):
                total[:, :, :, left : left + width] = total[:, :, :, left : left + width] + window_logits
        done = following - top
        yield total[:, :, :done] / (row_counts[top:following].reshape([-1, 1]) * column_counts)


def _views(network: Network, image: paddle.Tensor, protocol: EvaluationProtocol) -> Iterator[View]:
    size = tuple(image.shape[2:])
    for scale in protocol.scales:
        scaled = image
        if scale != 1:
            height, width = (-(-side // protocol.divisor) * protocol.divisor for side in scaled_size(size, scale))
            scaled = upsample(image, (height, width))
        for is_mirrored in (False, True)[: 1 + protocol.flips]:
            view = scaled.astype("float32").flip(axis=[3]) if is_mirrored else scaled
            bands = (
                [network(view)]
                if protocol.crop is None
                else slide_windows(network, view, protocol.crop, protocol.stride)
            )
            logits = paddle.concat([band.astype("float32") for band in bands], axis=2)
            yield logits.flip(axis=[3]) if is_mirrored else logits, scaled.shape[2:]


def _resize(logits: paddle.Tensor, input_size: Size, size: Size, is_direct: bool) -> paddle.Tensor:
    for side in (size,) if is_direct else (input_size, size):
        if tuple(logits.shape[2:]) != tuple(side):
            logits = upsample(logits, side)
    return logits


def most_likely(
    views: Sequence[View], size: Size, is_direct: bool = False, of_probabilities: bool = False
) -> paddle.Tensor:
    """Return the most likely class, uint8 (*size); with one view, only some classes are large at a time."""
    (logits, input_size), number = views[0], views[0][0].shape[1]
    step = max(1, _LARGEST_BYTES // (4 * max(math.prod(size), math.prod(input_size))))
    if len(views) > 1:
        resized = (_resize(*view, size, is_direct) for view in views)
        best = sum(view if of_probabilities else F.softmax(view, axis=1) for view in resized).argmax(axis=1)
    else:
        best = most = None
        for first in range(0, number, step):
            chunk = _resize(logits[:, first : first + step], input_size, size, is_direct)
            place = chunk.argmax(axis=1) + first
            if step < number:
                value = chunk.max(axis=1)
                place = place if best is None else paddle.where(value > most, place, best)
                most = value if most is None else paddle.maximum(value, most)
            best = place
    is_finite = sum((window_logits * 0).sum() for window_logits, _ in views) == 0
    return paddle.maximum(best[0], IGNORED * (1 - is_finite.astype(best.dtype))).astype("uint8")


def upsample(logits: paddle.Tensor, size: Sequence[int]) -> paddle.Tensor:
    """Resize logits bilinearly between pixels' centers to float32 (N, classes, *size), after one conversion."""
    return resize_maps(logits.astype("float32"), size)
