"""Rectangles of pixels on the device: what erasing fills and cutmix exchanges."""

from __future__ import annotations

import paddle


def box_masks(boxes: paddle.Tensor, height: int, width: int) -> paddle.Tensor:
    """True inside each box.

    Args:
        boxes: integers (boxes, 4): top, left, bottom, right; the last two are outside. All zero: no pixel.
    Returns:
        bool (boxes, 1, height, width).
    """
    top, left, bottom, right = (boxes[:, side : side + 1].astype("int64") for side in range(4))  # each (boxes, 1)
    rows, columns = paddle.arange(height).unsqueeze(0), paddle.arange(width).unsqueeze(0)
    in_rows = (rows >= top) & (rows < bottom)  # (boxes, height)
    in_columns = (columns >= left) & (columns < right)  # (boxes, width)
    return (in_rows.unsqueeze(2) & in_columns.unsqueeze(1)).unsqueeze(1)


def replace(images: paddle.Tensor, masks: paddle.Tensor, by: paddle.Tensor) -> paddle.Tensor:
    """``images`` (images, channels, height, width) with the values of ``by``, which broadcasts to them, where
    ``masks`` (images, 1, height, width) is true."""
    # Paddle's broadcasting along an inner axis is slow on the CPU, equal shapes are not.
    return paddle.where(masks.expand(images.shape), by.expand(images.shape), images)
