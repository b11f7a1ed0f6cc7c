"""Sections of keys as classes: each field is a key, and its annotation defines its row in the table of keys.

    class Train(Section):
        BASE_LR: float = key(1e-3, "learning rate after warm-up", ABOVE_0)
        GRAD_CLIP: float | None = key(None, "largest global norm of the gradients", ABOVE_0)

    class Settings(Section):
        TRAIN: Train

A package that adds keys to a section derives its own class from the class of the package below. Readers name these
classes as the type of a configuration, so that mypy knows each key and its type. At run time a configuration is a
frozen ``CfgNode`` of this shape; the classes are never instantiated.
"""

from collections.abc import Callable, ItemsView, Iterator
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from .key import Key, Range

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Callable[[type], type]:
        """Return classes unchanged: only type checkers need the decorator."""
        return lambda cls: cls


Item = TypeVar("Item")
PathText = Annotated[str, "path"]  # ~ in it means the user's home folder
Pair = Annotated[list[Item], 2]
Triple = Annotated[list[Item], 3]

_KINDS = {  # types of the value, or of its choices -> kind of the key
    frozenset({int}): "int",
    frozenset({float}): "float",
    frozenset({int, float}): "number",
    frozenset({bool}): "bool",
    frozenset({str}): "text",
    frozenset({bool, str}): "switch",
    frozenset({bool, int}): "switch",
}


class _SectionField(NamedTuple):
    default: Any
    meaning: str
    within: Range | None


def key(default: Any, meaning: str, within: Range | None = None) -> Any:
    """Define a key as a field of a ``Section``.

    Its annotation defines the type: ``int``, ``float``, ``int | float``, ``bool``, ``str``, ``PathText``,
    ``bool | str`` or a ``Literal`` of the choices; a list of these, a ``Pair``, ``Triple`` or tuple of them;
    ``int | list[int]`` for one or a list; ``list[float] | Literal["balanced"]`` for a list or a word; and ``| None``
    for an optional key.

    Args:
        default: value when neither a file nor the command line sets the key.
        meaning: what the key sets, in one line.
        within: the numbers allowed, None for any finite one.
    """
    return _SectionField(default, meaning, within)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section:
    """Keys, and sections inside; the names of its fields are in capitals."""

    if TYPE_CHECKING:  # what every CfgNode has

        def __getitem__(self, name: str) -> Any: ...

        def get(self, name: str, default: Any = None) -> Any:
            """Return the value of a key or section."""

        def items(self) -> ItemsView[str, Any]:
            """Return names and values."""

        def clone(self) -> Any:
            """Return a copy."""


def rows(section: type[Section], above: str = "") -> tuple[Key, ...]:
    """Return the rows of the keys that a class and its sections declare, in order, without inherited ones."""
    return tuple(_rows(section, above))


def _rows(section: type[Section], above: str) -> Iterator[Key]:
    for name, annotation in section.__dict__.get("__annotations__", {}).items():
        if name in section.__dict__:
            yield _row(f"{above}{name}", annotation, section.__dict__[name])
        else:
            yield from _rows(annotation, f"{above}{name}.")


def _row(name: str, annotation: Any, field: _SectionField) -> Key:
    members = [member for member in _members(annotation) if member is not NoneType]
    sequence = next(filter(None, map(_sequence, members)), None)
    others = [member for member in members if _sequence(member) is None]
    words = tuple(word for member in others for word in get_args(member)) if sequence else ()
    items, length = (_members(sequence[0]), sequence[1]) if sequence else (members, None)
    choices = get_args(items[0]) if get_origin(items[0]) is Literal else None
    is_named = get_origin(items[0]) is Annotated
    return Key(
        name,
        field.default,
        get_args(items[0])[1] if is_named else _KINDS[frozenset(map(type, choices) if choices else items)],
        field.meaning,
        field.within,
        choices,
        many=sequence is not None and (not others or bool(words)),
        length=length,
        optional=NoneType in _members(annotation),
        words=words,
        or_many=sequence is not None and bool(others) and not words,
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _sequence(member: Any) -> tuple[Any, int | None] | None:
    """Return the item type and the length of a list or tuple; None for any other type."""
    plain, length = get_args(member) if get_origin(member) is Annotated else (member, None)
    items = get_args(plain)
    if get_origin(plain) is tuple:
        return items[0], len(items)
    return (items[0], length) if get_origin(plain) is list else None
