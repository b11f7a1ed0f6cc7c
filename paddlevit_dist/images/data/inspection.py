"""Checks before a run starts: skipped files, unreadable images, empty classes, images in both training and validation.

Threads suffice because Pillow releases the GIL while decoding; no process has to be started, and none forks while they
run. Each thread has its own copy of the dataset, like loader processes.
"""

import copy
import hashlib
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from tqdm import tqdm

from ...core.launch.devices import cpu_cores
from ...core.runtime.errors import UserError
from ...core.runtime.outages import find_missing_folder
from ...core.runtime.printing import count, one_line
from ...core.tasks.sample_checks import BadSample
from .formats import readable_formats
from .image_labels import CLASS
from .reading import (
    UnreadableImage,
    count_labels,
    examine_image,
    has_more_pages,
    is_transparent,
    open_image,
    orientation,
    raise_as_unreadable,
)
from .seen_images import SeenImages, describe_change

if TYPE_CHECKING:
    from .image_dataset import ImageDataset

ALL_UP_TO = 5_000  # larger splits are sampled
SAMPLE = 2_000
WITHOUT_LIMIT = 500  # images that are opened regardless of the time
SECONDS, _COMPARING_SECONDS = 20.0, 10.0  # for opening a split, for comparing two
_MOST_THREADS = 16
_MOST_EXAMINED, _EXAMINE_SECONDS = 500, 5.0  # images opened before a prediction or a preparation
_MOST_LABELS, _LABEL_SECONDS = 32, 2.0  # images that are read for their labels, if the dataset does not list these
_COUNTED, _WITHOUT_LIMIT, _COUNT_SECONDS = 2_000, 100, 5.0  # maps to count before a run, and the time for it
_DEEP = "stored with more than 8 bits a pixel, such as {}; levels above 255 become white: scale them if they use more"
TURNED = "to be turned by the EXIF orientation, but DATA.EXIF_ROTATE is false: {}"
_TRANSPARENT = (
    "transparent in part, such as {}; transparency is not used, so that the colors stored there are seen, often black: "
    "paint such images on a ground"
)
PAGES = "stored with several pages or frames, such as {}; the first is read: write the others to files of their own"
_NAMED = 3  # unreadable images in a message
_D = TypeVar("_D")
_T = TypeVar("_T")


class DecodeResult(NamedTuple):
    """The result of opening an image.

    Attributes:
        index: in the dataset.
        num_bytes: of the file.
        digest: of its content, 16 bytes; empty if it cannot be read.
        orientation: EXIF orientation, 1 for upright.
        mode: Pillow's mode of the stored pixels.
        size: height and width, turned if the dataset turns images; (0, 0) if it cannot be read.
        is_transparent: whether a pixel is not opaque.
        has_more_pages: whether pages or frames come after the one that is read.
        error: why it cannot be read.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    num_bytes: int = 0
    digest: bytes = b""
    orientation: int = 1
    mode: str = ""
    is_transparent: bool = False
    size: tuple[int, int] = (0, 0)
    has_more_pages: bool = False
    error: UnreadableImage | None = None


class DecodedSplit(NamedTuple):
    """The images of a split that were opened, in the order of the dataset."""

    dataset: "ImageDataset"
    split: str
    results: list[DecodeResult]

    @property
    def bad(self) -> list[UnreadableImage]:
        """The errors of unreadable images."""
        return [result.error for result in self.results if result.error]

    @property
    def is_whole(self) -> bool:
        """Whether all images of the split were opened."""
        return len(self.results) == len(self.dataset)

    @property
    def amount(self) -> str:
        """The number of opened images as ``all 1,234`` or ``2,000 of 1,281,167``."""
        return f"{'all' if self.is_whole else f'{len(self.results):,} of'} {len(self.dataset):,}"

    def refuse_bad(self, is_replaced: bool) -> None:
        """Refuse unreadable images by a ``UserError`` that names the first, unless training replaces them."""
        bad, total = self.bad, len(self.results)
        if not bad or (is_replaced and len(bad) < total):
            return
        others = ""
        if len(bad) > 1:
            more = ", ".join(error.path for error in bad[1:_NAMED]) + (", …" if len(bad) > _NAMED else "")
            others = f" ({len(bad):,} of the {total:,} opened images of {self.split} cannot be read, also {more})"
        remedy = "repair or remove it: an evaluation does not skip images"
        if self.split == "train":
            remedy = "repair or remove it, or replace it by the next image with DATA.ON_INVALID_SAMPLE skip"
        if is_replaced:
            remedy = "none of them can be read, so there is no replacement (DATA.ON_INVALID_SAMPLE)"
        raise UserError(f"{bad[0]}{others}; {remedy}")

    def findings(self) -> list[str]:
        """Return the log lines about the images, one per finding."""
        text, bad, dataset = f"opened {self.amount} images of {self.split}", self.bad, self.dataset
        if bad:
            replaced = "one of them cannot be read and is replaced by the next readable one"
            if len(bad) > 1:
                replaced = f"{len(bad):,} of them cannot be read and are replaced by the next readable ones"
            text += f"; {replaced} (DATA.ON_INVALID_SAMPLE skip): {bad[0]}"
        lines = [text]
        is_seen_stored = dataset.reading is not None and not dataset.reading.exif_rotate
        found = {
            TURNED: [result.index for result in self.results if is_seen_stored and result.orientation != 1],
            _DEEP: [result.index for result in self.results if _is_deep(result.mode)],
            _TRANSPARENT: [result.index for result in self.results if result.is_transparent],
            PAGES: [result.index for result in self.results if result.has_more_pages],
        }
        return lines + list_found(found, f"the {len(self.results):,} opened images of {self.split}", dataset.describe)


def open_split(dataset: "ImageDataset", split: str, seconds: float = SECONDS) -> DecodedSplit:
    """Decode all images of a small dataset, or a fixed sample of a large one, as far as time allows.

    The limit of ``seconds`` applies only once ``WITHOUT_LIMIT`` images have been opened.
    """
    total = len(dataset)
    # A fixed random order: images opened within the time limit are a fair sample, drawn the same way in every run.
    order = np.random.default_rng(0).permutation(total)[: total if total <= ALL_UP_TO else SAMPLE].tolist()
    results = run_in_threads(_examine, dataset, order, f"opening {split}", len(order), seconds, WITHOUT_LIMIT)
    return DecodedSplit(dataset, split, sorted(results, key=lambda result: result.index))


def _examine(dataset: Any, index: int) -> DecodeResult:
    try:
        encoded = dataset.encoded(index)
        image = examine_image(encoded, dataset.describe(index), dataset.image_mode, dataset.reading)
        dataset.require_size(index, image.size)
    except UnreadableImage as error:
        return DecodeResult(index, error=error)
    return DecodeResult(index, len(encoded), compute_digest(encoded), *image)


def note_pixels(
    total: int, encoded: Callable[[int], bytes], describe: Callable[[int], str], turns: bool = True
) -> list[str]:
    """Return lines about images whose pixels will be seen otherwise than programs show them.

    They have more than 8 bits a pixel, transparency, several pages or, unless the EXIF orientation ``turns`` images,
    another one. As many images as time allows are opened. ``encoded`` and ``describe`` return the file and the name of
    an image by its index, below ``total``.
    """
    opened, found = 0, {text: list[int]() for text in (TURNED, _DEEP, _TRANSPARENT, PAGES)}
    end = time.monotonic() + _EXAMINE_SECONDS
    for index in np.random.default_rng(0).permutation(total)[:_MOST_EXAMINED].tolist():
        if time.monotonic() > end:
            break
        opened += 1
        try:
            with open_image(encoded(index), describe(index)) as image, raise_as_unreadable(describe(index)):
                found[TURNED] += [index] if not turns and orientation(image) != 1 else []
                found[_DEEP] += [index] if _is_deep(image.mode) else []
                found[PAGES] += [index] if has_more_pages(image) else []
                found[_TRANSPARENT] += [index] if is_transparent(image) else []
        except UnreadableImage:  # reported when it is decoded
            continue
    return list_found(found, count(opened, "image"), describe)


def list_found(found: dict[str, list[int]], images: str, describe: Callable[[int], str]) -> list[str]:
    """Return a line for each text with indices, which count among ``images``; the text has a place for a name."""
    return [
        f"{len(indices):,} of {images} {'is' if len(indices) == 1 else 'are'} {text.format(describe(min(indices)))}"
        for text, indices in found.items()
        if indices
    ]


def _is_deep(mode: str) -> bool:
    return mode.startswith(("I", "F"))


def run_in_threads(
    function: Callable[[_D, int], _T],
    dataset: _D,
    indices: Iterable[int],
    label: str,
    total: int | None,
    seconds: float,
    without_limit: int = 0,
) -> Iterator[_T]:
    """Yield ``function(dataset, index)`` for the ``indices`` in order, until the time is over.

    Args:
        function: called in threads.
        dataset: copied for each thread; one thread reads it if a user's class cannot be copied.
        label: of the progress bar, which a terminal shows after a second.
        total: number of indices, None if it is not known.
        seconds: time after which no more are started, apart from ``without_limit``.
        without_limit: number of indices that are processed regardless of the time.
    """
    readable_formats()  # Pillow loads its readers once, which is not thread-safe
    try:
        pickled = pickle.dumps(dataset)
    except Exception:  # of a user's class: defined in a function, or with an open file
        pickled = b""
    local = threading.local()

    def start() -> None:
        local.dataset = pickle.loads(pickled) if pickled else dataset

    threads = min(cpu_cores(), _MOST_THREADS) if pickled else 1
    end = time.monotonic() + seconds
    pending: deque[Future] = deque()
    pool = ThreadPoolExecutor(threads, initializer=start)
    try:
        with tqdm(total=total, desc=label, unit="image", delay=1.0, disable=None, leave=False) as bar:
            for started, index in enumerate(indices):
                if started >= without_limit and time.monotonic() > end:
                    break
                pending.append(pool.submit(lambda index: function(local.dataset, index), index))
                if len(pending) >= 4 * threads:
                    yield pending.popleft().result()
                    bar.update()
            while pending:
                yield pending.popleft().result()
                bar.update()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # also on Ctrl-C: each thread stops after its current image


def compute_digest(encoded: bytes) -> bytes:
    """Return the 16-byte digest of a file's content."""
    return hashlib.blake2b(encoded, digest_size=16).digest()


def count_maps(function: Callable[[_D, int], _T | None], dataset: _D, number: int, label: str) -> list[_T]:
    """Return ``function(dataset, index)`` of as many of ``number`` maps as time allows, drawn alike in every run.

    It returns None for a map that cannot be read, which is skipped.
    """
    order = np.random.default_rng(0).permutation(number)[:_COUNTED].tolist()
    counted = run_in_threads(function, dataset, order, label, len(order), _COUNT_SECONDS, _WITHOUT_LIMIT)
    return [each for each in counted if each is not None]


def compare(train: DecodedSplit, val: DecodedSplit, seconds: float = _COMPARING_SECONDS) -> list[str]:
    """Return a line if validation images are also in the training set, or if not all were compared.

    Training images that were not opened are compared by size first, as far as time allows.
    """
    readable = [result for result in val.results if not result.error]
    sizes = {result.num_bytes for result in readable}
    indices_of_digest: dict[bytes, list[int]] = {}
    for result in readable:
        indices_of_digest.setdefault(result.digest, []).append(result.index)
    partner: dict[bytes, int] = {}
    for result in train.results:
        if result.digest in indices_of_digest:
            partner.setdefault(result.digest, result.index)
    opened = {outcome.index for outcome in train.results}
    compared, end = len(opened), time.monotonic() + seconds

    def candidates() -> Iterator[int]:
        nonlocal compared
        for index in () if train.is_whole else np.random.default_rng(0).permutation(len(train.dataset)).tolist():
            if time.monotonic() > end:
                return
            if index not in opened:
                if train.dataset.num_bytes(index) in sizes:
                    yield index
                compared += 1

    for index, digest in run_in_threads(_digest, train.dataset, candidates(), "comparing train and val", None, seconds):
        if digest in indices_of_digest:
            partner[digest] = min(index, partner.get(digest, index))
    pairs = sorted((i, partner[other]) for other in partner for i in indices_of_digest[other])
    whole = val.is_whole and compared == len(train.dataset)
    scope = "" if whole else f" (compared: {val.amount} with {compared:,} of {len(train.dataset):,})"
    if not pairs:
        return [] if whole else [f"no validation image is identical to a training image{scope}"]
    are = "images of val are" if len(pairs) > 1 else "image of val is"
    example = f"{val.dataset.describe(pairs[0][0])} and {train.dataset.describe(pairs[0][1])}"
    return [f"{len(pairs):,} {are} identical to images of train, such as {example}{scope}"]


def _digest(train: "ImageDataset", index: int) -> tuple[int, bytes]:
    try:
        return index, compute_digest(train.encoded(index))
    except UnreadableImage:
        return index, b""


class SplitInspection:
    """Inspects the splits one by one, in the process that builds them.

    Args:
        replaces_bad: training replaces an unreadable image with the next one.
        allows_skipped_files: a split may be evaluated without images that cannot be opened here: a different set.
    """

    def __init__(self, is_evaluation: bool, replaces_bad: bool, allows_skipped_files: bool = False) -> None:
        self.is_evaluation = is_evaluation
        self.replaces_bad = replaces_bad
        self.allows_skipped_files = allows_skipped_files
        self._opened: dict[str, DecodedSplit] = {}
        self._told: list[SeenImages] = []

    def inspect(
        self, dataset: "ImageDataset", split: str, num_classes: int, seen: SeenImages | None = None
    ) -> list[str]:
        """Check ``split`` ("train" or "val") and return log lines; a ``UserError`` for bad images.

        ``seen`` is what the network sees of an image of this split; one line reports it for splits with an equal one.
        """
        skipped, lines = dataset.skipped_files, []
        if skipped is not None:
            is_evaluated = self.is_evaluation or split != "train"
            if is_evaluated and skipped.num_images and not self.allows_skipped_files:
                raise UserError(
                    f"{skipped.summary()}; a score without them is of a different set: make them readable or move "
                    f"them away, such as {skipped.example}, or add DATA.ALLOW_SKIPPED_FILES True"
                )
            lines += skipped.lines()
        lines += find_empty_classes(dataset, split, num_classes)
        lines += find_only_class(dataset, split, num_classes)
        if dataset.reading is not None:  # image files; other datasets were checked in full when they were opened
            opened = open_split(dataset, split)
            opened.refuse_bad(self.replaces_bad and split == "train")
            dataset.absent_folders = frozenset(filter(None, (find_missing_folder(bad.path) for bad in opened.bad)))
            lines += opened.findings()
            readable = [result for result in opened.results if not result.error]
            if seen is not None and readable and seen not in self._told:
                self._told.append(seen)
                sizes, modes = [result.size for result in readable], [result.mode for result in readable]
                lines.append(describe_change(sizes, modes, seen, split))
            self._opened[split] = opened
        if len(self._opened) == 2:
            lines += compare(self._opened["train"], self._opened["val"])
            self._opened = {}
        return [one_line(line) for line in lines]


def find_empty_classes(dataset: "ImageDataset", split: str, num_classes: int) -> list[str]:
    """Return a line if the dataset has classes without any image in ``split``."""
    labels = dataset.labels
    if labels is None:
        return []
    missing = np.flatnonzero(count_labels(np.asarray(labels), num_classes)[:num_classes] == 0)
    if not len(missing):
        return []
    names = dataset.class_names
    shown = ", ".join(names[label] if names else str(label) for label in missing[:3].tolist())
    more = ", …" if len(missing) > 3 else ""
    return [f"{split} has no images of {len(missing):,} of {num_classes:,} classes: {shown}{more}"]


def find_only_class(dataset: "ImageDataset", split: str, num_classes: int) -> list[str]:
    """Return a line if some images are read for their labels, as the dataset does not list them, and all are equal.

    A BadSample names the first image whose label is not a class.
    """
    if dataset.labels is not None or dataset.truth != CLASS or num_classes < 2:
        return []
    reader = copy.copy(dataset)  # what reading opens, such as a file, stays in the copy and is not pickled
    order, begin = np.random.default_rng(0).permutation(len(dataset))[:_MOST_LABELS].tolist(), time.monotonic()
    labels = []
    for index in order:
        try:
            labels.append(reader.read(index)[1])
        except BadSample:
            raise
        except Exception:  # a user's dataset may raise any, which is reported when the image is used
            continue
        if time.monotonic() - begin > _LABEL_SECONDS or labels[-1] != labels[0]:
            break
    if len(labels) < 2 or labels[-1] != labels[0]:
        return []
    name = dataset.class_names[labels[0]] if dataset.class_names else labels[0]
    return [f"note: all {len(labels)} images of {split} that were read are of class {name}, of {num_classes:,} classes"]
