"""``evaluate classes``: tables of classes of other programs, against slow loops and the metrics of an evaluation."""

import contextlib
import csv
import io
import json
import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.metrics.classification import ClassificationMetrics
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.score_report import ResultSource
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.classification import evaluate_command as evaluate_classes
from paddlevit_dist.images.classification import opening, result_scores

CLASSES = ["cat", "dog", "hen", "owl", "pig", "rat", "yak"]
NUMBER = 40


def case(seed=0, logits=False):
    """Scores (images, classes) with ties, and true classes."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, (NUMBER, len(CLASSES))).astype(float)
    if not logits:
        scores = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return scores, rng.integers(0, len(CLASSES), NUMBER)


SCORES, LABELS = case()


def table(rows, separator=",", ends="\n"):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=ends).writerows(rows)
    return text.getvalue()


def score_rows(scores, headings=CLASSES, name="filename"):
    return [[name, *headings], *([f"p{row}.jpg", *map(repr, own.tolist())] for row, own in enumerate(scores))]


def truth_rows(labels):
    return [["image", "label"], *([f"p{row}.jpg", CLASSES[label]] for row, label in enumerate(labels))]


@pytest.fixture
def evaluate(tmp_path, capsys):
    """Scores a table, text or bytes, against a truth; what stands on stdout as JSON, and stderr."""

    def run(truth, results, *options):
        for name, content in (("truth.csv", truth), ("results.csv", results)):
            content = table(content) if isinstance(content, list) else content
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        evaluate_classes.run([*(str(tmp_path / f"{n}.csv") for n in ("truth", "results")), "-json", *options])
        captured = capsys.readouterr()
        return json.loads(captured.out), captured.err

    return run


def test_scores_are_those_of_a_slow_loop(evaluate):
    scores, labels = case()
    said, _ = evaluate(truth_rows(labels), score_rows(scores))
    order = [sorted(range(len(own)), key=lambda k: (-own[k], k)) for own in scores]  # the first of equal ones first
    for k in (1, 5):
        hits = [label in own[:k] for own, label in zip(order, labels)]
        assert said["scores"][f"top-{k}"] == pytest.approx(100 * sum(hits) / NUMBER)
    recalls = {}
    for label, name in enumerate(CLASSES):
        mine = [own[0] == label for own, true in zip(order, labels) if true == label]
        recalls[name] = 100 * sum(mine) / len(mine)
        assert said["scores"][f"recall {name}"] == pytest.approx(recalls[name])
    assert said["scores"]["balanced accuracy"] == pytest.approx(sum(recalls.values()) / len(recalls))
    losses = [-math.log(own[label]) for own, label in zip(scores, labels)]
    assert said["scores"]["loss"] == pytest.approx(sum(losses) / NUMBER, rel=1e-6)
    assert said["samples"] == NUMBER and said["intervals"]["top-1"]["low"] < said["scores"]["top-1"]


def test_logits_score_as_in_an_evaluation(evaluate):
    scores, labels = case(1, logits=True)
    metrics = ClassificationMetrics(len(CLASSES), CLASSES)
    metrics.update(paddle.to_tensor(scores), paddle.to_tensor(labels))
    values = metrics.compute(metrics.state)
    said, told = evaluate(truth_rows(labels), score_rows(scores), "-logits")
    assert {name: said["scores"][name] for name in ("top-1", "top-5")} == {k: values[k] for k in ("top-1", "top-5")}
    assert said["scores"]["loss"] == pytest.approx(values["loss"], rel=1e-6)
    assert told.startswith("note: the interval is rough: 40 images (below 50)") and told.count("\n") == 1
    without, told = evaluate(truth_rows(labels), score_rows(scores))
    assert "loss" not in without["scores"] and "scores, not probabilities" in told
    assert without["scores"]["top-5"] == values["top-5"]
    _, told = evaluate(truth_rows(LABELS), score_rows(SCORES), "-logits")
    assert "rows add up to 1 like probabilities" in told


def best_rows(scores, columns):
    order = np.argsort(-scores, axis=1, kind="stable")
    headings = [f"label_{place}" for place in range(columns)] if columns > 1 else ["label"]
    return [["filename", *headings, "prob"]] + [
        [f"p{row}.jpg", *(CLASSES[k] for k in own[:columns]), 0.5] for row, own in enumerate(order)
    ]


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_the_best_classes_alone_give_what_they_can(evaluate, columns):
    scores, labels = case()
    whole, _ = evaluate(truth_rows(labels), score_rows(scores))
    said, _ = evaluate(truth_rows(labels), best_rows(scores, columns))
    assert said["scores"]["top-1"] == whole["scores"]["top-1"]
    assert said["scores"].get("top-5") == (whole["scores"]["top-5"] if columns == 5 else None)
    assert "loss" not in said["scores"]


def untied():
    """Scores whose order does not depend on that of the columns."""
    scores = case()[0] * np.random.default_rng(2).uniform(0.9, 1.1, (NUMBER, len(CLASSES)))
    return scores / scores.sum(axis=1, keepdims=True)


def forms():
    """The same table as programs write it."""
    scores = untied()
    plain, numbered = score_rows(scores), score_rows(scores, range(len(CLASSES)), "image_id")
    shuffled = [[row[0], *row[:0:-1]] for row in plain]
    return {
        "semicolons, as Excel in Europe": table(plain, ";", "\r\n").replace(".", ",").replace(",jpg", ".jpg"),
        "tabs": table(plain, "\t"),
        "UTF-8 with a mark": b"\xef\xbb\xbf" + table(plain).encode(),
        "UTF-16": table(plain).encode("utf-16"),
        "Windows": table(plain, ends="\r\n"),
        "columns in another order": table(shuffled),
        "numbers of classes": table(numbered),
        "timm": table(score_rows(scores, [f"prob_{k}" for k in range(len(CLASSES))])),
        "no headings": table(plain[1:]),
        "no suffix": table([[row[0].removesuffix(".jpg"), *row[1:]] for row in plain]),
        "folders": table([[f"C:\\data\\val\\{row[0]}", *row[1:]] for row in plain]).replace(
            "C:\\data\\val\\filename", "file"
        ),
        "a column of rows": table([[k or "", *row] for k, row in enumerate(plain)]),
        "numbers of classes and columns of rows": table(
            [[k or "Unnamed: 0", k or "fold", *row] for k, row in enumerate(numbered)]
        ),
        "blank lines": "\n" + table(plain, ends="\n\n"),
        "rows in another order": table([plain[0], *plain[:0:-1]]),
    }


@pytest.mark.parametrize("form", forms())
def test_tables_are_read_as_programs_write_them(evaluate, form):
    scores, labels = untied(), LABELS
    content = forms()[form]
    truth = truth_rows(labels)
    if form.startswith("numbers of classes") or form in ("timm", "no headings"):
        truth = [truth[0], *([name, CLASSES.index(own)] for name, own in truth[1:])]
    said, _ = evaluate(truth, content)
    plain, _ = evaluate(truth_rows(labels), score_rows(scores))
    names = ("top-1", "top-5", "balanced accuracy", "loss")
    assert [said["scores"][name] for name in names] == pytest.approx([plain["scores"][name] for name in names])


@pytest.mark.parametrize(
    "names, number, requested, classes, is_random",
    [(["a", "b"], 2, 5, ["a", "b", "2", "3", "4"], True), (None, 3, None, ["0", "1", "2"], False)],
)
def test_a_data_set_gives_names_labels_and_groups(monkeypatch, capsys, names, number, requested, classes, is_random):
    class Data(SimpleNamespace):
        def __len__(self):
            return 2

    dataset = Data(labels=np.array([1, 0], np.int8), num_classes=number, class_names=names, groups_by="by")
    dataset.identity, dataset.is_random_split = "image {}".format, is_random
    calls = []
    values = SimpleNamespace(MODEL=SimpleNamespace(NUM_CLASSES=requested), DATA={"VAL_FRACTION": None})
    origin = ResultSource("pets", "val")

    @contextlib.contextmanager
    def data_set(options, task):
        calls.append(("data", task))
        yield values, "cache", origin

    monkeypatch.setattr(evaluate_classes, "data_set", data_set)
    monkeypatch.setattr(opening, "open_images", lambda *given: calls.append(given) or (dataset, []))
    monkeypatch.setattr(result_scores, "score", lambda *given: calls.append(given) or "scored")
    monkeypatch.setattr(evaluate_classes, "print_scores", lambda *given: calls.append((given[0], *given[2:])))
    evaluate_classes.run(["results.csv", "-dataset=pets", "-logits"])
    results, truth, is_logits, source = calls[2]
    assert calls[:2] == [("data", "classification"), (values, "val", "cache")] and calls[3] == ("scored", "by")
    assert (str(results), is_logits, source) == ("results.csv", True, origin)
    assert (truth.names, truth.classes) == (["image 0", "image 1"], classes) and truth.labels.tolist() == [1, 0]
    said = "note: the ground truth is the 2 images that are held out of training\n" if is_random else ""
    assert capsys.readouterr().err == said
    dataset.labels = None
    with pytest.raises(UserError, match="^dataset pets does not have one class for each image$"):
        evaluate_classes.run(["results.csv", "-dataset=pets"])


def test_the_classes_of_a_data_set(tmp_path, capsys):
    digits = resolve("dataset", "digits")(None, "val", None)
    rows = [[digits.identity(row), int(digits.read(row)[1]) if row % 4 else 3] for row in range(len(digits))]
    (tmp_path / "mine.csv").write_text(table([["id", "prediction"], *rows]))
    evaluate_classes.run([str(tmp_path / "mine.csv"), "-dataset=digits", f"-output={tmp_path / 'out'}"])
    said = capsys.readouterr().out
    right = sum(own == int(digits.read(row)[1]) for row, (_, own) in enumerate(rows))
    assert f"\ntop-1 {100 * right / len(rows):.2f} [" in said and "ground truth: digits (val)" in said
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["scores"]["top-1"] == pytest.approx(100 * right / len(rows))
    kept = read_table(str(tmp_path / "out"))
    assert kept.names == [digits.identity(row) for row in range(len(digits))]
    changed = kept._replace(arrays={**kept.arrays, "places": np.zeros(len(rows), np.int32)})
    found = compare_tables(kept, changed)
    assert len(found["fixed"]) == len(rows) - right and not found["broken"]
    assert found["warnings"] == [f"protocol, input: unknown for {tmp_path / 'out'}, the results of another program"]


def test_what_is_not_finite_is_wrong_and_told(evaluate):
    scores, labels = case()
    scores[3, labels[3]] = np.nan
    said, told = evaluate(truth_rows(labels), score_rows(scores))
    scores[3] = 0.0
    scores[3, (labels[3] + 1) % 7] = 1.0
    wrong, told_of_zero = evaluate(truth_rows(labels), score_rows(scores))
    assert said["scores"]["top-1"] == wrong["scores"]["top-1"]
    assert "1 rows with NaN" in told and "loss" not in said["scores"]
    assert "1 true classes below 1e-15" in told_of_zero
    rest = [-math.log(own[label]) for row, (own, label) in enumerate(zip(scores, labels)) if row != 3]
    assert wrong["scores"]["loss"] == pytest.approx((sum(rest) - math.log(1e-15)) / NUMBER, rel=1e-6)


def without_row(rows, row):
    return rows[:row] + rows[row + 1 :]


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        (without_row(score_rows(SCORES), 5), "1 of 40 images of .*truth.csv have no row, such as p4.jpg"),
        ([*score_rows(SCORES), score_rows(SCORES)[2]], "line 42: 'p1.jpg' is already the image of line 3"),
        ([*score_rows(SCORES), ["z.jpg", *[0] * 7]], "line 42: 'z.jpg' is none of the 40 images of .*truth"),
        ([*score_rows(SCORES)[:9], ["p8.jpg", 0.5]], "line 10: 2 columns, but 8 in the first line"),
        ([*score_rows(SCORES)[:9], ["p8.jpg", "high", *[0] * 6]], "line 10, column 2: 'high' is not a number"),
        (score_rows(SCORES, ["cat", "dog", "dog", "owl", "pig", "rat", "yak"]), "two columns are named dog"),
        ([["filename", "label"], ["p0.jpg", "cow"]], "has classes cow: none is a class of .*, which has cat, dog"),
        ("", "is empty; expected a column with the image's name"),
        ("p0.jpg\np1.jpg\n", "one column; expected"),
        ("1,0.5,0.5\n", "numbers only; expected"),
        ("filename,when,where\np0.jpg,now,here\n", "which .*results.csv has no column for; it has when, where"),
        ("name,label\np0.jpg,caf\xe9\n".encode("latin-1"), "is not UTF-8 text; save it as UTF-8"),
        ("name,label\np0.jpg,cat\n".encode("utf-16-le"), "is not UTF-8 text; save it as UTF-8"),
        (b"\xff\xd8\xff\xe0" + bytes(range(256)), "is not UTF-8 text|one column"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_scored_are_refused(evaluate, results, complaint):
    with pytest.raises(UserError, match=complaint):
        evaluate(truth_rows(LABELS), results)


def test_numbers_and_names_of_classes_are_told_apart(evaluate):
    truth = truth_rows(LABELS)
    by_number = [truth[0], *([name, CLASSES.index(own)] for name, own in truth[1:])]
    plain, _ = evaluate(truth, score_rows(SCORES))
    said, told = evaluate(by_number, score_rows(SCORES))
    assert (
        said["scores"] == plain["scores"] and "class 0 is the class at this position" in told and "from 0: cat" in told
    )
    with pytest.raises(UserError, match="is of class 0, which .*results.csv has no column for; it has 1, 2, 3"):
        evaluate(by_number, score_rows(SCORES, range(1, 8)))
    half = [row[:4] for row in score_rows(SCORES)]  # of 3 of 7 classes
    with pytest.raises(UserError, match="no column for|is of class"):
        evaluate(truth, half)
    more = [[*row, number or "quality"] for number, row in enumerate(score_rows(SCORES))]
    assert "columns that are not classes of" in evaluate(truth, more)[1]
    other = [["name", "class"], *([name, "cow" if row % 2 else own] for row, (name, own) in enumerate(truth[1:]))]
    said, told = evaluate(truth, other)
    assert said["scores"]["top-1"] == 50 and "1 classes that" in told and "wrong, cow" in told


def test_an_unknown_class_of_a_data_set_is_refused(tmp_path):
    (tmp_path / "mine.csv").write_text("id,label\nval 0,ten\n")
    with pytest.raises(UserError, match=r"line 2: 'ten' is not a class of digits \(val\); it has 0, 1, 2"):
        evaluate_classes.run([str(tmp_path / "mine.csv"), "-dataset=digits"])
    (tmp_path / "mine.csv").write_text("id,label\nval 0,1\nval 1,10\n")
    with pytest.raises(UserError, match=r"the classes 1 to 10, but digits \(val\) 0 to 9: subtract 1"):
        evaluate_classes.run([str(tmp_path / "mine.csv"), "-dataset=digits"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mine.csv"], "no ground truth: give TRUTH before RESULTS"),
        (["truth.csv", "mine.csv", "-dataset=digits"], "truth.csv and -dataset both name the ground truth"),
        (["truth.csv", "mine.csv", "-split=test"], "truth.csv has no column of splits: remove -split=test"),
        (["missing.csv", "mine.csv"], "missing.csv cannot be read"),
        (["mine.csv", "missing.csv"], "missing.csv cannot be read"),
        (["scores.csv", "truth.csv"], "no column of labels among filename, cat, .*: name it label"),
        ([".", "mine.csv"], "the dataset type cannot be detected"),
        (["truth.csv", "best.csv", "-logits"], "-logits: best.csv has no scores"),
    ],
)
def test_the_truth_is_asked_for(tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("truth", truth_rows(LABELS)), ("mine", truth_rows(LABELS)), ("best", best_rows(SCORES, 1))):
        (tmp_path / f"{name}.csv").write_text(table(rows))
    (tmp_path / "scores.csv").write_text(table(score_rows(SCORES)))
    with pytest.raises(UserError, match=complaint):
        evaluate_classes.run(words)


def test_names_that_are_not_unique_without_folders(evaluate):
    truth = [["path", "label"], ["a/1.jpg", "cat"], ["b/1.jpg", "dog"]]
    with pytest.raises(UserError, match=r"several images are called 1\.jpg.*results need more of the path"):
        evaluate(truth, [["path", "label"], ["1.jpg", "cat"]])
    said, _ = evaluate(truth, [["path", "label"], ["x/a/1.jpg", "cat"], ["x/b/1.jpg", "cat"]])
    assert said["scores"]["top-1"] == 50


def test_classes_counted_from_1_against_truth_from_0_are_not_scored_in_silence(evaluate):
    def rows(numbers):
        return [["image", "label"], *([f"p{row}", number] for row, number in enumerate(numbers))]

    truth = [0, 1, 2, 3, 4, 0]
    assert evaluate(rows(truth), rows(truth))[0]["scores"]["top-1"] == 100
    for one, other in ((0, 1), (1, 0)):
        with pytest.raises(UserError, match=f"the classes {other} to {4 + other}, but .* {one} to {4 + one}, and 6"):
            evaluate(rows([k + one for k in truth]), rows([k + other for k in truth]))
    # A class that is never found hides the range; what would be right tells it.
    with pytest.raises(UserError, match="the classes 1 to 4, but .* 0 to 4, and 6 are right .* one lower, 1 unchanged"):
        evaluate(rows([*truth, 1, 4]), rows([1, 2, 3, 4, 3, 1, 2, 4]))
    assert evaluate(rows([0, 0, 0, 1]), rows([1, 1, 1, 1]))[0]["scores"]["top-1"] == 25  # one class tells nothing
    told = evaluate(rows([1, 2, 3, 4, 3, 1, 2, 4, 0]), rows([0, 1, 2, 3, 4, 0, 1, 4, 0]))[1]
    assert "with classes one lower or higher 6 of 9 would be right, and 2 are: does one side count from 1?" in told
    assert "counted from 1" not in evaluate(rows(truth), rows([0, 1, 2, 3, 3, 1]))[1]


def test_a_column_of_the_truth_says_what_is_drawn_together(evaluate, tmp_path, capsys):
    rows = [[*row, "video" if n == 0 else f"v{n % 5}"] for n, row in enumerate(truth_rows(LABELS))]
    said, told = evaluate(rows, score_rows(SCORES), "-group=video")
    assert said["groups"]["number"] == 5 and "5 groups (below 50)" in told
    plain, _ = evaluate(rows, score_rows(SCORES))
    assert said["intervals"]["balanced accuracy"] != plain["intervals"]["balanced accuracy"]
    evaluate_classes.run([str(tmp_path / "truth.csv"), str(tmp_path / "results.csv"), "-group=video"])
    assert "95 % intervals: half samples of images by 5 groups (video), Wilson's of rates\n" in capsys.readouterr().out
