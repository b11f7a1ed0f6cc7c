"""Checks the instructions of a pickle before they are executed: ``pickle`` trusts their lengths, positions and keys."""

import io
import os
import pickletools
from typing import IO, Any, cast

_LONG = 1 << 12  # bytes; longer strings are arrays, not names or numbers
_MAX_TUPLES = 50_000  # hashing a key of about 100,000 nested tuples crashes the interpreter


class _KeyCheck:
    """Follows the instructions of a pickle to find tuples that become keys.

    Nested tuples that contain one another twice fit in 500 bytes, but hashing them takes ``pickle`` 2**60 steps.
    """

    def __init__(self) -> None:
        self._stack: list[Any] = []  # for each object, whether it is a tuple; or the mark object
        self._memo: dict[int, Any] = {}

    def follow(self, instruction: pickletools.OpcodeInfo, argument: Any) -> None:
        """Execute an instruction on the stack of types.

        Raises ValueError if a tuple becomes a key, or an entry of a set, and LookupError if an object is missing.
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
        items: list[Any] = []
        if pickletools.markobject in before:
            while (item := self._stack.pop()) is not pickletools.markobject:
                items.append(item)
            items.reverse()
            before = before[: before.index(pickletools.markobject)]
        operands = [self._stack.pop() for _ in before]
        keys = items if name in ("ADDITEMS", "FROZENSET") else items[::2] if name in ("SETITEMS", "DICT") else ()
        if True in ([operands[1]] if name == "SETITEM" else keys):
            raise ValueError("it has a tuple as a key")
        self._stack += [name.startswith("TUPLE")] * len(instruction.stack_after)


class _SkippedBytes(bytes):
    """Placeholder for skipped bytes: ``genops`` uses only their number."""

    def __new__(cls, length: int) -> "_SkippedBytes":
        skipped = super().__new__(cls)
        skipped.length = length
        return skipped

    length: int

    def __len__(self) -> int:
        return self.length


class _BoundedStream:
    """A stream for ``genops`` that checks lengths against the rest of the file and skips long strings."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream, self.left = stream, left

    def read(self, length: int) -> bytes:
        """Read ``length`` bytes, or skip them if they are many. Raises EOFError if the file has fewer bytes."""
        if length > self.left:
            raise EOFError(f"it ends {length - self.left} bytes too early")
        self.left -= length
        # Not in a zip, which checks a CRC.
        if length > _LONG and isinstance(self._stream, (io.BufferedReader, io.BytesIO)):
            self._stream.seek(length, os.SEEK_CUR)
            return _SkippedBytes(length)
        return self._stream.read(length)

    def readline(self) -> bytes:
        """Read a line of at most 256 bytes."""
        line = self._stream.readline(256)
        self.left -= len(line)
        return line


def require_plain_instructions(stream: IO[bytes]) -> int:
    """Check that lengths, positions and depths of the pickle fit the file; return the bytes from here to its end.

    Raises ValueError if a position or a depth is invalid, or a tuple is a key, and EOFError if the file is truncated.
    """
    start = stream.tell()
    size, tuples, keys = stream.seek(0, os.SEEK_END) - start, 0, _KeyCheck()
    stream.seek(start)
    bounded = _BoundedStream(stream, size)
    for count, (instruction, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], bounded))):
        name: str = instruction.name
        if (name == "PROTO") != (count == 0):
            raise ValueError("it does not start like a pickle")
        if name == "PROTO" and not 2 <= cast(int, argument) <= 5:
            raise ValueError(f"it has pickle protocol {argument}, where weights files have 2 to 5")
        if name == "FRAME" and cast(int, argument) > bounded.left:
            raise EOFError(f"it ends {cast(int, argument) - bounded.left} bytes too early")
        if name in ("PUT", "LONG_BINPUT") and cast(int, argument) > count:
            raise ValueError("it stores an object at a position far after the others")
        tuples += name.startswith("TUPLE")
        if tuples > _MAX_TUPLES:
            raise ValueError(f"it has more than {_MAX_TUPLES:,} tuples")
        keys.follow(instruction, argument)
    stream.seek(start)
    return size
