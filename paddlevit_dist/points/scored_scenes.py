"""Scores of somebody else's predictions for scenes, in the format of ScanNet's benchmark: a number of a class for each
vertex, or instances as masks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ..intervals import confusion_scores
from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from .data.scannet_classes import submitted_numbers
from .data.scene import Scene
from .submission import INSTANCES, LONGEST_LINE, MOST_INSTANCES, SubmissionFiles, find_kind, split_lines


class SceneGroundTruth(NamedTuple):
    """The truth.

    Attributes:
        names: of the scenes, as their files are called.
        read: gives the scenes, in this order.
        identities: of the scenes, as a run's table has them.
        class_names: of all classes.
        instance_classes: numbers of those that have instances.
        source: where this is from, for messages.
        origin: its data set.
    """

    names: Sequence[str]
    read: Iterator[Scene]
    identities: Sequence[str]
    class_names: list[str]
    instance_classes: list[int]
    source: str
    origin: ResultSource = UNKNOWN


def score(path: str, truth: SceneGroundTruth, kind: str | None = None) -> ScoreReport:
    """Compare a folder or an archive of predictions with the truth.

    Args:
        kind: ``submission.SEMANTIC`` or ``INSTANCES``; None: found out from what the files hold.
    Raises:
        UserError: a scene has no prediction, or a file is damaged.
    """
    files = SubmissionFiles(path)
    there = set(files.names)
    missing = [name for name in truth.names if f"{name}.txt" not in there]
    if missing:
        said = f"{len(missing):,} of {len(truth.names):,} scenes of {truth.source} have no file, such as"
        raise UserError(f"{path}: {said} {missing[0]}.txt; a score is of all of them")
    kind = kind or find_kind(files, [f"{name}.txt" for name in truth.names])
    numbers, called = submitted_numbers(truth.class_names)
    label_of = {int(number): label for label, number in enumerate(numbers)}
    unknown: Counter[int] = Counter()  # numbers in the files that are no class
    scenes = tqdm(truth.read, total=len(truth.names), desc="comparing", unit="scene", disable=None, leave=False)
    compare = _instances if kind == INSTANCES else _classes
    scored = compare(files, truth, scenes, label_of, unknown)
    of_none = sum(unknown.values())
    if of_none:
        what = "instances" if kind == INSTANCES else "vertices"
        said = f"{of_none:,} {what} of {shorten(sorted(unknown), 40)}, which is no class"
        scored.notices.append(f"{path}: {said} ({called}): {'left out' if kind == INSTANCES else 'wrong'}")
    known = {f"{name}.txt" for name in truth.names}
    others = [name for name in files.names if name.endswith(".txt") and "/" not in name and name not in known]
    if others:
        scored.notices.append(
            f"{path}: {len(others):,} files of no scene of {truth.source}, such as {others[0]}: left out"
        )
    return scored


def _classes(
    files: SubmissionFiles,
    truth: SceneGroundTruth,
    scenes: Iterator[Scene],
    label_of: dict[int, int],
    unknown: Counter[int],
) -> ScoreReport:
    number, rows = len(truth.class_names), []
    for scene in scenes:
        found = _labels(files, f"{scene.name}.txt", len(scene.semantic), label_of, unknown)
        true = scene.semantic.astype(np.int64)
        labeled = (true >= 0) & (true < number)
        true, found = true[labeled], found[labeled]
        counted = true[true == found], true, found[found >= 0]
        rows.append(np.stack([np.bincount(values, minlength=number) for values in counted]))
    statistics = np.stack(rows)
    _require_labels(statistics[:, 1], truth)
    return ScoreReport(
        counted=f"{len(rows):,} scenes of {number:,} classes: {files.path}, truth of {truth.source}",
        names=truth.identities,
        sample="scene",
        recompute=confusion_scores(statistics, truth.class_names),
        shown={"mIoU": 4, "accuracy": 4, "mean class accuracy": 4},
        of_class=("IoU {}", 4),
        classes=truth.class_names,
        protocol=[
            "IoU: ScanNet's, of the vertices of all scenes together, without those that have no class",
            "mIoU: mean over the classes that occur in truth or results",
        ],
        notices=[],
        task="semantic_segmentation",
        kind="confusions",
        arrays={"statistics": statistics, "losses": np.full(len(rows), np.nan)},
        origin=truth.origin,
    )


def _require_labels(true: np.ndarray, truth: SceneGroundTruth) -> None:
    if not true.any():
        raise UserError(f"{truth.source}: no vertex has a class: there is nothing to compare with")


def _labels(
    files: SubmissionFiles, name: str, vertices: int, label_of: dict[int, int], unknown: Counter[int]
) -> np.ndarray:
    """The class of each vertex, int64 (vertices,), -1 for a number that is none."""
    try:
        lines = split_lines(files.read(name, 16 * vertices + LONGEST_LINE))
    except ValueError as error:
        raise UserError(f"{files.path}: {name}: {error}; expected a number for each of {vertices:,} vertices") from None
    if len(lines) != vertices:
        raise UserError(f"{files.path}: {name} has {len(lines):,} lines, but the scene has {vertices:,} vertices")
    known: dict[bytes, int] = {}
    for line, times in Counter(lines).items():
        try:
            number = int(line)
        except ValueError:
            said = f"{files.path}: {name}, line {lines.index(line) + 1}: {_show(line)}"
            raise UserError(f"{said}: expected the number of a class") from None
        known[line] = label_of.get(number, -1)
        if number not in label_of:
            unknown[number] += times
    return np.array([known[line] for line in lines], np.int64)


def _instances(
    files: SubmissionFiles,
    truth: SceneGroundTruth,
    scenes: Iterator[Scene],
    label_of: dict[int, int],
    unknown: Counter[int],
) -> ScoreReport:
    from .instances.metrics import IOU_THRESHOLDS, SMALLEST_INSTANCE, InstanceMetrics, InstancePrediction

    metrics, number = InstanceMetrics(truth.class_names, truth.instance_classes), len(truth.class_names)
    true, found = [], 0
    for scene in scenes:
        predictions = [
            InstancePrediction(label, confidence, points)
            for label, confidence, points in _masks(files, f"{scene.name}.txt", len(scene.semantic), label_of, unknown)
        ]
        found += len(predictions)
        metrics.update_instances(scene.semantic, scene.instance, predictions)
        labels = scene.semantic[(scene.semantic >= 0) & (scene.semantic < number)]
        true.append(np.bincount(labels, minlength=number))
    _require_labels(np.stack(true), truth)
    statistics = np.full((len(true), 3, number), np.nan)  # what vertices are taken for is not known
    statistics[:, 1] = true
    kept = [statistics, np.full(len(true), np.nan), metrics.per_sample()[-1]]  # nor is a loss
    return ScoreReport(
        counted=f"{found:,} instances in {len(true):,} scenes: {files.path}, truth of {truth.source}",
        names=truth.identities,
        sample="scene",
        recompute=lambda weights: metrics.bootstrap_values(kept, weights),
        shown={"AP": 4, "AP50": 4, "AP25": 4},
        of_class=("AP {}", 4),
        classes=truth.class_names,
        protocol=[
            f"AP: ScanNet's, mean of IoU {IOU_THRESHOLDS[:-1].min():.2f} to {IOU_THRESHOLDS[:-1].max():.2f} and of the "
            f"{len(truth.instance_classes)} classes with instances, where they occur, over all scenes",
            f"instances of fewer than {SMALLEST_INSTANCE} vertices do not count, true or predicted",
        ],
        notices=[] if found else [f"{files.path}: no instance in any file: every AP is 0"],
        task="pointgroup",
        kind="instances",
        arrays=dict(metrics.to_sample_table(kept).arrays),
        origin=truth.origin,
    )


def _masks(
    files: SubmissionFiles, name: str, vertices: int, label_of: dict[int, int], unknown: Counter[int]
) -> Iterator[tuple[int, float, np.ndarray]]:
    """Class, confidence and vertices of each instance of a scene."""
    where = f"{files.path}: {name}"
    try:
        lines = split_lines(files.read(name, MOST_INSTANCES * LONGEST_LINE))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    there = set(files.names)
    for place, line in enumerate(lines, 1):
        try:
            mask, number, confidence = line.split()
            own, sure, file = int(number), float(confidence), mask.decode()
            if not np.isfinite(sure):
                raise ValueError
        except ValueError:
            said = f"{where}, line {place}: {_show(line)}"
            raise UserError(f"{said}: expected a mask file, the number of a class and a confidence") from None
        if file not in there:
            raise UserError(f"{where}, line {place}: there is no file {shorten(repr(file), 80)}")
        if own not in label_of:
            unknown[own] += 1
            continue
        try:
            content = files.read(file, 4 * vertices + LONGEST_LINE)
        except ValueError as error:
            raise UserError(f"{files.path}: {file}: {error}") from None
        marks = split_lines(content)
        if len(marks) != vertices or not set(marks) <= {b"0", b"1"}:
            said = f"{len(marks):,} lines, but the scene has {vertices:,} vertices"
            said = said if len(marks) != vertices else "something other than 0 and 1"
            raise UserError(f"{files.path}: {file} has {said}; expected a 0 or 1 for each vertex")
        yield label_of[own], sure, np.flatnonzero(np.frombuffer(b"".join(marks), np.uint8) == ord("1"))


def _show(text: bytes) -> str:
    return shorten(repr(text.decode("utf-8", "replace")), 60)
