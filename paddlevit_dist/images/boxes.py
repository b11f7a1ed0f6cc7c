"""Rectangles of pixels on the device: what erasing fills and cutmix exchanges."""

from __future__ import annotations

import paddle


def box_masks(boxes: paddle.Tensor, height: int, width: int) -> paddle.Tensor:
    """1 inside each box, 0 outside.

    Args:
        boxes: integers (boxes, 4): top, left, bottom, right; the last two are outside. All zero: no pixel.
    Returns:
        float32 (boxes, 1, height, width).
    """
    top, left, bottom, right = (boxes[:, side : side + 1].astype("int64") for side in range(4))  # each (boxes, 1)
    rows, columns = paddle.arange(height).unsqueeze(0), paddle.arange(width).unsqueeze(0)
    in_rows = ((rows >= top) & (rows < bottom)).astype("float32")  # (boxes, height)
    in_columns = ((columns >= left) & (columns < right)).astype("float32")  # (boxes, width)
    return (in_rows.unsqueeze(2) * in_columns.unsqueeze(1)).unsqueeze(1)
