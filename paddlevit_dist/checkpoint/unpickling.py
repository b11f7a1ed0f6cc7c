"""Reading what ``paddle.save`` writes without executing anything that the file asks for.

A pickle is a program. Here the few instructions that ``paddle.save`` uses (protocols 2 to 4) are carried out by hand,
and a name in the file is only a key into a table of ``calls``: nothing is imported and no function of the file's
choice is called. Memory stays in proportion to the file: a length is compared with the bytes that are left before it
is believed, and arrays together may not hold more bytes than the file does. Strings of Python 2 are read as Latin-1, so
that published data sets of that age can be read too.

Only numbers, strings, None, lists, tuples, dictionaries and numeric numpy arrays can come out.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections import OrderedDict
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Union

import numpy as np

from .refusal import RefusedError, reading

_NAME_TABLE = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"


def restricted_load(file: Union[str, os.PathLike, BinaryIO]) -> Any:
    """The object that ``paddle.save`` wrote, with numpy arrays for tensors (bfloat16 as its bits in uint16).

    Parameters larger than a gigabyte, which protocols 2 and 3 store in slices, are put together again, and Paddle's
    table of automatic parameter names is left out.

    Args:
        file: a path, or a binary file that can seek; reading begins at its position.

    Raises:
        UserError: unreadable, damaged, or asking for something that weights do not need; nothing was executed.
    """
    if hasattr(file, "read"):
        with reading(str(getattr(file, "name", "the file")), "file of paddle.save"):
            return _load(file)
    with reading(str(file), "file of paddle.save"), open(file, "rb") as stream:
        return _load(stream)


def _load(stream: BinaryIO) -> Any:
    value = Machine(stream).run()
    return _without_bookkeeping(value) if isinstance(value, dict) else value


def _without_bookkeeping(state: Dict[Any, Any]) -> Dict[Any, Any]:
    state.pop(_NAME_TABLE, None)
    for name, about in state.pop(_SLICES, {}).items():
        parts = [state.pop(expect(part, str)) for part in about["slices"]]
        state[name] = np.concatenate(parts).reshape(about["OriginShape"])
    return state


class Name(NamedTuple):
    """A class or function as the file names it. It stays a name: what it may do is in the machine's ``calls``."""

    module: str
    attribute: str


_NDARRAY, _DTYPE = Name("numpy", "ndarray"), Name("numpy", "dtype")


class _EightBitText(str):
    """A string of Python 2, which had one type for text and for the bytes of an array."""


class Machine:
    """Carries out the instructions of one pickle on a stack.

    Attributes:
        calls: what each name may do when the file calls it: a function of the machine and the file's arguments.
        values: names that may stand for themselves, as an argument.
        instructions: what each code does.
    """

    calls: Dict[Name, Callable[..., Any]]
    values = frozenset([_NDARRAY])
    instructions: Dict[bytes, Callable[[Machine], Any]]

    def __init__(self, stream: BinaryIO) -> None:
        start = stream.tell()
        self.size = stream.seek(0, os.SEEK_END) - start
        stream.seek(start)
        self.stream = stream
        self.left = self.size  # bytes of the file not read yet
        self.array_bytes_left = 2 * self.size  # protocol 2 makes each array twice: bytes of a string, then the array
        self.stack: List[Any] = []
        self.marked: List[List[Any]] = []  # the stacks that were set aside by MARK
        self.memo: Dict[int, Any] = {}

    def run(self) -> Any:
        if self.read(1) != b"\x80":
            raise ValueError("its first byte is not that of a pickle")
        protocol = self.read(1)[0]
        if not 2 <= protocol <= 4:
            raise ValueError(f"it has pickle protocol {protocol}, where weights have 2 to 4")
        while True:
            code = self.read(1)
            if code == b".":
                return self.stack.pop()
            instruction = self.instructions.get(code)
            if instruction is None and code in _MAKES_OBJECTS:
                raise RefusedError(f"it makes objects of classes of its choice (pickle instruction {code!r})")
            if instruction is None:
                raise ValueError(f"{code!r} is no instruction that weights are written with")
            instruction(self)

    def read(self, length: int) -> bytes:
        if length > self.left:
            raise EOFError(f"it ends {length - self.left} bytes too early")
        data = self.stream.read(length)
        if len(data) != length:
            raise EOFError("it became shorter while it was read")
        self.left -= length
        return data

    def unpack(self, layout: str) -> Any:
        return struct.unpack(layout, self.read(struct.calcsize(layout)))[0]

    def read_text(self, layout: str) -> str:
        return str(self.read(self.unpack(layout)), "utf-8", "surrogatepass")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop_marked(self) -> List[Any]:
        items = self.stack
        self.stack = self.marked.pop()
        return items

    def spend(self, num_bytes: int) -> None:
        """Count what an array or its bytes need, so that one stored string cannot be turned into many."""
        self.array_bytes_left -= num_bytes
        if self.array_bytes_left < 0:
            raise ValueError("its arrays are larger than the file")

    def push_mark(self) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def push_tuple(self, length: int) -> None:
        if length > len(self.stack):
            raise IndexError("a tuple lacks items")
        items = tuple(self.stack[len(self.stack) - length :])
        del self.stack[len(self.stack) - length :]
        self.push(items)

    def push_global_lines(self) -> None:
        lines = [str(self.read_line(), "utf-8") for _ in range(2)]
        self.push(self.allowed(*lines))

    def read_line(self) -> bytes:
        line = self.stream.readline(256)
        self.left -= len(line)
        if not line.endswith(b"\n"):
            raise ValueError("a name in it has no end")
        return line[:-1]

    def push_stack_global(self) -> None:
        attribute, module = self.stack.pop(), self.stack.pop()
        self.push(self.allowed(module, attribute))

    def allowed(self, module: Any, attribute: Any) -> Name:
        name = Name(expect(module, str), expect(attribute, str))
        if name in self.values or name in self.calls:
            return name
        shown = ascii(f"{module}.{attribute}"[:120])
        raise RefusedError(f"it asks for {shown}")

    def push_memo(self, index: int) -> None:
        self.push(self.memo[index])

    def store_memo(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def append(self, items: List[Any]) -> None:
        expect(self.stack[-1], list).extend(items)

    def set_items(self, items: List[Any]) -> None:
        target = expect(self.stack[-1], dict)
        if len(items) % 2:
            raise ValueError("a dictionary has a key without a value")
        for key, value in zip(items[::2], items[1::2]):
            target[expect(key, (str, int))] = value  # plain keys: hashing a deep tuple would end the interpreter

    def call(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, Name) or not isinstance(arguments, tuple):
            raise ValueError("a call in it has no name or no arguments")
        if name not in self.calls:
            raise RefusedError(f"it calls '{name.module}.{name.attribute}'")
        self.push(self.calls[name](self, *arguments))

    def set_state(self) -> None:
        """Give an array or a number type, made empty before, its contents."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, np.ndarray):
            _fill_array(self, target, *expect(state, tuple))
        elif isinstance(target, np.dtype):
            _set_byte_order(target, *expect(state, tuple))
        else:
            raise ValueError("it sets the state of something that is no array")


def expect(value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
    return value


# What a call in the file may do. Each takes the machine and the arguments as the file gives them, and checks both.


def _empty_array(machine: Machine, subtype: Any, shape: Any, typecode: Any) -> np.ndarray:
    if subtype != _NDARRAY or shape != (0,):
        raise ValueError("an array in it is not made as numpy makes it")
    return np.empty(0, np.uint8)


def _number_type(machine: Machine, code: Any, align: Any = False, copy: Any = True) -> np.dtype:
    if not re.fullmatch(r"b1|[iu][1248]|f[248]", expect(code, str)):
        raise RefusedError(f"it holds an array of type {ascii(code[:40])}")
    return np.dtype(code, False, True)  # a copy: set_state changes it


def _set_byte_order(dtype: np.dtype, version: Any, byte_order: Any, *rest: Any) -> None:
    plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields; usual size, alignment, flags
    if version != 3 or byte_order not in ("<", ">", "|", "=") or rest != plain:
        raise RefusedError("it holds an array of a structured type")
    dtype.__setstate__((3, byte_order, *plain))


def _fill_array(machine: Machine, array: np.ndarray, version, shape, dtype, fortran_order, data) -> None:
    if isinstance(data, _EightBitText):
        machine.spend(len(data))
        data = data.encode("latin1")
    if not isinstance(dtype, np.dtype) or not isinstance(data, bytes):
        raise RefusedError("it holds an array of objects")
    if version != 1 or not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("an array in it has no valid shape")
    if len(shape) > 32 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array in it has {len(data)} bytes, which is not what its shape and type need")
    machine.spend(len(data))
    array.__setstate__((1, shape, dtype, bool(fortran_order), data))


def _scalar(machine: Machine, dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype) or not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise ValueError("a number in it is not made as numpy makes it")
    return np.frombuffer(data, dtype)[0]


def _latin1_bytes(machine: Machine, text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise RefusedError("it calls '_codecs.encode' for something else than the bytes of an array")
    machine.spend(len(text))
    return text.encode("latin1")


def _array_of_pair(machine: Machine, pair: Any) -> np.ndarray:
    """Paddle stores a tensor inside nested containers as the tuple (its automatic name, its array)."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], np.ndarray):
        raise ValueError("a tensor in it is not a pair of name and array")
    return pair[1]


_CALLS: Dict[Name, Callable[..., Any]] = {
    _DTYPE: _number_type,
    Name("collections", "OrderedDict"): lambda machine: OrderedDict(),
    Name("_codecs", "encode"): _latin1_bytes,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # numpy 1 and 2
    _CALLS[Name(_module, "_reconstruct")] = _empty_array
    _CALLS[Name(_module, "scalar")] = _scalar
for _module in ("builtins", "__builtin__"):  # protocol 2 uses Python 2's name
    _CALLS[Name(_module, "tuple")] = _array_of_pair
    _CALLS[Name(_module, "bytes")] = lambda machine: b""


# Instances, persistent identifiers and extension codes: all that makes an object of a class by other ways than a call.
_MAKES_OBJECTS = frozenset([b"i", b"o", b"\x81", b"\x92", b"P", b"Q", b"\x82", b"\x83", b"\x84"])

# The instructions of protocols 2 to 4 that containers, numbers and arrays need; run() itself reads PROTO and STOP.
_INSTRUCTIONS: Dict[bytes, Callable[[Machine], Any]] = {
    b"(": Machine.push_mark,
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.unpack("<i")),
    b"K": lambda m: m.push(m.unpack("<B")),
    b"M": lambda m: m.push(m.unpack("<H")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.read(m.unpack("<B")), "little", signed=True)),
    b"G": lambda m: m.push(m.unpack(">d")),
    b"X": lambda m: m.push(m.read_text("<I")),
    b"\x8c": lambda m: m.push(m.read_text("<B")),
    b"\x8d": lambda m: m.push(m.read_text("<Q")),
    b"U": lambda m: m.push(_EightBitText(m.read(m.unpack("<B")), "latin1")),
    b"T": lambda m: m.push(_EightBitText(m.read(m.unpack("<I")), "latin1")),
    b"B": lambda m: m.push(m.read(m.unpack("<I"))),
    b"C": lambda m: m.push(m.read(m.unpack("<B"))),
    b"\x8e": lambda m: m.push(m.read(m.unpack("<Q"))),
    b")": lambda m: m.push(()),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b"t": lambda m: m.push(tuple(m.pop_marked())),
    b"\x85": lambda m: m.push_tuple(1),
    b"\x86": lambda m: m.push_tuple(2),
    b"\x87": lambda m: m.push_tuple(3),
    b"a": lambda m: m.append([m.stack.pop()]),
    b"e": lambda m: m.append(m.pop_marked()),
    b"s": lambda m: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    b"u": lambda m: m.set_items(m.pop_marked()),
    b"q": lambda m: m.store_memo(m.unpack("<B")),
    b"r": lambda m: m.store_memo(m.unpack("<I")),
    b"\x94": lambda m: m.store_memo(len(m.memo)),
    b"h": lambda m: m.push_memo(m.unpack("<B")),
    b"j": lambda m: m.push_memo(m.unpack("<I")),
    b"c": Machine.push_global_lines,
    b"\x93": Machine.push_stack_global,
    b"R": Machine.call,
    b"b": lambda m: m.set_state(),
    b"\x95": lambda m: m.read(8),  # FRAME announces how much may be read ahead
}

Machine.calls = _CALLS
Machine.instructions = _INSTRUCTIONS
