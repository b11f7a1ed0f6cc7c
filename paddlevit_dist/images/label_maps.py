"""Scores of label maps from other programs: images whose pixels are class numbers. Needs no Paddle."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.metrics.counts import boundary_statistics, count_statistics
from ..core.runtime.errors import UserError
from ..core.runtime.printing import count, shorten
from ..core.tasks.class_labels import require_class_numbers
from ..core.tasks.sample_names import SampleNames
from ..core.tasks.score_report import ScoreReport
from .data.class_lists import ClassList, read_class_list
from .data.inspection import run_in_threads
from .data.label_pixels import read_label_file, require_map_size
from .data.reading import read_file

_UNNAMED = 256  # classes, if their number is not given
_NO_CLASS = (255, 65_535)  # in results, of pixels without a class
_END = ".png"  # suffix of sample names, independent of the files' suffixes


class LabelMapRules(NamedTuple):
    """How label maps are read and compared."""

    classes: list[str] | None = None  # their names; None: the classes that occur, named by their numbers
    ignored: int | None = 255  # ground-truth value of pixels that are not counted; None: all pixels count
    reduce_zero_label: bool = False  # 0 in the ground truth is ignored, and k is class k - 1, as in ADE20K's files
    truth_suffix: str = ".png"  # suffix of the ground truth's file names
    result_suffix: str = ".png"  # suffix of the results' file names


def require_same_numbers(truth: str, results: str, listed: ClassList | None) -> None:
    """Raise a ``UserError`` if a class has other numbers in the lists of two folders of label maps, where known.

    ``listed`` replaces that of ``truth``; others are a ``classes.txt`` in a folder such as ``labels/val``, or above it.
    """
    lists: list[ClassList | None] = []
    for folder in (truth, results):
        files = (path / "classes.txt" for path in (Path(folder), *Path(folder).absolute().parents[:2]))
        lists.append(next((read_class_list(str(file)) for file in files if file.is_file()), None))
    first, second = listed or lists[0], lists[1]
    if first is None or second is None:
        return
    numbers = dict(zip(second.names, second.numbers))
    for name, number in zip(first.names, first.numbers):
        if numbers.get(name, number) != number:
            numbered = f"{number} in {first.file} and {numbers[name]} in {second.file}"
            raise UserError(f"{name} is number {numbered}: label maps are compared by number; write both with one list")


def score(truth: str, results: str, rules: LabelMapRules) -> ScoreReport:
    """Compare the label maps of two folders.

    Raises:
        UserError: a file cannot be read, is not a label map, or has no counterpart of its size.
    """
    true_files, files = _list_maps(truth, rules.truth_suffix), _list_maps(results, rules.result_suffix)
    pairs, left_over = _pair_maps(truth, true_files, results, files)
    num_classes = _UNNAMED if rules.classes is None else len(rules.classes)

    def compare(paths: list[tuple[str, str]], index: int, off: int = 0) -> tuple[np.ndarray, int, int, np.ndarray]:
        return _compare_maps(*paths[index], rules, num_classes, off)

    compared = list(run_in_threads(compare, pairs, range(len(pairs)), "comparing", len(pairs), np.inf))
    statistics, boundaries = np.moveaxis(
        np.stack([result for result, *_ in compared]), 1, 0
    )  # (images, 3, classes) each
    ignored, outside = (sum(result[place] for result in compared) for place in (1, 2))

    def count_right(off: int) -> int:
        if not off:
            return int(statistics[:, 0].sum())
        return sum(int(compare(pairs, index, off)[0][0, 0].sum()) for index in range(len(pairs)))

    if not statistics[:, 1].any():
        raise UserError(f"{truth}: all pixels are {rules.ignored}, which is ignored: there is nothing to compare")
    _require_classes(results, truth, statistics.sum(axis=0), rules.classes is not None)
    occurring = np.flatnonzero(statistics.any(axis=(0, 1)))
    classes = rules.classes
    theirs = set(np.concatenate([numbers for *_, numbers in compared]).tolist())
    ours = np.flatnonzero(statistics[:, 1].any(axis=0)).tolist() if classes is None else range(len(classes))
    if len(theirs) > 1:  # a network that finds one class alone fits better as another by chance
        advice = f"{'list all classes with -classes=FILE, or ' if classes else ''}write 255 where a pixel has no class"
        require_class_numbers(results, theirs, truth, ours, count_right, advice, is_closed=classes is not None)
    notices = [f"{results}: {count(left_over, 'map')} without an image in {truth}: skipped"] if left_over else []
    if classes is None:
        unknown = [label for label in occurring.tolist() if not statistics[:, 1, label].any()]
        if unknown:
            shown = f"{shorten(', '.join(map(str, unknown)), 60)}, which {truth} never has"
            notices.append(f"{results}: pixels of class {shown}: counted as wrong, each as one more class of the mean")
        classes = list(map(str, occurring.tolist()))
        statistics, boundaries = statistics[:, :, occurring], boundaries[:, :, occurring]
    if outside:
        notices.append(
            f"{results}: {count(outside, 'pixel')} without a class where the ground truth has one: counted as wrong"
        )
    if ignored and (statistics[:, 1].sum(axis=0) > 0).sum() == 1:
        notices.append(
            f"{truth}: only one class in addition to {rules.ignored}, which is ignored; "
            "add -ignore=none if it is a class, too"
        )
    without = (
        f"; {ignored:,} are ignored, where the ground truth is {rules.ignored}" if rules.ignored is not None else ""
    )
    shift = "; 0 in the ground truth is ignored as well, and k is class k - 1" if rules.reduce_zero_label else ""
    return ScoreReport(
        counted=f"{count(len(pairs), 'image')} of {len(classes):,} classes: {results}, ground truth: {truth}",
        names=list(true_files),
        sample="image",
        shown=dict.fromkeys(("mIoU", "accuracy", "mean class accuracy", "mean Dice", "boundary IoU"), 4),
        classes=classes,
        protocol=[
            f"IoU: over the pixels of all images together{without}{shift}",
            f"mIoU: mean over the classes in ground truth or results, {len(occurring):,} of {len(classes):,}",
            "boundary IoU: over the pixels of each class within 2 % of the image's diagonal of its boundary",
        ],
        notices=notices,
        task="masks",
        kind="confusions",
        arrays={"statistics": statistics, "boundaries": boundaries, "losses": np.full(len(pairs), np.nan)},
    )


def _require_classes(results: str, truth: str, statistics: np.ndarray, are_listed: bool) -> None:
    """Refuse results without any class of the ground truth, from sums int64 (3, classes): numbers mean something else.

    Where ``are_listed``, a class that the ground truth never has is a class, too.
    """
    _, true, predicted = statistics
    if not predicted[slice(None) if are_listed else true > 0].any():
        theirs, ours = (", ".join(map(str, np.flatnonzero(part).tolist())) for part in (predicted, true))
        pixels = f"pixels have {shorten(theirs, 60)}" if theirs else "no pixel has a class"
        listed = "" if are_listed else ": list the classes with -classes=FILE if these are some"
        raise UserError(f"{results}: {pixels}, but the classes of {truth} are {shorten(ours, 60)}{listed}")


def _list_maps(folder: str, suffix: str) -> dict[str, str]:
    """List the files below a folder that end with ``suffix``: relative name, with the suffix ``_END``, -> path."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder; expected a folder with one label map per image")
    paths = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(folder_name for folder_name in folders if not folder_name.startswith("."))
        for name in sorted(names):
            if name.endswith(suffix) and not name.startswith("."):
                path = os.path.join(place, name)
                paths[os.path.relpath(path, folder)[: -len(suffix)] + _END] = path
    if not paths:
        raise UserError(f"{folder} has no file that ends with {suffix}; set -truth_suffix and -result_suffix")
    return paths


def _pair_maps(
    truth: str, true_files: dict[str, str], results: str, files: dict[str, str]
) -> tuple[list[tuple[str, str]], int]:
    """Pair the paths of each image's ground truth and result; also return the number of results without an image."""
    finder = SampleNames(list(files), results, "map")
    pairs, matches = [], dict[int, str]()  # the image of each result
    for name, path in true_files.items():
        row = finder.find_row(name)
        if row is None:
            missing = [other for other in true_files if finder.find_row(other) is None]
            count = f"{len(missing):,} of {len(true_files):,} label maps of {truth} have no counterpart"
            raise UserError(f"{results}: {count}, such as {missing[0]}; it has {next(iter(files))}, for example")
        if row in matches:
            clash = f"{finder.names[row]} matches {matches[row]} and {name} of {truth}"
            raise UserError(f"{results}: {clash}: give the results the same folders as the ground truth")
        matches[row] = name
        pairs.append((path, files[finder.names[row]]))
    return pairs, len(files) - len(pairs)


def _compare_maps(
    truth: str, result: str, rules: LabelMapRules, number: int, off: int
) -> tuple[np.ndarray, int, int, np.ndarray]:
    """Count the pixels of one image for ``confusion_scores``, with ``off`` subtracted from all classes of the result.

    Returns statistics of the image and of its boundaries, int64 (2, 3, classes); the number of ignored pixels; the
    number of pixels with a class for which the result has none; and the numbers in the result where classes are known.
    """
    labels = _read(truth)
    if not result.lower().endswith(".mat"):
        require_map_size(read_file(result), result, truth, labels.shape)
    predicted = _read(result) - off
    if labels.shape != predicted.shape:
        sizes = [f"{width} x {height}" for height, width in (predicted.shape, labels.shape)]
        raise UserError(f"{result} has {sizes[0]} pixels (width x height), but {truth} has {sizes[1]}")
    is_ignored = labels == rules.ignored  # no pixel if that is None
    if rules.reduce_zero_label:
        is_ignored |= labels == 0
        labels = labels - 1
    is_known = ~is_ignored
    is_wrong = is_known & ((labels < 0) | (labels >= number))  # files of 32 bits have negative numbers, too
    if is_wrong.any():
        wrong = int(labels[is_wrong][0]) + int(rules.reduce_zero_label)
        raise UserError(
            f"{truth} has pixels of class {wrong}, but classes are 0 to {number - 1}; list them with -classes=FILE, "
            "or set -ignore=N to the number that is not a class"
        )
    stated = predicted[is_known & (predicted >= 0) & (predicted != rules.ignored) & ~np.isin(predicted, _NO_CLASS)]
    no_class = -2  # replaces all other values of the result
    is_class = (predicted >= 0) & (predicted < number) & (predicted != rules.ignored)
    predicted = np.where(is_class, predicted, no_class)
    counted = count_statistics(labels[is_known], predicted[is_known], number)
    tables = np.stack([counted, boundary_statistics(labels, predicted, number, is_known)])
    return (
        tables,
        int(is_ignored.sum()),
        int((is_known & ~is_class).sum()),
        np.flatnonzero(np.bincount(np.minimum(stated, 1 << 16))),
    )


def _read(path: str) -> np.ndarray:
    """Read class numbers, int32 (height, width); raise UserError if the map cannot be read, or has colors."""
    pixels = read_label_file(path)
    if pixels.is_color:
        raise UserError(
            f"{path} has colors (RGB), expected a class number for each pixel: gray with 8 or 16 bits, or a palette"
        )
    return pixels.values.astype(np.int32)
