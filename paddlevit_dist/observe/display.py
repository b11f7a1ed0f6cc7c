"""What a terminal shows of a run: a bar for the steps, and below it a line with the values of the last report.

Elsewhere nothing is drawn, and the log lines show the progress: in a file, behind a pipe (``| tee``), where lines would
come at any time into what is drawn, and on terminals that cannot move their cursor.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

_GAP = "  "
_EMPTY_LINE = "\r\x1b[2K"  # go to the beginning of the line, and erase it


class Field(NamedTuple):
    """One value of a line, as it is written where there is room, and where there is not."""

    long: str
    short: str


def can_be_drawn() -> bool:
    """Whether stderr is a terminal that can be drawn on without lines of stdout coming in between unnoticed."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return False
    if sys.stdout is None or sys.stdout.isatty():
        return True
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream that is no file, such as a notebook's
        import stat

        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    return True


def fit(fields: Sequence[Field], width: int) -> str:
    """The fields in one line of at most ``width`` characters: in full if there is room, else shorter, else without the
    last ones."""
    for texts in ([field.long for field in fields], [field.short for field in fields]):
        line = _GAP.join(texts)
        if len(line) <= width:
            return line
    while len(texts) > 1 and len(_GAP.join(texts)) > width:
        texts.pop()
    return _GAP.join(texts)[: max(width, 0)]


def fields_of(values: Dict[str, Any], terms: Dict[str, float], sample_name: str) -> List[Field]:
    """The fields of a report, the most important ones first.

    Args:
        values: what ``metrics.jsonl`` gets of the report.
        terms: the means of the loss and of what else the task tells.
    """
    told = dict(terms)
    loss = "loss" if "loss" in told else next(iter(told), None)
    fields = [] if loss is None else [_same(f"{loss} {told.pop(loss):.4g}")]
    if values["skipped_updates"]:
        fields.append(_same(f"{values['skipped_updates']} skipped"))
    waiting, memory = values["data_wait_fraction"], values.get("memory_mib")
    fields += [
        _same(f"{values['samples_per_second']:.4g} {sample_name}/s"),
        Field(f"data wait {waiting:.0%}", f"wait {waiting:.0%}"),
    ]
    if "gradient_norm" in values:
        norm = f"{values['gradient_norm']:.3g}"
        fields.append(Field(f"gradient norm {norm}", f"norm {norm}"))
    if memory:
        size = f"{memory / 1024:.1f} GiB" if memory >= 1024 else f"{memory:.0f} MiB"
        fields.append(Field(f"memory {size}", size))
    rate = f"{values['learning_rate']:.2e}"
    fields.append(Field(f"learning rate {rate}", f"lr {rate}"))
    return [*fields, *(_same(f"{name} {value:.4g}") for name, value in told.items())]


def _same(text: str) -> Field:
    return Field(text, text)


class BesideBars:
    """A standard stream on which what this process prints, warns or raises stands above the bars and not in them.

    Text appears line by line. Processes that are forked cannot draw the bars again: they write over the first.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._process = os.getpid()
        self._begun = ""

    def __eq__(self, other: Any) -> bool:  # tqdm asks which of its bars are on the same terminal
        return other is self or getattr(other, "_wrapped", other) is self.stream

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        if os.getpid() != self._process:
            return self.stream.write(_EMPTY_LINE + text if text.strip() else text)
        lines, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._write(lines + newline)
        return len(text)

    def end(self) -> None:
        """Write what has begun and has no end yet."""
        if self._begun:
            self._begun = self._write(self._begun) or ""

    def _write(self, text: str) -> None:
        write_above(text, self.stream)


def write_above(text: str, stream: Any) -> None:
    """Write whole lines where the bars are, and draw these again below."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=stream):
        if sys.stderr is not None:
            sys.stderr.flush()  # tqdm leaves its last movement of the cursor in the buffer
        stream.write(text)
        stream.flush()


_shown = 0  # bars of this process


def begin() -> None:
    """Called when a bar appears: lets the standard streams stand beside it."""
    global _shown
    _shown += 1
    if _shown == 1:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and stream.isatty():
                setattr(sys, name, BesideBars(stream))


def end() -> None:
    """Called when a bar is gone."""
    global _shown
    _shown -= 1
    if _shown == 0:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, BesideBars):  # else somebody has put another one in its place
                stream.end()
                setattr(sys, name, stream.stream)


def columns(stream: Any) -> Optional[int]:
    """Width of the terminal that ``stream`` is; None if it is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None
