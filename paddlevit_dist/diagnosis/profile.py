"""``-profile N``: where the time of N updates goes, by Paddle's profiler, and a trace to look at.

Rank 0 records, and prints its table when the N updates are over; the training goes on and none of its numbers change.
The first updates of a start are left out: they compile, load kernels and fill caches.
"""

import json
import os
import re
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import paddle
from paddle import profiler

from ..engine.parts import TrainingParts
from ..engine.watchers import Update, Watcher
from ..parallel import status, world_size
from ..runtime.errors import UserError
from ..runtime.files import temporary_name

_LEFT_OUT = 2  # updates at the beginning of an epoch, where it has more than enough
_ROWS = 10
_DATA = "waiting for data"
_RANKS = "waiting for other ranks"
_STAGES = {  # what the update notes as its place -> what the table calls it
    "in its forward pass": "forward pass",
    "in its backward pass": "backward pass",
    "in its optimizer step": "optimizer step",
    "waiting for its device": "waiting for the device",
}
_EXCHANGE = "GradNodeAccumulation"  # where Paddle's reducer hands gradients to gloo, and waits


class Row(NamedTuple):
    """One kind of operator: its own time, without that of operators inside it."""

    name: str
    calls: int
    seconds: float


class Profile(Watcher):
    """Records the first updates of the epoch that the run begins with. It comes after the watchers that do something
    once an update is made, so that this is in it.

    Raises:
        UserError: in a training, where Paddle's profiler does not work.
    """

    def __init__(self, parts: TrainingParts) -> None:
        self._updates: int | None = parts.config.PROFILE if parts.record.writes else None  # how many; None: no more
        self._folder = Path(parts.config.SAVE) / "profile"
        self._record = parts.record
        self._updates_per_epoch = parts.updates_per_epoch
        self._epoch = self._made = self._position = self._number = self._first = 0
        self._profiler: profiler.Profiler | None = None
        self._stages: dict[str, float] = {}
        self._stage: tuple[str, float, Any] = ("", 0.0, None)  # its name, when it began, its span in the trace
        self._waiting_since = 0.0
        self._started = 0.0

    def epoch_started(self, epoch: int, made: int) -> None:
        self._epoch, self._made, self._position = epoch, made, 0
        left = self._updates_per_epoch - made
        self._number = min(self._updates or 0, left)
        self._first = min(_LEFT_OUT, left - self._number)

    def data_awaited(self) -> None:
        if self._updates is not None and self._position == self._first:
            self._start()
        self._enter(_DATA)

    def update_started(self, step: Any, batches: Any) -> None:
        self._enter("")

    def update_done(self, update: Update) -> None:
        self._enter("")
        self._position += 1
        if self._profiler is not None and self._position == self._first + self._number:
            self._finish(self._epoch, self._made + self._first + 1, self._number)

    def epoch_left(self) -> None:
        """Leave nothing of a record that was interrupted."""
        if self._profiler is not None:
            self._stop(None)

    # ---- recording ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        targets = [profiler.ProfilerTarget.CPU]
        if paddle.get_device().startswith("gpu"):
            paddle.device.synchronize()
            targets.append(profiler.ProfilerTarget.GPU)
        recorder = profiler.Profiler(targets=targets, on_trace_ready=lambda ended: None)
        try:
            recorder.start()
        except (OSError, RuntimeError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"-profile (PROFILE): Paddle's profiler does not start here: {reason} A Paddle for GPUs needs "
                "one, with its driver, for that; leave -profile out, or install the Paddle for CPUs"
            ) from error
        self._profiler, self._stages, self._started = recorder, defaultdict(float), time.perf_counter()
        status.listen(self._noted)

    def _noted(self, text: str, waits: bool) -> None:
        """Called wherever an update notes its place."""
        now = time.perf_counter()
        if waits:
            self._waiting_since = now
        elif self._waiting_since:
            self._stages[_RANKS] += now - self._waiting_since
            self._waiting_since = 0.0
        if not waits and text in _STAGES:
            self._enter(_STAGES[text])

    def _enter(self, name: str) -> None:
        """A stage begins here, and the one before ends."""
        if self._profiler is None:
            return
        before, began, span = self._stage
        now = time.perf_counter()
        if before:
            self._stages[before] += now - began
            span.end()
        span = None
        if name:
            span = profiler.RecordEvent(name)
            span.begin()
        self._stage = (name, now, span)

    def _stop(self, path: Path | None) -> None:
        """End recording, and write the trace unless there is no path."""
        recorder, self._profiler = self._profiler, None
        status.listen(None)
        self._stage = ("", 0.0, None)
        self._updates = None
        assert recorder is not None
        if path is not None:
            recorder.on_trace_ready = lambda ended: ended.export(str(path), "json")
        recorder.stop()

    def _finish(self, epoch: int, first: int, number: int) -> None:
        if paddle.get_device().startswith("gpu"):
            paddle.device.synchronize()
        seconds = time.perf_counter() - self._started
        asked = self._updates
        target = self._folder / f"epoch_{epoch:04d}_updates_{first}_to_{first + number - 1}.json"
        try:
            events = self._trace(target)
        except (OSError, ValueError) as error:  # a full disk is no reason to end a training
            self._record.say(f"profile: {target} was not written: {error}")
            return
        rows = most_expensive(events)
        lines = [
            f"profile of {number} updates, {first} to {first + number - 1} of epoch {epoch}"
            + (f" ({asked} were asked for; the epoch ends)" if number != asked else "")
            + (f", on rank 0 of {world_size()}" if world_size() > 1 else "")
            + f": {1e3 * seconds / number:.1f} ms each",
            *table(rows, seconds, number),
            self._shares(events, seconds),
            f"trace: {target} (for ui.perfetto.dev or chrome://tracing)",
        ]
        for line in lines:
            self._record.say(line)
        operators = [{"name": row.name, "calls": row.calls, "seconds": round(row.seconds, 6)} for row in rows[:_ROWS]]
        stages = {name: round(spent, 6) for name, spent in self._stages.items()}
        self._record.event("profile", {"updates": number, "seconds": seconds, "stages": stages, "operators": operators})

    def _trace(self, target: Path) -> list[dict[str, Any]]:
        """End recording, write the trace, and return its spans."""
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(temporary_name(target.name))
        try:
            self._stop(temporary)
            events = read_trace(temporary)
            os.replace(temporary, target)
            return events
        finally:
            temporary.unlink(missing_ok=True)
            self.epoch_left()

    def _shares(self, events: list[dict[str, Any]], seconds: float) -> str:
        """The line about stages and communication."""
        parts = [f"{name} {self._stages[name] / seconds:.1%}" for name in (_DATA, *_STAGES.values())]
        if world_size() > 1:
            parts.append(f"{_RANKS} {self._stages[_RANKS] / seconds:.1%}")
            parts.append(f"exchange of gradients {exchange_seconds(events) / seconds:.1%} (inside the backward pass)")
        return "stages of the process's time: " + ", ".join(parts)


# ---- reading a trace -------------------------------------------------------------------------------------------


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The spans of a Chrome trace: name, cat (kind), ts and dur (microseconds), tid."""
    with open(path, encoding="utf-8", errors="replace") as file:
        events = json.load(file)["traceEvents"]
    return [event for event in events if event.get("ph") == "X" and "dur" in event]


def most_expensive(events: list[dict[str, Any]]) -> list[Row]:
    """Kinds of operators by their own time: kernels of a GPU where there are any, else Paddle's operators."""
    kind = "Kernel" if any(event.get("cat") == "Kernel" for event in events) else "Operator"
    return _own_times([event for event in events if event.get("cat") == kind])


def exchange_seconds(events: list[dict[str, Any]]) -> float:
    """Time in which gradients are exchanged: NCCL's kernels or what Paddle calls communication, else gloo's part."""
    named = [event for event in events if event.get("cat") == "Communication" or "nccl" in event["name"].lower()]
    if named:
        return sum(row.seconds for row in _own_times(named))
    operators = _own_times([event for event in events if event.get("cat") == "Operator"])
    return sum(row.seconds for row in operators if row.name == _EXCHANGE)


def _own_times(events: list[dict[str, Any]]) -> list[Row]:
    """By name, the time of events without that of the events inside them, longest first."""
    calls: dict[str, int] = defaultdict(int)
    spent: dict[str, float] = defaultdict(float)
    open_ones: dict[Any, list[tuple[float, str]]] = defaultdict(list)  # of each thread: when it ends, its name
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        name, begin, duration = operator_name(event["name"]), event["ts"], event["dur"]
        around = open_ones[event.get("tid")]
        while around and around[-1][0] <= begin:
            around.pop()
        if around:
            spent[around[-1][1]] -= min(duration, around[-1][0] - begin)
        around.append((begin + duration, name))
        calls[name] += 1
        spent[name] += duration
    rows = [Row(name, calls[name], 1e-6 * spent[name]) for name in calls]
    return sorted(rows, key=lambda row: -row.seconds)


def operator_name(text: str) -> str:
    """``matmul`` for "matmul dygraph[101.821 us]", ``matmul, backward`` for "Global_MatmulGradNode[...]"."""
    name = re.sub(r"\[[\d.]+ \w+\]$", "", text)
    name = re.sub(r" dygraph$", "", name)
    name = re.sub(r"^(Global|Local)_", "", name)
    own = re.match(r"GradNodePyLayer_+([A-Za-z]\w*?)(_\d+)?$", name)
    if own is not None:
        return f"{own.group(1)}, backward"
    backward = re.match(r"(\w+)GradNode$", name)
    if backward is None:
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", backward.group(1)).lower() + ", backward"


def table(rows: list[Row], seconds: float, updates: int) -> list[str]:
    """The ten most expensive kinds of operators, and what is left."""
    lines = [f"{'share':>7} {'ms/update':>10} {'calls/update':>13}  operator"]
    for row in rows[:_ROWS]:
        per_update = 1e3 * row.seconds / updates
        lines.append(f"{row.seconds / seconds:7.1%} {per_update:10.2f} {row.calls / updates:13.1f}  {row.name}")
    others = sum(row.seconds for row in rows[_ROWS:])
    outside = seconds - sum(row.seconds for row in rows)
    lines.append(f"{others / seconds:7.1%} {1e3 * others / updates:10.2f} {'':13}  {max(0, len(rows) - _ROWS)} others")
    lines.append(f"{outside / seconds:7.1%} {1e3 * outside / updates:10.2f} {'':13}  outside of Paddle's operators")
    return lines
