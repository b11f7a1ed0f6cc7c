"""Users' classes as registered datasets: their arguments, and those with only a length and samples by index."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..runtime.errors import UserError

_ARGUMENTS = ("data_path", "split", "cache_folder")
_OF_ALL = ("class_names", "num_classes", "labels", "labeled", "root", "groups_by", "notices", "content_key")
_OF_IMAGES = ("label_matrix", "category_ids", "has_masks", "keypoint_sets", "is_thing", "palette")
_FACTS = (*_OF_ALL, *_OF_IMAGES, "rgb_range", "spacing", "channels")

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


def list_samples(target: type, base: Any, data_path: str | None, split: str, cache_folder: Any) -> Any:
    """Return a dataset of ``base`` whose samples and methods a user's object has; see ``opened_dataset``.

    The object is created with the arguments among these that its constructor names. UserError: it takes others.
    """
    dataset = object.__new__(base)
    dataset.user_object = create_named(target, dict(zip(_ARGUMENTS, (data_path, split, cache_folder))))
    for name in _FACTS:
        known = getattr(base, name, None)
        is_fixed = isinstance(known, property) and known.fset is None
        if hasattr(dataset.user_object, name) and not is_fixed:
            setattr(dataset, name, getattr(dataset.user_object, name))
    return dataset
