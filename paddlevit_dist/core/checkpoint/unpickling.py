"""Reads files of ``paddle.save`` without executing code that they name.

A pickle is a program: it names functions and calls them. Here, a name is only a key into the table ``calls`` of
functions of this package, which check their arguments. Nothing is imported, and the file cannot change the objects that
calls return. ``pickle_instructions`` checks the instructions before they are executed. Strings of Python 2 are decoded
as Latin-1, as in published datasets of that age.

The result contains numbers, strings, None, lists, tuples, sets, dictionaries and numeric numpy arrays only. Parsed
arguments (``argparse.Namespace``) become None; files of PyTorch keep those that are plain values.
"""

import functools
import math
import os
import pickle
import re
from collections.abc import Callable, Mapping
from typing import IO, Any, BinaryIO, cast

import numpy as np

from .array_files import RefusedError, reading
from .pickle_instructions import require_plain_instructions

_NAME_TABLE = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"
_LONGEST_ARGUMENT = 16  # values of a parsed argument
_MOST_TEXTS = 1 << 16  # of one that is a list of texts, such as the names of classes
_MIN_ENTRIES, _ENTRIES_PER_BYTE = 1_000_000, 16  # limit of entries, with shared ones counted at each place


def restricted_load(file: str | os.PathLike | BinaryIO, reader: "type[PickleReader] | None" = None) -> Any:
    """Return an object that ``paddle.save`` wrote, with numpy arrays for tensors (bfloat16 as its bits in uint16).

    Parameters larger than a gigabyte, which protocols 2 and 3 store in slices, are joined. Paddle's table of automatic
    parameter names is dropped. Raises UserError if the file is unreadable, damaged, or names functions that weights do
    not need; no code was executed. ``file``: a path, or a seekable binary file, which is read from its current
    position.
    """
    if isinstance(file, (str, os.PathLike)):
        with reading(str(file), "paddle.save file"), open(file, "rb") as stream:
            return _load(stream, reader or PickleReader)
    with reading(str(getattr(file, "name", "the file")), "paddle.save file"):
        return _load(file, reader or PickleReader)


def _load(stream: BinaryIO, reader: "type[PickleReader]") -> Any:
    value = reader(stream).load()
    if isinstance(value, dict):
        value.pop(_NAME_TABLE, None)
        for name, about in value.pop(_SLICES, {}).items():
            parts = [value.pop(expect(part, str)) for part in about["slices"]]
            value[name] = np.concatenate(parts).reshape(about["OriginShape"])
    return value


class FrozenObject:
    """An object that a file can place somewhere but not change; ``pickle`` would set any attribute."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # cannot be a key

    def __setstate__(self, state: object) -> None:
        """Raise ValueError: the file must not set attributes."""
        raise ValueError("it sets the state of something that is not an array")


class GlobalName(FrozenObject):
    """A class or function that the file names; without ``function`` to call, it may only be an argument."""

    __slots__ = ("function", "text")

    def __init__(self, text: str, function: Callable[..., Any] | None) -> None:
        self.text, self.function = text, function

    def __call__(self, *arguments: object) -> Any:
        """Call the function. Raises RefusedError if there is none."""
        if self.function is None:
            raise RefusedError(f"it calls '{self.text}'")
        return self.function(*arguments)


class DroppedArguments(FrozenObject):
    """Stands for a training program's parsed arguments, whose values are dropped.

    ``pickle`` makes the object from a class: it has no attribute that a file could use, and takes no arguments.
    """

    __slots__ = ()

    def __new__(cls) -> "DroppedArguments":
        """Make one without arguments."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        """Drop the values."""
        expect(state, dict)

    def plain_values(self) -> dict[str, Any] | None:
        """Return what replaces the arguments."""
        return None


class KeptArguments(DroppedArguments):
    """Parsed arguments that stay a dictionary of numbers, strings, None, and short collections of these."""

    __slots__ = ("_state",)

    def __setstate__(self, state: object) -> None:
        """Store the values."""
        self._state = expect(state, dict)

    def plain_values(self) -> dict[str, Any] | None:
        """Return the plain arguments by name; others are dropped."""
        state = getattr(self, "_state", {})
        return {name: value for name, value in state.items() if isinstance(name, str) and _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        most = _MOST_TEXTS if all(isinstance(item, str) for item in value.values()) else _LONGEST_ARGUMENT
        return len(value) <= most and all(map(_is_number_or_text, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        most = _MOST_TEXTS if all(isinstance(item, str) for item in value) else _LONGEST_ARGUMENT
        return len(value) <= most and all(map(_is_number_or_text, value))
    return _is_number_or_text(value)


def _is_number_or_text(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))


class PickleReader(pickle.Unpickler):
    """Reads the pickle at a seekable binary stream's position; afterwards, the stream is at its end.

    ``calls``: functions by module and attribute that a call of that name runs.
    """

    calls: Mapping[tuple[str, str], Callable[..., Any] | None]
    arguments_class: type[DroppedArguments] = DroppedArguments

    def __init__(self, stream: IO[bytes]) -> None:
        self._bytes_left = 2 * require_plain_instructions(stream)
        super().__init__(cast(Any, stream), encoding="latin1")

    def load(self) -> Any:
        """Return the object.

        Raises ValueError, or another built-in exception, if the file is damaged, and RefusedError if it names functions
        that weights do not need.
        """
        value = super().load()
        _require_bounded(value, _MIN_ENTRIES + _ENTRIES_PER_BYTE * self._bytes_left, {})
        return _finish(value, {})

    def find_class(self, module: str, attribute: str) -> Any:
        """Return a ``GlobalName`` in ``calls``, or ``arguments_class`` for parsed arguments, or raise RefusedError."""
        text = f"{module}.{attribute}"
        if (module, attribute) == ("argparse", "Namespace"):
            return self.arguments_class
        if (module, attribute) == ("_codecs", "encode"):
            return GlobalName(text, self._encode)
        if (module, attribute) not in self.calls:
            raise RefusedError(f"it names {ascii(text[:120])}")
        function = self.calls[module, attribute]
        return GlobalName(
            text, functools.partial(function, self.spend) if function in (_StoredArray, _array) else function
        )

    def persistent_load(self, about: object) -> Any:
        """Reject every persistent identifier, because Paddle's files have none."""
        raise RefusedError("it makes objects by persistent identifiers")

    def _encode(self, text: object, encoding: object) -> bytes:
        """Return the bytes of an array, which protocol 2 stores as text."""
        if not isinstance(text, str) or encoding != "latin1":
            raise RefusedError("it calls '_codecs.encode' on other data than the bytes of an array")
        self.spend(len(text))
        return text.encode("latin1")

    def spend(self, num_bytes: int) -> None:
        """Count copied bytes, so that the file cannot make many arrays from one stored string.

        Raises ValueError if the sum exceeds twice the file's size.
        """
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise ValueError("its arrays are larger than the file")


def _require_bounded(value: object, limit: int, sizes: dict[int, int]) -> int:
    """Raise ValueError if a value has more than ``limit`` entries, counting shared objects at each place.

    ``sizes``: number of entries of each container by its id.
    """
    if not isinstance(value, (list, tuple, dict)):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = 1  # ends the recursion for a list that contains itself
        entries = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_require_bounded(entry, limit, sizes) for entry in entries)
        if sizes[id(value)] > limit:
            raise ValueError("it contains the same objects in more places than the file has bytes")
    return sizes[id(value)]


def _finish(value: object, results: dict[int, tuple[Any, Any]]) -> Any:
    """Replace ``_StoredArray`` objects by arrays, and parsed arguments by values; ``results`` are by an object's id."""
    if isinstance(value, _StoredArray):
        return value.numpy()
    if isinstance(value, DroppedArguments):
        return value.plain_values()
    if not isinstance(value, (list, tuple, dict)):
        if isinstance(value, (GlobalName, _NumberType, type)):
            raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
        return value
    if id(value) not in results:
        results[id(value)] = value, value
        if isinstance(value, tuple):
            results[id(value)] = value, tuple(_finish(item, results) for item in value)
        elif isinstance(value, list):
            value[:] = [_finish(item, results) for item in value]
        else:
            for key in value:
                value[expect(key, (str, int))] = _finish(value[key], results)
    return results[id(value)][1]


def expect(value: object, kinds: type | tuple[type, ...]) -> Any:
    """Return ``value`` if it is an instance of one of the classes ``kinds``. Raises ValueError if it is not."""
    if not isinstance(value, kinds):
        raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
    return value


# Functions that the file may call. Each one checks the arguments from the file.


class _NumberType(FrozenObject):
    """The dtype of an array; the file sets its byte order afterwards. numpy's own class would trust the state."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, align: object = False, copy: object = True) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", expect(code, str)):
            raise RefusedError(f"it holds an array of type {ascii(code[:40])}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields; usual size, alignment, flags
        if expect(state, tuple)[0] != 3 or state[1] not in ("<", ">", "|", "=") or state[2:] != plain:
            raise RefusedError("it holds an array of a structured type")
        self.dtype = self.dtype.newbyteorder(state[1])


class _StoredArray(FrozenObject):
    """An array under construction: empty until its state is set, once.

    ``spend`` is called with the number of bytes before they are copied; ``shape`` is ``(0,)``, as numpy writes it.
    """

    __slots__ = ("array", "spend")

    def __init__(self, spend: Callable[[int], None], subtype: object, shape: object, typecode: Any) -> None:
        if not isinstance(subtype, GlobalName) or subtype.text != "numpy.ndarray" or shape != (0,):
            raise ValueError("an array in it is not made as numpy makes it")
        self.spend, self.array = spend, None

    def __setstate__(self, state: object) -> None:
        version, shape, number_type, is_fortran, data = expect(state, tuple)
        if version != 1 or self.array is not None:
            raise ValueError("an array in it is not made as numpy makes it")
        if isinstance(data, str):  # Python 2 had one type for text and bytes
            self.spend(len(data))
            data = data.encode("latin1")
        self.array = _array(self.spend, data, number_type, shape, "F" if is_fortran else "C")

    def numpy(self) -> np.ndarray:
        """Return the array, which shares memory with the bytes that were read."""
        return expect(self.array, np.ndarray)


def _array(
    spend: Callable[[int], None], data: object, number_type: object, shape: object, order: object, axes: object = None
) -> np.ndarray:
    """Build an array as protocol 5 stores it, which shares the bytes that were read, if in this byte order.

    ``spend`` is called with the number of bytes before they are copied. ``axes`` is the order of the axes in memory if
    ``order`` is "K", neither "C" nor "F".
    """
    if not isinstance(number_type, _NumberType) or not isinstance(data, (bytes, bytearray)):
        raise RefusedError("it holds an array of objects")
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape) or len(shape) > 32:
        raise ValueError("an array in it has no valid shape")
    if math.prod(shape) * number_type.dtype.itemsize != len(data):
        raise ValueError(f"an array in it has {len(data)} bytes, which is not what its shape and type need")
    flat = np.frombuffer(data, number_type.dtype)
    if not flat.dtype.isnative:
        spend(len(data))
        flat = flat.astype(flat.dtype.newbyteorder("="))
    return flat.reshape(shape).transpose(axes) if order == "K" else flat.reshape(shape, order=order)


def _scalar(number_type: object, data: object) -> Any:
    dtype = expect(number_type, _NumberType).dtype
    if not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise ValueError("a number in it is not made as numpy makes it")
    return np.frombuffer(data, dtype)[0]


def unpack_tensor(pair: object) -> _StoredArray:
    """Return the array of a tensor in nested containers, which Paddle stores as the tuple (automatic name, array)."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], (_StoredArray, np.ndarray)):
        raise ValueError("a tensor in it is not a pair of name and array")
    return pair[1]


class _PlainDict(dict):
    """An OrderedDict without its attributes (in PyTorch, the versions of layers)."""

    __slots__ = ()

    def __init__(self, pairs: object = ()) -> None:
        """Python 2 gave the entries as a list of pairs, Python 3 sets them afterwards."""
        for key, value in expect(pairs, (list, tuple)):
            self[expect(key, (str, int))] = value

    def __setstate__(self, state: object) -> None:
        expect(state, dict)


_CALLS: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _NumberType,
    ("collections", "OrderedDict"): _PlainDict,
}
for _package in ("numpy.core", "numpy._core"):  # numpy 1 and 2
    _CALLS[f"{_package}.multiarray", "_reconstruct"] = _StoredArray
    _CALLS[f"{_package}.multiarray", "scalar"] = _scalar
    _CALLS[f"{_package}.numeric", "_frombuffer"] = _array
for _module in ("builtins", "__builtin__"):  # protocol 2 uses Python 2's name
    _CALLS[_module, "tuple"] = unpack_tensor
    _CALLS[_module, "bytes"] = lambda: b""
PickleReader.calls = _CALLS
