"""Reading what ``paddle.save`` writes without executing anything that the file asks for.

A pickle is a program: it names functions and calls them. Here a name is only a key into a table of ``calls``, which
gives functions of this package that check their arguments; nothing is imported, and nothing that comes of a call can
be changed by the file. The instructions are looked at once before they are carried out, because ``pickle`` believes
the lengths and places in them. Strings of Python 2 are read as Latin-1, so that published datasets of that age can be
read too.

Only numbers, strings, None, lists, tuples, sets, dictionaries and numeric numpy arrays can come out.
"""

import functools
import io
import math
import os
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping
from typing import IO, Any, BinaryIO, cast

import numpy as np

from .array_files import RefusedError, reading

_NAME_TABLE = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"
_LONG = 1 << 12  # bytes of an array rather than a name or a number
_LEAST_ENTRIES, _ENTRIES_PER_BYTE = 1_000_000, 16  # that a file may have, counting shared ones wherever they are
_MOST_TUPLES = 50_000  # one inside another as a key, about 100,000 end the interpreter when it computes their hash


def restricted_load(file: str | os.PathLike | BinaryIO, keeps_names: bool = False) -> Any:
    """The object that ``paddle.save`` wrote, with numpy arrays for tensors (bfloat16 as its bits in uint16).

    Parameters larger than a gigabyte, which protocols 2 and 3 store in slices, are put together again, and Paddle's
    table of automatic parameter names is left out.

    Args:
        file: a path, or a binary file that can seek; reading begins at its position.
        keeps_names: a tensor inside nested containers becomes (its automatic name, its array).

    Raises:
        UserError: unreadable, damaged, or asking for something that weights do not need; nothing was executed.
    """
    if isinstance(file, (str, os.PathLike)):
        with reading(str(file), "paddle.save file"), open(file, "rb") as stream:
            return _load(stream, keeps_names)
    with reading(str(getattr(file, "name", "the file")), "paddle.save file"):
        return _load(file, keeps_names)


def _load(stream: BinaryIO, keeps_names: bool) -> Any:
    value = (_NameReader if keeps_names else PickleReader)(stream).load()
    if isinstance(value, dict):
        value.pop(_NAME_TABLE, None)
        for name, about in value.pop(_SLICES, {}).items():
            parts = [value.pop(expect(part, str)) for part in about["slices"]]
            value[name] = np.concatenate(parts).reshape(about["OriginShape"])
    return value


class FrozenObject:
    """An object that a file can put somewhere but not change: ``pickle`` would set any attribute of it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # nor is it a key

    def __setstate__(self, state: Any) -> None:
        raise ValueError("it sets the state of something that is not an array")


class GlobalName(FrozenObject):
    """A class or function as the file names it, and what calling it does; None: it may only be an argument."""

    __slots__ = ("function", "text")

    def __init__(self, text: str, function: Callable[..., Any] | None) -> None:
        self.text, self.function = text, function

    def __call__(self, *arguments: Any) -> Any:
        if self.function is None:
            raise RefusedError(f"it calls '{self.text}'")
        return self.function(*arguments)


class PickleReader(pickle.Unpickler):
    """Reads the pickle at a stream's position; afterwards the stream is at its end.

    Attributes:
        calls: by module and attribute, what a call of that name does.
    """

    calls: Mapping[tuple[str, str], Callable[..., Any] | None]

    def __init__(self, stream: IO[bytes]) -> None:
        self._bytes_left = 2 * _require_plain(stream)
        super().__init__(cast(Any, stream), encoding="latin1")

    def load(self) -> Any:
        """The object; ValueError and the like where the file is damaged, RefusedError where it asks for too much."""
        value = super().load()
        _require_bounded(value, _LEAST_ENTRIES + _ENTRIES_PER_BYTE * self._bytes_left, {})
        return _finish(value, {})

    def find_class(self, module: str, attribute: str) -> GlobalName:
        text = f"{module}.{attribute}"
        if (module, attribute) == ("_codecs", "encode"):
            return GlobalName(text, self._encode)
        if (module, attribute) not in self.calls:
            raise RefusedError(f"it asks for {ascii(text[:120])}")
        function = self.calls[module, attribute]
        return GlobalName(
            text, functools.partial(function, self.spend) if function in (_StoredArray, _array) else function
        )

    def persistent_load(self, about: Any) -> Any:
        """Refuse every persistent identifier: there is none in Paddle's files."""
        raise RefusedError("it makes objects by persistent identifiers")

    def _encode(self, text: Any, encoding: Any) -> bytes:
        """The bytes of an array, which protocol 2 stores as text."""
        if not isinstance(text, str) or encoding != "latin1":
            raise RefusedError("it calls '_codecs.encode' for something else than the bytes of an array")
        self.spend(len(text))
        return text.encode("latin1")

    def spend(self, num_bytes: int) -> None:
        """Count what is copied, so that one stored string cannot be made into many arrays."""
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise ValueError("its arrays are larger than the file")


class _KeyCheck:
    """Follows the instructions of a pickle to see what becomes a key, whose hash ``pickle`` computes at once: tuples
    that hold one another twice, which take 500 bytes, take 2**60 steps."""

    def __init__(self) -> None:
        self._stack: list[Any] = []  # of each object whether it is a tuple; the mark itself
        self._memo: dict[int, Any] = {}

    def follow(self, instruction: pickletools.OpcodeInfo, argument: Any) -> None:
        """Carry out an instruction.

        Raises:
            ValueError: it makes a tuple a key, or an entry of a set.
            LookupError: it takes what is not there.
        """
        name, before = instruction.name, instruction.stack_before
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = self._stack[-1]
            return
        if name in ("GET", "BINGET", "LONG_BINGET", "DUP"):
            self._stack.append(self._stack[-1] if name == "DUP" else self._memo[argument])
            return
        if name == "MARK":
            self._stack.append(pickletools.markobject)
            return
        taken: list[Any] = []
        if pickletools.markobject in before:
            while (one := self._stack.pop()) is not pickletools.markobject:
                taken.append(one)
            taken.reverse()
            before = before[: before.index(pickletools.markobject)]
        own = [self._stack.pop() for _ in before]
        keys = taken if name in ("ADDITEMS", "FROZENSET") else taken[::2] if name in ("SETITEMS", "DICT") else ()
        if True in (own[1:2] if name == "SETITEM" else keys):
            raise ValueError("it has a tuple as a key")
        self._stack += [name.startswith("TUPLE")] * len(instruction.stack_after)


class _SkippedBytes(bytes):
    """Bytes that were passed over: ``genops`` looks at nothing but their number."""

    def __new__(cls, length: int) -> "_SkippedBytes":
        skipped = super().__new__(cls)
        skipped.length = length
        return skipped

    length: int

    def __len__(self) -> int:
        return self.length


class _BoundedStream:
    """A stream for ``genops`` that compares a length with what is left of the file, and passes over what is long."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream, self.left = stream, left

    def read(self, length: int) -> bytes:
        if length > self.left:
            raise EOFError(f"it ends {length - self.left} bytes too early")
        self.left -= length
        if length > _LONG and isinstance(self._stream, (io.BufferedReader, io.BytesIO)):  # not of a zip: its checksum
            self._stream.seek(length, os.SEEK_CUR)
            return _SkippedBytes(length)
        return self._stream.read(length)

    def readline(self) -> bytes:
        line = self._stream.readline(256)
        self.left -= len(line)
        return line


def _require_plain(stream: IO[bytes]) -> int:
    """The bytes from here to the file's end, which its lengths, places and depths are known to fit afterwards."""
    start = stream.tell()
    size, tuples, keys = stream.seek(0, os.SEEK_END) - start, 0, _KeyCheck()
    stream.seek(start)
    bounded = _BoundedStream(stream, size)
    for count, (instruction, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], bounded))):
        name: str = instruction.name
        if (name == "PROTO") != (count == 0):
            raise ValueError("its first byte is not that of a pickle")
        if name == "PROTO" and not 2 <= cast(int, argument) <= 5:
            raise ValueError(f"it has pickle protocol {argument}, where weights files have 2 to 5")
        if name == "FRAME" and cast(int, argument) > bounded.left:
            raise EOFError(f"it ends {cast(int, argument) - bounded.left} bytes too early")
        if name in ("PUT", "LONG_BINPUT") and cast(int, argument) > count:
            raise ValueError("it remembers an object at a place far behind the others")
        tuples += name.startswith("TUPLE")
        if tuples > _MOST_TUPLES:
            raise ValueError(f"it has more than {_MOST_TUPLES:,} tuples")
        keys.follow(instruction, argument)
    stream.seek(start)
    return size


def _require_bounded(value: Any, most: int, sizes: dict[int, int]) -> int:
    """Return how many entries a value has, counting those of an object wherever it is held again; ``sizes`` has those
    of each container, by its identity.

    Raises:
        ValueError: there are more than ``most``: whoever walks through them would not come to an end.
    """
    if not isinstance(value, (list, tuple, dict)):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = 1  # of a list that holds itself
        entries = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_require_bounded(entry, most, sizes) for entry in entries)
        if sizes[id(value)] > most:
            raise ValueError("it holds the same objects again and again, in more places than the file has bytes")
    return sizes[id(value)]


def _finish(value: Any, seen: dict[int, tuple[Any, Any]]) -> Any:
    """``value`` with the arrays that were made in it; ``seen`` has each object, by its identity, and what it became."""
    if isinstance(value, _StoredArray):
        return value.numpy()
    if not isinstance(value, (list, tuple, dict)):
        if isinstance(value, (GlobalName, _NumberType)):
            raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
        return value
    if id(value) not in seen:
        seen[id(value)] = value, value
        if isinstance(value, tuple):
            seen[id(value)] = value, tuple(_finish(item, seen) for item in value)
        elif isinstance(value, list):
            value[:] = [_finish(item, seen) for item in value]
        else:
            for key in value:
                value[expect(key, (str, int))] = _finish(value[key], seen)
    return seen[id(value)][1]


def expect(value: Any, kinds: Any) -> Any:
    """``value``, which must be of one of these classes."""
    if not isinstance(value, kinds):
        raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
    return value


# What a call in the file may do. Each takes the arguments as the file gives them, and checks these.


class _NumberType(FrozenObject):
    """The type of an array's numbers, which gets its byte order afterwards; numpy's own would believe its state."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", expect(code, str)):
            raise RefusedError(f"it holds an array of type {ascii(code[:40])}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields; usual size, alignment, flags
        if expect(state, tuple)[0] != 3 or state[1] not in ("<", ">", "|", "=") or state[2:] != plain:
            raise RefusedError("it holds an array of a structured type")
        self.dtype = self.dtype.newbyteorder(state[1])


class _StoredArray(FrozenObject):
    """An array in the making: nothing until its state is set, and then for good.

    Args:
        spend: called before bytes are copied, with their number.
    """

    __slots__ = ("array", "spend")

    def __init__(self, spend: Callable[[int], None], subtype: Any, shape: Any, typecode: Any) -> None:
        if not isinstance(subtype, GlobalName) or subtype.text != "numpy.ndarray" or shape != (0,):
            raise ValueError("an array in it is not made as numpy makes it")
        self.spend, self.array = spend, None

    def __setstate__(self, state: Any) -> None:
        version, shape, number_type, is_fortran, data = expect(state, tuple)
        if version != 1 or self.array is not None:
            raise ValueError("an array in it is not made as numpy makes it")
        if isinstance(data, str):  # Python 2 had one type for both
            self.spend(len(data))
            data = data.encode("latin1")
        self.array = _array(self.spend, data, number_type, shape, "F" if is_fortran else "C")

    def numpy(self) -> np.ndarray:
        """The array, on the bytes that were read."""
        return expect(self.array, np.ndarray)


def _array(
    spend: Callable[[int], None], data: Any, number_type: Any, shape: Any, order: Any, axes: Any = None
) -> np.ndarray:
    """An array as protocol 5 stores it; its axes, if their order in memory is neither C's nor Fortran's. It lies on
    the bytes that were read, unless they are in the other byte order."""
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


def _scalar(number_type: Any, data: Any) -> Any:
    dtype = expect(number_type, _NumberType).dtype
    if not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise ValueError("a number in it is not made as numpy makes it")
    return np.frombuffer(data, dtype)[0]


def _array_of_pair(pair: Any) -> _StoredArray:
    """Paddle stores a tensor inside nested containers as the tuple (its automatic name, its array)."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], (_StoredArray, np.ndarray)):
        raise ValueError("a tensor in it is not a pair of name and array")
    return pair[1]


def _named_array(pair: Any) -> tuple[str, _StoredArray]:
    array = _array_of_pair(pair)
    return expect(pair[0], str), array


class _PlainDict(dict):
    """An OrderedDict, whose attributes (of PyTorch's, the versions of layers) are left out."""

    __slots__ = ()

    def __init__(self, pairs: Any = ()) -> None:
        """Python 2 gave the entries as a list of pairs, Python 3 sets them afterwards."""
        for key, value in expect(pairs, (list, tuple)):
            self[expect(key, (str, int))] = value

    def __setstate__(self, state: Any) -> None:
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
    _CALLS[_module, "tuple"] = _array_of_pair
    _CALLS[_module, "bytes"] = lambda: b""
PickleReader.calls = _CALLS


class _NameReader(PickleReader):
    """Keeps the automatic name of each tensor."""

    calls = {**_CALLS, **{(module, "tuple"): _named_array for module in ("builtins", "__builtin__")}}
