"""From a network's logits to the class of every pixel of an image as it is stored: whole or by windows, at one scale
or several, mirrored or not, and how logits become as large as the image. The protocol alone moves a score by a point.

The rules are mmsegmentation's (version 1.2.2, mmseg/models/segmentors/encoder_decoder.py, base.py and seg_tta.py): the
last window of a row or column moves back so that it is whole, summed logits are divided by the windows over each pixel,
logits are resized to the network's input and then to the stored size, several views are joined as the mean of their
softmax. One thing differs: a scale other than 1 is made of what the network sees at scale 1, with levels not rounded.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...runtime.transfers import to_device
from ..models.segmenter import resize_maps
from .data.segmentation_dataset import IGNORED
from .transforms import Size, scaled_size

Network = Callable[[paddle.Tensor], paddle.Tensor]  # pixels (n, 3, h, w), 0 to 255 -> logits (n, classes, h', w')
_WINDOWS_AT_ONCE = 4
_LARGEST_BYTES = 1 << 30  # of logits at the size of an image that exist at once


class EvaluationProtocol(NamedTuple):
    """How an image is evaluated.

    Attributes:
        crop: height and width of the windows that slide over an image; None: the network sees it whole.
        stride: rows and columns from one window to the next.
        scales: of the image that the network sees.
        flips: each is seen mirrored as well.
        is_direct: logits become as large as the stored image in one step, as transformers has it.
        divisor: sides at a scale other than 1 are enlarged to multiples of it.
    """

    crop: Size | None = None
    stride: Size = (1, 1)
    scales: tuple[float, ...] = (1.0,)
    flips: bool = False
    is_direct: bool = False
    divisor: int = 1

    def __str__(self) -> str:
        crop, stride = ("x".join(map(str, sides or ())) for sides in (self.crop, self.stride))
        seen = f"windows of {crop}, stride {stride}" if self.crop else "whole images"
        scales = ", ".join(f"{scale:g}" for scale in self.scales)
        seen += "" if self.scales == (1.0,) else f"; mean of scales {scales}"
        resized = "straight to the stored size" if self.is_direct else "to the input's size, then the stored one"
        return f"{seen}{'; also mirrored' if self.flips else ''}; logits bilinear {resized}"


View = tuple[paddle.Tensor, Size]  # logits float32 (1, classes, h, w) of one look at an image, and what was seen


def class_map(network: Network, image: paddle.Tensor, size: Size, protocol: EvaluationProtocol) -> paddle.Tensor:
    """The class of each pixel, uint8 (*size); ``IGNORED`` where logits are not finite, and around them. Nothing is
    random, and nothing depends on other images.

    Args:
        image: (1, 3, height, width), levels 0 to 255, as the network sees it.
        size: height and width of the result.
    """
    if protocol.crop and protocol.scales == (1.0,) and not protocol.flips and tuple(image.shape[2:]) == tuple(size):
        # An image of any size: of its logits only those of rows that a window still covers are kept.
        bands = slid(network, image, protocol.crop, protocol.stride)
        return paddle.concat([_most_likely([(band, band.shape[2:])], band.shape[2:]) for band in bands])
    return _most_likely(list(_views(network, image, protocol)), size, protocol.is_direct)


def starts(side: int, length: int, step: int) -> list[int]:
    """Where windows of this length begin along a side; of a side that is shorter there is one window, as long as it."""
    number = max(side - length + step - 1, 0) // step + 1
    return [max(min(place * step, side - length), 0) for place in range(number)]


def count_windows(side: int, length: int, step: int) -> np.ndarray:
    """How many windows cover each place along a side, float32 (side,); of a pixel it is the product of both sides'."""
    counts = np.zeros(side, np.float32)
    for start in starts(side, length, step):
        counts[start : start + length] += 1
    return counts


def slid(network: Network, image: paddle.Tensor, crop: Size, stride: Size) -> Iterator[paddle.Tensor]:
    """Mean logits of the windows over each pixel, float32 (1, classes, rows, width): all rows of the image in order,
    some at a time, as soon as no further window covers them. A window's logits become as large as the window first."""
    sides = tuple(image.shape[2:])
    tops, lefts = (starts(*axis) for axis in zip(sides, crop, stride))
    of_rows, of_columns = (to_device(count_windows(*axis)) for axis in zip(sides, crop, stride))
    height, width = min(crop[0], sides[0]), min(crop[1], sides[1])
    total, done = None, 0  # (1, classes, height, all columns); rows of it that are complete
    for top, following in zip(tops, [*tops[1:], sides[0]]):
        total = None if total is None else F.pad(total[:, :, done:], [0, 0, 0, done])
        for first in range(0, len(lefts), _WINDOWS_AT_ONCE):
            group = lefts[first : first + _WINDOWS_AT_ONCE]
            seen = paddle.concat([image[:, :, top : top + height, left : left + width] for left in group])
            logits = upsample(network(seen), (height, width))
            if total is None:
                total = paddle.zeros([1, logits.shape[1], height, sides[1]])
            for left, own in zip(group, paddle.split(logits, len(group))):
                total[:, :, :, left : left + width] = total[:, :, :, left : left + width] + own
        done = following - top
        yield total[:, :, :done] / (of_rows[top:following].reshape([-1, 1]) * of_columns)


def _views(network: Network, image: paddle.Tensor, protocol: EvaluationProtocol) -> Iterator[View]:
    size = tuple(image.shape[2:])
    for scale in protocol.scales:
        seen = image
        if scale != 1:
            height, width = (-(-side // protocol.divisor) * protocol.divisor for side in scaled_size(size, scale))
            seen = upsample(image, (height, width))
        for is_mirrored in (False, True)[: 1 + protocol.flips]:
            one = seen.astype("float32").flip(axis=[3]) if is_mirrored else seen
            bands = [network(one)] if protocol.crop is None else slid(network, one, protocol.crop, protocol.stride)
            logits = paddle.concat([band.astype("float32") for band in bands], axis=2)
            yield logits.flip(axis=[3]) if is_mirrored else logits, seen.shape[2:]


def _resize(logits: paddle.Tensor, input_size: Size, size: Size, is_direct: bool) -> paddle.Tensor:
    for side in (size,) if is_direct else (input_size, size):
        if tuple(logits.shape[2:]) != tuple(side):
            logits = upsample(logits, side)
    return logits


def _most_likely(views: Sequence[View], size: Size, is_direct: bool = False) -> paddle.Tensor:
    """uint8 (*size). Of one view only some classes are large at a time; of several the means of all are."""
    (logits, input_size), number = views[0], views[0][0].shape[1]
    step = max(1, _LARGEST_BYTES // (4 * max(math.prod(size), math.prod(input_size))))
    if len(views) > 1:
        best = sum(F.softmax(_resize(*view, size, is_direct), axis=1) for view in views).argmax(axis=1)
    else:
        best = most = None
        for first in range(0, number, step):
            some = _resize(logits[:, first : first + step], input_size, size, is_direct)
            place = some.argmax(axis=1) + first
            if step < number:
                value = some.max(axis=1)
                place = place if best is None else paddle.where(value > most, place, best)
                most = value if most is None else paddle.maximum(value, most)
            best = place
    is_finite = sum((logits * 0).sum() for logits, _ in views) == 0
    return paddle.maximum(best[0], IGNORED * (1 - is_finite.astype(best.dtype))).astype("uint8")


def upsample(logits: paddle.Tensor, size: Sequence[int]) -> paddle.Tensor:
    """float32 (N, classes, *size): bilinear between the centers of pixels. It is made float32 before it becomes large:
    one large tensor, and not two."""
    return resize_maps(logits.astype("float32"), size)
