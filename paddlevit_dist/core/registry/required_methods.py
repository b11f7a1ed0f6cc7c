"""Methods that a user's class has to have: they are asked for when it is registered, not when a run reaches them."""

import difflib
import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from ..runtime.errors import UserError

_TYPING_MISTAKE = 0.9  # share of letters that a mistyped name has in common with what is meant


def require_methods(cls: Any, place: str = "", user: type | None = None, others: Sequence[str] = ()) -> None:
    """Raise a UserError that begins with ``place`` and names the abstract methods that a class lacks, if any.

    With ``user``, that class has the methods in place of ``cls``, and something else does what ``others`` do.
    """
    names = [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
    names = [name for name in names if not hasattr(user, name) and name not in others]
    if names and isinstance(cls, type):
        raise missing_method(cls, *names, place=place, user=user)


def require_read_names(cls: Any, place: str = "") -> None:
    """Raise a UserError that begins with ``place`` if a name in a user's class is misspelled: nothing would read it.

    It has nearly all letters of a name of ours that the user has not given, and no method of the user reads it.
    """
    if not isinstance(cls, type):
        return
    own = [each for each in cls.__mro__ if not is_builtin(each)]
    ours = {name for each in cls.__mro__ if is_builtin(each) for name in _list_names(each)}
    given = {name for each in own for name in _list_names(each)}
    methods = [each for owner in own for each in vars(owner).values() if isinstance(each, FunctionType)]
    read = {name for method in methods for name in method.__code__.co_names}
    for owner in (each for each in own if _find_package(each) == _find_package(cls)):  # not Paddle's
        for name in sorted(_list_names(owner) - ours - read):
            meant = difflib.get_close_matches(name, sorted(ours - given), 1, _TYPING_MISTAKE)
            if meant:
                raise UserError(
                    f"{place}nothing reads {owner.__name__}.{name}: did you mean {meant[0]}? If it is for another use, "
                    "give it another name"
                )


def is_builtin(code: Any) -> bool:
    """Return whether a class or a function is one of this package."""
    return _find_package(code) == __name__.partition(".")[0]


def _find_package(code: Any) -> str:
    return str(code.__module__).partition(".")[0]


def _list_names(cls: type) -> set[str]:
    return {name for name in vars(cls) if name[0] != "_"}


def missing_method(cls: type, *names: str, place: str = "", user: type | None = None) -> UserError:
    """Return the error about methods that ``cls``, or ``user``, lacks: their arguments, and what they do."""
    lines = []
    for method in (getattr(cls, name) for name in names):
        words = [str(each).split(":")[0] for each in inspect.signature(method).parameters.values()]
        meaning = (inspect.getdoc(method) or "").partition("\n")[0].replace("``", "").rstrip(".")
        lines.append(f"{method.__name__}({', '.join(word for word in words if word != 'self')}): {meaning}")
    return UserError(f"{place}{(user or cls).__name__} lacks {'; '.join(lines)}; add it, see docs/guides/extending.md")
