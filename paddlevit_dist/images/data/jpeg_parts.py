"""The part of a JPEG file that a crop needs, as a smaller JPEG file with the same pixels.

Nothing is decoded here. What comes after the crop's last row is not decoded if the header announces fewer rows. If the
file has restart markers (ITU-T T.81, section B.2.4.4) at equal places in each row of blocks, or between such rows, the
blocks outside the crop can be left out: between two of them the data depend on nothing before. ``prepare images``
writes such files. A decoder that interpolates colour looks at most one colour sample (two pixels) beyond a pixel, so
parts are two pixels larger than the crop on each side.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

Box = Tuple[int, int, int, int]  # left, top, right, bottom

_MARGIN_PX = 2
_END = b"\xff\xd9"
_BASELINE = (0xC0, 0xC1)  # sequential, Huffman coding
_OTHER_FRAMES = frozenset(range(0xC2, 0xD0)) - {0xC4, 0xC8, 0xCC}
_START_OF_SCAN, _RESTART_INTERVAL, _FIRST_RESTART, _SEVERAL_PICTURES = 0xDA, 0xDD, 0xD0, 0xE2


class Layout(NamedTuple):
    """Where things are in a JPEG file of one or three components.

    Attributes:
        size_at: offset of height and width, two bytes each.
        block_width, block_height: pixels of the smallest unit of all components (the MCU).
        interval: units between two restart markers, 0 without.
        data_at: offset of the first byte after the header.
    """

    size_at: int
    width: int
    height: int
    block_width: int
    block_height: int
    interval: int
    data_at: int


def part_of_jpeg(encoded: bytes, layout: Layout, box: Box) -> Tuple[bytes, int, int]:
    """A file of the part around ``box``, and the left and top of that part in the image.

    Where nothing can be left out that is the file itself.
    """
    part = _between_restarts(encoded, layout, box) if layout.interval else None
    return part or _without_end(encoded, layout, box)


def read_layout(encoded: bytes) -> Optional[Layout]:
    """Where things are; None if the whole file must be decoded: it is progressive, incomplete or unusual."""
    if encoded[-2:] != _END or encoded[:2] != b"\xff\xd8":
        return None
    at, interval, frame = 2, 0, None
    while at + 4 <= len(encoded) and encoded[at] == 0xFF:
        marker, length = encoded[at + 1], int.from_bytes(encoded[at + 2 : at + 4], "big")
        segment = encoded[at + 4 : at + 2 + length]
        if marker in _OTHER_FRAMES or (marker == _SEVERAL_PICTURES and segment[:4] == b"MPF\0"):
            return None
        if marker in _BASELINE:
            # precision, height, width, components; of each its number, sampling factors and table
            if len(segment) < 6 or len(segment) != 6 + 3 * segment[5] or segment[0] != 8 or segment[5] not in (1, 3):
                return None
            frame = (at + 5, segment)
        elif marker == _RESTART_INTERVAL:
            interval = int.from_bytes(segment[:2], "big")
        elif marker == _START_OF_SCAN:
            if frame is None or not segment or segment[0] != frame[1][5]:  # the components come in several scans
                return None
            data_at = at + 2 + length
            return _layout(*frame, interval, data_at) if data_at + len(_END) <= len(encoded) else None
        at += 2 + length
    return None


def _layout(size_at: int, frame: bytes, interval: int, data_at: int) -> Optional[Layout]:
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    across, down = (max(factor >> bits & 15 for factor in frame[7::3]) for bits in (4, 0))
    if frame[5] == 1:  # the blocks of a single component are not interleaved
        across = down = 1
    if not (height and width and across and down):
        return None
    return Layout(size_at, width, height, 8 * across, 8 * down, interval, data_at)


def _without_end(encoded: bytes, layout: Layout, box: Box) -> Tuple[bytes, int, int]:
    """The same file with fewer rows announced: a decoder skips the rest."""
    rows = -(-(box[3] + _MARGIN_PX) // layout.block_height) * layout.block_height
    if rows >= layout.height:
        return encoded, 0, 0
    return _resized(encoded, layout, layout.width, rows, len(encoded)), 0, 0


def _resized(encoded: bytes, layout: Layout, width: int, height: int, end: int) -> bytes:
    at = layout.size_at
    return b"".join((encoded[:at], height.to_bytes(2, "big"), width.to_bytes(2, "big"), encoded[at + 4 : end]))


def _between_restarts(encoded: bytes, layout: Layout, box: Box) -> Optional[Tuple[bytes, int, int]]:
    """Only the stretches between restart markers that the box needs."""
    across, down = -(-layout.width // layout.block_width), -(-layout.height // layout.block_height)
    if across % layout.interval == 0:
        columns, stretch_rows = across // layout.interval, 1  # stretches in a row of blocks
    elif layout.interval % across == 0:
        columns, stretch_rows = 1, layout.interval // across  # rows of blocks in a stretch
    else:
        return None
    stretch_width = min(layout.interval, across) * layout.block_width
    stretch_height = stretch_rows * layout.block_height
    rows = -(-down // stretch_rows)
    data = np.frombuffer(encoded, dtype=np.uint8, offset=layout.data_at)
    markers = np.flatnonzero((data[:-1] == 0xFF) & ((data[1:] & 0xF8) == _FIRST_RESTART))
    if len(markers) != columns * rows - 1 or (data[markers + 1] != _FIRST_RESTART + np.arange(len(markers)) % 8).any():
        return None
    ends = np.append(markers, len(data) - 2)  # of each stretch; what follows are two bytes of a marker
    begins = np.concatenate(([0], markers + 2))

    first_column, first_row = (
        max(0, box[0] - _MARGIN_PX) // stretch_width,
        max(0, box[1] - _MARGIN_PX) // stretch_height,
    )
    end_column = min(columns, -(-(box[2] + _MARGIN_PX) // stretch_width))
    end_row = min(rows, -(-(box[3] + _MARGIN_PX) // stretch_height))
    left, top = first_column * stretch_width, first_row * stretch_height
    width = min(layout.width, end_column * stretch_width) - left
    height = min(layout.height, end_row * stretch_height) - top

    # The stretches of one row follow one another; each keeps its marker, with another number.
    wanted = ends.reshape(rows, columns)[first_row:end_row, first_column:end_column]
    run_begins = begins.reshape(rows, columns)[first_row:end_row, first_column]
    run_ends = wanted[:, -1] + 2
    header = _resized(encoded, layout, width, height, layout.data_at)
    runs = [encoded[a:b] for a, b in zip((run_begins + layout.data_at).tolist(), (run_ends + layout.data_at).tolist())]
    part = bytearray(b"".join((header, *runs)))
    lengths = run_ends - run_begins
    starts = len(header) + np.cumsum(lengths) - lengths
    numbers = np.frombuffer(part, dtype=np.uint8)
    numbers[(wanted - run_begins[:, None] + starts[:, None]).ravel() + 1] = _FIRST_RESTART + np.arange(wanted.size) % 8
    numbers[-1] = _END[1]
    return bytes(part), left, top
