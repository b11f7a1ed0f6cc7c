"""Image labels stored separately: in a list, or in ImageNet's development kit."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Dict, List, Optional

from ...errors import UserError
from ...files import read_regular
from ...text_files import read_bytes
from .mat_file import read_structures
from .unpacked import DAMAGE, TooLarge, open_unpacked

_KIT = "ILSVRC2012_devkit_t12"
_TRUTH, _META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_CLASSES = 1000
_LARGEST_BYTES = 1 << 26  # of the kit; the published one unpacks to 3 MB
_MOST_DIGITS = 9  # of a label


def label_files(root: str, split: str) -> List[str]:
    """The files under ``root`` that may contain the labels of ``split``."""
    files = [os.path.join(root, f"{split}_list.txt")]
    if split == "val":
        files += [os.path.join(root, f"{_KIT}.tar.gz")]
        files += [os.path.join(root, _KIT, "data", name) for name in (_TRUTH, _META)]
    return files


def listed_labels(root: str, split: str) -> Optional[Dict[bytes, int]]:
    """Label of each image of ``split`` by the last part of its path, None if there are none.

    ``<split>_list.txt`` has lines ``path label``. The development kit, extracted or as ``.tar.gz``, has the labels of
    ImageNet's 50,000 validation images; classes are numbered by sorted WordNet id, as usual.

    Raises:
        UserError: a list or the kit is corrupt.
    """
    path = Path(root, f"{split}_list.txt")
    if path.is_file():
        return _from_list(path)
    return kit_labels(root) if split == "val" else None


def _from_list(path: Path) -> Dict[bytes, int]:
    labels: Dict[bytes, int] = {}
    for number, line in enumerate(read_regular(path).splitlines(), 1):
        fields = line.strip().rsplit(None, 1)
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdigit() or len(fields[1]) > _MOST_DIGITS:
            raise UserError(f"{path} line {number}: expected 'path label' with an integer label")
        name = fields[0].rpartition(b"/")[2]
        if labels.setdefault(name, int(fields[1])) != int(fields[1]):
            raise UserError(f"{path} line {number}: {os.fsdecode(name)} has two labels, and only the name is looked at")
    return labels


def kit_labels(root: str) -> Optional[Dict[bytes, int]]:
    """Labels of ``ILSVRC2012_val_00000001.JPEG`` etc. from the development kit in ``root``, None without it.

    Raises:
        UserError: it is corrupt or not as published.
    """
    files = _read_kit(root)
    if files is None:
        return None
    try:
        synsets = read_structures(files[_META], "synsets")
        wnids = {int(synset["ILSVRC2012_ID"]): synset["WNID"] for synset in synsets}
        numbers = [int(line) for line in files[_TRUTH].split()]
        used = sorted(wnids[number] for number in range(1, _CLASSES + 1))
        position = {wnid: label for label, wnid in enumerate(used)}
        labels = [position[wnids[number]] for number in numbers]
    except (ArithmeticError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"the development kit {_KIT} in {root} is not as published: {error}; get it again") from error
    return {f"ILSVRC2012_val_{number:08d}.JPEG".encode(): label for number, label in enumerate(labels, 1)}


def _read_kit(root: str) -> Optional[Dict[str, bytes]]:
    folder = Path(root, _KIT, "data")
    archive = Path(root, f"{_KIT}.tar.gz")
    try:
        if folder.is_dir():
            return {name: read_bytes(folder / name, _LARGEST_BYTES) for name in (_TRUTH, _META)}
        if not archive.is_file():
            return None
        with open_unpacked(archive, _LARGEST_BYTES) as content:
            unpacked = io.BytesIO(content.read())
        with tarfile.open(fileobj=unpacked, mode="r:") as tar:
            return {name: tar.extractfile(f"{_KIT}/data/{name}").read() for name in (_TRUTH, _META)}
    except (OSError, TooLarge, *DAMAGE, KeyError, AttributeError, ValueError) as error:
        raise UserError(f"the development kit {_KIT} in {root} cannot be read: {error}; get it again") from error
