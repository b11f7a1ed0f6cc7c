"""Users' classes as registered datasets: their arguments, and those with only a length and samples by index."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..registry.required_methods import require_methods
from ..runtime.errors import UserError
from .opened_dataset import make_description

_ARGUMENTS = ("data_path", "split", "cache_folder")
_OF_ALL = ("class_names", "num_classes", "labels", "labeled", "root", "groups_by", "notices", "content_key")
_OF_IMAGES = ("label_matrix", "category_ids", "has_masks", "keypoint_sets", "is_thing", "palette")
_FACTS = (*_OF_ALL, *_OF_IMAGES, "rgb_range", "spacing", "channels")
#: methods by index that a base class may have, and that the user's class then replaces
_METHODS = ("annotations", "read_labels", "read_segments", "case", "convention", "source")


Created = TypeVar("Created")


def is_listed(target: Any) -> bool:
    """Return whether a class has a length and samples by index."""
    is_class = isinstance(target, type) and not issubclass(target, (Mapping, str, bytes))
    return is_class and all(hasattr(target, name) for name in ("__len__", "__getitem__"))


def create_dataset(cls: type[Created], data_path: str | None, split: str, cache_folder: Any, *options: Any) -> Created:
    """Create a dataset with the arguments among these that its constructor takes.

    One whose required arguments all have our names gets them by name, and may lack some; any other gets them by
    position, with or without ``options``. UserError: it takes others.
    """
    given = dict(zip((*_ARGUMENTS, "options"), (data_path, split, cache_folder, *options)))
    parameters = inspect.signature(cls).parameters
    if "split" in parameters and not _list_others(parameters, given):
        return create_named(cls, given)
    for number in range(len(given), len(_ARGUMENTS) - 1, -1):
        values = list(given.values())[:number]
        try:
            inspect.signature(cls).bind(*values)
        except TypeError:
            continue
        return cls(*values)
    return create_named(cls, given)


def create_named(target: Callable[..., Created], given: Mapping[str, Any]) -> Created:
    """Create a user's object with the arguments among ``given`` that its constructor names.

    A constructor that names no split but takes any name gets all of them. UserError: it takes others.
    """
    parameters = inspect.signature(target).parameters
    others = _list_others(parameters, given)
    if others:
        raise UserError(
            f"dataset {getattr(target, '__name__', target)} takes {', '.join(others)}: a registered class takes some "
            f"of {', '.join(_ARGUMENTS)}, and no other argument without a default"
        )
    takes_all = "split" not in parameters and any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return target(**{name: value for name, value in given.items() if takes_all or name in parameters})


def _list_others(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> list[str]:
    """Return the required parameters that are none of ``given``."""
    return [
        name
        for name, each in parameters.items()
        if name not in given and each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


class ListedItems:
    """Base of datasets whose samples are the ``items`` of a user's object, which may describe them itself."""

    items: Any

    def __len__(self) -> int:
        return len(self.items)

    def describe(self, index: int) -> str:
        """Return the description of sample ``index`` if there is one, else its number."""
        describe = getattr(self.items, "describe", None)
        return make_description(self.items, describe(index)) if callable(describe) else f"sample {index}"

    def identity(self, index: int) -> str:
        """Return the object's name of sample ``index`` if it has one, else the description relative to ``root``."""
        identify = getattr(self.items, "identity", None)
        if callable(identify):
            return make_description(self.items, identify(index))
        return str(super().identity(index))  # type: ignore[misc] # of the dataset, which is the other base


class ListedDataset(ListedItems):
    """Base of the classes that ``adapt`` makes: reads samples of the ``items`` of a user's class by index."""

    target: Any
    base: Any

    def __init__(self, data_path: str | None, split: str, cache_folder: Any) -> None:
        """Create the user's object with the arguments among these that its constructor names."""
        self.items = create_named(self.target, dict(zip(_ARGUMENTS, (data_path, split, cache_folder))))
        for name in _FACTS:
            known = getattr(type(self), name, None)
            is_fixed = isinstance(known, property) and known.fset is None
            if hasattr(self.items, name) and not is_fixed:
                setattr(self, name, getattr(self.items, name))

    def __reduce__(self) -> Any:
        return _rebuild, (self.target, self.base, self.__dict__)

    def read(self, index: int) -> Any:
        """Read sample ``index``."""
        return self.items[index]


@functools.cache
def adapt(target: Any, base: type) -> Any:
    """Return a class derived from ``base``, which has the samples of the user's class ``target``."""
    methods = {
        name: _forward(name)
        for name in _METHODS
        if callable(getattr(base, name, None)) and callable(getattr(target, name, None))
    }
    facts = {"target": target, "base": base, "__module__": target.__module__}
    cls = type(target.__name__, (ListedDataset, base), {**methods, **facts})
    require_methods(cls, "dataset ")
    return cls


def _forward(name: str) -> Callable[[Any, int], Any]:
    """Return a method that calls that of the user's object, and whose result the base class makes and checks."""
    return lambda self, index: getattr(self.items, name)(index)


def _rebuild(target: Any, base: type, state: dict[str, Any]) -> Any:
    dataset = object.__new__(adapt(target, base))
    dataset.__dict__.update(state)
    return dataset
