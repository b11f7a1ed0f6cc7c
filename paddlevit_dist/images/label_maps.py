"""Scores of somebody else's label maps: images whose pixels are numbers of classes. Needs no Paddle."""

import os
from typing import NamedTuple

import numpy as np

from ..intervals import confusion_scores
from ..metrics.counts import boundary_statistics
from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..tasks.sample_names import SampleNames
from ..tasks.score_report import ScoreReport
from .data.inspection import in_threads
from .data.label_pixels import read_label_file

_UNNAMED = 256  # classes, where nobody says how many there are

_END = ".png"  # of the names of both, whatever their files end with


class LabelMapRules(NamedTuple):
    """How label maps are read and compared.

    Attributes:
        classes: their names; None: those that occur, called by their numbers.
        ignored: number of the pixels in the truth that count in nothing; None: all count.
        reduce_zero_label: 0 in the truth is ignored, and k is class k - 1, as in ADE20K's files.
        truth_suffix, result_suffix: what names of files end with.
    """

    classes: list[str] | None = None
    ignored: int | None = 255
    reduce_zero_label: bool = False
    truth_suffix: str = ".png"
    result_suffix: str = ".png"


def score(truth: str, results: str, rules: LabelMapRules) -> ScoreReport:
    """Compare the label maps of two folders.

    Raises:
        UserError: a file cannot be read, is no label map, or has no counterpart of its size.
    """
    true_files, files = _maps_in(truth, rules.truth_suffix), _maps_in(results, rules.result_suffix)
    pairs, left_over = _pair(truth, true_files, results, files)
    number = _UNNAMED if rules.classes is None else len(rules.classes)

    def compare(paths: list[tuple[str, str]], index: int) -> tuple[np.ndarray, int, int]:
        return _compare(*paths[index], rules, number)

    found = list(in_threads(compare, pairs, range(len(pairs)), "comparing", len(pairs), np.inf))
    statistics, boundaries = np.moveaxis(np.stack([one for one, *_ in found]), 1, 0)  # (images, 3, classes) each
    ignored, outside = (sum(one[place] for one in found) for place in (1, 2))
    if not statistics[:, 1].any():
        raise UserError(f"{truth}: all pixels are {rules.ignored}, which is ignored: there is nothing to compare with")
    occurring = np.flatnonzero(statistics.any(axis=(0, 1)))
    classes = rules.classes
    notices = [f"{results}: {left_over:,} maps of no image in {truth}: left out"] if left_over else []
    if classes is None:
        unknown = [number for number in occurring.tolist() if not statistics[:, 1, number].any()]
        if unknown:
            said = f"{shorten(', '.join(map(str, unknown)), 60)}, which {truth} never has"
            notices.append(f"{results}: pixels of class {said}: wrong, and each is one more class of the mean")
        classes = list(map(str, occurring.tolist()))
        statistics, boundaries = statistics[:, :, occurring], boundaries[:, :, occurring]
    if outside:
        notices.append(f"{results}: {outside:,} pixels of no class where the truth has one: wrong")
    if ignored and (statistics[:, 1].sum(axis=0) > 0).sum() == 1:
        notices.append(
            f"{truth}: one class beside {rules.ignored}, which is ignored; -ignore=none if it is a class, too"
        )
    without = f"; {ignored:,} are ignored, where the truth is {rules.ignored}" if rules.ignored is not None else ""
    shift = "; 0 in the truth is ignored as well, and k is class k - 1" if rules.reduce_zero_label else ""
    return ScoreReport(
        counted=f"{len(pairs):,} images of {len(classes):,} classes: {results}, truth of {truth}",
        names=list(true_files),
        sample="image",
        recompute=confusion_scores(statistics, classes, boundaries=boundaries),
        shown=dict.fromkeys(("mIoU", "accuracy", "mean class accuracy", "mean Dice", "boundary IoU"), 4),
        of_class=("IoU {}", 4),
        classes=classes,
        protocol=[
            f"IoU: of the pixels of all images together{without}{shift}",
            f"mIoU: mean over the classes that occur in truth or results, {len(occurring):,} of {len(classes):,}",
            "boundary IoU: of the pixels of each class that are within 2 % of the image's diagonal of its boundary",
        ],
        notices=notices,
        task="masks",
        kind="confusions",
        arrays={"statistics": statistics, "boundaries": boundaries, "losses": np.full(len(pairs), np.nan)},
    )


def _maps_in(folder: str, suffix: str) -> dict[str, str]:
    """The files below a folder whose names end so: name relative to it, with the end of all -> path."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder; expected one with a label map for each image")
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            if name.endswith(suffix) and not name.startswith("."):
                path = os.path.join(place, name)
                found[os.path.relpath(path, folder)[: -len(suffix)] + _END] = path
    if not found:
        raise UserError(f"{folder} has no file that ends with {suffix}; -truth_suffix and -result_suffix name the ends")
    return found


def _pair(
    truth: str, true_files: dict[str, str], results: str, files: dict[str, str]
) -> tuple[list[tuple[str, str]], int]:
    """The path of each image's truth and of its result, and how many results are of no image."""
    finder = SampleNames(list(files), results, "map")
    pairs, of = [], dict[int, str]()  # the image that each result is of
    for name, path in true_files.items():
        row = finder.find_row(name)
        if row is None:
            missing = [other for other in true_files if finder.find_row(other) is None]
            said = f"{len(missing):,} of {len(true_files):,} label maps of {truth} have no counterpart"
            raise UserError(f"{results}: {said}, as {missing[0]}; it has {next(iter(files))}, for example")
        if row in of:
            said = f"{finder.names[row]} would be of {of[row]} and of {name} of {truth}"
            raise UserError(f"{results}: {said}: give results the folders that the truth has")
        of[row] = name
        pairs.append((path, files[finder.names[row]]))
    return pairs, len(files) - len(pairs)


def _compare(truth: str, result: str, rules: LabelMapRules, number: int) -> tuple[np.ndarray, int, int]:
    """Statistics of one image and of its boundaries, int64 (2, 3, classes), as ``confusion_scores`` takes them;
    pixels that are ignored; and those that have a class, for which the result has none."""
    true, found = _read(truth), _read(result)
    if true.shape != found.shape:
        sizes = [f"{width} x {height}" for height, width in (found.shape, true.shape)]
        raise UserError(f"{result} has {sizes[0]} pixels (width x height), but {truth} has {sizes[1]}")
    is_ignored = np.zeros(true.shape, bool) if rules.ignored is None else true == rules.ignored
    if rules.reduce_zero_label:
        is_ignored |= true == 0
        true = true - 1
    is_known = ~is_ignored
    is_wrong = is_known & ((true < 0) | (true >= number))
    if is_wrong.any():
        wrong = int(true[is_wrong][0]) + int(rules.reduce_zero_label)
        raise UserError(
            f"{truth} has pixels of class {wrong}, but classes are 0 to {number - 1}; -classes=FILE names them, "
            "-ignore=N says which number has none"
        )
    no_class = -2  # whatever else the result has there
    is_class = (found >= 0) & (found < number) & (found != (-1 if rules.ignored is None else rules.ignored))
    found = np.where(is_class, found, no_class)
    statistics = [true[is_known & (true == found)], true[is_known], found[is_known & is_class]]
    counted = np.stack([np.bincount(values, minlength=number) for values in statistics])
    tables = np.stack([counted, boundary_statistics(true, found, number, is_known)])
    return tables, int(is_ignored.sum()), int((is_known & ~is_class).sum())


def _read(path: str) -> np.ndarray:
    """The numbers of a label map, int32 (height, width).

    Raises:
        UserError: it cannot be read, or has colors in place of numbers.
    """
    pixels = read_label_file(path)
    if pixels.is_color:
        raise UserError(
            f"{path} has colors (RGB), expected the number of a class for each pixel: gray with 8 or 16 bits, or a "
            "palette"
        )
    return pixels.values.astype(np.int32)
