"""Call the callbacks of a run, and find those that are registered by name."""

import collections
import importlib.util
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..registry import require_derived, resolve
from ..runtime import printing
from ..runtime.errors import UserError
from ..tasks.callback import Callback, RunFacts

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


def find_callbacks(names: Sequence[str]) -> dict[str, Any]:
    """Return name -> registered callback, after a check of its required packages.

    Raises:
        UserError: there is no such callback, or a package is not installed.
    """
    targets = {name: resolve("callback", name) for name in names}
    for name, target in targets.items():
        needed = require_derived(target, Callback).requires
        missing = [pip for module, pip in needed.items() if not importlib.util.find_spec(module)]
        if missing:
            raise UserError(
                f"LOG_TO {name}: not installed; python -m pip install {' '.join(missing)}, or remove {name} from LOG_TO"
            )
    return targets


class CallbackList:
    """Calls all callbacks of a run, in their order, and shields the run from exceptions of users' callbacks.

    Args:
        callbacks: of users; none on ranks other than 0.
        log: writes a line to terminal and log.
    """

    def __init__(self, callbacks: Iterable[Any] = (), log: Callable[[str], None] = lambda line: None) -> None:
        self._callbacks: list[Callback] = [require_derived(callback, Callback) for callback in callbacks]
        self._log = log
        self._saved: collections.deque[Path] = collections.deque()
        self._is_started = False

    def put_first(self, callbacks: Iterable[Callback]) -> None:
        """Add callbacks of every rank before the others."""
        self._callbacks[:0] = callbacks

    def start(self, run: RunFacts) -> None:
        """Call ``start`` of each callback."""
        for callback in self._callbacks:
            callback.start(run)
        self._is_started = True

    def notify(self, event: str, *arguments: Any) -> None:
        """Call the method ``event`` of each callback."""
        while self._saved:
            self._notify_all("saved", self._saved.popleft())
        self._notify_all(event, *arguments)

    def note_saved(self, path: Path) -> None:
        """Queue a call of ``saved``; any thread may call this."""
        self._saved.append(path)

    def end(self, outcome: str) -> None:
        """Call ``end`` of each callback, once."""
        if self._is_started:
            self.notify("end", outcome)
            self._is_started = False

    @property
    def end_training(self) -> str:
        """Why training has to end; empty if it does not (see ``Callback.ends_training``)."""
        return next((each.ends_training for each in self._callbacks if each.on_every_rank and each.ends_training), "")

    @property
    def want_records(self) -> bool:
        """Whether any callback wants records (see ``Callback.wants_records``)."""
        return any(each.on_every_rank and each.wants_records for each in self._callbacks)

    def _notify_all(self, event: str, *arguments: Any) -> None:
        for callback in list(self._callbacks):
            if callback.on_every_rank:
                getattr(callback, event)(*arguments)
                continue
            try:
                # Copies: a callback that changes one does not affect the next callback.
                getattr(callback, event)(*(dict(part) if isinstance(part, dict) else part for part in arguments))
            except UserError:
                raise
            except Exception as error:
                self._callbacks.remove(callback)
                self._explain(callback, event, error)

    def _explain(self, callback: Callback, event: str, error: Exception) -> None:
        name = type(callback).__name__
        if not isinstance(error, OSError):
            for line in printing.block(traceback.format_exc()).splitlines():
                self._log(line)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        self._log(f"callback {name} is disabled from here on, the run continues: in {event}, {reason}")
