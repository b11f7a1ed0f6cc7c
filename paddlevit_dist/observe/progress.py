"""A progress bar on terminals; on anything else the log's lines are the progress."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

# Fits its text into 80 columns: what a bar of its own makes of it would push the text out.
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"
_last_sign_of_life = time.monotonic()


class Progress:
    """Counts steps of one epoch or evaluation.

    Args:
        total: steps.
        label: shown before the bar.
        shown: False on all ranks but the main one.
    """

    def __init__(self, total: int, label: str, shown: bool) -> None:
        self._bar: Optional[Any] = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=label, leave=False, dynamic_ncols=True, bar_format=_BAR)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update(1)
            note_sign_of_life()

    def note(self, text: str) -> None:
        """Text behind the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def write_line(text: str) -> None:
    """Print a line on stdout without breaking a bar that may be showing."""
    note_sign_of_life()
    if sys.stderr.isatty() and "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(text, file=sys.stdout)
    else:
        print(text, flush=True)


def note_sign_of_life() -> None:
    """Something was shown just now."""
    global _last_sign_of_life
    _last_sign_of_life = time.monotonic()


def seconds_since_sign_of_life() -> float:
    """Since this process last showed a line, or a step on a bar."""
    return time.monotonic() - _last_sign_of_life
