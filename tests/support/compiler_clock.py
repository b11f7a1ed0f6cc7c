"""Processor seconds of numba's compiler, which only a fresh clone needs. Its import takes seconds."""

import time
from typing import Any

from numba.core import event
from numba.core.registry import cpu_target


class CompilerClock(event.Listener):
    """Counts the processor seconds of compilations, each with those inside it."""

    def __init__(self) -> None:
        self.total, self._begun = 0.0, []

    def on_start(self, event: Any) -> None:
        self._begun.append(time.process_time())

    def on_end(self, event: Any) -> None:
        begun = self._begun.pop()
        if not self._begun:  # not inside the compilation of a function that calls this one
            self.total += time.process_time() - begun


cpu_target.typing_context.refresh()  # what numba else does when it first compiles
cpu_target.target_context.refresh()
compiler_clock = CompilerClock()
event.register("numba:compile", compiler_clock)
