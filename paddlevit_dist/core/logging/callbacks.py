"""Call the callbacks of a run, and find those that are registered by name."""

import collections
import contextlib
import importlib.util
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..registry.lookup import require_derived, resolve
from ..runtime import printing
from ..runtime.errors import Stopped, UserError
from ..tasks.callback import Callback, RunFacts, get_interval_ends

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


def find_callbacks(names: Sequence[str]) -> dict[str, Any]:
    """Return name -> registered callback, after a check of its required packages.

    Raises:
        UserError: there is no such callback, or a package is not installed.
    """
    targets = {callback: resolve("callback", callback) for callback in names}
    for name, target in targets.items():
        needed = require_derived(target, Callback).requires
        missing = [pip for module, pip in needed.items() if not importlib.util.find_spec(module)]
        if missing:
            raise UserError(
                f"LOG_TO {name}: not installed; python -m pip install {' '.join(missing)}, or remove {name} from LOG_TO"
            )
    return targets


class CallbackList:
    """Calls all callbacks of a run, in their order, and shields the run from their exceptions.

    Args:
        callbacks: of users; none on ranks other than 0.
        log: writes a line to terminal and log.

    Attributes:
        queued_saves: checkpoints on disk that no callback was told about yet; any thread may append one.
    """

    def __init__(self, callbacks: Iterable[Any] = (), log: Callable[[str], None] = lambda line: None) -> None:
        self._callbacks: list[Callback] = [require_derived(callback, Callback) for callback in callbacks]
        self._log = log
        self.queued_saves: collections.deque[Path] = collections.deque()
        self._is_started = False

    def start(self, run: RunFacts) -> None:
        """Call ``start`` of each callback; its exceptions end the run."""
        for callback in self._callbacks:
            callback.start(run)
        self._is_started = True

    def report(self, update: int, values: dict[str, float]) -> None:
        """Call ``report`` of each callback with a copy of the values."""
        self.deliver_saved()
        for callback in list(self._callbacks):
            with self._shield(callback, "report"):
                callback.report(update, dict(values))

    def evaluated(self, update: int, epoch: int, values: dict[str, float], event: dict[str, Any]) -> None:
        """Call ``evaluated`` of each callback with a copy of the values and the ends of the event's interval."""
        self.deliver_saved()
        for callback in list(self._callbacks):
            with self._shield(callback, "evaluated"):
                callback.evaluated(update, epoch, {**values, **get_interval_ends(event)})

    def deliver_saved(self) -> None:
        """Call ``saved`` of each callback for the queued checkpoints."""
        while self.queued_saves:
            path = self.queued_saves.popleft()
            for callback in list(self._callbacks):
                with self._shield(callback, "saved"):
                    callback.saved(path)

    def end(self, outcome: str) -> None:
        """Call ``end`` of each callback, once."""
        if not self._is_started:
            return
        self.deliver_saved()
        for callback in list(self._callbacks):
            with self._shield(callback, "end"):
                callback.end(outcome)
        self._is_started = False

    @contextlib.contextmanager
    def notified_of_end(self) -> Iterator[None]:
        """Call ``end`` after the block, with how the run ended: finished, stopped or failed."""
        outcome = FAILED
        try:
            yield
            outcome = FINISHED
        except Stopped:
            outcome = STOPPED
            raise
        finally:
            self.end(outcome)

    @contextlib.contextmanager
    def _shield(self, callback: Callback, method: str) -> Iterator[None]:
        """Remove the callback if the block raises, and log why; a ``UserError`` ends the run."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            self._callbacks.remove(callback)
            if not isinstance(error, OSError):
                for line in printing.block(traceback.format_exc()).splitlines():
                    self._log(line)
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            name = type(callback).__name__
            self._log(f"callback {name} is disabled from here on, the run continues: in {method}, {reason}")
