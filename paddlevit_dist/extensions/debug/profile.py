"""``-profile N``: record N updates with Paddle's profiler, and write its tables and a trace.

Rank 0 records. Training continues, and its numbers do not change. The first updates are skipped, since they compile,
load kernels and fill caches.
"""

import contextlib
import io
import os
import time
from pathlib import Path
from typing import cast

import paddle
from paddle import profiler

from ...core.distributed import world_size
from ...core.engine.hooks import Hook, UpdateRecord
from ...core.engine.trainer import Trainer
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, library_errors_as_os_errors, require_growth, temporary_name
from ...core.runtime.transfers import is_on_gpu
from .settings import DebugSettings

_SKIPPED = 2  # updates at the start of an epoch, if it has enough updates


class ProfileHook(Hook):
    """Record updates of the first epoch of a run; the trainer marks the spans "waiting for data" and "update" of each.

    Raises:
        UserError: during training, if Paddle's profiler does not start.
    """

    def __init__(self, run: Trainer) -> None:
        requested = cast(DebugSettings, run.config).PROFILE
        self._requested = requested or 0 if run.run_log.writes else 0  # 0: do not record
        self._folder = Path(run.config.SAVE) / "profile"
        self._run_log = run.run_log
        self._updates_per_epoch = run.updates_per_epoch
        self._position = self._number = self._first = 0
        self._name = ""
        self._profiler: profiler.Profiler | None = None
        self._started = 0.0

    def before_epoch(self, epoch: int, done: int) -> None:
        """Choose the updates to record, and start the profiler if they are the first ones."""
        left = self._updates_per_epoch - done
        self._position, self._number = 0, min(self._requested, left)
        self._first = min(_SKIPPED, left - self._number)
        begin = done + self._first + 1
        self._name = f"epoch_{epoch:04d}_updates_{begin}_to_{begin + self._number - 1}"

        if self._requested and not self._first:
            self._start()

    def after_step(self, update: UpdateRecord) -> None:
        """Start the profiler before the first update to record, and stop it after the last one."""
        self._position += 1
        if self._profiler is not None:
            if self._position == self._first + self._number:
                self._finish()
            else:
                self._profiler.step()
        elif self._requested and self._position == self._first:
            self._start()

    def after_epoch(self, epoch: int, is_complete: bool) -> None:
        """Discard an interrupted recording."""
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
                f"-profile (PROFILE): Paddle's profiler does not start: {reason} GPU builds of Paddle can only "
                "profile with a GPU and its driver: drop -profile, or install Paddle's CPU build"
            ) from error
        self._profiler, self._started = recorder, time.perf_counter()

    def _stop(self) -> profiler.Profiler:
        recorder, self._profiler, self._requested = self._profiler, None, 0
        assert recorder is not None
        recorder.stop()
        return recorder

    def _finish(self) -> None:
        on_gpu = is_on_gpu()
        if on_gpu:
            paddle.device.synchronize()
        seconds, requested = time.perf_counter() - self._started, self._requested
        recorder = self._stop()
        try:
            trace = self._write(recorder, on_gpu)
        except (OSError, ValueError, UserError) as error:  # a full disk does not end the run
            self._run_log.log_and_print(f"profile: {self._folder / self._name}.json was not written: {error}")
            return
        self._run_log.log_and_print(
            f"profile of {self._number} updates"
            + (f" ({requested} were requested, but the epoch has no more)" if self._number != requested else "")
            + (f", on rank 0 of {world_size()}" if world_size() > 1 else "")
            + f": {1e3 * seconds / self._number:.1f} ms each; table: {trace.with_suffix('.txt')}; "
            f"trace: {trace} (for ui.perfetto.dev or chrome://tracing)"
        )

    def _write(self, recorder: profiler.Profiler, on_gpu: bool) -> Path:
        """Write the trace and Paddle's tables, and return the path of the trace."""
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = self._folder / f"{self._name}.json"
        temporary = trace.with_name(temporary_name(trace.name))
        try:
            with library_errors_as_os_errors(temporary):
                recorder.export(str(temporary), "json")  # unchecked
                require_growth(temporary)
            os.replace(temporary, trace)
        finally:
            temporary.unlink(missing_ok=True)
        order = profiler.SortedKeys.GPUTotal if on_gpu else profiler.SortedKeys.CPUTotal
        tables = io.StringIO()
        with contextlib.redirect_stdout(tables):
            recorder.summary(sorted_by=order, op_detail=False)
        with atomic_file(trace.with_suffix(".txt")) as file:
            file.write(tables.getvalue().encode())
        return trace
