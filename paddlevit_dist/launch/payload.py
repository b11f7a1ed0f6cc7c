"""The work that a worker process is given, with the code of users that it needs for it.

It is unpickled where a failure can be reported, after the modules have been imported that -import names, and after what
the parent has registered is registered here, too. What a program defines or registers inside
``if __name__ == "__main__"`` does not exist in a worker: a class or function that can be found there is handed over,
and for any other an explanation, which is shown if the run asks for it.
"""

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import plugins
from ..registry import OWN, UNREACHABLE, list_names, register_dataset, register_model, register_task
from ..runtime.errors import UserError

_GUARD = 'if __name__ == "__main__"'


class _Registered(NamedTuple):
    """A name that a user has registered; ``pickled`` holds its ``registry.Own``, None if that cannot be pickled."""

    kind: str
    name: str
    place: str
    pickled: bytes | None


class Payload(NamedTuple):
    """A worker's function and its arguments, pickled, with the code of users that they need."""

    carried: plugins.Carried
    registered: list[_Registered]
    work: bytes

    @classmethod
    def pack(cls, worker: Callable[..., None], arguments: tuple[Any, ...]) -> "Payload":
        """Called by the parent.

        Raises:
            UserError: the task or a dataset cannot be pickled, since its class cannot be imported.
        """
        registered = [
            _Registered(kind, name, own.place, _pickle(own))
            for (kind, name), own in OWN.items()
            if name in list_names(kind)
        ]
        try:
            work = pickle.dumps((worker, arguments))
        except (AttributeError, pickle.PicklingError) as error:  # of a local class, a lambda
            raise UserError(
                f"{error}: worker processes import the classes of task and datasets: define them at the top level of a "
                "module"
            ) from error
        return cls(plugins.collect_carried(), registered, work)

    def unpack(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Called by a worker: function and arguments.

        Raises:
            UserError: what they need is not defined here.
        """
        plugins.load_carried(self.carried)
        for entry in self.registered:
            _register(entry)
        try:
            return pickle.loads(self.work)
        except AttributeError as error:
            if _main() not in str(error) and "__mp_main__" not in str(error):
                raise
            raise UserError(_explanation(str(error).split(" on <")[0])) from error


def _pickle(own: Any) -> bytes | None:
    try:
        return pickle.dumps(own)
    except (AttributeError, TypeError, pickle.PicklingError):  # a lambda, a local class: a module may register it again
        return None


def _register(entry: _Registered) -> None:
    """Unless a module has done so already, when it was imported here."""
    if entry.name in list_names(entry.kind):
        return
    try:
        own = pickle.loads(entry.pickled) if entry.pickled is not None else None
    except (AttributeError, ImportError):
        own = None
    if own is None:
        what = f"{entry.kind} '{entry.name}' ({entry.place})"
        UNREACHABLE[entry.kind, entry.name] = _explanation(f"{what} is registered in the main process only")
    elif entry.kind == "task":
        register_task(entry.name, own.target, own.tables, own.keys or None)
    else:
        {"model": register_model, "dataset": register_dataset}[entry.kind](entry.name, own.target, own.keys or None)


def _explanation(what: str) -> str:
    return (
        f"{what}: worker processes do not run what {_main()} has inside `{_GUARD}`: define and register it at the top "
        "level of that file, or in a module that -import=MODULE names"
    )


def _main() -> str:
    """The program's file, which a worker has imported as ``__mp_main__``."""
    return os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or "the program")
