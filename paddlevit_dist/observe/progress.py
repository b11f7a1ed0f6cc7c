"""A progress bar on terminals; on anything else the log's lines are the progress."""

from __future__ import annotations

import sys
from typing import Any, Optional


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

            self._bar = tqdm(total=total, desc=label, leave=False, dynamic_ncols=True, unit="step")

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update(1)

    def note(self, text: str) -> None:
        """Text behind the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def write_line(text: str) -> None:
    """Print a line on stdout without breaking a bar that may be showing."""
    if sys.stderr.isatty() and "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(text, file=sys.stdout)
    else:
        print(text, flush=True)
