"""Aspects: what one command or feature asks of a task, in a class next to the task's.

A task class names its aspects, usually as strings, so that nothing is imported before a feature asks for it::

|    class Detection(Task):
|        aspects = {"Predictable": ".prediction:BoxPrediction", "Exportable": ".export:BoxExport"}

A task that derives from a protocol itself, such as ``class Counting(Task, Predictable)``, is its own aspect. A subclass
has the aspects of its parents: the closest class that names an aspect, or derives from the protocol, decides. A
protocol that extends another, as ``DatasetSaving`` extends ``Predictable``, is about the same object, in which one
method leaves what another uses: the aspect for the other protocol decides.
"""

from abc import ABC
from typing import Any, TypeVar

from ..registry.required_methods import require_methods
from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from .task import Task

AspectType = TypeVar("AspectType")
_CACHE = "_aspects"  # attribute of a task: its aspects by class


class TaskAspect:
    """Base class of aspects: a task has one object of each, which is pickled with it, so that workers get its state."""

    task: Any

    def __init__(self, task: Task) -> None:
        self.task = task


def has_aspect(task: Task, protocol: type) -> bool:
    """Return whether a task has an aspect, without importing it, unless a derived task changed a part of it."""
    found, extended = find_location(type(task), protocol), _find_extended(protocol)
    if found is None or extended is None or find_location(type(task), extended) == found:
        return found is not None
    return get_aspect(task, protocol) is not None


def get_aspect(task: Task, protocol: type[AspectType]) -> AspectType | None:
    """Return the aspect of a task that has the methods of a protocol; None if it has none.

    Raises:
        UserError: a class overrides a method of an aspect of its parent, which would never be called.
    """
    found, extended = find_location(type(task), protocol), _find_extended(protocol)
    if found is None:
        return None
    owner, location = found
    if extended is not None and (whole := find_location(type(task), extended)) != found:
        aspect = get_aspect(task, extended)
        if whole is None or (owner is not whole[0] and issubclass(owner, whole[0])):
            raise UserError(
                f"{owner.__name__}.aspects names {protocol.__name__} without {extended.__name__}, which is the same "
                "aspect: name one class as both"
            )
        return aspect if isinstance(aspect, protocol) else None
    if location is None:
        return task  # type: ignore[return-value]  # its class derives from the protocol
    cls = import_object(location, owner.__module__.rpartition(".")[0])
    require_no_override(type(task), owner, protocol, cls)
    cache: dict[type, Any] = vars(task).setdefault(_CACHE, {})
    if cls not in cache:
        require_methods(cls, f"{owner.__name__}.aspects: ")
        cache[cls] = cls(task)
    return cache[cls]


def _find_extended(protocol: type) -> type | None:
    """Return the protocol that a protocol extends; None: it extends none."""
    base = protocol.__base__
    return None if base in (object, ABC) else base


def find_location(cls: type, protocol: type) -> tuple[type, Any] | None:
    """Find the class that gives ``cls`` an aspect, and the aspect or its location; None: the class is its own."""
    for owner in cls.__mro__:
        location = vars(owner).get("aspects", {}).get(protocol.__name__)
        if location is not None:
            return owner, location
        bases = [base for base in owner.__bases__ if not issubclass(base, Task)]
        if issubclass(owner, Task) and any(issubclass(base, protocol) for base in bases):
            return owner, None
    return None


def require_no_override(cls: type, owner: type, protocol: type, aspect: type | None = None) -> None:
    """Check that classes between ``cls`` and the owner of an aspect do not define its methods.

    If ``aspect`` is given, the class of the aspect, its methods are checked too, not only the protocol's.
    """
    names = set(dir(protocol))
    if aspect is not None:
        names |= {member for member in dir(aspect) if not hasattr(owner, member)}
    for derived in cls.__mro__[: cls.__mro__.index(owner)]:
        for name in sorted(own for own in names & vars(derived).keys() if not own.startswith("_")):
            base = next((parent for parent in reversed(protocol.__mro__) if name in vars(parent)), protocol)
            raise UserError(
                f"{derived.__name__}.{name} is never called: it belongs to an aspect of {owner.__name__}; derive "
                f"{derived.__name__} also from {base.__name__} (paddlevit_dist.core.tasks), or name its own "
                "aspect in its attribute 'aspects'"
            )
