"""Scores of a table of predicted classes of any program, by the rules of ``ClassificationMetrics``, without Paddle."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...core.metrics.classification_scores import list_tops
from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ...core.tasks.class_labels import require_class_numbers
from ...core.tasks.sample_names import SampleNames
from ...core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from .result_tables import ClassGroundTruth, ResultTableLayout, TableRow, find_layout, parse_scores, read_listed_classes

_MOST_NUMBERS = 1 << 12  # parsed at a time, some rows: as text they take twenty times their 32 KiB
_ROUNDED = 0.01  # tolerance of the sum of a thousand probabilities with four digits
_SMALLEST = 1e-15  # smaller probabilities are replaced by it, or one confident mistake would make the mean infinite


class TableAnswers(NamedTuple):
    """A table's answers for the images, in the order of the ground truth.

    ``places`` are int32 (images,), numbers of classes preferred to the true one, ``predictions`` the best class, -1 of
    a row that is not finite, ``losses`` float32 (images,), NaN if
    there are none, and ``top`` the available k of top-k. Lines are about the rules (``protocol``) and the data.
    ``by_number``: whether numbers or the order of columns tell the classes, not names.
    """

    places: np.ndarray
    predictions: np.ndarray
    losses: np.ndarray
    top: tuple[int, ...]
    protocol: list[str]
    notices: list[str]
    by_number: bool


def score(
    path: str, truth: ClassGroundTruth | str, softmax: bool = False, origin: ResultSource = UNKNOWN, split: str = "val"
) -> ScoreReport:
    """Read a table of results and compare it with the ground truth, or with a table of the class of each image.

    With ``softmax`` scores are logits. ``split``: of a table of classes with a column of splits. A ``UserError`` says
    that a file is not such a table, or has missing or unknown images.
    """
    others: dict[str, str] = {}  # images of other splits
    if isinstance(truth, str):
        listed, others, notices = read_listed_classes(truth, split)
        true = {*listed.values(), *others.values()}
        layout = find_layout(path, None, true)
        truth = _load_truth(truth, listed, true, path, layout)
        truth = truth._replace(notices=[*notices, *truth.notices])
    else:
        layout = find_layout(path, truth.classes)
    if layout.scores and len(layout.scores) != len(truth.classes):
        columns = f"{len(layout.scores):,} columns of classes, but {truth.source} has {len(truth.classes):,} classes"
        raise UserError(f"{path}: {columns}")
    finder = _ImageFinder(path, layout, truth, others)
    answers = _from_scores(finder, softmax) if layout.scores else _from_best(finder, softmax)
    if answers.by_number and not all(map(str.isdecimal, truth.classes)):
        first = ", ".join(f"{number} is {name}" for number, name in enumerate(truth.classes[:3]))
        answers.notices.append(f"{path} numbers the classes: {shorten(first, 80)}, in the order of {truth.source}")
    finder.require_all()
    if finder.unscored:
        answers.notices.append(f"{path}: {count(finder.unscored, 'row')} of images of other splits, not scored")
    has_loss = bool(np.isfinite(answers.losses).any())
    return ScoreReport(
        counted=f"{len(truth.names):,} images of {len(truth.classes):,} classes: {path}, ground truth: {truth.source}",
        names=truth.names,
        sample="image",
        shown={**{f"top-{k}": 2 for k in answers.top}, "balanced accuracy": 2, **({"loss": 4} if has_loss else {})},
        classes=truth.classes,
        protocol=answers.protocol,
        notices=[*truth.notices, *answers.notices],
        task="classification",
        kind="classes",
        arrays={
            "labels": truth.labels.astype(np.int32),
            "places": answers.places,
            "predictions": answers.predictions,
            "losses": answers.losses,
            "top": np.array(answers.top, np.int32),
        },
        origin=origin,
    )


def _load_truth(
    file: str, listed: Mapping[str, str], true: set[str], path: str, layout: ResultTableLayout
) -> ClassGroundTruth:
    """Load the ground truth; its classes are the columns of the results, or without these all in either table."""
    notices = []
    if layout.scores:
        classes = layout.classes or [str(number) for number in range(len(layout.scores))]
        if true <= set(classes) and len(classes) > len(true):
            extra = shorten(", ".join(name for name in classes if name not in true), 60)
            notices.append(f"{path}: columns that are not classes of {file}: counted as classes, {extra}")
    else:
        predicted = {row.cells[column].strip() for row in layout.rows(path) for column in layout.best}
        if not predicted & true:
            shown = f"{shorten(', '.join(sorted(predicted)), 60)}: none is a class of {file}"
            raise UserError(f"{path} has classes {shown}, which has {shorten(', '.join(sorted(true)), 60)}")
        classes = sorted(predicted | true, key=lambda name: (not name.isdecimal(), name.zfill(20), name))
        if predicted - true:
            extra = f"classes that {file} does not have: wrong, {shorten(', '.join(sorted(predicted - true)), 60)}"
            notices.append(f"{path}: {len(predicted - true):,} {extra}")
    label_of = _labels(classes)
    unknown = next((name for name, class_name in listed.items() if class_name not in label_of), None)
    if unknown is not None:
        image = f"{unknown} is of class {shorten(listed[unknown], 40)}"
        raise UserError(f"{file}: {image}, which {path} has no column for; it has {shorten(', '.join(classes), 80)}")
    by_number = sorted(true - set(classes))
    if by_number:
        match = (
            f"class {by_number[0]} is the class at this position of {path}, from 0: {classes[label_of[by_number[0]]]}"
        )
        notices.append(f"{file}: {match}")
    return ClassGroundTruth(
        list(listed),
        np.array([label_of[class_name] for class_name in listed.values()], np.int64),
        classes,
        file,
        notices,
    )


def _labels(classes: Sequence[str]) -> dict[str, int]:
    """Return labels by class name, and by number from 0 unless all names are numbers, which may start at 1."""
    numbers = {} if all(map(str.isdecimal, classes)) else {str(label): label for label in range(len(classes))}
    return {**numbers, **{name: label for label, name in enumerate(classes)}}


class _ImageFinder:
    """Finds the image of each row."""

    def __init__(
        self, path: str, layout: ResultTableLayout, truth: ClassGroundTruth, others: Mapping[str, str]
    ) -> None:
        self.path, self.layout, self.truth = path, layout, truth
        self.unscored = 0  # rows of ``others``
        self._names = SampleNames([*truth.names, *others], truth.source)
        self._lines = np.zeros(len(truth.names), np.int64)  # of each image; 0: none so far

    def rows(self) -> Iterator[tuple[int, TableRow]]:
        """Yield each row with the position of its image; a ``UserError`` if it has none, or another row's."""
        for row in self.layout.rows(self.path):
            place = self._names.find_row(row.cells[self.layout.name])
            if place is not None and place >= len(self._lines):
                self.unscored += 1
                continue
            if place is None or self._lines[place]:
                raise self._error(row, place)
            self._lines[place] = row.line
            yield place, row

    def _error(self, row: TableRow, place: int | None) -> UserError:
        where = f"{self.path}, line {row.line}: {shorten(repr(row.cells[self.layout.name]), 80)}"
        if place is not None:
            return UserError(f"{where} is already the image of line {self._lines[place]}; keep one")
        images = f"{len(self.truth.names):,} images of {self.truth.source}, such as {self.truth.names[0]}"
        return UserError(f"{where} is none of the {images}")

    def require_all(self) -> None:
        """Refuse images without a row by a ``UserError``: a mean without some would be another score."""
        without = np.flatnonzero(self._lines == 0)
        if len(without):
            missing = f"{len(without):,} of {len(self._lines):,} images of {self.truth.source} have no row"
            raise UserError(f"{self.path}: {missing}, such as {self.truth.names[without[0]]}; a score needs all images")


def _from_scores(finder: _ImageFinder, softmax: bool) -> TableAnswers:
    truth, layout = finder.truth, finder.layout
    number, classes = len(truth.names), np.arange(len(truth.classes))
    places, losses = np.zeros(number, np.int32), np.full(number, np.nan, np.float32)
    predictions = np.full(number, -1, np.int32)
    are_probabilities, not_finite, smallest = True, 0, 0
    rows = finder.rows()
    while batch := list(itertools.islice(rows, max(1, _MOST_NUMBERS // len(classes)))):
        chosen = np.array([place for place, _ in batch])
        scores = np.array([parse_scores(finder.path, row, layout.scores, layout.separator) for _, row in batch])
        labels = truth.labels[chosen]
        true = np.take_along_axis(scores, labels[:, None], axis=1)  # (rows, 1)
        ahead = (scores > true) | ((scores == true) & (classes < labels[:, None]))
        finite = np.isfinite(scores).all(axis=1)
        places[chosen] = np.where(finite, ahead.sum(axis=1), len(classes))
        predictions[chosen] = np.where(finite, scores.argmax(axis=1), -1)
        not_finite += int((~finite).sum())
        finite_scores = scores[finite]
        are_probabilities &= bool(
            (finite_scores >= 0).all() and (np.abs(finite_scores.sum(axis=1) - 1) <= _ROUNDED).all()
        )
        if softmax:
            with np.errstate(invalid="ignore"):
                largest = scores.max(axis=1, keepdims=True)
                losses[chosen] = np.log(np.exp(scores - largest).sum(axis=1)) - (true - largest)[:, 0]
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            losses[chosen] = -np.log(np.maximum(true[:, 0], _SMALLEST))
        smallest += int((true < _SMALLEST).sum())
    has_loss = (softmax or are_probabilities) and not not_finite
    top = list_tops(len(classes))
    protocol = ["top-k: among classes with equal scores, the first comes first; a row that is not finite is wrong"]
    notices = []
    if not_finite:
        notices.append(f"{finder.path}: {not_finite:,} rows with NaN or infinity: wrong, and no loss is computed")
    elif not has_loss:
        why = "some are negative, or rows do not add up to 1"
        notices.append(
            f"{finder.path}: scores, not probabilities ({why}): no loss; add -logits to compute it from their softmax"
        )
    else:
        shares = "the scores' softmax" if softmax else "the probabilities"
        protocol.append(f"loss: mean of -ln of the true class's share in {shares}")
    if softmax and are_probabilities and has_loss:
        notices.append(f"{finder.path}: rows add up to 1 like probabilities; remove -logits if they are probabilities")
    if has_loss and smallest:
        notices.append(f"{finder.path}: {smallest:,} true classes below {_SMALLEST:g}: raised to it, as Kaggle does")
    by_number = layout.classes is None or set(truth.classes).isdisjoint(layout.classes)
    losses = losses if has_loss else np.full(number, np.nan, np.float32)
    return TableAnswers(places, predictions, losses, top, protocol, notices, by_number)


def _from_best(finder: _ImageFinder, softmax: bool) -> TableAnswers:
    if softmax:
        raise UserError(
            f"-logits: {finder.path} has no scores of classes, but {len(finder.layout.best)} best; remove -logits"
        )
    truth, columns = finder.truth, finder.layout.best
    label_of, advice = _labels(truth.classes), "write the names of the classes"
    numbers = list(map(int, truth.classes)) if all(map(str.isdecimal, truth.classes)) else range(len(truth.classes))
    places, predictions = (np.zeros(len(truth.names), np.int32) for _ in range(2))
    off = np.zeros(len(truth.names), np.int64)  # the first class minus the true one, if classes are numbers
    found, are_numbers = set[int](), True
    shares = np.full((len(truth.names), 2), np.nan)  # of the true class, and of all
    for place, row in finder.rows():
        names = [row.cells[column].strip() for column in columns]
        unknown = [class_name for class_name in names if class_name not in label_of]
        if unknown:
            firsts = [row.cells[columns[0]].strip() for row in finder.layout.rows(finder.path)]
            if all(map(str.isdecimal, firsts)):
                require_class_numbers(finder.path, set(map(int, firsts)), truth.source, numbers, lambda off: 0, advice)
            name = f"{shorten(repr(unknown[0]), 60)} is not a class of {truth.source}"
            raise UserError(f"{finder.path}, line {row.line}: {name}; it has {shorten(', '.join(truth.classes), 80)}")
        labels = [label_of[class_name] for class_name in names]
        found.add(numbers[labels[0]])
        predictions[place] = labels[0]
        off[place] = numbers[labels[0]] - numbers[truth.labels[place]]
        are_numbers &= names[0].isdecimal()
        places[place] = labels.index(truth.labels[place]) if truth.labels[place] in labels else len(columns)
        if len(finder.layout.best_scores) == len(truth.classes) == len(set(labels)):
            scores = parse_scores(finder.path, row, finder.layout.best_scores, finder.layout.separator)
            shares[place] = scores[places[place]], sum(scores)
    ranked = f"the first {len(columns)} classes" if len(columns) > 1 else "one class"
    has_loss = bool((np.abs(shares[:, 1] - 1) <= _ROUNDED).all())
    loss = "loss: mean of -ln of the true class's score" if has_loss else "no loss: it needs the scores of all classes"
    protocol = [f"top-k: {ranked} of each row, in their order", loss]
    if are_numbers and len(found) > 1:  # one class alone fits better as another by chance
        known = [numbers[label] for label in np.unique(truth.labels)]
        span, source = range(min(known), max(known) + 1), truth.source
        require_class_numbers(finder.path, found, source, span, lambda by: int((off == by).sum()), advice, False)
    right, shifted = int((off == 0).sum()), max(int((off == 1).sum()), int((off == -1).sum()))
    notices = []
    if are_numbers and shifted > max(right, len(off) / 2):
        shift = f"{shifted:,} of {len(off):,} would be right, and {right:,} are: does one side count from 1?"
        notices.append(f"{finder.path}: with classes one lower or higher {shift}")
    losses = -np.log(np.maximum(shares[:, 0], _SMALLEST)) if has_loss else np.full(len(truth.names), np.nan)
    top = tuple(k for k in list_tops(len(truth.classes)) if k <= len(columns))
    return TableAnswers(places, predictions, losses.astype(np.float32), top, protocol, notices, are_numbers)
