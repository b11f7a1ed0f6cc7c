"""A user's class with a length and samples by index, such as a ``paddle.io.Dataset``, as a registered dataset."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from ..runtime.errors import UserError
from .made_results import make_description

_ARGUMENTS = ("data_path", "split", "cache_folder")
_OF_ALL = ("class_names", "num_classes", "labels", "labeled", "root", "groups_by", "notices", "content_key")
_FACTS = (*_OF_ALL, "label_matrix", "category_ids", "keypoint_sets", "palette", "spacing")


def is_listed(target: Any) -> bool:
    """Return whether a class has a length and samples by index."""
    is_class = isinstance(target, type) and not issubclass(target, (Mapping, str, bytes))
    return is_class and all(hasattr(target, name) for name in ("__len__", "__getitem__"))


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
        given = dict(zip(_ARGUMENTS, (data_path, split, cache_folder)))
        parameters = inspect.signature(self.target).parameters
        others = [
            name
            for name, each in parameters.items()
            if name not in given
            and each.default is each.empty
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        if others:
            raise UserError(
                f"dataset {self.target.__name__} takes {', '.join(others)}: a registered class takes some of "
                f"{', '.join(_ARGUMENTS)}, and no other argument without a default"
            )
        self.items = self.target(**{name: value for name, value in given.items() if name in parameters})
        for name in _FACTS:
            if hasattr(self.items, name) and not isinstance(getattr(type(self), name, None), property):
                setattr(self, name, getattr(self.items, name))

    def __reduce__(self) -> Any:
        return _rebuild, (self.target, self.base, self.__dict__)

    def read(self, index: int) -> Any:
        """Read sample ``index``."""
        return self.items[index]


@functools.cache
def adapt(target: Any, base: type) -> Any:
    """Return a class derived from ``base``, which has the samples of the user's class ``target``."""
    return type(
        target.__name__, (ListedDataset, base), {"target": target, "base": base, "__module__": target.__module__}
    )


def _rebuild(target: Any, base: type, state: dict[str, Any]) -> Any:
    dataset = object.__new__(adapt(target, base))
    dataset.__dict__.update(state)
    return dataset
