"""From the pixels of label maps, numbers or colours, to classes."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ....runtime.errors import UserError
from ....runtime.printing import shortened
from ...data.label_pixels import LabelPixels, numbers_of


class LabelTable(NamedTuple):
    """Which number, or which colour, stands for which class.

    Attributes:
        numbers: of label maps -> class, or ``IGNORED``.
        colours: red + 256 green + 65,536 blue -> class, or ``IGNORED``; empty: label maps have numbers.
        remark: what to do about an unknown label, for the message.
    """

    numbers: Mapping[int, int]
    colours: Mapping[int, int]
    remark: str

    def labels(self, pixels: LabelPixels, path: str) -> np.ndarray:
        """uint8 (height, width), the class of each pixel or ``IGNORED``.

        Raises:
            UserError: a pixel has another number or colour; names the file, the row and the column, from 0.
        """
        values, is_colour = pixels.values, pixels.is_colour
        known = self.colours if is_colour else self.numbers
        if is_colour and not self.colours:
            values, is_colour, known = numbers_of(pixels, path), False, self.numbers
        elif not is_colour and self.colours:
            known, is_colour = self._of_numbers(pixels.palette)
        found = _of_bytes(values, known) if values.dtype == np.uint8 else _of_any(values, known)
        if isinstance(found, np.ndarray):
            return found
        row, column = found
        raise UserError(self._unknown(int(values[row, column]), is_colour, path, row, column))

    def _of_numbers(self, palette: np.ndarray | None) -> tuple[Mapping[int, int], bool]:
        """What numbers stand for where classes have colours: those of the palette; where there is none, grey levels if
        all colours are grey, else the numbers of the list."""
        if palette is not None:
            return {at: self.colours[one] for at, one in enumerate(palette.tolist()) if one in self.colours}, False
        if all(one == (one & 255) * 0x010101 for one in self.colours):
            return {one & 255: label for one, label in self.colours.items()}, False
        return self.numbers, False

    def _unknown(self, value: int, is_colour: bool, path: str, row: int, column: int) -> str:
        shown = str(_channels(value)) if is_colour else str(value)
        known = (
            [str(_channels(one)) for one in self.colours] if is_colour else [str(one) for one in sorted(self.numbers)]
        )
        what = "colour" if is_colour else "label"
        return (
            f"{path} has the {what} {shown} at row {row}, column {column}, which is not known: {what}s are "
            f"{shortened(', '.join(known), 80)}; {self.remark}"
        )


def _channels(packed: int) -> tuple[int, int, int]:
    return packed & 255, packed >> 8 & 255, packed >> 16


def _of_bytes(values: np.ndarray, known: Mapping[int, int]) -> np.ndarray | tuple[int, int]:
    """The classes of numbers up to 255, uint8 (height, width); or row and column of the first that is not known."""
    raw = bytearray(np.ascontiguousarray(values))
    if raw.translate(None, bytes(number for number in known if number < 256)):
        is_known = np.isin(np.arange(256), list(known))
        row, column = np.argwhere(~is_known[values])[0].tolist()
        return row, column
    table = bytes(known.get(number, 0) for number in range(256))
    return np.frombuffer(raw.translate(table), np.uint8).reshape(values.shape)


def _of_any(values: np.ndarray, known: Mapping[int, int]) -> np.ndarray | tuple[int, int]:
    """The same for whole numbers of any size: looked up once for each run of equal ones."""
    flat = np.ascontiguousarray(values).reshape(-1)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(flat[1:] != flat[:-1]) + 1])[: len(flat)]
    numbers = np.array(sorted(known), np.int64)
    labels = np.array([known[number] for number in numbers.tolist()], np.uint8)
    places = np.searchsorted(numbers, flat[starts]).clip(max=len(numbers) - 1)
    unknown = numbers[places] != flat[starts]
    if unknown.any():
        row, column = divmod(int(starts[unknown.argmax()]), values.shape[1])
        return row, column
    return np.repeat(labels[places], np.diff(starts, append=len(flat))).reshape(values.shape)
