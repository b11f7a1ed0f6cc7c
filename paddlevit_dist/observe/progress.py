"""A progress bar on terminals; elsewhere, the log lines show the progress."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

from ..printing import one_line

# Keeps the text within 80 columns: tqdm's default format would push it off the line.
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"
_last_sign_of_life = time.monotonic()


class Progress:
    """Counts the steps of one epoch or evaluation.

    Args:
        total: number of steps.
        label: shown before the bar.
        shown: False on all ranks but the main one.
    """

    def __init__(self, total: int, label: str, shown: bool) -> None:
        self._bar: Optional[Any] = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=label, leave=False, dynamic_ncols=True, bar_format=_BAR)

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def step(self, number: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(number)
            note_sign_of_life()

    def note(self, text: str) -> None:
        """Set the text after the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def write_line(text: str) -> None:
    """Print a line on stdout without breaking any bar being shown; ``text`` is made one line if it is not."""
    note_sign_of_life()
    text = one_line(text)
    if sys.stderr.isatty() and "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(text, file=sys.stdout)
    else:
        print(text, flush=True)


def note_sign_of_life() -> None:
    """Note that something was just shown."""
    global _last_sign_of_life
    _last_sign_of_life = time.monotonic()


def seconds_since_sign_of_life() -> float:
    """Time since this process last showed a line or a bar's step."""
    return time.monotonic() - _last_sign_of_life
