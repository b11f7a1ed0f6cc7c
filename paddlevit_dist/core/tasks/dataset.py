"""The contract between a dataset and the task that reads it, and between a task and its loader processes."""

import functools
import hashlib
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from ..registry.lookup import find_built_in, find_package, list_names, require_derived, resolve
from ..registry.required_methods import missing_method, require_methods
from ..runtime.errors import UserError
from ..runtime.spelling import find_spelling
from ..settings.every_run import RunSettings
from .class_labels import make_classes, show_value
from .class_names import list_numbers, make_class_names, make_num_classes, require_classes
from .listed_dataset import create_dataset, is_listed, list_samples
from .opened_dataset import make_description, wrap_dataset
from .sample_groups import SampleGroups, read_groups
from .seeding import OwnRandomness


class Dataset:
    """The samples of one split as stored on disk, or as generated: without transforms, without Paddle.

    Built in the parent process by ``open``, then pickled to the workers and forked into their loader processes, which
    call ``read``. Its pickle must hold file names and scalars only; large arrays are memory-mapped on first use.
    """

    #: kind of samples: "images", "scenes" (of points) or "volumes"; a task rejects other datasets
    holds: str = ""
    #: names of the classes, or of the landmarks, in the order of their labels; None: there are none
    class_names: Sequence[str] | None = None
    #: number of classes; None: labels are not classes
    num_classes: int | None = None
    #: int (samples,), the class of each sample; None: unknown without reading samples, or there are none
    labels: np.ndarray | None = None
    #: folder that contains the files; None: there is no such folder
    root: str | None = None
    #: whether any sample has labels, or other ground truth for a score
    labeled: bool = True
    #: whether samples are at an address, so that ``prefetch`` is worth its call
    is_remote: bool = False
    #: text that depends on the content of samples without files of their own; empty: their files tell
    content_key: str = ""
    #: where the samples are published, as that place names it: "repository" (at Hugging Face), "revision",
    #: "configuration" and "split", and the "share" of the split that these samples are; each if known
    published_as: Mapping[str, str | float] = {}
    #: a user's object with a length and samples by index, whose samples these are; None: ``read`` returns them
    user_object: Any = None
    #: log lines for the run that opens the dataset
    notices: Sequence[str] = ()
    #: values of -group, by which intervals resample samples together: word -> regular expression whose first group
    #: finds the name of the sample's group in its ``identity``
    groups_by: Mapping[str, str] = {}
    #: methods by index whose results are made what the task expects, once, in any derived class: name -> method
    #: that takes the result and returns it made, or raises BadSample
    makers: Mapping[str, str] = {"read": "make_sample"}
    #: further methods by index: if they raise an exception in a user's class, the message names the sample
    indexed: Sequence[str] = ()

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None, options: Any = None) -> None:
        """Open a split, usually "train" or "val"; any other name may exist. By default, keep the arguments.

        Args:
            data_path: folder or file of the dataset; None: the dataset needs none.
            split: name of the split.
            cache_folder: folder for files that are made once, such as indices; None: there is none.
            options: what else ``open`` passes.

        Raises:
            UserError: the data are missing or damaged, or lack that split.
        """
        self.data_path, self.split, self.cache_folder, self.options = data_path, split, cache_folder, options

    @classmethod
    def open(cls: "type[DatasetType]", config: Any, split: str, cache_folder: Path) -> "DatasetType":
        """Open the dataset that the frozen configuration describes.

        A dataset with its own keys overrides this, and names the settings that it reads as the type of ``config``.
        """
        dataset = create_dataset(cls, config.DATA.DATA_PATH, split, cache_folder)
        opened: DatasetType = wrap_dataset(dataset, split, f"dataset {config.DATA.DATASET}")
        return opened

    @property
    def own_class(self) -> type:
        """The class that reads the samples, perhaps one of a user that is no ``Dataset``."""
        return self.__class__ if self.user_object is None else type(self.user_object)

    def make_facts(self, name: str) -> None:
        """Make what the attributes say of the classes what tasks expect: texts, ``int`` and an array of integers.

        Called with the dataset's name when it is opened. Raises UserError: they are something else, or differ.
        """
        if (names := self.class_names) is not None:
            self._set("class_names", names, make_class_names(names, f"{name}: class_names"), name)
        if (number := self.num_classes) is not None and (type(number) is not int or number < 0):
            self._set("num_classes", number, make_num_classes(number, f"{name}: num_classes"), name)
        if self.class_names and self.num_classes is not None and len(self.class_names) != self.num_classes:
            raise UserError(
                f"{name} has {len(self.class_names):,} class_names, but num_classes is {self.num_classes:,}: expected "
                "one name for each class"
            )
        if (labels := self.labels) is not None:
            made = make_classes(labels, self.num_classes, self.class_names or (), self.describe)
            self._set("labels", labels, made, name)

    def number_classes(self, name: str) -> None:
        """Name classes without names by their numbers, for tasks that name each class in what they count and write.

        Called once facts are made; raises UserError: there are no classes.
        """
        require_classes(self, name)
        if not self.class_names:
            self._set("class_names", self.class_names, list_numbers(self.num_classes or 0), name)

    def list_class_names(self) -> Sequence[str]:
        """Return the names of the classes as texts, also of a dataset that was not opened; empty if there are none.

        Raises UserError as ``make_class_names`` does.
        """
        if self.class_names is None:
            return ()
        return make_class_names(self.class_names, f"{self.own_class.__name__}: class_names")

    def _set(self, attribute: str, given: Any, made: Any, name: str) -> None:
        """Set an attribute to what was made of the value that it has, unless that is the same object."""
        if given is made:
            return
        try:
            setattr(self, attribute, made)
        except AttributeError:  # a property
            raise UserError(
                f"{name}: its property {attribute} returns {show_value(given)}; return {show_value(made)}"
            ) from None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    def read(self, index: int) -> Any:
        """Read sample ``index``, from 0: ``(image, label)``, a ``Scene``, or for volumes ``(DecodedVolume, points)``.

        A dataset of a task whose samples do not call it may lack it.

        Raises:
            UserError: its file is missing, cannot be read or is damaged; the message names it.
        """
        raise missing_method(type(self), "read")

    def make_sample(self, sample: Any) -> Any:
        """Return what ``read`` of a derived class returned as the task expects it; by default, unchanged.

        Raises:
            BadSample: it cannot be used; the message says which part and why, and the caller adds which sample.
        """
        return sample

    def make_description(self, description: Any) -> str:
        """Return what ``describe`` or ``identity`` of a user's class returned as text, if it is a text or a path."""
        return make_description(self.own_class, description)

    def prefetch(self, indices: Sequence[int]) -> None:
        """Fetch samples at an address together, in a loader process before it reads a batch; may raise UserError."""

    def __getitem__(self, index: int) -> Any:
        """Read a sample as ``read`` does; negative indices count from the end, and an IndexError ends an iteration."""
        return self.read(_position(index, len(self)))

    def describe(self, index: int) -> str:
        """Return the origin of sample ``index`` for messages: its file, or its number in a named file.

        By default, its number, which does not identify it in another dataset.
        """
        return f"sample {index}"

    def identity(self, index: int) -> str:
        """Return a name that identifies sample ``index`` wherever the dataset is stored, and if samples are added.

        It is the part of the description that is relative to ``root``. A file outside of ``root`` has its absolute
        path, and so another identity where it is moved. A file that is listed twice has one identity.
        """
        description = self.describe(index)
        if self.root is None:
            return description
        return os.path.normpath(description).removeprefix(f"{os.fspath(self.root).rstrip('/')}/")

    def identities(self) -> np.ndarray:
        """Return the digest of each sample's identity, uint64 (samples,)."""
        return digests(map(self.identity, range(len(self))))

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return the content that is known without reading samples, as buffers by name: "names", "sizes", "labels", ...

        Machines that train together compare their digests. A dataset with many files returns arrays that it has, and
        does not query each file.
        """
        names = map(self.identity, range(len(self)))
        buffers: dict[str, Iterable[Any]] = {"names": (_placeless(name) for name in names)}
        return (
            buffers if self.labels is None else {**buffers, "labels": [np.ascontiguousarray(self.labels, dtype="<i8")]}
        )

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of each file, or part of one, that only sample ``index`` is read from.

        Machines that train together compare some of them. By default, of the file that ``describe`` names, if there is
        one. Raises an OSError or a UserError if a file cannot be read.
        """
        return peek_files([self.describe(index)], length)


DatasetType = TypeVar("DatasetType", bound=Dataset)


class DescribedSamples(Protocol):
    """Samples by index: a ``Dataset``, a ``TransformedDataset``, or a similar class of a user."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""


class TransformedDataset:
    """A dataset with all transforms of its samples; the sampler uses its length and loader processes read it.

    Built by ``Task.build_dataset`` in the parent process, then pickled to the workers and forked into loader processes.
    """

    #: log lines about this split
    notices: Sequence[str] = ()
    #: plural noun of these samples in log lines; empty: the task's
    sample_name: str = ""
    #: whether any sample has labels; without any, an evaluation writes predictions and reports no score
    labeled: bool = True
    #: samples that a score excludes, such as "without 3 images not opened here"; logged after the score
    exclusions: str = ""
    #: evaluation settings that a score depends on; logged after the score
    eval_protocol: str = ""
    #: whether training and held-out samples were drawn at random from one dataset
    is_random_split: bool = False
    #: ways to speed up reading, apart from more loader processes: keys to set or commands to run, as parts of a
    #: sentence; logged once if a training run waits for its data
    reading_advice: Sequence[str] = ()
    #: names of the classes, or of the landmarks, in the order of their labels; None: there are none
    class_names: Sequence[str] | None = None
    #: the ``Dataset`` of these samples, in its order; optional in a user's own class
    dataset: Any
    #: seed of the augmentation in ``self[index]``
    seed = 0
    #: what a user's code draws in ``self[index]``; None: it is searched at each reading
    own_randomness: OwnRandomness | None = None

    def make_description(self, description: Any) -> str:
        """Return what ``describe`` of a user's class returned as text, if it is a text or a path."""
        return make_description(type(self), description)

    def identities(self) -> np.ndarray | None:
        """Return digests that identify samples wherever the data are stored, uint64 (samples,); None: unknown."""
        dataset = self._dataset()
        if dataset is None:
            return None
        first = dataset.identity(0) if len(dataset) else ""
        is_path = dataset.root is None and os.sep in first  # on this machine
        is_unknown = re.fullmatch(r"sample \d+", first) or (is_path and not self.is_random_split)
        return None if is_unknown else dataset.identities()

    def name(self, index: int) -> str:
        """Return a name that identifies a sample wherever the data are stored, or else its description."""
        dataset = self._dataset()
        return self.describe(index) if dataset is None else dataset.identity(index)

    def groups(self, grouping: str) -> SampleGroups:
        """Return the groups of the samples that -group asks for; raises UserError as ``read_groups`` does."""
        dataset = self._dataset()
        patterns = {} if dataset is None else dataset.groups_by
        return read_groups(grouping, list(map(self.name, range(len(self)))), "the dataset", patterns)

    @property
    def content_key(self) -> str:
        """The dataset's; empty if it has none."""
        dataset = self._dataset()
        return "" if dataset is None else dataset.content_key

    @property
    def published_as(self) -> Mapping[str, str | float]:
        """The dataset's; empty if it has none."""
        dataset = self._dataset()
        return {} if dataset is None else dataset.published_as

    def listed_digests(self) -> dict[str, bytes]:
        """Return a digest of each buffer of ``Dataset.listed``, by name."""
        dataset, names = self._dataset(), map(self.describe, range(len(self)))
        listed = {"names": map(_placeless, names)} if dataset is None else dataset.listed()
        digests_by_name = {}
        for name, buffers in listed.items():
            digest = hashlib.sha256()
            for buffer in buffers:
                digest.update(buffer)
            digests_by_name[name] = digest.digest()[:8]
        return digests_by_name

    def _dataset(self) -> Dataset | None:
        dataset = getattr(self, "dataset", None)
        return dataset if isinstance(dataset, Dataset) else None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int) -> Any:
        """Read a sample as training with ``seed`` does; a plain number is read as in epoch 0. Raises IndexError."""
        index = _position(key, len(self))
        position = getattr(key, "epoch", 0), index, getattr(key, "repeat", 0)
        self.set_epoch(position[0])
        own = self.own_randomness or OwnRandomness(self)
        return own.read(self, index, functools.partial(reading_generator, self.seed, *position))

    @abstractmethod
    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read and transform sample ``index`` with all randomness from ``generator``, as ``Task.collate`` takes it.

        Raises:
            UserError: it cannot be read; the message names its file.
        """

    def describe(self, index: int) -> str:
        """Return the origin of sample ``index`` for messages."""
        dataset = self._dataset()
        return f"sample {index}" if dataset is None else dataset.describe(index)

    def set_epoch(self, epoch: int) -> None:
        """Take note of the epoch, from 1, 0 in an evaluation; by default, the ``dataset`` does if it has such a method.

        Called before ``draw_order``, and in each loader process before the first of its samples that the epoch has.
        """
        if hasattr(getattr(self, "dataset", None), "set_epoch"):
            self.dataset.set_epoch(epoch)

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        """Draw the order of an epoch's samples, int (samples,), some perhaps several times; None: a plain permutation.

        By default, the ``dataset`` does if it has such a method. Called by the sampler of every rank with identical
        generators, after ``set_epoch``.
        """
        draw = getattr(getattr(self, "dataset", None), "draw_order", None)
        order: np.ndarray | None = None if draw is None else draw(generator)
        return order


class ReadingGenerator(np.random.Generator):
    """Random generator for one reading of one sample."""

    epochs_left: int | None = None  # epochs after that of the reading; None: unknown, or nothing is trained


def reading_generator(seed: int, epoch: int, index: int, repeat: int, epochs: int | None = None) -> ReadingGenerator:
    """Return the random generator for one reading of one sample: in ``epoch``, from 1, the given ``repeat`` within it.

    Philox is a counter-based generator (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"). Streams of
    different keys are independent, so seed, epoch, index and repeat form the key, without a hash. ``epochs`` are those
    of the training run; None: unknown, or nothing is trained.
    """
    words = [seed << 32 | epoch, index << 16 | repeat]
    generator = ReadingGenerator(np.random.Philox(key=np.array(words, dtype=np.uint64)))
    generator.epochs_left = None if epochs is None else epochs - epoch
    return generator


def _position(index: int, number: int) -> int:
    position = int(index)
    if not -number <= position < number:
        raise IndexError(f"index {position} of {number} samples")
    return position % number


def digests(names: Iterable[str], salt: int = 0) -> np.ndarray:
    """Return each name's BLAKE2b digest of 8 bytes, uint64 (names,).

    They are uniform: any two of a million names collide with probability 3e-8. ``salt`` is not negative; digests with
    different salts are unrelated.
    """
    options: dict[str, Any] = {"digest_size": 8, "salt": salt.to_bytes(hashlib.blake2b.SALT_SIZE, "little")}
    encoded = (name.encode("utf-8", "surrogateescape") for name in names)
    return np.frombuffer(b"".join(hashlib.blake2b(name, **options).digest() for name in encoded), "<u8")


def peek_files(paths: Iterable[str], length: int) -> list[tuple[int, bytes]]:
    """Return size and first ``length`` bytes of files, also of those in folders; other names are skipped."""
    parts = []
    for path in map(find_spelling, paths):
        names = sorted(os.scandir(path), key=lambda entry: entry.name) if os.path.isdir(path) else [path]
        for file in filter(os.path.isfile, names):
            with open(file, "rb") as stream:
                parts.append((os.fstat(stream.fileno()).st_size, stream.read(length)))
    return parts


def _placeless(name: str) -> bytes:
    """Encode a name without its folder if the path is absolute, followed by a zero byte."""
    return f"{os.path.basename(name) if os.path.isabs(name) else name}\0".encode("utf-8", "surrogateescape")


def format_place(data_path: str | None) -> str:
    """Return " at DATA.DATA_PATH" for a message about a dataset; nothing for one that needs no path."""
    return f" at {data_path}" if data_path else ""


def require_folder(data_path: str | None, dataset: str, layout: str) -> str:
    """Return the absolute path of the folder that ``-data_path`` names; messages have ``dataset`` and ``layout``.

    A ``UserError`` says that no path is given, it is not found, or not a folder.
    """
    if data_path is None:
        raise UserError(f"dataset {dataset} needs -data_path=<folder>, {layout}")
    folder = os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    if not os.path.isdir(folder):
        wrong = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise UserError(f"data path {folder} {wrong}; dataset {dataset} expects a folder {layout}")
    return folder


def require_split(split: str, existing: Sequence[str], dataset: str, remark: str = "") -> str:
    """Return ``split`` if it exists, else raise a UserError that lists the ``existing`` ones.

    ``dataset`` (name and location) and ``remark`` are for the message.
    """
    if split not in existing:
        refuse_split(split, existing, dataset, remark)
    return split


def refuse_split(split: str, existing: Sequence[str], dataset: str, remark: str = "") -> NoReturn:
    """Raise the ``UserError`` about a split that does not exist; see ``require_split``."""
    available = f"it has {', '.join(existing)}" if existing else "it has none"
    raise UserError(f"dataset {dataset} has no split '{split}' (-split): {available}{remark}")


def is_training_split(config: RunSettings, split: str) -> bool:
    """Return whether the samples of a split are augmented: "train", unless it is the split to evaluate."""
    return split == "train" and not config.EVAL


class RegisteredDataset:
    """A registered class of datasets, with its attributes, whose ``open`` returns the adapter of the dataset.

    Args:
        cls: the class.
        target: a user's class that only has a length and samples by index; they are read as samples of ``cls`` are.
    """

    def __init__(self, cls: type[Any], target: type | None = None) -> None:
        self.wrapped_class, self.target = cls, target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped_class, name)

    def open(self, config: Any, split: str, cache_folder: Path) -> Any:
        """Open a split as ``Dataset.open`` does."""
        if self.target is None:
            dataset = self.wrapped_class.open(config, split, cache_folder)
        else:
            dataset = list_samples(self.target, self.wrapped_class, config.DATA.DATA_PATH, split, cache_folder)
        return wrap_dataset(dataset, split, f"dataset {config.DATA.DATASET}")


def dataset_class(config: RunSettings, base: type[DatasetType]) -> Any:
    """Return the class of the dataset DATA.DATASET; its ``open`` opens a split for tasks.

    A user's class that only has a length and an index is read as one derived from ``base``.

    Raises:
        UserError: the name is unknown, the dataset holds another kind of samples, or is not derived from ``base``.
    """
    target = resolve("dataset", config.DATA.DATASET)
    if is_listed(target) and not issubclass(target, Dataset):
        require_methods(base, "dataset ", target, ("read", "__len__"))
        return RegisteredDataset(base, target)
    holds = target.holds if isinstance(target, type) and issubclass(target, Dataset) else ""
    if holds not in ("", base.holds):
        packages = (None, find_package("task", find_built_in(config.TASK) or config.TASK))  # None: of users
        candidates = [
            name
            for name in list_names("dataset")
            if find_package("dataset", name) in packages
            and getattr(resolve("dataset", name), "holds", "") in ("", base.holds)
        ]
        if not candidates:  # a command that reads what another task trains on
            raise UserError(
                f"dataset {config.DATA.DATASET} of TASK {config.TASK} holds {holds}, expected {base.holds}; use the "
                "settings of another run"
            )
        raise UserError(
            f"dataset {config.DATA.DATASET} holds {holds}, but TASK {config.TASK} reads {base.holds}; set "
            f"DATA.DATASET to one of {', '.join(candidates)}"
        )
    return RegisteredDataset(require_derived(target, base))
