"""Reading what ``paddle.save`` writes without executing anything that the file asks for.

A pickle is a program, and is processed twice. ``pickletools.genops`` lists its instructions, and only those that
``paddle.save`` uses (protocols 2 to 4) may occur; then ``pickle.Unpickler`` carries them out. A name in the file is
only a key into a table of ``calls``: nothing is imported and no function of the file's choice is called. Memory stays
in proportion to the file: a length is compared with the bytes that are left before it is trusted, and arrays together
may not hold more bytes than the file does. Strings of Python 2 are read as Latin-1, so that published datasets of that
age can be read too.

Only numbers, strings, None, lists, tuples, dictionaries and numeric numpy arrays can come out.
"""

from __future__ import annotations

import math
import os
import pickle
import pickletools
import re
from collections import OrderedDict
from typing import IO, Any, BinaryIO, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Tuple, Union, cast

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
    if isinstance(file, (str, os.PathLike)):
        with reading(str(file), "paddle.save file"), open(file, "rb") as stream:
            return _load(stream)
    with reading(str(getattr(file, "name", "the file")), "paddle.save file"):
        return _load(file)


def _load(stream: BinaryIO) -> Any:
    value = RestrictedUnpickler(stream).load()
    return _without_bookkeeping(value) if isinstance(value, dict) else value


def _without_bookkeeping(state: Dict[Any, Any]) -> Dict[Any, Any]:
    state.pop(_NAME_TABLE, None)
    for name, about in state.pop(_SLICES, {}).items():
        parts = [state.pop(expect(part, str)) for part in about["slices"]]
        state[name] = np.concatenate(parts).reshape(about["OriginShape"])
    return state


class Name(NamedTuple):
    """A class or function as the file names it."""

    module: str
    attribute: str


_NDARRAY = Name("numpy", "ndarray")


class Budget:
    """The memory that the arrays of one file may still take.

    Attributes:
        bytes_left: protocol 2 makes each array twice, first its bytes, then the array; hence twice the file's size.
        has_eight_bit_text: whether Python 2 wrote the file, which had one type for text and for the bytes of an array.
    """

    def __init__(self, file_size: int) -> None:
        self.bytes_left = 2 * file_size
        self.has_eight_bit_text = False

    def spend(self, num_bytes: int) -> None:
        """Count what an array or its bytes need, so that one stored string cannot be turned into many."""
        self.bytes_left -= num_bytes
        if self.bytes_left < 0:
            raise ValueError("its arrays are larger than the file")


class StandIn:
    """Stands in for a name in the file: it can be called, compared and passed on, but not changed."""

    __slots__ = ("_budget", "_function", "name")

    def __init__(self, name: Name, function: Optional[Callable[..., Any]], budget: Budget) -> None:
        self.name = name
        self._function = function
        self._budget = budget

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            raise RefusedError(f"it calls '{self.name.module}.{self.name.attribute}'")
        return self._function(self._budget, *arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("it sets the state of something that is not an array")


class _Bounded:
    """A stream for ``genops`` that compares a length with what is left of the file before memory is taken for it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.start = stream.tell()
        self.size = self.left = stream.seek(0, os.SEEK_END) - self.start
        self._stream = stream
        stream.seek(self.start)

    def read(self, length: int) -> bytes:
        if length > self.left:
            raise EOFError(f"it ends {length - self.left} bytes too early")
        self.left -= length
        return self._stream.read(length)

    def readline(self) -> bytes:
        line = self._stream.readline(256)
        self.left -= len(line)
        return line


# Instances, persistent identifiers and extension codes: all that makes an object of a class by other ways than a call.
_MAKES_OBJECTS = frozenset("INST OBJ NEWOBJ NEWOBJ_EX PERSID BINPERSID EXT1 EXT2 EXT4".split())
_INSTRUCTIONS = frozenset(  # of protocols 2 to 4, those that containers, numbers and arrays need
    """
    PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
    BINUNICODE8 BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 EMPTY_TUPLE EMPTY_LIST EMPTY_DICT TUPLE
    TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL
    STACK_GLOBAL REDUCE BUILD
    """.split()
)
_LONGEST_NAME = 200  # longer texts are only known to be texts


class RestrictedUnpickler(pickle.Unpickler):
    """Reads the pickle at a stream's position; what it may do is checked before the first instruction is executed.

    Attributes:
        calls: what each name may do when the file calls it: a function of the budget and the file's arguments; None if
            it may only be an argument itself.
        instructions: names of those that may occur.
    """

    calls: Dict[Name, Optional[Callable[..., Any]]]
    instructions: FrozenSet[str] = _INSTRUCTIONS

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream, encoding="latin1")
        bounded = _Bounded(stream)
        self._budget = Budget(bounded.size)
        self._check(bounded)
        stream.seek(bounded.start)

    def load(self) -> Any:
        return _with_arrays(super().load(), {})

    def find_class(self, module: str, attribute: str) -> StandIn:
        name = Name(expect(module, str), expect(attribute, str))
        if name not in self.calls:
            shown = ascii(f"{module}.{attribute}"[:120])
            raise RefusedError(f"it asks for {shown}")
        return StandIn(name, self.calls[name], self._budget)

    def _check(self, bounded: _Bounded) -> None:
        """Go through the instructions and keep account of the texts and numbers on the stack (None for all else).

        Only they may be keys: hashing a tuple of a hundred thousand tuples would end the interpreter.
        """
        stack: List[Union[str, int, None]] = []
        marks: List[int] = []
        memo: Dict[int, Union[str, int, None]] = {}
        instruction: pickletools.OpcodeInfo
        argument: Any
        for count, (instruction, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], bounded))):
            name, before = instruction.name, instruction.stack_before
            self._check_kind(name, argument, count)
            if (name == "FRAME" and argument > bounded.left) or (name.endswith("BINPUT") and argument > count):
                raise ValueError("it announces more than it holds")
            if name.endswith("GLOBAL"):
                self.find_class(*(argument.split(" ") if name == "GLOBAL" else stack[-2:]))
            taken = len(before)
            if pickletools.markobject in before:
                taken = before.index(pickletools.markobject) + len(stack) - marks.pop()
            if taken > len(stack):
                raise IndexError("an instruction lacks items")
            items = stack[len(stack) - taken :]
            if name.startswith("SETITEM") and None in items[1::2]:
                raise ValueError("a dictionary has a key that is neither text nor number")
            if name == "MARK":
                marks.append(len(stack))
            elif name.endswith("PUT") or name == "MEMOIZE":
                memo[len(memo) if argument is None else argument] = stack[-1]
            elif name.endswith("GET"):
                stack.append(memo[argument])
            else:
                del stack[len(stack) - taken :]
                stack += [_known(name, argument)] * len(instruction.stack_after)

    def _check_kind(self, name: str, argument: Any, count: int) -> None:
        if (name == "PROTO") != (count == 0):
            raise ValueError("its first byte is not that of a pickle")
        if name == "PROTO" and not 2 <= argument <= 4:
            raise ValueError(f"it has pickle protocol {argument}, where weights files have 2 to 4")
        if name in _MAKES_OBJECTS - self.instructions:
            raise RefusedError(f"it makes objects of classes of its choice (pickle instruction {name})")
        if name not in self.instructions:
            raise ValueError(f"{name} is not an instruction that weights files use")
        self._budget.has_eight_bit_text |= name.endswith("BINSTRING")


def _known(instruction: str, argument: Any) -> Union[str, int, None]:
    if isinstance(argument, str) and instruction != "GLOBAL":
        return argument if len(argument) <= _LONGEST_NAME else ""
    return argument if isinstance(argument, int) else None


def expect(value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise ValueError(f"it has a {type(value).__name__} in a place where none belongs")
    return value


# What a call in the file may do. Each takes the budget and the arguments as the file gives them, and checks both.


class _NumberType:
    """The type of an array's numbers, which gets its byte order afterwards."""

    __slots__ = ("dtype",)

    def __init__(self, budget: Budget, code: Any, align: Any = False, copy: Any = True) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", expect(code, str)):
            raise RefusedError(f"it holds an array of type {ascii(code[:40])}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields; usual size, alignment, flags
        if expect(state, tuple)[0] != 3 or state[1] not in ("<", ">", "|", "=") or state[2:] != plain:
            raise RefusedError("it holds an array of a structured type")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array in the making: empty until its state is set."""

    __slots__ = ("_budget", "numbers")

    def __init__(self, budget: Budget, subtype: Any, shape: Any, typecode: Any) -> None:
        if not isinstance(subtype, StandIn) or subtype.name != _NDARRAY or shape != (0,):
            raise ValueError("an array in it is not made as numpy makes it")
        self._budget = budget
        self.numbers = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        version, shape, number_type, fortran_order, data = expect(state, tuple)
        if isinstance(data, str) and self._budget.has_eight_bit_text:
            data = _latin1_bytes(self._budget, data, "latin1")
        if not isinstance(number_type, _NumberType) or not isinstance(data, bytes):
            raise RefusedError("it holds an array of objects")
        if version != 1 or not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError("an array in it has no valid shape")
        dtype = number_type.dtype
        if len(shape) > 32 or math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError(f"an array in it has {len(data)} bytes, which is not what its shape and type need")
        self._budget.spend(len(data))
        self.numbers = np.empty(0, np.uint8)
        self.numbers.__setstate__((1, shape, dtype, bool(fortran_order), data))


def _with_arrays(value: Any, done: Dict[int, Tuple[Any, Any]]) -> Any:
    """``value``, with its arrays, which are now made, in their places; ``done`` has what was met, by identity."""
    if isinstance(value, _Array):
        return value.numbers
    if not isinstance(value, (list, tuple, dict)):
        return value
    if id(value) not in done:
        done[id(value)] = value, value
        if isinstance(value, list):
            value[:] = [_with_arrays(item, done) for item in value]
        elif isinstance(value, dict):
            value.update((key, _with_arrays(item, done)) for key, item in value.items())
        else:
            done[id(value)] = value, tuple(_with_arrays(item, done) for item in value)
    return done[id(value)][1]


def _scalar(budget: Budget, number_type: Any, data: Any) -> Any:
    dtype = expect(number_type, _NumberType).dtype
    if not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise ValueError("a number in it is not made as numpy makes it")
    return np.frombuffer(data, dtype)[0]


def _latin1_bytes(budget: Budget, text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise RefusedError("it calls '_codecs.encode' for something else than the bytes of an array")
    budget.spend(len(text))
    return text.encode("latin1")


def _array_of_pair(budget: Budget, pair: Any) -> _Array:
    """Paddle stores a tensor inside nested containers as the tuple (its automatic name, its array)."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], _Array):
        raise ValueError("a tensor in it is not a pair of name and array")
    return pair[1]


class Entries(OrderedDict):
    """An ordered dictionary that the file cannot give attributes."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("it sets the state of something that is not an array")


_CALLS: Dict[Name, Optional[Callable[..., Any]]] = {
    _NDARRAY: None,
    Name("numpy", "dtype"): _NumberType,
    Name("collections", "OrderedDict"): lambda budget: Entries(),
    Name("_codecs", "encode"): _latin1_bytes,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # numpy 1 and 2
    _CALLS[Name(_module, "_reconstruct")] = _Array
    _CALLS[Name(_module, "scalar")] = _scalar
for _module in ("builtins", "__builtin__"):  # protocol 2 uses Python 2's name
    _CALLS[Name(_module, "tuple")] = _array_of_pair
    _CALLS[Name(_module, "bytes")] = lambda budget: b""

RestrictedUnpickler.calls = _CALLS
