"""The index of the images in a split's tar files: three memory-mapped files in the cache folder.

Names and labels are a path index, so are the tar files; offsets and sizes are a ``.npy`` array. All carry the key of
their source: size and modification time of the tar files, content of the lists next to them.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from ...errors import UserError
from ...files import atomic_file, map_array, read_regular, require_regular
from ...loading.checked_files import Damaged, map_verified, write_array
from ...loading.path_index import Batch, ensure_path_index, make_batch
from ...text_files import read_json
from .formats import readable_suffixes
from .image_dataset import FILE as CLASSES_FILE
from .image_dataset import name_folders, read_class_names
from .left_out import LeftOut
from .listed_labels import label_files, listed_labels
from .tar_scan import Scan, find_shards, scan


class TarIndex:
    """The location of each image of a split. Only file names are pickled."""

    def __init__(self, root: str, split: str, cache_folder: Path) -> None:
        """Open the index of the tar files of ``split`` under ``root``, rebuilding it if they have changed.

        Raises:
            UserError: no tar files, a compressed, truncated or corrupt one, or an image without a class.
        """
        self._locations: Optional[np.ndarray] = None
        shards = find_shards(root, split)
        training_shards = find_shards(root, "train") if split != "train" else []
        if not shards:
            there = [known for known in ("train", "val", "test") if find_shards(root, known)]
            others = f"; there are some of {', '.join(there)}" if there else ""
            raise UserError(f"{root} has no tar files of the {split} pictures, such as {split}-00000.tar{others}")
        key = _key(root, split, shards, training_shards)
        self._locations_file = str(Path(cache_folder, f"tar-{split}-{key.hex()[:16]}.npy"))
        classes: Dict[str, Any] = {}

        def build() -> Iterator[Batch]:
            found = scan(root, shards, split, listed_labels(root, split))
            if not len(found.labels):
                others = f"; {found.left_out.summary()}" if found.left_out.counts else ""
                raise UserError(f"{os.path.join(root, shards[0])} holds no pictures{others}")
            training = TarIndex(root, "train", cache_folder) if training_shards else None
            labels = _resolve_classes(found, root, shards, training, classes)
            classes["left_out"] = found.left_out.as_json()
            write_array(Path(self._locations_file), found.locations)
            return _with_labels(found.batches, labels)

        self._samples = ensure_path_index(cache_folder, f"tar-{split}", key, build, lambda: classes)
        if not self._locations_fit():  # lost or corrupt: both are rebuilt together
            os.unlink(self._samples.file)
            self._locations = None
            self._samples = ensure_path_index(cache_folder, f"tar-{split}", key, build, lambda: classes)
        encoded = [os.fsencode(shard) for shard in shards]
        self._shards = ensure_path_index(cache_folder, f"tar-{split}-files", key, lambda: [make_batch(encoded, 0)])

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_locations": None}

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, index: int) -> str:
        """The member that holds image ``index``."""
        return self._samples.path(index)

    def names(self) -> List[Any]:
        """All members' names, as ``PathIndex.buffers`` has them."""
        return self._samples.buffers()

    def label(self, index: int) -> int:
        """The class of image ``index``."""
        return self._samples.label(index)

    def location(self, index: int) -> Tuple[int, int, int]:
        """Number of the tar file, offset and size in bytes of image ``index``."""
        if self._locations is None:
            self._locations = map_array(self._locations_file)
        return tuple(self._locations[index].tolist())

    def shard(self, number: int) -> str:
        """Tar file ``number``, relative to the data path."""
        return self._shards.path(number)

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) int32, read-only."""
        return self._samples.labels

    @property
    def classes(self) -> Dict[str, Any]:
        """``names`` to show, or None; ``groups``, the names in the archives, or None; ``count``; ``left_out``."""
        return self._samples.class_names

    @property
    def left_out(self) -> LeftOut:
        """The members that are neither images nor labels."""
        return LeftOut.of_json(self.classes["left_out"])

    @property
    def key(self) -> bytes:
        """Identifies the source and its state."""
        return self._samples.key

    def _locations_fit(self) -> bool:
        try:
            self._locations = map_verified(self._locations_file)
        except Damaged:
            return False
        return self._locations.shape == (len(self), 3)


def _key(root: str, split: str, shards: List[str], training_shards: List[str]) -> bytes:
    # Which members are images depends on what Pillow opens here; 2 is the version of what the index says.
    key = hashlib.sha256(f"tar 2 {split} {sorted(readable_suffixes())}\n".encode())
    for shard in [*shards, *training_shards]:
        path = os.path.join(root, shard)
        try:
            require_regular(path)
            status = os.stat(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        key.update(f"{shard}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    for path in (os.path.join(root, CLASSES_FILE), *label_files(root, "train"), *label_files(root, split)):
        if os.path.isfile(path):
            key.update(os.path.basename(path).encode() + hashlib.sha256(read_regular(path)).digest())
    return key.digest()


def _resolve_classes(
    found: Scan, root: str, shards: List[str], training: Optional[TarIndex], classes: Dict[str, Any]
) -> np.ndarray:
    """The final labels; class metadata is stored in ``classes``."""
    known = training.classes if training else {"names": None, "groups": None, "count": 0}
    if found.groups is None:
        names = read_class_names(root) or known["names"]
        largest = int(found.labels.max())
        count = len(names) if names else max(largest + 1, known["count"])
        if largest >= count:
            raise UserError(
                f"a picture of {os.path.join(root, shards[0])} has label {largest}, but only {count} classes are named"
            )
        classes.update(names=names, groups=known["groups"], count=count)
        return found.labels
    groups = known["groups"] if training else found.groups
    if groups is None:
        raise UserError(
            f"the training tar files of {root} number their classes in label files, the validation ones name them "
            f"('{found.groups[0]}'); pack both in one way"
        )
    unknown = sorted(set(found.groups) - set(groups))
    if unknown:
        raise UserError(f"class '{unknown[0]}' of {os.path.join(root, shards[0])} does not exist in the training files")
    classes.update(names=name_folders(root, groups), groups=groups, count=len(groups))
    position = {group: number for number, group in enumerate(groups)}
    return np.array([position[group] for group in found.groups], np.int64)[found.labels]


def _with_labels(batches: List[Batch], labels: np.ndarray) -> Iterator[Batch]:
    first = 0
    for batch in batches:
        yield batch._replace(labels=labels[first : first + len(batch.lengths)].astype(np.int32))
        first += len(batch.lengths)


FILE = "prepared.json"
_VERSION = 1


class Preparation(NamedTuple):
    """Settings and state of a preparation.

    Attributes:
        source: absolute path of the data that were read.
        shorter_side: pixels; larger images were made this large.
        quality: of the JPEG files that were written.
        shard_size: images in each tar file.
        num_classes: of the source.
        fingerprints: of the source, by split.
        complete: False until all tar files are there.
        left_out: unreadable images that are missing.
        stored: "jpeg", or "pages" of pixels.
    """

    source: str
    shorter_side: int
    quality: int
    shard_size: int
    num_classes: int
    fingerprints: Dict[str, str]
    complete: bool = False
    left_out: int = 0
    stored: str = "jpeg"

    def note(self, root: str) -> str:
        """What a run on these files reports about them."""
        missing = f", {self.left_out} unreadable pictures left out" if self.left_out else ""
        form = f"JPEG quality {self.quality}" if self.stored == "jpeg" else "as pages of pixels"
        return (
            f"note: the pictures of {root} were prepared from {self.source} with a shorter side of at most "
            f"{self.shorter_side} pixels, {form}{missing}"
        )

    def difference(self, other: Preparation) -> Optional[str]:
        """The first setting that would make ``other`` produce different files; None if there is none."""
        for name in ("shorter_side", "quality", "shard_size", "num_classes", "stored", "fingerprints"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return "the pictures of the source" if name == "fingerprints" else f"{name} {here}, now {there}"
        return None


_PATTERN = Preparation("", 0, 0, 0, 0, {})  # has the types


def read_preparation(root: str, unfinished: bool = False) -> Optional[Preparation]:
    """The record in ``root``, None if there is none.

    Raises:
        UserError: it is corrupt, or the preparation was not finished and ``unfinished`` is False.
    """
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return None
    try:
        stored = read_json(path)
        if stored.pop("version") != _VERSION:
            raise ValueError("it is of another version")
        found = Preparation(**stored)
        if not all(type(value) is type(getattr(_PATTERN, name)) for name, value in found._asdict().items()):
            raise ValueError("a value in it is of another type")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}); prepare the pictures again in an empty folder") from error
    if not found.complete and not unfinished:
        raise UserError(f"the preparation of {root} was not finished; continue with the command that began it")
    return found


def write_preparation(root: Path, preparation: Preparation) -> None:
    """Write the record to ``root``, replacing an older one."""
    with atomic_file(root / FILE) as out:
        out.write((json.dumps({"version": _VERSION, **preparation._asdict()}, indent=1) + "\n").encode("ascii"))
