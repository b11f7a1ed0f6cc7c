"""Reads the lists of a large JSON file element by element, with the place of each in the file."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from ...core.runtime.files import read_regular

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHOLE = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
Place = str | os.PathLike[str]


class JsonElement(NamedTuple):
    """An element of a list in a JSON file."""

    number: int  # position in its list, from 0
    value: Any  # the decoded element, of the requested type
    start: int  # its first byte in the file
    end: int  # the byte after its last


def elements(path: Place, kinds: Mapping[str, Any], has_places: bool = True) -> dict[str, Iterator[JsonElement]]:
    """Iterate over lists in the outermost object of a file, or over the outermost list, named "".

    Only the current element is in memory as Python objects: COCO's annotations are 450 MB of text, or 3 GB of objects.

    Args:
        kinds: name of each list to read if it exists -> type of its elements, as msgspec checks it.
        has_places: whether elements have their places in the file; finding them takes time.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not JSON (NaN and Infinity are not), not UTF-8, or neither an object nor a list; also
            raised while elements are read.
    """
    content = read_regular(path)
    text = memoryview(content)[len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0 :]
    try:
        whole = _WHOLE.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    members: dict[str, msgspec.Raw | list[msgspec.Raw]] = {**whole} if isinstance(whole, dict) else {"": whole}
    first_byte, label = _address(content), f"reading {os.path.basename(path)}"
    return {
        name: _elements(
            name, member, first_byte if has_places else None, msgspec.json.Decoder(kinds.get(name, Any)).decode, label
        )
        for name, member in members.items()
        if name in kinds or not name
    }


def _elements(
    name: str,
    member: msgspec.Raw | list[msgspec.Raw],
    first_byte: int | None,
    decode: Callable[[msgspec.Raw], Any],
    label: str,
) -> Iterator[JsonElement]:
    """Iterate over the elements of one list; ``first_byte`` is the file's in memory, None: places are 0."""
    if not isinstance(member, list):
        if name and bytes(memoryview(member)[:1]) != b"[":
            raise ValueError(f"{name}: expected a list of objects")
        member = _LIST.decode(member)
    for number, part in enumerate(
        tqdm(member, desc=f"{label} {name}".rstrip(), unit="part", delay=1.0, disable=None, leave=False)
    ):
        try:
            value = decode(part)
        except ValueError as error:
            raise ValueError(f"{name}[{number}]: {error}") from None
        if first_byte is None:
            yield JsonElement(number, value, 0, 0)
            continue
        start = _address(part) - first_byte
        yield JsonElement(number, value, start, start + memoryview(part).nbytes)


def _address(content: bytes | msgspec.Raw) -> int:
    """Return the address of a buffer in memory."""
    return np.frombuffer(content, np.uint8).__array_interface__["data"][0] if content else 0
