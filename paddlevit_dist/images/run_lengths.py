"""Masks in the formats of COCO's files: run lengths, compressed or not, and polygons.

Pixels are numbered column by column, each from the top. Run lengths alternate between pixels outside and inside,
starting outside. Polygons cover the same pixels as with COCO's own tools (pycocotools). These differ from the usual
rule of pixel centers, but all files and all published scores use them.

Source: the behavior of ``frPyObjects``, ``merge``, ``encode`` and ``iou`` of pycocotools 2.0.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.compiled import compiled

_FINER = 5  # outlines are drawn in a grid that is finer by this factor
_FARTHEST = 1e8  # pixels; larger coordinates do not fit the integers of COCO's tools
_MOST_PIXELS = 2**31 - 1
_ROUNDING = 1e-9  # relative; a smaller area of three points counts as none
_LEAST_NUMBERS = 6  # of a polygon with pixels: three corners


class MaskRuns(NamedTuple):
    """The pixels inside a mask."""

    height: int  # of the image
    width: int  # of the image
    starts: np.ndarray  # int64 (runs,), number of the first pixel of each run, ascending
    ends: np.ndarray  # int64 (runs,), one past its last pixel

    @property
    def area(self) -> int:
        """Number of pixels inside."""
        return int((self.ends - self.starts).sum())

    def box(self) -> tuple[int, int, int, int]:
        """Return x, y, width, height of the smallest box around the mask; zeros if it is empty."""
        if not len(self.starts):
            return 0, 0, 0, 0
        first, last = self.starts // self.height, (self.ends - 1) // self.height  # columns
        crosses = bool((first != last).any())
        top = 0 if crosses else int((self.starts % self.height).min())
        bottom = self.height - 1 if crosses else int(((self.ends - 1) % self.height).max())
        return int(first[0]), top, int(last[-1] - first[0]) + 1, bottom - top + 1

    def mask(self) -> np.ndarray:
        """Return the mask as uint8 (height, width), 1 inside."""
        steps = np.zeros(self.height * self.width + 1, np.int8)
        steps[self.starts] = 1
        steps[self.ends] -= 1  # a run may end where the next one starts
        flat = np.cumsum(steps[:-1], dtype=np.int8).view(np.uint8)
        return np.ascontiguousarray(flat.reshape(self.width, self.height).T)

    def counts(self) -> np.ndarray:
        """Return the run lengths, int64 (n,), starting with pixels outside."""
        edges = np.stack([self.starts, self.ends], axis=1).reshape(-1)
        total = self.height * self.width
        edges = np.concatenate([[0], edges, [total] if not len(edges) or edges[-1] < total else []]).astype(np.int64)
        return np.diff(edges)

    def listed(self) -> dict[str, Any]:
        """Return the uncompressed form of COCO's JSON."""
        return {"size": [int(self.height), int(self.width)], "counts": self.counts().tolist()}

    def compress(self) -> dict[str, Any]:
        """Return the compressed form that result files contain: {"size": [height, width], "counts": "..."}."""
        return {"size": [int(self.height), int(self.width)], "counts": self.text().decode("ascii")}

    def text(self) -> bytes:
        """Return the characters of the compressed form."""
        return _compress(self.counts()).tobytes()


def encode(mask: np.ndarray) -> dict[str, Any]:
    """Encode a mask, bool or integers (height, width), not 0 inside, as compressed run lengths."""
    return find_mask_runs(mask).compress()


def decode(segmentation: object, height: int | None = None, width: int | None = None) -> np.ndarray:
    """Decode a segmentation that ``parse_segmentation`` accepts to a mask, uint8 (height, width)."""
    return parse_segmentation(segmentation, height, width).mask()


def compress_runs(segmentation: object, height: int | None = None, width: int | None = None) -> bytes:
    """Return compressed run lengths of what ``parse_segmentation`` takes; those that are compressed are not decoded.

    Raises:
        ValueError: the segmentation is not valid.
    """
    counts, size = (segmentation.get(name) if isinstance(segmentation, dict) else None for name in ("counts", "size"))
    if isinstance(counts, str) and height is not None and width is not None:
        text = counts.encode("ascii", "replace")
        if size == [height, width] and _decode_lengths([text])[0].sum() == height * width:
            return text
    return parse_segmentation(segmentation, height, width).text()


def compute_area(text: bytes) -> int:
    """Count the pixels inside a mask from the compressed run lengths that ``compress_runs`` returns."""
    return int(_decode_lengths([text])[0][1::2].sum())


class ManyRuns(NamedTuple):
    """Masks of one image, one after the other; mask i has the runs from ``first[i]`` to before ``first[i + 1]``."""

    starts: np.ndarray  # int64 (runs,), number of the first pixel of each run
    ends: np.ndarray  # int64 (runs,), one past its last pixel
    first: np.ndarray  # int64 (masks + 1,)
    areas: np.ndarray  # int64 (masks,), pixels inside
    rows: np.ndarray  # int64 (masks, 2), first image row of a mask, and one past the last

    @classmethod
    def decode(cls, texts: Sequence[bytes], height: int) -> "ManyRuns":
        """Decode the compressed run lengths that ``compress_runs`` returns."""
        masks = len(texts)
        lengths, first = _decode_lengths(texts)
        total = np.concatenate([[0], np.cumsum(lengths)])
        mask = np.repeat(np.arange(masks), np.diff(first))  # of each length
        is_run = ((np.arange(len(lengths)) - first[mask]) % 2 == 1) & (lengths > 0)
        starts = (total[:-1] - total[first[mask]])[is_run]
        lengths, mask = lengths[is_run], mask[is_run]
        row = starts % height
        wraps = row + lengths > height  # in the next column
        rows = np.repeat([[height, 0]], masks, axis=0)
        np.minimum.at(rows[:, 0], mask, np.where(wraps, 0, row))
        np.maximum.at(rows[:, 1], mask, np.where(wraps, height, row + lengths))
        areas = np.bincount(mask, lengths, masks).astype(np.int64)
        return cls(starts, starts + lengths, np.searchsorted(mask, np.arange(masks + 1)), areas, rows)


def find_mask_runs(mask: np.ndarray) -> MaskRuns:
    """Find the runs of a mask, bool or integers (height, width)."""
    height, width = mask.shape
    flat = np.zeros(height * width + 2, np.int8)
    flat[1:-1] = (np.asarray(mask) != 0).T.reshape(-1)
    steps = np.diff(flat)
    return MaskRuns(height, width, np.flatnonzero(steps == 1), np.flatnonzero(steps == -1))


def parse_segmentation(segmentation: object, height: int | None = None, width: int | None = None) -> MaskRuns:
    """Return the pixels of an annotation's or a result's ``segmentation``.

    Args:
        segmentation: a list of polygons [x0, y0, x1, y1, ...], which cover a pixel together, where those without points
            are omitted, or one polygon alone, as old programs write it; or a dictionary of run lengths with "size"
            [height, width] and "counts", a list or a text, or a list of such dictionaries, which cover a pixel together
        height: of the image; required for polygons, and must agree with the size of run lengths.
        width: of the image, likewise.

    Raises:
        ValueError: it is neither; the message continues "its segmentation ...".
    """
    if _has_run_lengths(segmentation):
        parts = segmentation if isinstance(segmentation, list) else [segmentation]
        runs = [_parse_run_lengths(part, height, width) for part in parts]
        if len({part[:2] for part in runs}) > 1:
            raise ValueError("has run lengths of several sizes")
        return join(runs, *runs[0][:2])
    outlines = _parse_outlines(segmentation)
    if height is None or width is None:
        raise ValueError("is a polygon, which needs the image's height and width")
    _check_size(height, width)
    return join([_fill_polygon(points, height, width) for points in outlines], height, width)


def require_segmentation(segmentation: object, height: int | None, width: int | None) -> tuple[int, int] | None:
    """Raise the ValueError of ``parse_segmentation`` without drawing polygons; return the size of run lengths.

    ``height`` and ``width`` of the image are None if they are unknown, and then compared with nothing.
    """
    if _has_run_lengths(segmentation):
        return parse_segmentation(segmentation, height, width)[:2]
    if not are_plain_polygons(segmentation):
        _parse_outlines(segmentation)
    return None


def are_plain_polygons(segmentation: Any) -> bool:
    """Return whether a segmentation is a list of polygons in its usual form; in a third of the time of parsing it."""
    if not segmentation:
        return False
    try:
        for polygon in segmentation:  # the root of a sum of squares is at least the largest number, or is not a number
            if len(polygon) < 2 or not math.hypot(*polygon) < _FARTHEST:
                return False
    except Exception:  # another form, which is parsed; a user's class may raise anything
        return False
    return True


def are_flat(polygons: Sequence[Sequence[float]]) -> bool:
    """Return whether the points of each polygon, x, y, x, y and so on, are on a line; its mask is then empty."""
    for outline in polygons:
        if len(outline) >= _LEAST_NUMBERS:  # nearly all end here, in a tenth of the time of a whole outline
            x, y, u, v, s, t = outline[:_LEAST_NUMBERS]
            if abs((u - x) * (t - y) - (v - y) * (s - x)) > 1.0:
                return False
        x, y, across, down = outline[0], outline[1], 0.0, 0.0
        for place in range(3, len(outline), 2):
            u, v = outline[place - 1] - x, outline[place] - y
            if abs(across * v - down * u) > _ROUNDING * (abs(across * v) + abs(down * u)):
                return False  # of most polygons the third point
            if abs(u) + abs(v) > abs(across) + abs(down):  # the farthest point decides on the direction
                across, down = u, v
    return True


def has_shape(segmentation: object) -> bool:
    """Return whether there is a segmentation, more than polygons without points, as some programs write for none."""
    return bool(segmentation) and not (isinstance(segmentation, list) and all(map(_is_empty, segmentation)))


def find_box(segmentation: object) -> tuple[float, float, float, float]:
    """Return x, y, width, height of the extent of its corners or pixels; ValueError as ``parse_segmentation``."""
    if _has_run_lengths(segmentation):
        return parse_segmentation(segmentation).box()
    corners = np.concatenate(_parse_outlines(segmentation))
    (x, y), (right, bottom) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    return x, y, right - x, bottom - y


def join(parts: Sequence[MaskRuns], height: int, width: int) -> MaskRuns:
    """Return the pixels that are in at least one of the parts."""
    if len(parts) == 1:
        return parts[0]
    starts = np.concatenate([part.starts for part in parts])
    ends = np.concatenate([part.ends for part in parts])
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    if not len(starts):
        return MaskRuns(height, width, starts, reached)
    begins = np.concatenate([[True], starts[1:] > reached[:-1]])
    return MaskRuns(height, width, starts[begins], reached[np.append(np.flatnonzero(begins)[1:] - 1, len(starts) - 1)])


def _check_size(height: Any, width: Any) -> None:
    for side in (height, width):
        if isinstance(side, bool) or not isinstance(side, (int, np.integer)) or side < 1:
            raise ValueError(f"belongs to an image of {height} x {width} pixels (height x width)")
    if height * width > _MOST_PIXELS:
        raise ValueError(f"belongs to an image of {height} x {width} pixels, which is too large")


def _has_run_lengths(segmentation: Any) -> bool:
    """Return whether a segmentation is run lengths, or a list of them as COCO's tools read it, not polygons."""
    return isinstance(segmentation, dict) or (
        isinstance(segmentation, list) and bool(segmentation) and isinstance(segmentation[0], dict)
    )


def _is_empty(polygon: object) -> bool:
    return isinstance(polygon, (list, np.ndarray)) and len(polygon) == 0


def _parse_run_lengths(segmentation: Any, height: int | None, width: int | None) -> MaskRuns:
    if not isinstance(segmentation, dict):
        raise ValueError("is a list of run lengths and something else")
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise ValueError('has no "size" of [height, width]')
    _check_size(*size)
    if height is not None and tuple(size) != (height, width):
        raise ValueError(f"is of {size[0]} x {size[1]} pixels, the image of {height} x {width} (height x width)")
    if isinstance(counts, str):
        counts = counts.encode("ascii", "replace")
    if isinstance(counts, bytes):
        lengths = _decode_lengths([counts])[0]
        if (lengths < 0).any():
            raise ValueError("has run lengths that are not COCO's compressed form")
    elif isinstance(counts, (list, np.ndarray)):
        lengths = _parse_integers(counts)
    else:
        raise ValueError('has no "counts"')
    edges = np.cumsum(lengths)
    if lengths.sum() != size[0] * size[1]:
        raise ValueError(f"has run lengths of {lengths.sum():,} pixels for an image of {size[0]} x {size[1]}")
    starts, ends = edges[:-1:2], edges[1::2]
    is_not_empty = starts < ends
    return MaskRuns(int(size[0]), int(size[1]), starts[is_not_empty], ends[is_not_empty])


def _parse_integers(counts: list[int] | np.ndarray) -> np.ndarray:
    try:
        lengths = np.asarray(counts)
    except (ValueError, OverflowError):
        raise ValueError('has "counts" that are not a list of numbers') from None
    if lengths.ndim != 1 or not np.issubdtype(lengths.dtype, np.integer):
        raise ValueError('has "counts" that are not a list of whole numbers')
    if ((lengths < 0) | (lengths > _MOST_PIXELS)).any():
        raise ValueError('has "counts" outside the image')
    return lengths.astype(np.int64)


def _parse_outlines(polygons: object) -> list[np.ndarray]:
    """Parse the corners of each polygon, float64 (corners, 2); as in COCO's tools, one or two cover no pixels."""
    if not isinstance(polygons, list):
        raise ValueError("is neither a list of polygons nor run lengths")
    if len(polygons) >= _LEAST_NUMBERS and all(type(number) in (int, float) for number in polygons):
        polygons = [polygons]
    if not has_shape(polygons):
        raise ValueError("has no polygon with points" if polygons else "has no polygon")
    outlines = []
    for polygon in polygons:
        if _is_empty(polygon):
            continue
        try:
            numbers = np.asarray(polygon, np.float64)
        except (ValueError, TypeError, OverflowError):
            raise ValueError("has a polygon that is not a list of numbers") from None
        if numbers.ndim != 1 or len(numbers) < 2:
            raise ValueError("has a polygon that is not a list of numbers x0, y0, x1, y1, ...")
        if not (np.abs(numbers) < _FARTHEST).all():
            raise ValueError("has a polygon with a corner that is not a number, or far outside of any image")
        outlines.append(numbers[: len(numbers) // 2 * 2].reshape(-1, 2))
    return outlines


def outline(box: Sequence[float] | np.ndarray) -> list[list[float]]:
    """Return the polygon of a box, x, y, width, height, as COCO's tools draw an object without a segmentation.

    A side that is farther than a polygon may reach is drawn there: no pixel of an image is different.
    """
    x, y, across, down = (float(value) for value in box)
    farthest = _FARTHEST / 2
    left, top, right, bottom = (max(-farthest, min(side, farthest)) for side in (x, y, x + across, y + down))
    return [[left, top, left, bottom, right, bottom, right, top]]


def _fill_polygon(corners: np.ndarray, height: int, width: int) -> MaskRuns:
    """Return the pixels of one polygon, float64 (corners, 2)."""
    number = _find_crossings(corners, height, width, np.empty(0, np.int64))
    pixels = np.empty(number, np.int64)
    _find_crossings(corners, height, width, pixels)
    edges, times = np.unique(pixels, return_counts=True)
    edges = edges[(times % 2 == 1) & (edges < height * width)]  # an even number of crossings changes nothing
    ends = edges[1::2]
    if len(edges) % 2:
        ends = np.append(ends, height * width)
    return MaskRuns(height, width, edges[::2], ends)


@compiled(needs_numba=False, error_model="numpy")
def _find_crossings(corners, height, width, pixels):
    """Count the pixels at which an outline crosses columns' middles; write them to ``pixels`` unless it is empty."""
    number = 0
    last_u, last_v = np.int64(0), np.int64(0)
    is_first = True
    for corner in range(len(corners)):
        following = (corner + 1) % len(corners)
        xs, ys = np.int64(_FINER * corners[corner, 0] + 0.5), np.int64(_FINER * corners[corner, 1] + 0.5)
        xe, ye = np.int64(_FINER * corners[following, 0] + 0.5), np.int64(_FINER * corners[following, 1] + 0.5)
        across, down = abs(xe - xs), abs(ye - ys)
        is_flat = across >= down
        turned = (is_flat and xs > xe) or (not is_flat and ys > ye)  # lines are drawn from left or top
        if turned:
            xs, xe, ys, ye = xe, xs, ye, ys
        length = max(across, down)
        slope = 0.0
        if length > 0:
            slope = (ye - ys) / length if is_flat else (xe - xs) / length
        for step in range(length + 1):
            along = length - step if turned else step
            if is_flat:
                u, v = along + xs, np.int64(ys + slope * along + 0.5)
            else:
                u, v = np.int64(xs + slope * along + 0.5), along + ys
            if not is_first and u != last_u:
                x = ((u if u < last_u else u - 1) + 0.5) / _FINER - 0.5
                if np.floor(x) == x and 0 <= x <= width - 1:
                    y = ((v if v < last_v else last_v) + 0.5) / _FINER - 0.5
                    y = np.ceil(min(max(y, 0.0), float(height)))
                    if len(pixels) > 0:
                        pixels[number] = np.int64(x) * height + np.int64(y)
                    number += 1
            is_first = False
            last_u, last_v = u, v
    return number


@compiled(needs_numba=False)
def _compress(counts):
    """Encode run lengths as the characters of COCO's compressed form, uint8.

    From the fourth number on, differences to the second last number; 5 bits a character, low bits first.
    """
    text = np.empty(len(counts) * 13, np.uint8)
    length = 0
    for position in range(len(counts)):
        value = counts[position] - (counts[position - 2] if position > 2 else 0)
        more = True
        while more:
            low = value & 31
            value >>= 5
            more = value != (-1 if low & 16 else 0)
            text[length] = (low | 32 if more else low) + 48
            length += 1
    return text[:length]


def _decode_lengths(texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Decode compressed run lengths, int64 (n,), (-1,) if a text is not valid; return each text's start too."""
    ends = np.cumsum([0, *map(len, texts)])
    return _parse_lengths(np.frombuffer(b"".join(texts), np.uint8), ends)


@compiled(needs_numba=False)
def _parse_lengths(texts, ends):
    lengths, first, number = np.empty(len(texts), np.int64), np.zeros(len(ends), np.int64), 0
    for text in range(len(ends) - 1):
        value, shift = np.int64(0), np.int64(0)
        for position in range(ends[text], ends[text + 1]):
            low = np.int64(texts[position]) - 48
            if low < 0 or low > 63 or shift > 40:
                return np.full(1, -1), first
            value |= (low & 31) << shift
            shift += 5
            if not low & 32:
                if low & 16:
                    value |= np.int64(-1) << shift
                if number > first[text] + 2:
                    value += lengths[number - 2]
                if value < 0:
                    return np.full(1, -1), first
                lengths[number] = value
                number += 1
                value, shift = np.int64(0), np.int64(0)
        if shift:  # the text ends within a number
            return np.full(1, -1), first
        first[text + 1] = number
    return lengths[:number], first
