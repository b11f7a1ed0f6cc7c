"""The display of a run on a terminal: a progress bar, and below it a line with the values of the last report.

Otherwise nothing is drawn, and the log lines show the progress: in a file, behind a pipe (``| tee``), whose lines would
appear in the middle of the drawing at any time, and on terminals that cannot move their cursor. While nothing else is
shown, the heartbeat prints a line from time to time.
"""

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..launch import status
from ..runtime.compiled import being_compiled
from ..runtime.printing import EMPTY_LINE, one_line

QUIET_SECONDS = 25.0  # with the poll below, a line appears at least every 30 seconds
_POLL_SECONDS = 1.0

# Keeps the text within 80 columns: tqdm's default format would push it off the line.
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"
_NARROWEST = 20
_GAP = "  "
_last_output = time.monotonic()
_bars = 0  # number of bars of this process
_place_length = 0  # letters of the place that ``show_place`` has drawn

# Held by threads other than the main one while they print: a process forked in the meantime would inherit a stream that
# stays locked forever.
printing = threading.Lock()
os.register_at_fork(before=printing.acquire, after_in_parent=printing.release, after_in_child=printing.release)


class ProgressBar:
    """A progress bar for the steps of one epoch or evaluation; ``left`` are the remaining ones.

    It has ``total`` steps and ``label`` before it, and is not ``shown`` on ranks other than 0.
    """

    def __init__(self, total: int, label: str, shown: bool) -> None:
        self.left = total
        self._bar: Any | None = None
        self._values: Any | None = None
        if shown and can_be_drawn():
            from tqdm import tqdm

            note_output()
            count_bars(1)
            self._stream = _drawn_on(sys.stderr)
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
        """Advance the bar."""
        self.left -= number
        if self._bar is not None:
            is_drawn = self._bar.update(number)
            if is_drawn and self._values is not None:
                self._values.refresh()  # the terminal may have another width by now
            note_output()

    def note(self, text: str, at_once: bool = False) -> None:
        """Set the text after the bar; it is drawn with the next step unless ``at_once``."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=at_once)

    def show(self, fields: "Sequence[ReportField]") -> None:
        """Set the line below the bar."""
        if self._bar is None:
            return
        if self._values is None:
            self._values = line_below(self._stream)
        self._values.fields = fields
        self._values.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            if self._values is not None:
                self._values.close()
            self._bar.close()
            self._bar = self._values = None
            count_bars(-1)


def line_below(stream: object) -> Any:
    """Create a line of fields under the bar, drawn like tqdm's bars."""
    from tqdm import tqdm

    class Line(tqdm):
        fields: Sequence[ReportField] = ()

        def __str__(self) -> str:
            return fit(self.fields, max(count_columns(stream), _NARROWEST) - 1)

    return Line(position=1, leave=False, file=stream)


def write_line(text: str) -> None:
    """Print ``text`` as one line on stdout without breaking a bar."""
    note_output()
    text = one_line(text)
    if sys.stderr.isatty() and "tqdm" in sys.modules:
        write_above(text + "\n", _drawn_on(sys.stdout))
    else:
        # In one piece: the saving thread also writes lines, and ``print`` writes the newline separately.
        print(text + "\n", end="", flush=True)


def note_output() -> None:
    """Record that output has just been shown, or is about to be: a drawn place is erased."""
    global _last_output
    show_place("")
    _last_output = time.monotonic()


def show_place(text: str) -> None:
    """Draw in the last line of a terminal what a run is doing, in place of what was drawn before; "" erases it."""
    global _place_length
    if (text or _place_length) and not _bars and can_be_drawn():
        sys.stderr.write(EMPTY_LINE + text[: max(count_columns(sys.stderr) - 1, 0)])
        sys.stderr.flush()
        _place_length = len(text)


def seconds_since_output() -> float:
    """Return the time since this process last showed a line or a bar's step."""
    return time.monotonic() - _last_output


class Heartbeat:
    """Prints the activity of the run if nothing was printed for a while; a terminal shows it all the time.

    Use it as ``with Heartbeat(log).at("reading the list"): ...``.

    Args:
        log: prints a line.
        shown: False on all ranks but 0.
        quiet_seconds: time without a line or a moving bar before one is printed.
        poll_seconds: time between checks of the clock.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        shown: bool = True,
        quiet_seconds: float = QUIET_SECONDS,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._log = log
        self._shown = shown
        self._quiet_seconds = quiet_seconds
        self._poll_seconds = poll_seconds
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._place = ("", time.monotonic())

    def at(self, place: str) -> "Heartbeat":
        """Set the current activity, also for the watchdog; can be used as a context, which is then watched."""
        self._place = (place, time.monotonic())
        status.note(place)
        return self

    def __enter__(self) -> "Heartbeat":
        if self._shown:
            note_output()
            self._stopped.clear()
            self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            show_place("")

    def _watch(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            place, since = self._place
            if being_compiled:
                place = "compiling, once"
            text = f"{place} ({time.monotonic() - since:.0f} s)"
            with printing:
                if seconds_since_output() >= self._quiet_seconds:
                    self._log(f"still {text}")
                elif seconds_since_output() >= self._poll_seconds:
                    show_place(text)


class ReportField(NamedTuple):
    """One value of a line in its long and its short form."""

    long: str
    short: str


def fit(fields: Sequence[ReportField], width: int) -> str:
    """Join the fields in at most ``width`` characters: in long form if possible, else short, else without the last."""
    for texts in ([field.long for field in fields], [field.short for field in fields]):
        line = _GAP.join(texts)
        if len(line) <= width:
            return line
    while len(texts) > 1 and len(_GAP.join(texts)) > width:
        texts.pop()
    return _GAP.join(texts)[: max(width, 0)]


def fit_line(fields: Sequence[ReportField], dispensable: Sequence[int], width: int) -> str:
    """Join fields by spaces in at most ``width`` characters if that is possible.

    The fields at the places ``dispensable`` get their short form one by one, and then are omitted.
    """
    texts = [field.long for field in fields]
    for place, text in [*((place, fields[place].short) for place in dispensable), *((at, "") for at in dispensable)]:
        if len(" ".join(filter(None, texts))) > width:
            texts[place] = text
    return " ".join(filter(None, texts))


def build_fields(values: dict[str, Any], terms: dict[str, float], sample_name: str) -> list[ReportField]:
    """Return the fields of a report, the most important ones first.

    Args:
        values: the values of the report in ``metrics.jsonl``.
        terms: means of the loss and of the task's other terms.
        sample_name: plural name of the samples.
    """
    remaining = dict(terms)
    loss = "loss" if "loss" in remaining else next(iter(remaining), None)
    fields = [] if loss is None else [_same(f"{loss} {remaining.pop(loss):.4g}")]
    if values["skipped_updates"]:
        fields.append(_same(f"{values['skipped_updates']} skipped"))
    waiting, memory = values["data_wait_fraction"], values.get("memory_mib")
    fields += [
        _same(f"{values['samples_per_second']:.4g} {sample_name}/s"),
        ReportField(f"data wait {waiting:.0%}", f"wait {waiting:.0%}"),
    ]
    if "gradient_norm" in values:
        norm = f"{values['gradient_norm']:.3g}"
        fields.append(ReportField(f"gradient norm {norm}", f"norm {norm}"))
    if memory:
        size = f"{memory / 1024:.1f} GiB" if memory >= 1024 else f"{memory:.0f} MiB"
        fields.append(ReportField(f"memory {size}", size))
    rate = f"{values['learning_rate']:.2e}"
    fields.append(ReportField(f"learning rate {rate}", f"lr {rate}"))
    return [*fields, *(_same(f"{name} {value:.4g}") for name, value in remaining.items())]


def _same(text: str) -> ReportField:
    return ReportField(text, text)


def can_be_drawn() -> bool:
    """Return whether stderr is a terminal for drawing, undisturbed by lines of stdout."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return False
    if sys.stdout is None or sys.stdout.isatty():
        return True
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream that is not a file, such as a notebook's
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    return True


class BarSafeStream:
    """A standard stream whose output appears above the bars and not in them, line by line.

    Forked processes cannot redraw the bars: they write over the first.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._process = os.getpid()
        self._incomplete = ""

    def __eq__(self, other: object) -> bool:  # tqdm compares streams to find the bars on the same terminal
        return other is self or getattr(other, "_wrapped", other) is self.stream

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write complete lines above the bars; keep an incomplete line."""
        if os.getpid() != self._process:
            return self.stream.write(EMPTY_LINE + text if text.strip() else text)
        lines, newline, self._incomplete = (self._incomplete + text).rpartition("\n")
        if newline:
            self._write(lines + newline)
        return len(text)

    def end(self) -> None:
        """Write the incomplete line."""
        if self._incomplete:
            self._write(self._incomplete)
            self._incomplete = ""

    def _write(self, text: str) -> None:
        write_above(text, self.stream)


def _drawn_on(stream: Any) -> Any:
    return stream.stream if isinstance(stream, BarSafeStream) else stream


def write_above(text: str, stream: Any) -> None:
    """Write whole lines in place of the bars, and redraw the bars below."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=stream):
        if sys.stderr is not None:
            sys.stderr.flush()  # tqdm leaves its last movement of the cursor in the buffer
        stream.write(text)
        stream.flush()


def count_bars(more: int) -> None:
    """Update the number of bars; while there are any, the standard streams print above them."""
    global _bars
    before, _bars = _bars, _bars + more
    for name in ("stdout", "stderr") if 0 in (before, _bars) else ():
        stream = getattr(sys, name)
        if _bars and stream is not None and stream.isatty():
            setattr(sys, name, BarSafeStream(stream))
        elif not _bars and isinstance(stream, BarSafeStream):  # else another program has replaced it
            stream.end()
            setattr(sys, name, stream.stream)


def count_line_columns() -> int:
    """Return the width of the lines on stdout: of its terminal, but at least 80."""
    return max(count_columns(_drawn_on(sys.stdout)), 80)


def count_columns(stream: Any) -> int:
    """Return the width of a stream's terminal; 80 if unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80
