"""Methods that a user's class has to have: they are asked for when it is registered, not when a run reaches them."""

import inspect
from typing import Any

from ..runtime.errors import UserError


def require_methods(cls: Any, place: str = "") -> None:
    """Raise a UserError that begins with ``place`` and names the abstract methods that a class lacks, if any."""
    names = [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
    if names and isinstance(cls, type):
        raise missing_method(cls, *names, place=place)


def missing_method(cls: type, *names: str, place: str = "") -> UserError:
    """Return the error about methods that a class lacks: their arguments, and the first line of their descriptions."""
    lines = []
    for method in (getattr(cls, name) for name in names):
        words = [str(each).split(":")[0] for each in inspect.signature(method).parameters.values()]
        meaning = (inspect.getdoc(method) or "").partition("\n")[0].replace("``", "").rstrip(".")
        lines.append(f"{method.__name__}({', '.join(word for word in words if word != 'self')}): {meaning}")
    return UserError(f"{place}{cls.__name__} lacks {'; '.join(lines)}; add it, see docs/guides/extending.md")
