"""Lists with one ``path label`` line per picture, as PaddleViT has them for ImageNet."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path
from typing import Iterator, List, Optional

import numpy as np

from ...errors import UserError
from ...loading.path_index import Batch, PathIndex, ensure_path_index, make_batch

_LINES_PER_BATCH = 65536
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def index_path_list(
    list_file: Path, num_classes: int, cache_folder: Path, name: str, class_names: Optional[List[str]] = None
) -> PathIndex:
    """Open the index of ``list_file``, built first if its content has changed.

    The label is the last field of a line, so a path may contain spaces; blank lines do not count.

    Raises:
        UserError: names the first line that is malformed or has a label outside ``0 .. num_classes - 1``.
    """
    key = hashlib.sha256(f"path list, {num_classes} classes {class_names}\n".encode())
    try:
        with open(list_file, "rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                key.update(chunk)
    except OSError as error:
        raise _unreadable(list_file, error) from error
    index = ensure_path_index(cache_folder, name, key.digest(), lambda: _batches(list_file, num_classes), class_names)
    if len(index) == 0:
        raise UserError(f"{list_file} holds no samples; expected lines of 'path label'")
    return index


def _batches(list_file: Path, num_classes: int) -> Iterator[Batch]:
    try:
        with open(list_file, "rb") as stream:
            if stream.read(3) != _BYTE_ORDER_MARK:
                stream.seek(0)
            first_line = 1
            for lines in iter(lambda: list(islice(stream, _LINES_PER_BATCH)), []):
                yield _parse(lines, first_line, list_file, num_classes)
                first_line += len(lines)
    except OSError as error:
        raise _unreadable(list_file, error) from error


def _parse(lines: List[bytes], first_line: int, list_file: Path, num_classes: int) -> Batch:
    fields = [line.strip().rsplit(None, 1) for line in lines]
    fields = [pair for pair in fields if pair]
    try:
        paths = [path for path, _ in fields]
        labels = np.fromiter((int(label) for _, label in fields), np.int64, len(fields))
        in_range = not ((labels < 0) | (labels >= num_classes)).any()
    except (ValueError, OverflowError):
        in_range = False
    if not in_range:
        raise _first_mistake(lines, first_line, list_file, num_classes)
    return make_batch(paths, labels)


def _first_mistake(lines: List[bytes], first_line: int, list_file: Path, num_classes: int) -> UserError:
    """Go through the lines of a bad batch one by one, to name the first that is wrong."""
    for number, line in enumerate(lines, first_line):
        pair = line.strip().rsplit(None, 1)
        if not pair:
            continue
        try:
            _, label = pair[0], int(pair[1])
        except (ValueError, IndexError):
            shown = line.strip().decode("utf-8", "backslashreplace")[:100]
            return UserError(f"{list_file} line {number}: expected 'path label' with an integer label, found '{shown}'")
        if not 0 <= label < num_classes:
            return UserError(
                f"{list_file} line {number}: label {label} is out of range; "
                f"with {num_classes} classes labels go from 0 to {num_classes - 1}"
            )
    raise AssertionError(f"no wrong line between {first_line} and {first_line + len(lines) - 1} of {list_file}")


def _unreadable(list_file: Path, error: OSError) -> UserError:
    return UserError(f"{list_file} cannot be read: {error.strerror}")
