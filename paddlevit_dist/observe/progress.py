"""A progress bar on terminals, with the last report below it; elsewhere, the log lines show the progress."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional, Sequence

from ..printing import one_line
from . import display

# Keeps the text within 80 columns: tqdm's default format would push it off the line.
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"
_NARROWEST = 20
_last_sign_of_life = time.monotonic()


class Progress:
    """Counts the steps of one epoch or evaluation.

    Args:
        total: number of steps.
        label: shown before the bar.
        shown: False on all ranks but the main one.

    Attributes:
        left: steps to do.
    """

    def __init__(self, total: int, label: str, shown: bool) -> None:
        self.left = total
        self._bar: Optional[Any] = None
        self._values: Optional[Any] = None
        if shown and display.can_be_drawn():
            from tqdm import tqdm

            display.begin()
            self._stream = getattr(sys.stderr, "stream", sys.stderr)
            self._bar = tqdm(
                total=total,
                desc=label,
                leave=False,
                dynamic_ncols=True,
                bar_format=_BAR,
                file=self._stream,
            )

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def step(self, number: int = 1) -> None:
        self.left -= number
        if self._bar is not None:
            is_drawn = self._bar.update(number)
            if is_drawn and self._values is not None:
                self._values.refresh()  # its terminal may have another width by now
            note_sign_of_life()

    def note(self, text: str, at_once: bool = False) -> None:
        """Set the text after the bar; it is drawn with the next step unless ``at_once``."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=at_once)

    def show(self, fields: Sequence[display.Field]) -> None:
        """Set the line below the bar."""
        if self._bar is None:
            return
        if self._values is None:
            self._values = _line_below(self._stream)
        self._values.fields = fields
        self._values.refresh()

    def close(self) -> None:
        if self._bar is not None:
            if self._values is not None:
                self._values.close()
            self._bar.close()
            self._bar = self._values = None
            display.end()


def _line_below(stream: Any) -> Any:
    """A line of fields under the bar, as tqdm draws its bars."""
    from tqdm import tqdm

    class Line(tqdm):
        fields: Sequence[display.Field] = ()

        def __str__(self) -> str:
            return display.fit(self.fields, max(display.columns(stream) or 80, _NARROWEST) - 1)

    return Line(position=1, leave=False, file=stream)


def write_line(text: str) -> None:
    """Print a line on stdout without breaking any bar being shown; ``text`` is made one line if it is not."""
    note_sign_of_life()
    text = one_line(text)
    if sys.stderr.isatty() and "tqdm" in sys.modules:
        display.write_above(text + "\n", getattr(sys.stdout, "stream", sys.stdout))
    else:
        # In one piece: the thread that saves writes lines too, and ``print`` writes the line's end by itself.
        print(text + "\n", end="", flush=True)


def note_sign_of_life() -> None:
    """Note that something was just shown."""
    global _last_sign_of_life
    _last_sign_of_life = time.monotonic()


def seconds_since_sign_of_life() -> float:
    """Time since this process last showed a line or a bar's step."""
    return time.monotonic() - _last_sign_of_life
