"""Gives data sets, samples and tasks that users wrote without our base classes their defaults, so that nothing has to
probe them for attributes."""

import functools
from collections.abc import Callable
from typing import Any, cast

from ..runtime.errors import UserError


def adopt(instance: Any, contract: type) -> Any:
    """``instance`` as one of ``contract``: itself if it is one, else its own attributes and methods override the
    defaults of ``contract``.

    Its class changes, nothing is copied; its pickle is that of its own class.

    Raises:
        UserError: its class is of a kind that cannot change, such as one with ``__slots__``.
    """
    if not isinstance(instance, contract):
        own = cast(Any, type(instance))  # mypy considers no class hashable
        try:
            object.__setattr__(instance, "__class__", _mixed(own, contract))  # a frozen dataclass refuses its own
        except TypeError as error:
            raise UserError(f"{own.__name__} cannot serve as {contract.__name__}: derive it from that class") from error
    return instance


def adopt_class(target: Callable[..., Any], contract: type) -> type:
    """A class of ``contract``: ``target`` itself if it is one, else a class whose instances are what the class or
    function ``target`` returns, adopted."""
    if not isinstance(target, type):
        return _returning(target, contract)
    return target if issubclass(target, contract) else _mixed(cast(Any, target), contract)


@functools.cache
def _returning(function: Callable[..., Any], contract: type) -> type:
    def make(cls: type, *arguments: Any, **options: Any) -> Any:
        return adopt(function(*arguments, **options), contract)

    return type(getattr(function, "__name__", contract.__name__), (contract,), {"__new__": make})


@functools.cache
def _mixed(own: type, contract: type) -> type[Any]:
    members = {"__reduce_ex__": _reduce, "__module__": own.__module__, "__doc__": own.__doc__}
    return type(own.__name__, (own, contract), members)


def _reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
    own, contract = type(self).__bases__
    state = own.__getstate__(self) if hasattr(own, "__getstate__") else self.__dict__  # every class has it from 3.11 on
    return _restored, (own, contract), state


def _restored(own: type, contract: type) -> Any:
    mixed: Any = _mixed(own, contract)
    return mixed.__new__(mixed)
