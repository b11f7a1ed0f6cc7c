"""The images of a run: an existing split, or part of a dataset that is split class by class."""

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, map_array
from ...core.tasks.dataset import digests, require_split
from ...core.tasks.sample_groups import FOLDER, find_groups
from .image_dataset import ImageDataset
from .reading import SPLITS


def make_row_method(name: str) -> Any:
    """Create a method that calls the whole dataset's method with the row of a sample."""

    def method(self: "DatasetPart", index: int, *more: object) -> Any:
        return getattr(self.dataset, name)(int(self.rows[index]), *more)

    method.__name__ = name  # by which a bound method is pickled
    return method


class DatasetPart(ImageDataset):
    """A subset of another dataset, which describes and reads its samples, by a memory-mapped file of their rows."""

    makers: Mapping[str, str] = {}  # the whole dataset's results are made

    def __init__(self, dataset: ImageDataset, rows_file: Path, is_share: bool = False) -> None:
        """Select rows of a dataset, int64 in ``rows_file``; ``is_share``: they are a random split."""
        self.dataset = dataset
        self.is_random_split = is_share or dataset.is_random_split
        self.rows_file = str(rows_file)
        self._rows: np.ndarray | None = None
        self._labels: np.ndarray | None = None
        self._label_matrix: np.ndarray | None = None
        self.kind, self.image_mode, self.is_remote = dataset.kind, dataset.image_mode, dataset.is_remote
        self.num_classes, self.notices, self.skipped_files = dataset.num_classes, dataset.notices, dataset.skipped_files
        self.groups_by, self.published_as = dataset.groups_by, dataset.published_as
        self.divided = ""  # how samples were kept together, for the log

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_rows": None, "_labels": None, "_label_matrix": None, "skipped_files": None}

    def __copy__(self) -> "DatasetPart":
        copied = object.__new__(type(self))
        copied.__dict__ = {**self.__dict__, "dataset": copy.copy(self.dataset)}
        return copied

    def __len__(self) -> int:
        return len(self.rows)

    read, peek, encoded, num_bytes, part, describe, identity, require_size = map(
        make_row_method, ("read", "peek", "encoded", "num_bytes", "part", "describe", "identity", "require_size")
    )

    def read_as(self, truth: str) -> None:
        """Set what the label of an image is, ``truth``."""
        self.dataset.read_as(truth)

    def prefetch(self, indices: Sequence[int]) -> None:
        """Fetch images of a dataset at an address together."""
        self.dataset.prefetch([int(self.rows[index]) for index in indices])

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what is listed: the whole dataset and the rows."""
        return {**self.dataset.listed(), "choice": [self.rows]}

    def describe_groups(self) -> str:
        """Return the end of the log line about the split: how images of one group were divided, if there are groups."""
        return f"; {self.divided}" if self.divided else ""

    @property
    def rows(self) -> np.ndarray:
        """Rows in the whole dataset, ascending, int64, memory-mapped."""
        if self._rows is None:
            self._rows = map_array(self.rows_file)
        return self._rows

    # the whole dataset has them
    reading = property(lambda part: part.dataset.reading)
    truth = property(lambda part: part.dataset.truth)
    reads_parts = property(lambda part: part.dataset.reads_parts)
    class_names = property(lambda part: part.dataset.class_names)
    content_key = property(lambda part: part.dataset.content_key)

    @property
    def labels(self) -> np.ndarray | None:  # type: ignore[override] # the whole dataset has them
        """Labels of the selected samples."""
        if self._labels is None and self.dataset.labels is not None:
            self._labels = self.dataset.labels[self.rows]
        return self._labels

    @property
    def label_matrix(self) -> np.ndarray | None:  # type: ignore[override] # the whole dataset has them
        """Labels of the selected samples, if they have several each."""
        if self._label_matrix is None and self.dataset.label_matrix is not None:
            self._label_matrix = self.dataset.label_matrix[self.rows]
        return self._label_matrix


def hold_out(
    dataset: Any, split: str, fraction: float, seed: int, cache_folder: Path, kind: type[DatasetPart] = DatasetPart
) -> Any:
    """Return the "train" or "val" part of ``dataset``, with ``fraction`` of each class held out as "val".

    A dataset without one label per sample is split as a single class. Each class keeps at least one image for training
    and contributes at least one to validation if it has two; images that are also in another class do not count here.
    If the dataset knows which images belong together (``groups_by``), these are on one side; folders are kept together
    only if whole folders make up about that fraction. ``divided`` of the part, of class ``kind``, describes this. A
    ``UserError`` says that nothing would be held out.
    """
    require_split(split, SPLITS, "that DATA.VAL_FRACTION divides")
    if hasattr(dataset, "draw_order"):
        raise UserError(
            f"DATA.VAL_FRACTION {fraction:g}: draw_order of {dataset.own_class.__name__} also draws images that would "
            "be held out: remove the key, and return the images of the split train or val"
        )
    labels = np.zeros(len(dataset), np.int64) if dataset.labels is None else np.asarray(dataset.labels)
    held_out, divided = _choose_groups(dataset, labels, fraction, seed)
    if held_out is None:
        held_out = choose_held_out(dataset, labels, fraction, seed)
    if not held_out.any():
        raise UserError(f"DATA.VAL_FRACTION {fraction} holds nothing out: no class has two images; add images")
    rows = np.flatnonzero(held_out if split == "val" else ~held_out)
    part = kind(dataset, write_rows(cache_folder, f"held-out-{split}", rows), is_share=True)
    part.divided = divided
    share = fraction if split == "val" else 1 - fraction
    part.published_as = {"split": "train", **dataset.published_as, "share": round(share, 6)}
    return part


def _choose_groups(
    dataset: ImageDataset, labels: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray | None, str]:
    """Choose whole groups to hold out, bool (samples,), and describe them; None if whole groups cannot be held out."""
    groups = find_groups(dataset.groups_by, [dataset.identity(index) for index in range(len(labels))])
    if groups is None:
        return None, ""
    word, names = groups
    held_out = choose_held_out_groups(names, labels, fraction, seed)
    share = held_out.mean()
    if not share or (word in FOLDER and not fraction / 2 <= share <= 2 * fraction):
        return None, f"images of one {word} are on both sides: whole groups of {len(set(names)):,} cannot be divided"
    return held_out, f"images of one {word} are on one side, {len(set(names)):,} of them in all"


def choose_held_out_groups(groups: Sequence[str], labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Choose whole groups of samples to hold out, bool (samples,); ``groups`` and ``labels`` are of each sample.

    Goes through the groups in the order of their digests with ``seed`` and takes each that brings the number of samples
    nearer to the ``fraction`` and leaves training samples of all its classes. If all are too large, takes the smallest;
    if none leaves training samples, nothing.
    """
    names, group_of = np.unique(np.array(groups), return_inverse=True)
    classes, class_of = np.unique(labels, return_inverse=True)
    counts = np.zeros((len(names), len(classes)), np.int64)
    np.add.at(counts, (group_of, class_of), 1)
    sizes, remaining, target = counts.sum(axis=1), counts.sum(axis=0), fraction * len(labels)
    chosen, number = np.zeros(len(names), bool), 0
    order = np.argsort(digests(names.tolist(), seed), kind="stable").tolist()
    order = [each for each in order if (counts[each] < remaining)[counts[each] > 0].all()]
    for group in order:
        leaves_all = (counts[group] < remaining)[counts[group] > 0].all()
        if leaves_all and abs(number + sizes[group] - target) < abs(number - target):
            chosen[group], number, remaining = True, number + sizes[group], remaining - counts[group]
    if order and not number:
        chosen[min(order, key=lambda group: int(sizes[group]))] = True
    return chosen[group_of]


def write_rows(cache_folder: Path, name: str, rows: np.ndarray) -> Path:
    """Write the ``rows`` of a part, int64; the file's name is ``name`` and a hash of the rows."""
    key = hashlib.sha256(rows.tobytes()).hexdigest()[:16]
    file = Path(cache_folder, f"{name}-{key}.npy")
    with atomic_file(file) as out:
        np.save(out, rows, allow_pickle=False)
    return file


def choose_held_out(dataset: ImageDataset, labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Choose samples to hold out, bool (samples,): the rounded ``fraction`` of each class with the smallest digests.

    Digests are of identities and ``seed``. Adding, removing or renaming other files does not change a sample's place in
    the order, so each such file moves at most one other sample across the border, and only within its class. Samples of
    one identity are on one side: a file that is listed several times counts once, in the class of its first entry.
    """
    ordered = digests(map(dataset.identity, range(len(labels))), seed)
    _, firsts, identity_of_sample = np.unique(ordered, return_index=True, return_inverse=True)
    labels = labels[firsts]  # (identities,), by their digests
    order = np.argsort(labels, kind="stable")
    sizes = np.unique(labels, return_counts=True)[1]
    quotas = np.clip(np.round(sizes * fraction).astype(np.int64), np.minimum(1, sizes - 1), sizes - 1)
    starts = np.cumsum(sizes) - sizes
    rank_in_class = np.arange(len(labels)) - np.repeat(starts, sizes)
    held_out = np.zeros(len(labels), bool)
    held_out[order[rank_in_class < np.repeat(quotas, sizes)]] = True
    return held_out[identity_of_sample]
