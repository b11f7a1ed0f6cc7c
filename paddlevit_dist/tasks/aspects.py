"""Aspects: what one command or feature asks of a task, in a class next to the task's.

A task class names its aspects, usually as strings, so that nothing is imported before a feature asks for it::

    class Detection(Task):
        aspects = {"Predictable": ".prediction:BoxPrediction", "Exportable": ".export:BoxExport"}

A task that derives from a protocol itself, such as ``class Counting(Task, Predictable)``, is its own aspect. A subclass
has the aspects of its parents: the closest class that names an aspect, or derives from the protocol, decides.
"""

from typing import Any, TypeVar

from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from .task import Task

AspectType = TypeVar("AspectType")
_CACHE = "_aspects"  # attribute of a task: its aspects by class


class TaskAspect:
    """Base class of aspects.

    A task has one object of each of its aspects. It is pickled with the task, so that workers get its state.

    Args:
        task: the task that has this aspect.
    """

    task: Any

    def __init__(self, task: Task) -> None:
        self.task = task


def has_aspect(task: Task, protocol: type) -> bool:
    """Return whether a task has an aspect, without importing it.

    Args:
        task: the task.
        protocol: a class of ``protocols``.
    """
    return _find(type(task), protocol) is not None


def get_aspect(task: Task, protocol: type[AspectType]) -> AspectType | None:
    """Return the aspect of a task that has the methods of a protocol; None if it has none.

    Args:
        task: the task.
        protocol: a class of ``protocols``.

    Raises:
        UserError: a class overrides a method of an aspect of its parent, which would never be called.
    """
    found = _find(type(task), protocol)
    if found is None:
        return None
    owner, location = found
    if location is None:
        return task  # type: ignore[return-value]  # its class derives from the protocol
    _require_no_override(type(task), owner, protocol)
    cls = import_object(location, owner.__module__.rpartition(".")[0]) if isinstance(location, str) else location
    cache: dict[type, Any] = vars(task).setdefault(_CACHE, {})
    if cls not in cache:
        cache[cls] = cls(task)
    aspect: AspectType = cache[cls]
    return aspect


def _find(cls: type, protocol: type) -> tuple[type, Any] | None:
    """Find the class that gives ``cls`` an aspect, and the aspect or its location; None: the class is its own."""
    for owner in cls.__mro__:
        location = vars(owner).get("aspects", {}).get(protocol.__name__)
        if location is not None:
            return owner, location
        bases = [base for base in owner.__bases__ if not issubclass(base, Task)]
        if issubclass(owner, Task) and any(issubclass(base, protocol) for base in bases):
            return owner, None
    return None


def _require_no_override(cls: type, owner: type, protocol: type) -> None:
    """Check that classes between ``cls`` and the owner of an aspect do not define methods of its protocol."""
    names = {member for member in dir(protocol) if not member.startswith("_")}
    for derived in cls.__mro__[: cls.__mro__.index(owner)]:
        for name in sorted(names & vars(derived).keys()):
            raise UserError(
                f"{derived.__name__}.{name} is never called: it belongs to an aspect of {owner.__name__}; derive "
                f"{derived.__name__} also from {protocol.__name__} (paddlevit_dist.tasks), or name its own "
                "aspect in its attribute 'aspects'"
            )
