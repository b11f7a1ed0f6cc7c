"""Reads files of ``torch.save`` without torch, a dependency of a GB, and without executing code that they name.

Since PyTorch 1.6, they are a zip archive with one pickle and a file for each storage (the memory of one or more
tensors); before, several pickles, followed by the storages. The pickles are read as in ``unpickling``, with a few more
names for tensors.

Source: ``torch/serialization.py`` and ``torch/_utils.py`` (the functions ``_rebuild_*``) of PyTorch.
"""

import contextlib
import functools
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO

import numpy as np

from .array_files import RefusedError, reading
from .unpickling import FrozenObject, GlobalName, KeptArguments, PickleReader, expect

KIND, ADVICE = "torch.save file", "save it again as a state dict of tensors, or as safetensors"
_LEGACY_NUMBER, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
LEGACY_MAGIC = _LEGACY_NUMBER.to_bytes(10, "little")  # in the first bytes of a file before PyTorch 1.6

_DTYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",  # as bits, as in all readers
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}


@contextlib.contextmanager
def open_torch_file(path: str | os.PathLike) -> Iterator[Any]:
    """Read an object that ``torch.save`` wrote, with a ``StoredTensor`` for each tensor, valid inside the block.

    Raises UserError, also for tensors inside the block, if the file is unreadable, damaged, or names functions that
    weights do not need; no code was executed.
    """
    with reading(str(path), KIND, ADVICE), open(path, "rb") as stream:
        start = stream.read(4)
        stream.seek(0)
        if start == b"PK\x03\x04":
            with zipfile.ZipFile(stream) as archive:
                yield _load_zip(archive, os.fstat(stream.fileno()).st_size)
        else:
            yield _load_legacy(stream)


class TensorStorage(FrozenObject):
    """The memory of one or more tensors, read on first use. ``load``: returns the bytes; called once."""

    def __init__(self, dtype: np.dtype, count: int, load: Callable[[], bytes]) -> None:
        self.dtype = dtype
        self.count = count
        self._load = load
        self._numbers: np.ndarray | None = None

    def numbers(self) -> np.ndarray:
        """Return all elements, (count,)."""
        if self._numbers is None:
            data = self._load()
            if len(data) != self.count * self.dtype.itemsize:
                raise ValueError(f"a storage in it has {len(data)} bytes where {self.count} numbers were announced")
            self._numbers = np.frombuffer(data, self.dtype)
        return self._numbers


class StoredTensor(FrozenObject):
    """A tensor as the file describes it: a shape over a storage, with offset and strides in elements."""

    def __init__(self, storage: TensorStorage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.storage = storage
        self.offset = offset
        self.shape = shape
        self.strides = strides

    def numpy(self) -> np.ndarray:
        """Return the elements, bfloat16 as its bits in uint16; they share the storage's memory."""
        numbers = self.storage.numbers()[self.offset :]
        strides = tuple(step * numbers.itemsize for step in self.strides)
        return np.lib.stride_tricks.as_strided(numbers, self.shape, strides, writeable=False)


def _whole_numbers(value: Any) -> tuple[int, ...]:
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in expect(value, tuple)):
        raise ValueError("a tensor in it has no valid shape")
    return value


def _rebuild_tensor(storage: Any, offset: object, shape: object, strides: object, *rest: object) -> StoredTensor:
    """Build a tensor; ``rest`` (whether it needs a gradient, hooks and metadata) is ignored."""
    storage, shape, strides = expect(storage, TensorStorage), _whole_numbers(shape), _whole_numbers(strides)
    (offset,) = _whole_numbers((offset,))
    if len(shape) != len(strides) or len(shape) > 32:
        raise ValueError("a tensor in it has no valid shape")
    last = offset + sum((side - 1) * step for side, step in zip(shape, strides, strict=True))
    count = math.prod(shape)
    if count > storage.count or (count > 0 and last >= storage.count):
        raise ValueError("a tensor in it is larger than its storage")
    return StoredTensor(storage, offset, shape, strides)


def _rebuild_parameter(data: object, *rest: object) -> StoredTensor:
    return expect(data, StoredTensor)


class TorchReader(PickleReader):
    """Reads the pickle of a PyTorch file at a stream's position.

    ``read_storage``: returns the bytes of the storage with a key; called when they are needed.
    """

    calls = {
        **PickleReader.calls,
        **{("torch", storage): None for storage in _DTYPES},
        ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
        ("torch", "Size"): _whole_numbers,
    }

    arguments_class = KeptArguments

    def __init__(self, stream: IO[bytes], read_storage: Callable[[str], bytes]) -> None:
        super().__init__(stream)
        self._read_storage = read_storage
        self.storages: dict[str, TensorStorage] = {}

    def persistent_load(self, about: Any) -> TensorStorage:
        """Return the storage of ("storage", type, key, device, number of elements[, a view in old files])."""
        about = expect(about, tuple)
        if len(about) not in (5, 6) or about[0] != "storage" or (len(about) == 6 and about[5] is not None):
            raise ValueError("the description of a storage in it is not torch's")
        kind, key, count = expect(about[1], GlobalName), expect(about[2], str), about[4]
        (count,) = _whole_numbers((count,))
        dtype = np.dtype(_DTYPES[kind.text.removeprefix("torch.")])
        storage = self.storages.setdefault(key, TensorStorage(dtype, count, functools.partial(self._read_storage, key)))
        if (storage.dtype, storage.count) != (dtype, count):
            raise ValueError("a storage in it is described in two ways")
        return storage


def _load_zip(archive: zipfile.ZipFile, file_size: int) -> Any:
    entries = {entry.filename: entry for entry in archive.infolist()}
    pickles = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise ValueError("the archive has no data.pkl")
    folder = pickles[0][: -len("data.pkl")]
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
        raise RefusedError("its entries are compressed, which torch does not do")
    if sum(entry.file_size for entry in entries.values()) > file_size:
        raise ValueError("its entries are larger than the file")  # several names share one entry

    def load(key: str) -> bytes:
        return archive.read(entries[f"{folder}data/{key}"])

    if f"{folder}byteorder" in entries and archive.read(f"{folder}byteorder") != b"little":
        raise RefusedError("its numbers are in big-endian order")
    with archive.open(pickles[0]) as stream:
        return TorchReader(stream, load).load()


def _load_legacy(stream: BinaryIO) -> Any:
    data: dict[str, bytes] = {}
    if _plain(stream) != _LEGACY_NUMBER or _plain(stream) != _LEGACY_PROTOCOL:
        raise ValueError("it does not start like torch's files")
    if expect(_plain(stream), dict).get("little_endian") is not True:
        raise RefusedError("its numbers are in big-endian order")
    reader = TorchReader(stream, lambda key: data[key])
    value = reader.load()
    keys: list[Any] = expect(_plain(stream), list)
    for key in keys:
        storage = reader.storages[expect(key, str)]
        count = int.from_bytes(stream.read(8), "little")
        if count != storage.count or key in data:
            raise ValueError("its storages differ from their descriptions")
        data[key] = _read_exactly(stream, count * storage.dtype.itemsize)
    return value


def _plain(stream: BinaryIO) -> Any:
    """Read the next pickle, which must not contain tensors."""

    def load(key: str) -> bytes:
        raise ValueError("it has a tensor in a place where none belongs")

    return TorchReader(stream, load).load()


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    left = os.fstat(stream.fileno()).st_size - stream.tell()
    if length > left:
        raise EOFError(f"it ends {length - left} bytes too early")
    return stream.read(length)
