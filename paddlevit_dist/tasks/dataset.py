"""The contract between a dataset and the task that reads it, and what a loader process reads of the task."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..registry import find_package, list_names, require_derived, resolve
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from .sample_groups import SampleGroups, read_groups


class Dataset:
    """The samples of one split as stored on disk, or as generated: without transforms, without Paddle.

    Built in the parent process, by ``open``; then pickled to the workers and forked into their loader processes, where
    ``read`` is called. Its pickle holds names of files and scalars only: what is large is memory-mapped on first use.
    """

    #: what a sample is: "images", "scenes" (of points) or "volumes"; a task refuses a dataset of something else
    holds: str = ""
    #: name of each class, or of each landmark, in the order of their numbers; None: they have none
    class_names: Sequence[str] | None = None
    #: their number; None: labels are not classes
    num_classes: int | None = None
    #: int (samples,), the class of each sample; None: unknown without reading them, or they have none
    labels: np.ndarray | None = None
    #: folder that contains its files; None: they are not in one
    root: str | None = None
    #: whether any sample has labels, or whatever else a score is computed from
    labeled: bool = True
    #: lines for the log of the run that reads it, known once it is open
    notices: Sequence[str] = ()
    #: what -group=WORD can draw its samples together by: word -> regular expression whose first group finds, in a
    #: sample's identity, what it is of
    groups_by: Mapping[str, str] = {}

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None) -> None:
        """Open ``split``, usually "train" or "val"; any other name may exist. Anything made once goes to
        ``cache_folder``.

        Raises:
            UserError: the data are missing or damaged, or lack that split.
        """
        raise NotImplementedError

    @classmethod
    def open(cls: "type[OfTask]", config: Any, split: str, cache_folder: Path) -> "OfTask":
        """The dataset that the configuration describes; one with its own keys overrides this, and names the settings
        that it reads as the type of ``config``."""
        return cls(config.DATA.DATA_PATH, split, cache_folder)

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self, index: int) -> Any:
        """Sample ``index``, from 0. Its type follows from ``holds``: ``(image, label)``, a ``Scene``, or
        ``(DecodedVolume, points)`` of a volume.

        Raises:
            UserError: its file is missing, cannot be read or is damaged; the message names it.
        """
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """``read``, for programs that index: negative ones count from the end, and iteration ends.

        Raises:
            IndexError: there are not so many.
        """
        return self.read(_position(index, len(self)))

    def describe(self, index: int) -> str:
        """Where sample ``index`` comes from, for messages: its file, or its number in a named file."""
        raise NotImplementedError

    def identity(self, index: int) -> str:
        """Tell sample ``index`` from all others, wherever the dataset is stored and whatever is added to it: the
        part of its description that is relative to ``root``. A file outside of ``root`` has its absolute path, and is
        another one where it is moved; one that is listed twice has one identity."""
        described = self.describe(index)
        if self.root is None:
            return described
        return os.path.normpath(described).removeprefix(f"{os.fspath(self.root).rstrip('/')}/")

    def identities(self) -> np.ndarray:
        """uint64 (samples,), the digest of each sample's identity."""
        return digests(map(self.identity, range(len(self))))

    def listed(self) -> dict[str, Iterable[Any]]:
        """List what is known of the samples without reading one, wherever they are stored: buffers by what they are,
        such as "names", "sizes" and "labels". Machines that train together compare digests of these, so one of many
        files gives what it has, and does not ask for each."""
        names = map(self.identity, range(len(self)))
        found: dict[str, Iterable[Any]] = {"names": (_placeless(name) for name in names)}
        return found if self.labels is None else {**found, "labels": [np.ascontiguousarray(self.labels, dtype="<i8")]}


OfTask = TypeVar("OfTask", bound=Dataset)


class TransformedDataset:
    """A dataset with everything that is done to its samples: what the sampler counts and a loader process reads.

    Built by ``Task.build_dataset`` in the parent process; pickled to the workers and forked into loader processes.
    """

    #: lines for the log of the run, of this split
    notices: Sequence[str] = ()
    #: whether any sample has labels; of a split without, an evaluation writes predictions and claims no score
    labeled: bool = True
    #: what a score of it leaves out, such as "without 3 images not opened here"; told beside it
    without: str = ""
    #: how they are evaluated, where a score depends on it; told beside it
    protocol: str = ""
    #: what is trained on and what is held out was drawn from one dataset
    is_random_split: bool = False
    #: name of each class, or of each landmark, in the order of their numbers; None: they have none
    class_names: Sequence[str] | None = None
    #: what they are the samples of, in its order; a program's own need not say
    dataset: Any
    #: of what ``self[index]`` draws
    seed = 0

    def identities(self) -> np.ndarray | None:
        """uint64 (samples,), a digest of what tells each sample from all others wherever the data are stored, such as
        its path in their folder; None: not known."""
        dataset = self._dataset()
        if dataset is None:
            return None
        is_path = dataset.root is None and len(dataset) > 0 and os.sep in dataset.identity(0)  # on this machine
        return None if is_path and not self.is_random_split else dataset.identities()

    def name(self, index: int) -> str:
        """Return what tells a sample from all others wherever the data are stored, or else its description."""
        dataset = self._dataset()
        return self.describe(index) if dataset is None else dataset.identity(index)

    def groups(self, given: str) -> SampleGroups:
        """The groups of its samples that -group asks for.

        Raises:
            UserError: see ``read_groups``.
        """
        dataset = self._dataset()
        words = {} if dataset is None else dataset.groups_by
        return read_groups(given, list(map(self.name, range(len(self)))), "the data set", words)

    def listed_digests(self) -> dict[str, bytes]:
        """A digest of each part of ``Dataset.listed``."""
        dataset, names = self._dataset(), map(self.describe, range(len(self)))
        listed = {"names": map(_placeless, names)} if dataset is None else dataset.listed()
        found = {}
        for what, buffers in listed.items():
            digest = hashlib.sha256()
            for buffer in buffers:
                digest.update(buffer)
            found[what] = digest.digest()[:8]
        return found

    def _dataset(self) -> Dataset | None:
        dataset = getattr(self, "dataset", None)
        return dataset if isinstance(dataset, Dataset) else None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int) -> Any:
        """``sample``, for programs that index. What our samplers give is read as a training with ``seed`` reads it, a
        number as in epoch 0.

        Raises:
            IndexError: there are not so many.
        """
        index = _position(key, len(self))
        drawn = getattr(key, "epoch", 0), index, getattr(key, "repeat", 0)
        return self.sample(index, reading_generator(self.seed, *drawn))

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Sample ``index`` as ``Task.collate`` takes it; all randomness comes from ``generator``.

        Raises:
            UserError: it cannot be read; the message names its file.
        """
        raise NotImplementedError

    def describe(self, index: int) -> str:
        """Where sample ``index`` comes from, for messages."""
        dataset = self._dataset()
        return f"sample {index}" if dataset is None else dataset.describe(index)

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        """An epoch's indices, int (samples,), some perhaps several times; None: a plain permutation. Called by the
        sampler of every rank with identical generators."""
        return None


class ReadingGenerator(np.random.Generator):
    """The generator of everything random about one reading of one sample.

    Attributes:
        epochs_left: of the training after that of the reading; None: nobody knows, as where nothing is trained.
    """

    epochs_left: int | None = None


def reading_generator(seed: int, epoch: int, index: int, repeat: int, epochs: int | None = None) -> ReadingGenerator:
    """The generator of everything random about one reading of one sample, in a training of so many ``epochs``.

    Philox is a counter-based generator (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"): streams of
    different keys are independent, so seed, epoch, index and repeat are the key, and no hash of them is needed.
    """
    words = [seed << 32 | epoch, index << 16 | repeat]
    generator = ReadingGenerator(np.random.Philox(key=np.array(words, dtype=np.uint64)))
    generator.epochs_left = None if epochs is None else epochs - epoch
    return generator


def _position(index: int, number: int) -> int:
    place = int(index)
    if not -number <= place < number:
        raise IndexError(f"index {place} of {number} samples")
    return place % number


def digests(names: Iterable[str], salt: int = 0) -> np.ndarray:
    """uint64 (names,), each name's BLAKE2b of 8 bytes: evenly distributed, and practically never equal by chance (for
    any two of a million names 3e-8).

    Args:
        salt: not negative; another one gives digests that have nothing in common with these.
    """
    salted = hashlib.blake2b(digest_size=8, salt=salt.to_bytes(8, "little"))

    def digest(name: str) -> bytes:
        hashed = salted.copy()
        hashed.update(name.encode("utf-8", "surrogateescape"))
        return hashed.digest()

    return np.frombuffer(b"".join(map(digest, names)), "<u8")


def _placeless(name: str) -> bytes:
    """A name without the folder that it is in on this machine, ended by a zero."""
    return f"{os.path.basename(name) if os.path.isabs(name) else name}\0".encode("utf-8", "surrogateescape")


def require_split(split: str, known: Sequence[str], dataset: str, remark: str = "") -> str:
    """``split``, if it is one of ``known``.

    Args:
        dataset: its name, and where it is, for the message.
        remark: added to the message, such as what ``known`` are.

    Raises:
        UserError: it is another; the message names those that exist.
    """
    if split not in known:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise UserError(f"dataset {dataset} has no split '{split}' (-split): {there}{remark}")
    return split


def names_of_classes(
    config: RunSettings, names: Sequence[str] | None, word: str = "classes", number: int | None = None
) -> list[str]:
    """The classes of a dataset by their names, and by their numbers as many more as MODEL.NUM_CLASSES asks for.

    Args:
        number: of classes that have no names.

    Raises:
        UserError: it asks for fewer; classes are called ``word`` there.
    """
    names = names or [str(label) for label in range(number or 0)]
    wanted, own = config.MODEL.NUM_CLASSES, len(names)
    if wanted is not None and wanted < own:
        raise UserError(
            f"dataset {config.DATA.DATASET} has {own} {word} but MODEL.NUM_CLASSES (-num_classes) is {wanted}; set it "
            f"to {own} or leave it out"
        )
    return [*names, *map(str, range(own, wanted or own))]


def dataset_class(config: RunSettings, contract: type[OfTask]) -> type[OfTask]:
    """The class of the dataset DATA.DATASET, a subclass of the kind ``contract`` that a task reads.

    Raises:
        UserError: its name is unknown, it holds something else, or is not derived from that kind.
    """
    target = resolve("dataset", config.DATA.DATASET)
    holds = target.holds if isinstance(target, type) and issubclass(target, Dataset) else ""
    if holds not in ("", contract.holds):
        package = find_package("task", config.TASK)
        fitting = [
            name
            for name in list_names("dataset")
            if find_package("dataset", name) == package and resolve("dataset", name).holds in ("", contract.holds)
        ]
        raise UserError(
            f"dataset {config.DATA.DATASET} holds {holds}, but TASK {config.TASK} reads {contract.holds}: take "
            + ", ".join(fitting)
        )
    found: type[OfTask] = require_derived(target, contract)
    return found
