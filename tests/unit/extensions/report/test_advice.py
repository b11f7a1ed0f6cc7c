"""What a report says to look at next."""

import json
import re

import numpy as np
import pytest
from support.trainings.report_runs import event, write_run

from paddlevit_dist.core.logging.record import SCORES
from paddlevit_dist.core.tasks.figures import Chart, ConfusionMatrix, FigureTable
from paddlevit_dist.core.tasks.score import Score, to_plain
from paddlevit_dist.extensions.report.advice import advise
from paddlevit_dist.extensions.report.runs import read_runs


def read_advice(folder, events, figures=None, counts=None, epochs=4, config=""):
    write_run(folder, events, f"TRAIN.NUM_EPOCHS: {epochs}\n{config}", figures)
    data = {"train": {"counts": counts}} if counts else {}
    (folder / "run.json").write_text(json.dumps({"data": data}))
    return advise(*read_runs([folder]))


def test_the_worst_class_is_named_with_what_it_is_taken_for_and_how_rare_it_is(tmp_path):
    columns = ("class", "images", "recall %", "most often taken for")
    rows = [("ant", 5, 90.0, None), ("cow", 5, 40.5, "ant"), ("dog", 5, 80.0, "cow"), ("none", 0, None, None)]
    matrix = ConfusionMatrix("Confusion", ("ant", "cow", "dog"), np.array([[9, 1, 0], [4, 2, 1], [0, 1, 4]]))
    figures = [FigureTable("Pairs", ("a", "b"), [(1, 2)]), FigureTable("Classes", columns, rows), matrix]
    (line,) = read_advice(tmp_path / "rare", [], figures, {"ant": 90, "cow": 9, "dog": 50})
    text = "Class cow has the lowest recall, 40.5 %; the median is 80.0; it is most often taken for ant"
    assert line == f"{text}; it has only 9 training samples (median 50): add some."
    assert read_advice(tmp_path / "plain", [], figures) == [f"{text}."]
    single = [figures[1], matrix._replace(values=np.array([[9, 0, 0], [1, 2, 1], [0, 0, 4]]))]
    assert read_advice(tmp_path / "single", [], single) == [f"{text.partition('; it')[0]}."]
    recalls = [12.5, 91.0, 57.14, 59.09]
    even = [FigureTable("Classes", columns, [(f"class {n}", 1, value, None) for n, value in enumerate(recalls)])]
    counts = {f"class {n}": number for n, number in enumerate((3, 40, 17, 90))}
    (line,) = read_advice(tmp_path / "even", [], even, counts)  # NumPy's median is the mean of the middle two
    assert float(re.search(r"the median is ([\d.]+);", line)[1]) == pytest.approx(np.median(recalls), abs=0.006)
    assert f"only 3 training samples (median {np.median([*counts.values()])})" in line
    equal = [FigureTable("Classes", columns, [(name, 1, 50.0, None) for name in "ab"])]
    assert read_advice(tmp_path / "equal", [], equal) == []


@pytest.mark.parametrize(
    ("of_classes", "told"),
    [
        ([Score("F1", unit="%", better="higher")], "Class cow has the lowest F1, 40.50 %;"),
        ([Score("IoU", better="higher"), Score("F1", better="higher")], "Class ant has the lowest IoU, 0.1; "),
        ([Score("error", better="lower"), Score("IoU", better="higher")], None),
    ],
)
def test_the_column_of_the_worst_class_is_the_score_of_classes_that_the_run_names(tmp_path, of_classes, told):
    table = FigureTable("Classes", ("class", "F1 %", "IoU"), [("ant", 80.0, 0.1), ("cow", 40.5, 0.7)])
    write_run(tmp_path / "run", [], figures=[table])
    (tmp_path / "run" / SCORES).write_text(json.dumps(to_plain({}, of_classes)))
    assert [line[: len(told or "")] for line in advise(*read_runs([tmp_path / "run"]))] == ([told] if told else [])


def test_classes_that_are_not_found_are_told_first(tmp_path):
    columns = ("class", "Dice", "labeled Dice", "volumes with it", "missed in")
    eyes = [FigureTable("Classes", columns, [("bone", 0.95, 0.95, 24, 0), ("eyes", 0.0, 0.0, 24, 23)])]
    config = "VOLUMES: {FOREGROUND_FRACTION: 0.5}\n"
    (line,) = read_advice(tmp_path / "eyes", [], eyes, config=config)
    assert line.startswith("Class eyes has Dice 0: it is missed in 23 of 24 volumes. ")
    assert line.endswith("(VOLUMES.FOREGROUND_FRACTION).")
    rows = [("wall", 0.5, 75), ("sink", 0.0, 20), ("door", 0.0, 5)]
    (line,) = read_advice(tmp_path / "rooms", [], [FigureTable("Classes", ("class", "IoU", "labeled points"), rows)])
    assert line.startswith("2 of 3 classes have IoU 0: sink, door; they have 25 % of the labeled points. ")


def classify(values):
    """Figures of a classifier: its confusions, a table with the recall of each class, and its calibration."""
    values, names = np.array(values), ["bowl", "cup", "fork", "plate"][: len(values)]
    recalls = 100 * np.diag(values) / values.sum(axis=1)
    table = FigureTable("Classes", ("class", "recall %"), [*zip(names, map(float, recalls))])
    return [ConfusionMatrix("Confusion", names, values), table, *calibrate(0.4, 0.1)]


CUPS = [[1, 14, 0, 0], [0, 15, 0, 0], [0, 14, 0, 1], [1, 13, 1, 0]]  # 16 of 60 are right


def test_a_model_at_chance_is_not_advised_about_its_classes(tmp_path):
    events = [event("training", epoch=n, update=7 * n, loss=1.4 - n / 100) for n in (1, 2)]
    config = "TRAIN.FREEZE: ['blocks.*']\nTRAIN.BASE_LR: 0.0003\nTRAIN.CLASS_WEIGHTS: null\nTRAIN.SMOOTHING: 0.0\n"
    (line,) = read_advice(tmp_path / "run", events, classify(CUPS), config=config)
    text, reasons = line.split("Likely reasons: ")
    assert "not measurably better than always answering one class: 26.7% of its answers are right, 25.0%" in text
    assert "it answers cup for 56 of 60" in text
    assert all(part in reasons for part in ("14 updates are few", "TRAIN.FREEZE ['blocks.*']", "TRAIN.BASE_LR 0.0003"))
    assert "WEIGHTS" not in line and "SMOOTHING" not in line
    fallen = [event("training", epoch=n, update=7000 * n, loss=1.4 / n**3) for n in (1, 2)]
    (line,) = read_advice(tmp_path / "fallen", fallen, classify(CUPS))
    assert "fell from 1.4 to 0.175" in line and "reasons" not in line
    (line,) = read_advice(tmp_path / "weights", [], classify(CUPS))
    assert "weights may be of other classes" in line


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([[90, 0], [10, 0]], "bowl, the commonest class: 90.0% "),  # all are bowls
        ([[89, 1], [10, 0]], "bowl, the commonest class: 89.0% "),
        ([[80, 10], [3, 7]], None),  # fewer are right, and the rare class is found
        ([[450_000, 50_000], [53_000, 6_000]], "bowl"),  # pixels
        ([[20, 10], [10, 20]], None),  # 67 %, of 50
        ([[16, 14], [14, 16]], "one class"),  # 53 %
        ([[9, 0], [0, 0]], None),
    ],
)
def test_better_than_chance_are_more_right_answers_or_more_of_each_class(tmp_path, values, answer):
    figures = [ConfusionMatrix("Confusion", ["bowl", "cup"], np.array(values))]
    told = read_advice(tmp_path / "run", [event("training", epoch=1, update=1, loss=1.0)], figures)
    assert len(told) == (answer is not None) and all(f"always answering {answer}" in line for line in told)


def test_if_no_class_is_found_weights_are_not_advised(tmp_path):
    table = FigureTable("Classes", ("category", "AP"), [("cat", 0.0), ("dog", 0.0)])
    (line,) = read_advice(tmp_path / "run", [event("training", epoch=1, update=3, loss=1.0)], [table])
    assert line.startswith("No category is found: AP is 0 for all 2. Likely reasons: 3 updates are few")


@pytest.mark.parametrize(
    "shown, text",
    [
        (0.5, "No object is found with a score of at least 0.5; F1 is best, 0.600, from 0.3 on"),
        (0.4, "F1 is 0.400 with detections from a score of 0.4 on, and best, 0.600, from 0.3 on"),
        (0.3, None),
    ],
)
def test_a_score_threshold_that_hides_detections_is_told(tmp_path, shown, text):
    lines = {"recall": ([0.3], [0.9]), "F1": ([0.2, 0.3, 0.4, 0.5], [0.5, 0.6, 0.4, 0.0])}
    figures = [Chart("Choice of the score threshold", "score", "fraction", lines)]
    told = read_advice(tmp_path / "run", [], figures, config=f"DETECTION.SCORE_THRESHOLD: {shown}\n")
    assert told == ([f"{text} (DETECTION.SCORE_THRESHOLD)."] if text else [])


def calibrate(confidence, accuracy):
    """A model of 15 predictions, 10 of which have a confidence of 1."""
    bars = {"images": ([0.1, 0.5, 0.9], [5, 0, 10])}
    curves = {"this model": ([confidence, 1.0], [accuracy, 1.0]), "perfect": ([0, 1], [0, 1])}
    return [Chart("Calibration", "", "", curves), Chart("Confidence", "", "", bars, kind="bar")]


def test_a_model_that_is_too_sure_or_not_sure_enough_is_told_what_changes_it(tmp_path):
    config = "TRAIN.SMOOTHING: 0.1\nTRAIN.MIXUP_ALPHA: 0.0\n"
    (under,) = read_advice(tmp_path / "under", [], calibrate(0.1, 0.7), config=config)
    assert under == (
        "The model is under-confident: 70.0 % sure on average, 90.0 % right; less of TRAIN.SMOOTHING 0.1 "
        "may raise its confidence."
    )
    (over,) = read_advice(tmp_path / "over", [], calibrate(0.4, 0.1))
    assert "over-confident: 80.0 % sure" in over and "70.0 % right; label smoothing" in over
    assert read_advice(tmp_path / "calibrated", [], calibrate(0.4, 0.4)) == []


def test_labels_that_are_missed_suggest_other_thresholds(tmp_path):
    columns, rows = ("class", "precision", "recall", "threshold"), [("a", 0.99, 0.8, 0.5), ("b", 0.95, 0.9, 0.5)]
    figures = [FigureTable("Classes", columns, rows)]
    told = [
        read_advice(tmp_path / kind, [], figures, config=f"MULTI_LABEL.THRESHOLDS: {kind}\n")
        for kind in ("fixed", "f1")
    ]
    text = (
        "Many labels are missed: the classes' mean recall is 0.8500, their precision 0.9700; a threshold of each class"
    )
    assert told == [[f"{text} balances them (MULTI_LABEL.THRESHOLDS f1)."], []]


def evaluate(values, **more):
    best = max(range(len(values)), key=values.__getitem__)
    return [
        event("evaluation", epoch=n + 1, score=value, **({"best": "score"} if n == best else {}), **more)
        for n, value in enumerate(values)
    ]


def test_a_score_that_rises_to_the_end_suggests_a_longer_training_and_a_flat_one_does_not(tmp_path):
    trained = [event("training", epoch=1, update=1, loss=1.0)]
    (line,) = read_advice(tmp_path / "rising", [*trained, *evaluate([1.0, 2.0, 3.0, 4.0])])
    assert line == "score was best in the last of 4 epochs: try more (TRAIN.NUM_EPOCHS)."
    assert read_advice(tmp_path / "flat", [*trained, *evaluate([1.0, 3.99, 3.999, 4.0])]) == []
    trained.append(event("training", epoch=1, update=1, loss=1.0, learning_rate=0.1))
    trained.append(event("training", epoch=4, update=4, loss=1.0, learning_rate=1e-8))
    rising = evaluate([1.0, 2.0, 3.0, 4.0], interval={"percent": 95, "score": [3.95, 4.05]})
    (anew,) = read_advice(tmp_path / "ended", [*trained, *rising])
    assert anew.endswith("(TRAIN.NUM_EPOCHS), in a new run, since the learning rate has fallen to 0.")
    within = evaluate([1.0, 2.0, 3.0, 4.0], interval={"percent": 95, "score": [2.95, 5.05]})
    assert not any("TRAIN.NUM_EPOCHS" in line for line in read_advice(tmp_path / "within", [*trained, *within]))
    assert read_advice(tmp_path / "fallen", [*trained, *evaluate([1.0, 2.0, 4.0, 3.0])]) == []


def test_a_loss_that_rises_and_wide_intervals_are_told(tmp_path):
    events = []
    for epoch, (train, evaluation) in enumerate([(1.0, 0.9), (0.5, 0.4), (0.2, 0.6)], 1):
        update = 10 * epoch
        events.append(event("training", epoch=epoch, update=update, loss=train))
        events.append(event("evaluation", epoch=epoch, loss=evaluation))
    (rise,) = read_advice(tmp_path / "run", events)
    assert rise.startswith("The loss of the evaluation rises from 0.4 after update 20 to 0.6, while that of training")
    trained = [event("training", epoch=1, update=1, loss=1.0)]
    wide = evaluate([50.0], interval={"percent": 95, "score": [40.0, 62.5]})
    (line,) = read_advice(tmp_path / "wide", [*trained, *wide])
    assert line.startswith("The interval of score is 22.5 wide")
    narrow = evaluate([50.0], interval={"percent": 95, "score": [49.5, 50.5]})
    assert read_advice(tmp_path / "narrow", [*trained, *narrow]) == []


@pytest.mark.parametrize("column", ["AP", "AP %", "IoU", "IoU %", "Dice", "recall %", "PCK %", "OKS"])
def test_each_score_of_classes_has_a_lowest(tmp_path, column):
    rows = [("a", 60.0), ("b", 40.0), ("c", 80.0), ("d", None)]
    figures = [FigureTable("Classes", ("class", column), rows)]
    name, _, unit = column.partition(" ")
    (line,) = read_advice(tmp_path / "run", [], figures)
    assert line == f"Class b has the lowest {name}, 40{f' {unit}' if unit else ''}; the median is 60."
    assert read_advice(tmp_path / "alone", [], [FigureTable("Classes", ("class", column), rows[2:])]) == []
    assert read_advice(tmp_path / "other", [], [FigureTable("Classes", ("class", f"x{column}"), rows)]) == []


@pytest.mark.parametrize(("kind", "plural"), [("class", "classes"), ("category", "categories"), ("point", "points")])
@pytest.mark.parametrize("key", ["TRAIN.CLASS_WEIGHTS", "VOLUMES.FOREGROUND_FRACTION"])
def test_several_without_a_score_are_told_with_what_gives_them_weight(tmp_path, kind, plural, key):
    names = ["a" * 60, "b" * 58, "c"]
    rows = [(name, 0.0) for name in names] + [("d", 1.0)]
    figures = [FigureTable("Classes", (kind, "OKS"), rows)]
    (line,) = read_advice(tmp_path / "run", [], figures, config=f"{key}: 0.5\n")
    assert line.startswith(f"3 of 4 {plural} have OKS 0: {'a' * 60}, bb") and len(line.partition(": ")[2]) < 190
    assert line.endswith(f"More weight or more samples may help ({key}).") and ", c." not in line
    assert read_advice(tmp_path / "without", [], figures)[0].endswith("More weight or more samples may help.")


def tell(folder, limit, values, read):
    """Whether advice is given for each of these values; those before ``limit`` have none."""
    told = [bool(read(folder / str(place), value)) for place, value in enumerate(values)]
    assert told == [place >= limit for place in range(len(values))]


def test_advice_begins_behind_a_limit(tmp_path):
    def read_threshold(folder, f1):
        lines = {"F1": ([0.2, 0.3, 0.5], [0.5, 0.3, f1])}
        figures = [Chart("Choice of the score threshold", "score", "fraction", lines)]
        return read_advice(folder, [], figures, config="DETECTION.SCORE_THRESHOLD: 0.5\n")

    def read_rates(folder, recall):
        rows = [("a", 0.96, recall, 0.5), ("b", 0.92, recall, 0.5)]
        figures = [FigureTable("Classes", ("class", "precision", "recall", "threshold"), rows)]
        return read_advice(folder, [], figures, config="MULTI_LABEL.THRESHOLDS: fixed\n")

    def read_calibration(folder, accuracy):
        return read_advice(folder, [], calibrate(0.4, accuracy))  # a third of the predictions

    def read_scores(folder, before):
        return read_advice(folder, [event("training", epoch=1, update=1), *evaluate([0.0, before, 100.0])], epochs=3)

    def read_losses(folder, last):
        events = [event("training", epoch=n, update=n, loss=1.0 / n) for n in (1, 2, 3)]
        losses = zip((1, 2, 3), (0.75, 0.5, last))
        events += [event("evaluation", epoch=n, update=n, loss=loss) for n, loss in losses]
        return read_advice(folder, events)

    def read_width(folder, end):
        interval = {"percent": 95, "score": [50.0, end]}
        return read_advice(folder, [event("training", epoch=1, update=1), *evaluate([50.0], interval=interval)])

    def read_rare(folder, number):
        figures = [FigureTable("Classes", ("class", "OKS"), [("a", 0.5), ("b", 0.75)])]
        (line,) = read_advice(folder, [], figures, {"a": number, "b": 50, "c": 90})
        return "training samples" in line

    for name, limit, values, read in (
        ("threshold", 1, (0.4, 0.39), read_threshold),  # four fifths of 0.5
        ("rates", 2, (0.94, 0.9025, 0.8975), read_rates),
        ("wrongly", 2, (0.94, 0.9775, 0.9825), read_rates),
        ("calibration", 2, (0.4, 0.26, 0.24), read_calibration),  # by 4.67 and 5.33 %
        ("scores", 2, (99.0, 98.0, 97.9), read_scores),
        ("losses", 2, (0.5, 0.55, 0.5501), read_losses),
        ("width", 1, (51.5, 51.51), read_width),
        ("rare", 2, (45, 25, 24), read_rare),
    ):
        tell(tmp_path / name, limit, values, read)


@pytest.mark.parametrize(
    "key", ["TRAIN.SMOOTHING", "SHAPES.LABEL_SMOOTHING", "TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA"]
)
def test_each_key_that_lowers_confidence_is_named_where_it_is_on(tmp_path, key):
    for place, (value, named) in enumerate(((0.5, f"{key} 0.5"), (0, "regularization"), (0.0, "regularization"))):
        (line,) = read_advice(tmp_path / str(place), [], calibrate(0.1, 0.7), config=f"{key}: {value}\n")
        assert f"right; less of {named} may raise" in line


@pytest.mark.parametrize(("last", "is_ended"), [(0.0011, False), (0.001, True)])
def test_a_learning_rate_has_ended_at_a_hundredth_of_its_largest(tmp_path, last, is_ended):
    events = [event("training", epoch=n, update=n, learning_rate=rate) for n, rate in enumerate((0.05, 0.1, last))]
    (line,) = read_advice(tmp_path / "run", [*events, *evaluate([1.0, 2.0, 3.0])], epochs=3)
    assert line.endswith("in a new run, since the learning rate has fallen to 0.") is is_ended
