"""What a user's dataset returns, made what tasks expect, in any derived class."""

import contextlib
import functools
import os
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..runtime.errors import OwnCodeError, UserError
from ..runtime.printing import describe_value, shorten
from .sample_checks import BadSample

#: methods of users' classes that return text; ours do, and are called for each of millions of samples
DESCRIPTIONS = {"describe": "make_description", "identity": "make_description"}
_is_naming = ContextVar("is_naming", default=False)  # a user's describe may read the sample that it describes
_PACKAGE = __name__.partition(".")[0]
_FOLDER = str(Path(__file__).parents[2])


def is_ours(code: Any) -> bool:
    """Return whether a class or a function is one of this package."""
    return str(code.__module__).startswith(f"{_PACKAGE}.")


def make_results(cls: type[Any], name: str, maker: str | None) -> None:
    """Let a method of a dataset return what ``maker`` makes of its result; ``super()`` returns it unchanged.

    An exception of a user's code that ends the run is shown with the sample, its split and the dataset. Without a
    ``maker``, nothing else changes.
    """
    method = getattr(cls, name, None)
    is_made = getattr(method, "makes_results", None) is method
    if is_made or not callable(method) or getattr(method, "__isabstractmethod__", False):
        return

    @functools.wraps(method)
    def made(self: Any, index: int, *more: Any, **options: Any) -> Any:
        is_last = getattr(type(self), name, None) is made  # otherwise called by a derived class, whose result is made
        try:
            result = method(self, index, *more, **options)
            return getattr(self, maker)(result) if is_last and maker is not None else result
        except BadSample as error:  # also of what the method made itself, such as a volume
            if not is_last or name in DESCRIPTIONS or _is_naming.get():
                raise
            token = _is_naming.set(True)
            try:
                named = error.name(name_sample(self, index))
            finally:
                _is_naming.reset(token)
            raise named from error.__cause__
        except UserError:
            raise
        except Exception as error:
            if is_last and not is_ours(type(self)) and not _is_naming.get():
                _attach_place(error, self, index, made, name not in DESCRIPTIONS)
            raise

    setattr(made, "makes_results", made)  # noqa: B010 (an attribute of a function, for mypy)
    setattr(cls, name, made)


def _attach_place(error: Exception, dataset: Any, index: int, method: Any, is_described: bool) -> None:
    """Attach to an exception the sample that ``method`` was called for, and the traceback below it."""
    token = _is_naming.set(True)
    try:
        place = _place_sample(dataset, index, is_described)
    finally:
        _is_naming.reset(token)
    message = f"{place}: {shorten(f'{type(error).__name__}: {error}')}"
    OwnCodeError.wrap(message, error, lambda code: code is method.__code__).attach(error)


def make_opened(method: Any) -> Any:
    """Let a method that opens a dataset return it with what it says of its classes as tasks expect it."""

    @functools.wraps(method)
    def opened(cls: type[Any], config: Any, split: str, cache_folder: Path) -> Any:
        dataset, name = method(cls, config, split, cache_folder), f"dataset {config.DATA.DATASET}"
        if not is_ours(type(dataset)):
            _require_length(dataset, name)
            vars(dataset).update(opened_split=split, opened_name=name)  # for messages
        dataset.make_facts(name)
        return dataset

    return opened


def _require_length(dataset: Any, name: str) -> None:
    """Raise an OwnCodeError if a user's dataset does not have a whole number of samples."""
    try:
        len(dataset)
    except (TypeError, ValueError) as error:  # of Python, if __len__ returns something else
        message = f"{name} has no length: {shorten(str(error))}: return the number of samples from __len__"
        raise OwnCodeError.wrap(message, error, lambda code: code.co_filename.startswith(_FOLDER)) from error


def make_description(samples: Any, description: Any) -> str:
    """Return a description of a sample as text, if it is a text or a path; raises UserError."""
    if isinstance(description, (str, bytes, os.PathLike)):
        return str(os.fsdecode(description))
    raise UserError(
        f"{type(samples).__name__} describes a sample as {describe_value(description)}: return a text from describe "
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
            message = f"{type(samples).__name__} cannot describe sample {index}: {reason}"
            raise OwnCodeError.wrap(message, error, lambda code: code.co_filename.startswith(_FOLDER)) from error


def name_sample(dataset: Any, index: int) -> str:
    """Return the number of a sample, and its description if that says more, or else its split; for error messages."""
    number, description = f"sample {index}", describe_sample(dataset, index)
    if description != number:
        return f"{number} ({description})"
    splits = (getattr(each, "opened_split", "") for each in (dataset, getattr(dataset, "dataset", None)))
    split = next(filter(None, splits), "")
    return f"{number} of {split}" if split else number


def _place_sample(dataset: Any, index: int, is_described: bool) -> str:
    """Return the number of a sample with its split, and its dataset and description if there are any."""
    number = description = f"sample {index}"
    if is_described:
        with contextlib.suppress(Exception):  # of a user's class
            description = str(dataset.describe(index))
    whole = getattr(dataset, "dataset", dataset)  # of transformed samples
    split, name = (getattr(whole, attribute, "") for attribute in ("opened_split", "opened_name"))
    more = ", ".join(filter(None, [name, description if description != number else ""]))
    return (f"{number} of {split}" if split else number) + (f" ({more})" if more else "")


def describe_sample(dataset: Any, index: int) -> str:
    """Return a dataset's description of a sample, or the reason why it has none; for error messages."""
    try:
        return str(dataset.describe(index))
    except Exception as error:  # a user's dataset may raise any exception
        return f"no description: {error}"
