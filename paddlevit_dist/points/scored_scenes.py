"""Scores of predictions in ScanNet's submission format: a class number for each vertex, or instances as masks."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ..core.metrics.counts import count_statistics
from ..core.runtime.errors import UserError
from ..core.runtime.printing import agree, count, shorten
from ..core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from .data.scannet_classes import submitted_numbers
from .data.scene import Scene
from .submission import INSTANCES, MAX_INSTANCES, MAX_LINE_BYTES, SubmissionFiles, find_kind, split_lines


class SceneGroundTruth(NamedTuple):
    """Ground truth of the scenes to score."""

    names: Sequence[str]  # names of the scenes, as their files are called
    read: Iterator[Scene]  # yields the scenes, in this order
    identities: Sequence[str]  # identities of the scenes in a run's table
    class_names: list[str]
    # returns the numbers of the classes that have instances; an error if they are unknown
    find_instance_classes: Callable[[], list[int]]
    source: str  # origin of the truth for messages
    origin: ResultSource = UNKNOWN  # its dataset
    min_points: int = 100  # of the smallest instance that AP counts


def score(path: str, truth: SceneGroundTruth, kind: str | None = None) -> ScoreReport:
    """Compare a folder or zip archive of predictions with the ground truth.

    ``kind`` is ``submission.SEMANTIC`` or ``INSTANCES``; None: inferred from the content of the files. UserError if a
    scene has no prediction, or a file is damaged.
    """
    files = SubmissionFiles(path)
    file_names = set(files.names)
    missing = [name for name in truth.names if f"{name}.txt" not in file_names]
    if missing:
        message = f"{len(missing):,} of {len(truth.names):,} scenes of {truth.source} have no file, such as"
        raise UserError(f"{path}: {message} {missing[0]}.txt; a score needs all of them")
    kind = kind or find_kind(files, [f"{name}.txt" for name in truth.names])
    numbers, number_kind = submitted_numbers(truth.class_names)
    label_by_number = {int(number): label for label, number in enumerate(numbers)}
    unknown: Counter[int] = Counter()  # numbers in the files that are not a class
    scenes = tqdm(truth.read, total=len(truth.names), desc="comparing", unit="scene", disable=None, leave=False)
    compare = _score_instances if kind == INSTANCES else _score_classes
    report = compare(files, truth, scenes, label_by_number, unknown)
    num_unknown = sum(unknown.values())
    if num_unknown:
        unit = "instances" if kind == INSTANCES else "vertices"
        message = f"{num_unknown:,} {unit} have a number without a class: {shorten(sorted(unknown), 40)}"
        report.notices.append(
            f"{path}: {message} ({number_kind}): {'ignored' if kind == INSTANCES else 'counted as wrong'}"
        )
    expected = {f"{name}.txt" for name in truth.names}
    others = [name for name in files.names if name.endswith(".txt") and "/" not in name and name not in expected]
    if others:
        found = f"{count(len(others), 'file')} {agree(len(others), 'belongs', 'belong')} to no scene of {truth.source}"
        report.notices.append(f"{path}: {found}, such as {others[0]}: ignored")
    return report


def _require_known(files: SubmissionFiles, label_by_number: dict[int, int], unknown: Counter[int]) -> None:
    """Refuse results if none has the number of a class: a score of 0 would say something about a model."""
    if unknown:
        theirs, ours = (shorten(", ".join(map(str, sorted(numbers))), 60) for numbers in (unknown, label_by_number))
        raise UserError(f"{files.path}: no class of the results is one of the truth: they have {theirs}, it has {ours}")


def _score_classes(
    files: SubmissionFiles,
    truth: SceneGroundTruth,
    scenes: Iterator[Scene],
    label_by_number: dict[int, int],
    unknown: Counter[int],
) -> ScoreReport:
    number, rows = len(truth.class_names), []
    for scene in scenes:
        predicted = _read_labels(files, f"{scene.name}.txt", scene, label_by_number, unknown)
        true = scene.semantic.astype(np.int64)
        labeled = (true >= 0) & (true < number)
        rows.append(count_statistics(true[labeled], predicted[labeled], number))
    statistics = np.stack(rows)
    if not statistics[:, 2].any():
        _require_known(files, label_by_number, unknown)
    _require_labels(statistics[:, 1], truth)
    return ScoreReport(
        counted=f"{len(rows):,} scenes of {number:,} classes: {files.path}, truth of {truth.source}",
        names=truth.identities,
        sample="scene",
        shown={"mIoU": 4, "accuracy": 4, "mean class accuracy": 4},
        classes=truth.class_names,
        protocol=[
            "IoU: ScanNet's, over the vertices of all scenes together, without unlabeled vertices",
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
        raise UserError(f"{truth.source}: no vertex has a class, so there is nothing to compare with")


def _read_labels(
    files: SubmissionFiles, name: str, scene: Scene, label_by_number: dict[int, int], unknown: Counter[int]
) -> np.ndarray:
    """Return the class of each point of the scene, int64 (points,), -1 for an unknown number."""
    vertices = len(scene.semantic) + len(scene.skipped_rows)
    try:
        lines = split_lines(files.read(name, 16 * vertices + MAX_LINE_BYTES))
    except ValueError as error:
        raise UserError(f"{files.path}: {name}: {error}; expected a number for each of {vertices:,} vertices") from None
    if len(lines) != vertices:
        raise UserError(f"{files.path}: {name} has {len(lines):,} lines, but the scene has {vertices:,} vertices")
    classes: dict[bytes, int] = {}
    skipped = set(map(int, scene.skipped_rows))
    kept = [text for row, text in enumerate(lines) if row not in skipped]
    for line, times in Counter(kept).items():
        try:
            number = int(line)
        except ValueError:
            message = f"{files.path}: {name}, line {lines.index(line) + 1}: {_quote(line)}"
            raise UserError(f"{message}: expected the number of a class") from None
        classes[line] = label_by_number.get(number, -1)
        if number not in label_by_number:
            unknown[number] += times
    return np.array([classes[text] for text in kept], np.int64)


def _score_instances(
    files: SubmissionFiles,
    truth: SceneGroundTruth,
    scenes: Iterator[Scene],
    label_by_number: dict[int, int],
    unknown: Counter[int],
) -> ScoreReport:
    from .instances.matching import IOU_THRESHOLDS, InstancePrediction
    from .instances.metrics import InstanceMetrics

    instance_classes, number = truth.find_instance_classes(), len(truth.class_names)
    metrics = InstanceMetrics(truth.class_names, instance_classes, truth.min_points)
    num_found = 0
    for scene in scenes:
        predictions = [
            InstancePrediction(label, confidence, points)
            for label, confidence, points in _read_masks(files, f"{scene.name}.txt", scene, label_by_number, unknown)
        ]
        num_found += len(predictions)
        metrics.update_instances(scene.semantic, scene.instance, predictions)
        statistics = np.full((3, number), np.nan)  # predicted classes of vertices are unknown
        statistics[1] = np.bincount(scene.semantic[(scene.semantic >= 0) & (scene.semantic < number)], minlength=number)
        metrics.add(statistics=statistics, losses=np.nan)
    if not num_found:
        _require_known(files, label_by_number, unknown)
    arrays = metrics.to_sample_table(metrics.per_sample()).arrays
    _require_labels(arrays["statistics"][:, 1], truth)
    notices = [] if num_found else [f"{files.path}: no instance in any file: every AP is 0"]
    if not arrays["num_true"].any():
        notices = [
            f"{truth.source}: no true instance has at least {truth.min_points} vertices, so AP is not defined: set "
            "POINTS.INSTANCES.AP_MIN_POINTS lower if smaller ones are to count"
        ]
    counted = f"{count(num_found, 'instance')} in {count(len(metrics.tables), 'scene')}"
    return ScoreReport(
        counted=f"{counted}: {files.path}, truth of {truth.source}",
        names=truth.identities,
        sample="scene",
        shown={"AP": 4, "AP50": 4, "AP25": 4},
        classes=truth.class_names,
        protocol=[
            f"AP: ScanNet's, mean of IoU {IOU_THRESHOLDS[:-1].min():.2f} to {IOU_THRESHOLDS[:-1].max():.2f} and of the "
            f"{len(instance_classes)} classes with instances, where they occur, over all scenes",
            f"instances of fewer than {truth.min_points} vertices do not count, true or predicted",
        ],
        notices=notices,
        task="pointgroup",
        kind="instances",
        arrays=arrays,
        origin=truth.origin,
    )


def _read_masks(
    files: SubmissionFiles, name: str, scene: Scene, label_by_number: dict[int, int], unknown: Counter[int]
) -> Iterator[tuple[int, float, np.ndarray]]:
    """Yield class, confidence and point indices of each instance of a scene."""
    where, vertices = f"{files.path}: {name}", len(scene.semantic) + len(scene.skipped_rows)
    try:
        lines = split_lines(files.read(name, MAX_INSTANCES * MAX_LINE_BYTES))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    file_names = set(files.names)
    for line_number, line in enumerate(lines, 1):
        try:
            mask, number, confidence = line.rsplit(None, 2)  # a mask file's name may have spaces
            label_number, score, file = int(number), float(confidence), mask.decode()
            if not np.isfinite(score):
                raise ValueError
        except ValueError:
            message = f"{where}, line {line_number}: {_quote(line)}"
            raise UserError(f"{message}: expected a mask file, the number of a class and a confidence") from None
        if file not in file_names:
            raise UserError(f"{where}, line {line_number}: there is no file {shorten(repr(file), 80)}")
        if label_number not in label_by_number:
            unknown[label_number] += 1
            continue
        try:
            content = files.read(file, 4 * vertices + MAX_LINE_BYTES)
        except ValueError as error:
            raise UserError(f"{files.path}: {file}: {error}") from None
        marks = split_lines(content)
        if len(marks) != vertices or not set(marks) <= {b"0", b"1"}:
            message = f"{len(marks):,} lines, but the scene has {vertices:,} vertices"
            message = message if len(marks) != vertices else "something other than 0 and 1"
            raise UserError(f"{files.path}: {file} has {message}; expected a 0 or 1 for each vertex")
        is_inside = np.array(marks, "S1") == b"1"
        is_inside = np.delete(is_inside, np.array(scene.skipped_rows, np.int64))
        yield label_by_number[label_number], score, np.flatnonzero(is_inside)


def _quote(text: bytes) -> str:
    return shorten(repr(text.decode("utf-8", "replace")), 60)
