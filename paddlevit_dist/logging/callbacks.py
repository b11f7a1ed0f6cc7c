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
    """Name -> what is registered as the callback, once it is seen that it has what it needs.

    Raises:
        UserError: there is no such callback, or it lacks a package.
    """
    found = {name: resolve("callback", name) for name in names}
    for name, target in found.items():
        needed = require_derived(target, Callback).requires
        missing = [pip for module, pip in needed.items() if not importlib.util.find_spec(module)]
        if missing:
            raise UserError(f"LOG_TO {name}: not installed; python -m pip install {' '.join(missing)}, or leave it out")
    return found


class CallbackList:
    """Tells all callbacks of a run, in their order, what happens; what those of users raise is kept away from it.

    Args:
        callbacks: of users: none on ranks other than the main one.
        say: takes a line for terminal and log.
    """

    def __init__(self, callbacks: Iterable[Any] = (), say: Callable[[str], None] = lambda line: None) -> None:
        self._callbacks: list[Callback] = [require_derived(callback, Callback) for callback in callbacks]
        self._say = say
        self._saved: collections.deque[Path] = collections.deque()
        self._is_started = False

    def put_first(self, callbacks: Iterable[Callback]) -> None:
        """Add callbacks of every rank before the others."""
        self._callbacks[:0] = callbacks

    def start(self, run: RunFacts) -> None:
        for callback in self._callbacks:
            callback.start(run)
        self._is_started = True

    def notify(self, event: str, *arguments: Any) -> None:
        """Call the method of this name of each."""
        while self._saved:
            self._notify_all("saved", self._saved.popleft())
        self._notify_all(event, *arguments)

    def note_saved(self, path: Path) -> None:
        """May be called in any thread."""
        self._saved.append(path)

    def end(self, outcome: str) -> None:
        if self._is_started:
            self.notify("end", outcome)
            self._is_started = False

    @property
    def end_training(self) -> str:
        """Why the training is to end here, empty where none of them says so (see ``Callback.ends_training``)."""
        return next((one.ends_training for one in self._callbacks if one.on_every_rank and one.ends_training), "")

    @property
    def want_records(self) -> bool:
        """Whether any of them does (see ``Callback.wants_records``)."""
        return any(one.on_every_rank and one.wants_records for one in self._callbacks)

    def _notify_all(self, event: str, *arguments: Any) -> None:
        for callback in list(self._callbacks):
            if callback.on_every_rank:
                getattr(callback, event)(*arguments)
                continue
            try:
                # Each its own copy: one that changes it changes nothing for the next.
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
                self._say(line)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        self._say(f"callback {name} is left out from here on, the run continues: in {event}, {reason}")
