"""A dataset, or transformed samples, as this package calls them: the adapter, and names of samples in messages."""

import contextlib
import copy
import functools
import os
from types import FunctionType
from typing import Any

from ..registry.required_methods import is_builtin
from ..runtime.errors import OwnCodeError, UserError
from ..runtime.printing import describe_value, shorten
from .sample_checks import BadSample

#: methods of a user's object with a length and samples by index, in place of the methods of its dataset
_METHODS = ("annotations", "read_labels", "read_segments", "case", "convention", "source", "describe", "identity")
#: methods of users' classes that return text; built-in ones do, and are called for each of millions of samples
_DESCRIPTIONS = {"describe": "make_description", "identity": "make_description"}


class OpenedDataset:
    """The adapter through which a dataset is called, made where it is opened; it has all attributes of the dataset.

    What the ``makers`` of the class name returns a result made for the task. An exception of a user's class in these,
    and in its other methods by index, names the sample. Methods of this package that a user's class inherits run on
    the adapter, so that they, too, get what tasks get. It is an instance of the dataset's class for ``isinstance``. If
    the dataset has a ``user_object``, that has the samples by index, and some of the methods.

    Args:
        dataset: a ``Dataset``, or a ``TransformedDataset`` of a user.
        split: name of the split, for messages.
        name: name of the dataset, for messages.
    """

    def __init__(self, dataset: Any, split: str = "", name: str = "") -> None:
        cls, listed = type(dataset), vars(dataset).get("user_object")
        makers, is_own = getattr(cls, "makers", {}), listed is not None or not is_builtin(cls)
        if is_own:
            makers = {**makers, **_DESCRIPTIONS, **dict.fromkeys(getattr(cls, "indexed", ()))}
        called = {method: maker for method, maker in makers.items() if hasattr(cls, method)}
        vars(self).update(wrapped_dataset=dataset, opened_split=split, opened_name=name)
        vars(self).update(_called=called, _listed=listed, _is_own=is_own)

    __class__ = property(lambda self: type(self.wrapped_dataset))  # for isinstance

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped_dataset":  # of an object that is being copied
            raise AttributeError(name)
        return functools.partial(self._call, name) if name in self._called else self._get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.wrapped_dataset, name, value)

    def __len__(self) -> int:
        return len(self.wrapped_dataset if self._listed is None else self._listed)

    def __getitem__(self, index: int) -> Any:
        return self._get("__getitem__")(index)

    def __copy__(self) -> "OpenedDataset":
        return OpenedDataset(copy.copy(self.wrapped_dataset), self.opened_split, self.opened_name)

    def __reduce__(self) -> Any:
        return OpenedDataset, (self.wrapped_dataset, self.opened_split, self.opened_name)

    def _get(self, name: str) -> Any:
        """Return an attribute of the dataset; of a user's, a method or property of this package runs on the adapter."""
        if self._listed is not None and name == "read":
            return self._listed.__getitem__
        if self._listed is not None and name in _METHODS and hasattr(self._listed, name):
            return getattr(self._listed, name)
        cls = type(self.wrapped_dataset)
        found = next((vars(owner)[name] for owner in cls.__mro__ if name in vars(owner)), None)
        code = found.fget if isinstance(found, property) else found
        if isinstance(code, FunctionType) and is_builtin(code) and self._is_own:
            return found.__get__(self, cls)  # type: ignore[union-attr] # a function or a property
        return getattr(self.wrapped_dataset, name)

    def _call(self, name: str, index: int, *more: Any, **options: Any) -> Any:
        maker = self._called[name]
        try:
            result = self._get(name)(index, *more, **options)
            return result if maker is None else getattr(self.wrapped_dataset, maker)(result)
        except BadSample as error:
            if error.sample or name in _DESCRIPTIONS:
                raise
            raise error.name(name_sample(self, index, self.opened_split)) from error.__cause__
        except UserError:
            raise
        except Exception as error:
            if self._is_own:
                place = self._describe_place(index, is_described=name not in _DESCRIPTIONS)
                OwnCodeError.wrap(f"{place}: {shorten(f'{type(error).__name__}: {error}')}", error).attach(error)
            raise

    def _describe_place(self, index: int, is_described: bool) -> str:
        """Return the number of a sample with its split, and its dataset and description if there are any."""
        number = description = f"sample {index}"
        if is_described:
            with contextlib.suppress(Exception):  # of a user's class
                description = str(self._get("describe")(index))
        more = ", ".join(filter(None, [self.opened_name, description if description != number else ""]))
        place = f"{number} of {self.opened_split}" if self.opened_split else number
        return f"{place} ({more})" if more else place


def wrap_dataset(dataset: Any, split: str = "", name: str = "") -> Any:
    """Return the adapter of a dataset, or of samples, that a class has opened; unchanged if it is one.

    Facts about the classes of a ``Dataset`` are made what tasks expect. Raises a UserError: they are something else, or
    a user's dataset does not have a whole number of samples.
    """
    if type(dataset) is OpenedDataset:
        return dataset
    opened: Any = OpenedDataset(dataset, split, name)
    if opened._is_own:
        try:
            len(opened)
        except (TypeError, ValueError) as error:  # of Python, if __len__ returns something else
            message = f"{name} has no length: {shorten(str(error))}: return the number of samples from __len__"
            raise OwnCodeError.wrap(message, error) from error
    opened.make_facts(name)
    return opened


def make_description(owner: type, description: Any) -> str:
    """Return a description of a sample as text, if it is a text or a path; raises UserError."""
    if isinstance(description, (str, bytes, os.PathLike)):
        return str(os.fsdecode(description))
    raise UserError(
        f"{owner.__name__} describes a sample as {describe_value(description)}: return a text from describe "
        "and identity, such as its file, which tells it from samples of other datasets"
    )


def require_described(samples: Any) -> None:
    """Check that the first and the last sample have a description and a name, which are asked for after an epoch."""
    for index in sorted({0, len(samples) - 1} if len(samples) else ()):
        try:
            samples.describe(index)
            samples.name(index)
        except UserError:
            raise
        except Exception as error:  # of a user's class
            reason = shorten(f"{type(error).__name__}: {error}")
            message = f"{samples.__class__.__name__} cannot describe sample {index}: {reason}"
            raise OwnCodeError.wrap(message, error) from error


def name_sample(dataset: Any, index: int, split: str = "") -> str:
    """Return the number of a sample, and its description if that says more, or else its split; for error messages."""
    number, description = f"sample {index}", describe_sample(dataset, index)
    if description != number:
        return f"{number} ({description})"
    for opened in (dataset, getattr(dataset, "dataset", None)):  # also of transformed samples
        split = split or getattr(opened, "opened_split", "")
    return f"{number} of {split}" if split else number


def describe_sample(dataset: Any, index: int) -> str:
    """Return a dataset's description of a sample, or the reason why it has none; for error messages."""
    try:
        return str(dataset.describe(index))
    except Exception as error:  # a user's dataset may raise any exception
        return f"no description: {error}"
