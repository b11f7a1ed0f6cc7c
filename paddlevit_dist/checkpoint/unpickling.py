"""Reading what ``paddle.save`` writes without executing anything that the file asks for.

A pickle is a program. ``pickletools.genops`` lists its instructions, and those that ``paddle.save`` uses (protocols 2
to 4) are carried out here; any other ends the reading. A name in the file is only a key into a table of ``calls``:
nothing is imported and no function of the file's choice is called. Memory stays in proportion to the file: a length is
compared with the bytes that are left before it is trusted, and arrays together may not hold more bytes than the file
does. Strings of Python 2 are read as Latin-1, so that published datasets of that age can be read too.

Only numbers, strings, None, lists, tuples, dictionaries and numeric numpy arrays can come out.
"""

import math
import os
import pickletools
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast

import numpy as np

from .array_files import RefusedError, reading

_NAME_TABLE = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"


def restricted_load(file: str | os.PathLike | BinaryIO) -> Any:
    """The object that ``paddle.save`` wrote, with numpy arrays for tensors (bfloat16 as its bits in uint16).

    Parameters larger than a gigabyte, which protocols 2 and 3 store in slices, are put together again, and Paddle's
    table of automatic parameter names is left out.

    Args:
        file: a path, or a binary file that can seek; reading begins at its position.

    Raises:
        UserError: unreadable, damaged, or asking for something that weights do not need; nothing was executed.
    """
    if isinstance(file, (str, os.PathLike)):
        with reading(str(file), "paddle.save file"), open(file, "rb") as stream:
            return _load(stream)
    with reading(str(getattr(file, "name", "the file")), "paddle.save file"):
        return _load(file)


def _load(stream: BinaryIO) -> Any:
    value = PickleReader(stream).load()
    if isinstance(value, dict):
        value.pop(_NAME_TABLE, None)
        for name, about in value.pop(_SLICES, {}).items():
            parts = [value.pop(expect(part, str)) for part in about["slices"]]
            value[name] = np.concatenate(parts).reshape(about["OriginShape"])
    return value


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function as the file names it."""

    module: str
    attribute: str


_NDARRAY = Name("numpy", "ndarray")


class _Bounded:
    """A stream for ``genops`` that compares a length with what is left of the file before memory is taken for it."""

    def __init__(self, stream: IO[bytes]) -> None:
        start = stream.tell()
        self.size = self.left = stream.seek(0, os.SEEK_END) - start
        self._stream = stream
        stream.seek(start)

    def read(self, length: int) -> bytes:
        if length > self.left:
            raise EOFError(f"it ends {length - self.left} bytes too early")
        self.left -= length
        return self._stream.read(length)

    def readline(self) -> bytes:
        line = self._stream.readline(256)
        self.left -= len(line)
        return line


_VALUES = frozenset(  # instructions whose argument is the value itself
    """
    BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8
    """.split()
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
# Instances, persistent identifiers and extension codes: all that makes an object of a class by other ways than a call.
_MAKES_OBJECTS = frozenset("INST OBJ NEWOBJ NEWOBJ_EX PERSID BINPERSID EXT1 EXT2 EXT4".split())


class PickleReader:
    """Carries out the pickle at a stream's position; afterwards the stream is at its end.

    Attributes:
        calls: what each name may do when the file calls it: a function of this reader and the file's arguments, which
            it checks; None if the name may only be an argument itself.
        bytes_left: what the arrays may still take. Protocol 2 makes each array twice, first its bytes, then the array:
            twice the file's size at the beginning.
        has_eight_bit_text: whether Python 2 wrote the file, which had one type for text and for the bytes of an array.
    """

    calls: Mapping[Name, Callable[..., Any] | None]

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = _Bounded(stream)
        self.bytes_left = 2 * self._stream.size
        self.has_eight_bit_text = False
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object; ValueError and the like where the file is damaged, RefusedError where it asks for too much."""
        argument: Any
        for count, (instruction, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], self._stream))):
            name = instruction.name
            if (name == "PROTO") != (count == 0):
                raise ValueError("its first byte is not that of a pickle")
            if name in _VALUES:
                self.has_eight_bit_text |= name.endswith("BINSTRING")
                self._stack.append(argument)
            else:
                self._carry_out(name, argument)
        return self._stack.pop()

    def spend(self, num_bytes: int) -> None:
        """Count what an array or its bytes need, so that one stored string cannot be turned into many."""
        self.bytes_left -= num_bytes
        if self.bytes_left < 0:
            raise ValueError("its arrays are larger than the file")

    def persistent(self, about: Any) -> Any:
        """What a persistent identifier means: nothing in Paddle's files."""
        raise _not_by_a_call("BINPERSID")

    def _carry_out(self, name: str, argument: Any) -> None:
        stack, memo = self._stack, self._memo
        match name:
            case "PROTO":
                if not 2 <= argument <= 4:
                    raise ValueError(f"it has pickle protocol {argument}, where weights files have 2 to 4")
            case "FRAME" | "STOP":
                pass
            case "MARK":
                self._marks.append(len(stack))
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                stack.append(_CONSTANTS[name]())
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._last(int(name[-1]))))
            case "APPEND" | "APPENDS":
                items = self._last(1) if name == "APPEND" else self._since_mark()
                expect(stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._last(2) if name == "SETITEM" else self._since_mark()
                table = expect(stack[-1], dict)
                for key, value in zip(items[::2], items[1::2], strict=True):
                    if not isinstance(key, (str, int)):  # hashing a tuple of many tuples would end the interpreter
                        raise ValueError("a dictionary has a key that is neither text nor number")
                    table[key] = value
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memo[len(memo) if argument is None else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(self._named(*argument.split(" ")))
            case "STACK_GLOBAL":
                stack.append(self._named(*self._last(2)))
            case "REDUCE":
                called, arguments = self._last(2)
                stack.append(self._call(expect(called, Name), expect(arguments, tuple)))
            case "BUILD":
                (state,) = self._last(1)
                self.set_state(stack[-1], state)
            case "BINPERSID":
                stack.append(self.persistent(*self._last(1)))
            case _ if name in _MAKES_OBJECTS:
                raise _not_by_a_call(name)
            case _:
                raise ValueError(f"{name} is not an instruction that weights files use")

    def _last(self, number: int) -> list[Any]:
        """The last items, taken from the stack."""
        items = self._stack[-number:]
        if len(items) < number:
            raise IndexError("an instruction lacks items")
        del self._stack[-number:]
        return items

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _named(self, module: Any, attribute: Any) -> Name:
        name = Name(expect(module, str), expect(attribute, str))
        if name not in self.calls:
            raise RefusedError(f"it asks for {ascii(f'{module}.{attribute}'[:120])}")
        return name

    def _call(self, name: Name, arguments: tuple[Any, ...]) -> Any:
        function = self.calls[name]
        if function is None:
            raise RefusedError(f"it calls '{name.module}.{name.attribute}'")
        return function(self, *arguments)

    def set_state(self, value: Any, state: Any) -> None:
        """Give an array its numbers, or their type its byte order."""
        if isinstance(value, _NumberType):
            value.set_byte_order(state)
        elif isinstance(value, np.ndarray) and not value.size:
            _fill(self, value, state)
        else:
            raise ValueError("it sets the state of something that is not an array")


def _not_by_a_call(instruction: str) -> RefusedError:
    return RefusedError(f"it makes objects of classes of its choice (pickle instruction {instruction})")


def expect(value: Any, kinds: Any) -> Any:
    """``value``, which must be of one of these classes."""
    if not isinstance(value, kinds):
        raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
    return value


# What a call in the file may do. Each takes the reader and the arguments as the file gives them, and checks these.


class _NumberType:
    """The type of an array's numbers, which gets its byte order afterwards."""

    def __init__(self, reader: PickleReader, code: Any, align: Any = False, copy: Any = True) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", expect(code, str)):
            raise RefusedError(f"it holds an array of type {ascii(code[:40])}")
        self.dtype = np.dtype(code)

    def set_byte_order(self, state: Any) -> None:
        plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields; usual size, alignment, flags
        if expect(state, tuple)[0] != 3 or state[1] not in ("<", ">", "|", "=") or state[2:] != plain:
            raise RefusedError("it holds an array of a structured type")
        self.dtype = self.dtype.newbyteorder(state[1])


def _empty_array(reader: PickleReader, subtype: Any, shape: Any, typecode: Any) -> np.ndarray:
    """An array in the making: empty until its state is set."""
    if subtype != _NDARRAY or shape != (0,):
        raise ValueError("an array in it is not made as numpy makes it")
    return np.empty(0, np.uint8)


def _fill(reader: PickleReader, array: np.ndarray, state: Any) -> None:
    version, shape, number_type, fortran_order, data = expect(state, tuple)
    if isinstance(data, str) and reader.has_eight_bit_text:
        data = _latin1_bytes(reader, data, "latin1")
    if not isinstance(number_type, _NumberType) or not isinstance(data, bytes):
        raise RefusedError("it holds an array of objects")
    if version != 1 or not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("an array in it has no valid shape")
    dtype = number_type.dtype
    if len(shape) > 32 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array in it has {len(data)} bytes, which is not what its shape and type need")
    reader.spend(len(data))
    array.__setstate__((1, shape, dtype, bool(fortran_order), data))


def _scalar(reader: PickleReader, number_type: Any, data: Any) -> Any:
    dtype = expect(number_type, _NumberType).dtype
    if not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise ValueError("a number in it is not made as numpy makes it")
    return np.frombuffer(data, dtype)[0]


def _latin1_bytes(reader: PickleReader, text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise RefusedError("it calls '_codecs.encode' for something else than the bytes of an array")
    reader.spend(len(text))
    return text.encode("latin1")


def _array_of_pair(reader: PickleReader, pair: Any) -> np.ndarray:
    """Paddle stores a tensor inside nested containers as the tuple (its automatic name, its array)."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], np.ndarray):
        raise ValueError("a tensor in it is not a pair of name and array")
    return pair[1]


_CALLS: dict[Name, Callable[..., Any] | None] = {
    _NDARRAY: None,
    Name("numpy", "dtype"): _NumberType,
    Name("collections", "OrderedDict"): lambda reader: OrderedDict(),
    Name("_codecs", "encode"): _latin1_bytes,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # numpy 1 and 2
    _CALLS[Name(_module, "_reconstruct")] = _empty_array
    _CALLS[Name(_module, "scalar")] = _scalar
for _module in ("builtins", "__builtin__"):  # protocol 2 uses Python 2's name
    _CALLS[Name(_module, "tuple")] = _array_of_pair
    _CALLS[Name(_module, "bytes")] = lambda reader: b""

PickleReader.calls = _CALLS
