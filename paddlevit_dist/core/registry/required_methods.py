"""Methods that a user's class has to have: they are asked for when it is registered, not when a run reaches them."""

import difflib
import inspect
from types import FunctionType
from typing import Any

from ..runtime.errors import UserError

_TYPING_MISTAKE = 0.9  # share of letters that a mistyped name has in common with what is meant


def require_methods(cls: Any, place: str = "") -> None:
    """Raise a UserError that begins with ``place`` and names the abstract methods that a class lacks, if any."""
    names = [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
    if names and isinstance(cls, type):
        raise missing_method(cls, *names, place=place)


def require_called_methods(cls: Any, place: str = "") -> None:
    """Raise a UserError that begins with ``place`` if a method of a user's class is misspelled: nothing would call it.

    It has nearly all letters of a method of ours that the user has not written, and no method of the user names it.
    """
    if not isinstance(cls, type):
        return
    ours, others = (
        {name for owner in cls.__mro__ if _is_ours(owner) == is_ours for name in _list_methods(owner)}
        for is_ours in (True, False)
    )
    own = [each for each in cls.__mro__ if not _is_ours(each)]
    called = {name for owner in own for method in _list_methods(owner).values() for name in method.__code__.co_names}
    for owner in own:
        for name in _list_methods(owner).keys() - ours - called:
            meant = difflib.get_close_matches(name, sorted(ours - others), 1, _TYPING_MISTAKE)
            if meant:
                raise UserError(
                    f"{place}{owner.__name__}.{name} is never called: did you mean {meant[0]}? If it is for another "
                    "use, give it another name"
                )


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _list_methods(cls: type) -> dict[str, FunctionType]:
    return {name: each for name, each in vars(cls).items() if name[0] != "_" and isinstance(each, FunctionType)}


def missing_method(cls: type, *names: str, place: str = "") -> UserError:
    """Return the error about methods that a class lacks: their arguments, and the first line of their descriptions."""
    lines = []
    for method in (getattr(cls, name) for name in names):
        words = [str(each).split(":")[0] for each in inspect.signature(method).parameters.values()]
        meaning = (inspect.getdoc(method) or "").partition("\n")[0].replace("``", "").rstrip(".")
        lines.append(f"{method.__name__}({', '.join(word for word in words if word != 'self')}): {meaning}")
    return UserError(f"{place}{cls.__name__} lacks {'; '.join(lines)}; add it, see docs/guides/extending.md")
