"""``-profile N``: N updates by Paddle's profiler: its summary, and a trace to look at.

Rank 0 records; the training goes on and none of its numbers change. The first updates of a start are left out: they
compile, load kernels and fill caches.
"""

import contextlib
import io
import os
import time
from pathlib import Path
from typing import Any, cast

import paddle
from paddle import profiler

from ..distributed import world_size
from ..engine.trainer import Trainer
from ..runtime.errors import UserError
from ..runtime.files import temporary_name
from ..runtime.transfers import is_on_gpu
from ..tasks.callback import Callback, UpdateRecord
from .settings import DebugSettings

_LEFT_OUT = 2  # updates at the beginning of an epoch, where it has more than enough


class ProfileCallback(Callback):
    """Records the first updates of the epoch that the run begins with. It comes after the callbacks that do something
    once an update is made, so that this is in it.

    Raises:
        UserError: in a training, where Paddle's profiler does not work.
    """

    on_every_rank = True

    def __init__(self, run: Trainer) -> None:
        asked = cast(DebugSettings, run.config).PROFILE
        self._asked = asked or 0 if run.record.writes else 0  # 0: nothing more is to be recorded
        self._folder = Path(run.config.SAVE) / "profile"
        self._record = run.record
        self._updates_per_epoch = run.updates_per_epoch
        self._position = self._number = self._first = 0
        self._name = ""
        self._profiler: profiler.Profiler | None = None
        self._span: Any = None
        self._started = 0.0

    def epoch_started(self, epoch: int, made: int) -> None:
        left = self._updates_per_epoch - made
        self._position, self._number = 0, min(self._asked, left)
        self._first = min(_LEFT_OUT, left - self._number)
        begin = made + self._first + 1
        self._name = f"epoch_{epoch:04d}_updates_{begin}_to_{begin + self._number - 1}"

    def data_awaited(self) -> None:
        if self._asked and self._position == self._first:
            self._start()
        self._enter("waiting for data")

    def update_started(self, step: Any, batches: Any) -> None:
        self._enter("update")

    def update_done(self, update: UpdateRecord) -> None:
        self._enter("")
        self._position += 1
        if self._profiler is not None:
            if self._position == self._first + self._number:
                self._finish()
            else:
                self._profiler.step()

    def epoch_left(self) -> None:
        """Leave nothing of a record that was interrupted."""
        if self._profiler is not None:
            self._stop()

    def _start(self) -> None:
        targets = [profiler.ProfilerTarget.CPU]
        if is_on_gpu():
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
        self._profiler, self._started = recorder, time.perf_counter()

    def _enter(self, name: str) -> None:
        """The span before ends, and one of this name begins in the trace."""
        if self._span is not None:
            self._span.end()
        self._span = profiler.RecordEvent(name) if name and self._profiler is not None else None
        if self._span is not None:
            self._span.begin()

    def _stop(self) -> profiler.Profiler:
        recorder, self._profiler, self._span, self._asked = self._profiler, None, None, 0
        assert recorder is not None
        recorder.stop()
        return recorder

    def _finish(self) -> None:
        on_gpu = is_on_gpu()
        if on_gpu:
            paddle.device.synchronize()
        seconds, asked = time.perf_counter() - self._started, self._asked
        recorder = self._stop()
        try:
            trace = self._write(recorder, on_gpu)
        except (OSError, ValueError) as error:  # a full disk is no reason to end a training
            self._record.log_and_print(f"profile: {self._folder / self._name}.json was not written: {error}")
            return
        self._record.log_and_print(
            f"profile of {self._number} updates"
            + (f" ({asked} were asked for; the epoch ends)" if self._number != asked else "")
            + (f", on rank 0 of {world_size()}" if world_size() > 1 else "")
            + f": {1e3 * seconds / self._number:.1f} ms each; table: {trace.with_suffix('.txt')}; "
            f"trace: {trace} (for ui.perfetto.dev or chrome://tracing)"
        )

    def _write(self, recorder: profiler.Profiler, on_gpu: bool) -> Path:
        """Write the trace and Paddle's tables, and return the trace's path."""
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = self._folder / f"{self._name}.json"
        temporary = trace.with_name(temporary_name(trace.name))
        try:
            recorder.export(str(temporary), "json")
            os.replace(temporary, trace)
        finally:
            temporary.unlink(missing_ok=True)
        order = profiler.SortedKeys.GPUTotal if on_gpu else profiler.SortedKeys.CPUTotal
        tables = io.StringIO()
        with contextlib.redirect_stdout(tables):
            recorder.summary(sorted_by=order, op_detail=False, time_unit="ms")
        trace.with_suffix(".txt").write_text(tables.getvalue(), encoding="utf-8")
        return trace
