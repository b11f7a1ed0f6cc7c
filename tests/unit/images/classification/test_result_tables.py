"""Tables of predicted classes: which columns are taken, and what is refused."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.classification.result_scores import score
from paddlevit_dist.images.classification.result_tables import (
    ClassGroundTruth,
    find_layout,
    parse_scores,
    read_listed_classes,
)


@pytest.fixture
def read(tmp_path):
    def read_layout(content, classes=None, **options):
        path = tmp_path / "results.csv"
        path.write_text(content, encoding="utf-8")
        layout = find_layout(str(path), classes, **options)
        return layout, str(path)

    return read_layout


def test_a_table_without_headings_has_scores_of_every_column_behind_the_name(read):
    layout, path = read("b.png,0.5,0.25,0.125\na.png,1,2,3\n")
    assert (layout.name, layout.scores, layout.classes, layout.best, layout.has_header) == (
        0,
        [1, 2, 3],
        None,
        [],
        False,
    )
    rows = [parse_scores(path, row, layout.scores, layout.separator) for row in layout.rows(path)]
    assert rows == [[0.5, 0.25, 0.125], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("row", ["b.png,cat,0.5", "b.png,cat,0.5,0.25", "b.png,0.5,cat,0.25", "b.png,0.5,0.25,cat"])
def test_a_class_among_numbers_without_headings_is_refused(read, row):
    with pytest.raises(UserError, match=r"line 1: b\.png, .*add a first line with headings"):
        read(f"{row}\na.png,dog,0.5\n")


def test_two_columns_without_headings_are_names_and_classes(read):
    layout, path = read("b.png,cat\na.png,dog\n")
    assert (layout.name, layout.scores, layout.best, layout.has_header) == (0, [], [1], False)
    assert [row.cells for row in layout.rows(path)] == [["b.png", "cat"], ["a.png", "dog"]]
    layout, _ = read("b.png,0\na.png,1\n")
    assert (layout.best, layout.has_header) == ([1], False)


def test_a_name_is_no_class_and_columns_may_lack_headings(read):
    layout, _ = read("class,label\na.png,cat\n")
    assert (layout.name, layout.best) == (0, [1])
    layout, _ = read("image,,,cat,dog\na.png,,,0.5,0.25\n")
    assert layout.scores == [3, 4]
    with pytest.raises(UserError, match="results.csv: two columns are named cat; keep one"):
        read("image,cat,cat\na.png,0.5,0.25\n")


@pytest.mark.parametrize(
    "table, message",
    [
        ("image,cat,dog\na.png,0.5,0.5\n", "no column of labels among image, cat, dog: name it label"),
        ("image,class\na.png,cat\na.png,dog\n", r"truth.csv: a\.png occurs twice; keep one"),
        ("image,class\na.png,\n", r"truth.csv: a\.png has 0 classes: expected one"),
        ("image,class\n ,cat\n", "line 2: no image is named; correct or remove the row"),
        ("image,class\n", "has headings, but no rows"),
        ("a.png,0.5,0.25,0.25\n", "line 1 has no headings; add a first line that names its 4 columns"),
    ],
)
def test_a_table_that_is_no_list_of_classes_is_refused(tmp_path, table, message):
    (tmp_path / "truth.csv").write_text(table)
    with pytest.raises(UserError, match=message) as caught:
        read_listed_classes(str(tmp_path / "truth.csv"))
    assert str(tmp_path / "truth.csv") in str(caught.value)


def test_other_columns_than_classes_are_refused(read, tmp_path):
    with pytest.raises(UserError, match="columns of classes .*: expected 0, 1, 2 and so on"):
        read("image,0,1,3\na.png,0.5,0.25,0.25\n")
    (tmp_path / "found.csv").write_text("a.png,0.5,0.25\nb.png,0.5,0.25\n")
    truth = ClassGroundTruth(["a.png", "b.png"], np.array([1, 0]), ["bear", "cat", "dog"], "zoo")
    with pytest.raises(UserError, match="found.csv: 2 columns of classes, but zoo has 3 classes"):
        score(str(tmp_path / "found.csv"), truth)


@pytest.mark.parametrize("columns, ranked", [(1, "one class"), (2, "the first 2 classes")])
def test_the_best_classes_of_a_row_have_places_in_their_order(tmp_path, columns, ranked):
    rows = [["name", "class", "class_2"], ["a.png", "dog", "cat"], ["b.png", "cat", "dog"], ["c.png", "cow", "dog"]]
    (tmp_path / "found.csv").write_text("".join(",".join(row[: 1 + columns]) + "\n" for row in rows))
    truth = ClassGroundTruth(["a.png", "b.png", "c.png"], np.array([2, 2, 0]), ["bee", "cat", "dog", "cow"], "zoo")
    report = score(str(tmp_path / "found.csv"), truth)
    assert report.arrays["places"].tolist() == [0, 1, columns]
    assert any(line.startswith(f"top-k: {ranked} of each row") for line in report.protocol)


def test_scores_are_taken_in_the_order_of_the_classes(read):
    layout, path = read("cow,filename,ant,bee\n1,b.png,2,3\n4,a.png,5,6\n", ["ant", "bee", "cow"])
    assert (layout.name, layout.scores, layout.classes) == (1, [2, 3, 0], ["ant", "bee", "cow"])
    rows = [parse_scores(path, row, layout.scores, layout.separator) for row in layout.rows(path)]
    assert rows == [[2.0, 3.0, 1.0], [5.0, 6.0, 4.0]]


@pytest.mark.parametrize("order", [range(11), range(10, -1, -1)])
def test_eleven_numbers_of_classes_are_headings_in_any_order(read, order):
    layout, _ = read(f"shot,{','.join(map(str, order))}\nb.png,{','.join(['0.5'] * 11)}\n")
    assert layout.has_header and layout.scores == [1 + list(order).index(number) for number in range(11)]


@pytest.mark.parametrize(
    "headings, scores, classes",
    [
        ("shot,1,0", [2, 1], ["0", "1"]),
        ("shot,Prob_1,prob_0", [2, 1], ["0", "1"]),
        ("shot,dog,cat", [1, 2], ["dog", "cat"]),
        ("shot,dog,P2", [1, 2], ["dog", "P2"]),
        ("shot,c2,p2", [1, 2], ["c2", "p2"]),
        ("shot,猫,+", [1, 2], ["猫", "+"]),
    ],
)
def test_the_smallest_table_of_scores_has_two_classes(read, headings, scores, classes):
    layout, _ = read(f"{headings}\nb.png,2,3\n")
    assert layout.has_header and (layout.scores, layout.classes) == (scores, classes)


def test_places_of_classes_are_columns_in_their_order(read):
    layout, _ = read("class_3,class,image,class_2\na,b,1.png,c\n")
    assert (layout.name, layout.best, layout.scores) == (2, [1, 3, 0], [])


@pytest.mark.parametrize(
    "table, is_told",
    [
        ("name,class\na,1\nb,0\n", True),
        ("name,class\na,cat\nb,bear\n", False),
        ("name,0,1,2\na,0.1,0.8,0.1\nb,0.7,0.2,0.1\n", True),
        ("a.png,0.1,0.8,0.1\nb.png,0.7,0.2,0.1\n", True),
        ("name,bear,cat,dog\na,0.1,0.8,0.1\nb,0.7,0.2,0.1\n", False),
    ],
)
def test_classes_by_number_are_told_with_their_names(tmp_path, table, is_told):
    (tmp_path / "found.csv").write_text(table)
    truth = ClassGroundTruth(["a.png", "b.png"], np.array([1, 0]), ["bear", "cat", "dog"], "zoo")
    report = score(str(tmp_path / "found.csv"), truth)
    told = f"{tmp_path / 'found.csv'} numbers the classes: 0 is bear, 1 is cat, 2 is dog, in the order of zoo"
    assert report.notices == [told] * is_told and report.arrays["places"].tolist() == [0, 0]


@pytest.mark.parametrize("softmax", [False, True])
def test_places_and_losses_of_many_rows_are_those_of_each_image(tmp_path, softmax):
    random, classes = np.random.default_rng(0), 600
    scores = random.integers(1, 40, (20, classes)) / 64.0  # with equal ones
    scores = scores if softmax else scores / scores.sum(axis=1, keepdims=True)
    labels, order = random.integers(classes, size=20), random.permutation(20)
    if not softmax:
        scores[order[3], labels[order[3]]] = scores[order[17], labels[order[17]]] = 0.0
    rows = (f"{place}.png,{','.join(map(repr, scores[place].tolist()))}\n" for place in order)
    (tmp_path / "found.csv").write_text("".join(rows))
    truth = ClassGroundTruth([f"{place}.png" for place in range(20)], labels, [f"c{n}" for n in range(classes)], "zoo")
    report = score(str(tmp_path / "found.csv"), truth, softmax=softmax)
    ranked = [sorted(range(classes), key=lambda label: (-row[label], label)) for row in scores.tolist()]
    assert report.arrays["places"].tolist() == [row.index(label) for row, label in zip(ranked, labels)]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) if softmax else np.maximum(scores, 1e-15)
    np.testing.assert_allclose(report.arrays["losses"], -np.log(shares[np.arange(20), labels]), rtol=1e-5)
    assert any("2 true classes below 1e-15" in line for line in report.notices) == (not softmax)


@pytest.mark.parametrize(
    "table",
    [
        "Bild;Klasse\na.png;cat\nb.png;dog\n",
        "sep=;\nWert;Bild;label\n3,5;a.png;cat\n1,5;b.png;dog\n",
        "shot,class\na,cat\nb,dog\n",
    ],
)
def test_classes_are_read_from_the_tables_that_training_reads(tmp_path, table):
    (tmp_path / "truth.csv").write_text(table)
    listed, *others = read_listed_classes(str(tmp_path / "truth.csv"))
    assert {name.removesuffix(".png"): own for name, own in listed.items()} == {"a": "cat", "b": "dog"}


BEST = (
    "prediction predicted pred predicted_class predicted_label predicted_labels y_pred class label class_name class_id "
    "category index"
).split()
TRUE = "truth true y_true true_class true_label ground_truth target label class class_name class_id category".split()
SCORES = "prob probability logit score output p c".split()


def test_headings_of_the_best_class_of_the_true_one_and_of_scores(read, tmp_path):
    for word in (*BEST, *map(str.upper, BEST)):
        layout, _ = read(f"image,note,{word}\na.png,x,cat\n")
        assert (layout.best, layout.scores) == ([2], []), word
        layout, _ = read(f"image,{word}_1,{word}_2\na.png,cat,dog\n")
        assert layout.best == [1, 2], word
    for word in (*TRUE, *map(str.upper, TRUE)):
        (tmp_path / "truth.csv").write_text(f"image,note,{word}\na.png,x,cat\nb.png,y,dog\n")
        assert read_listed_classes(str(tmp_path / "truth.csv"))[0] == {"a.png": "cat", "b.png": "dog"}, word
    forms = [f"{word}{end}{{}}" for word in SCORES for end in ("", "_", " ", "s_")]
    for form in ("{}", "labels {}", "preds_{}", "predictions{}", "class{}", "label{}", "Pred{}", *forms):
        layout, _ = read(f"image,{form.format(0)},{form.format(1)},{form.format(2)}\na.png,0.5,0.25,0.25\n")
        assert (layout.scores, layout.classes) == ([1, 2, 3], ["0", "1", "2"]), form


def test_images_of_the_split_are_scored_with_or_without_rows_of_others(tmp_path):
    truth, found = tmp_path / "truth.csv", tmp_path / "found.csv"
    truth.write_text(
        "image,label,split\na.png,cat,train\nb.png,dog,test\nc.png,cat,trian\nd.png,cat,\ne.png,cat,test\n"
    )
    for rows, notes in (("b,cat\ne,cat\n", 0), ("a,cat\nb,cat\nd,cat\ne,cat\n", 1)):
        found.write_text(f"image,class\n{rows}")
        report = score(str(found), str(truth))
        assert report.names == ["b.png", "e.png"] and report.arrays["places"].tolist() == [1, 0]
        assert report.notices[0] == (
            f"{truth}: 2 images of split test (-split); not scored: 1 of train, 1 of trian, 1 without a split"
        )
        assert report.notices[1:] == [f"{found}: 2 rows of images of other splits, not scored"][:notes]
    with pytest.raises(
        UserError, match=r"truth.csv has no image of split 'own' \(-split\), only 1 of train, 2 of test"
    ):
        score(str(found), str(truth), split="own")


@pytest.mark.parametrize(
    ("words", "scored"),
    [
        ("val test train", ["a.png"]),
        ("train test val", ["c.png"]),
        ("test train test", ["a.png", "c.png"]),  # without val, test is what is scored
        ("val train val", ["a.png", "c.png"]),
    ],
)
def test_the_split_that_is_scored_is_val_or_test_where_none_is_val(tmp_path, words, scored):
    rows = [f"{name}.png,cat,{word}" for name, word in zip("abc", words.split())]
    (tmp_path / "truth.csv").write_text("\n".join(["image,label,split", *rows, "d.png,dog,train"]))
    (tmp_path / "found.csv").write_text("image,class\na,cat\nb,cat\nc,cat\nd,dog\n")
    assert score(str(tmp_path / "found.csv"), str(tmp_path / "truth.csv")).names == scored


def test_scores_of_all_ranked_classes_give_the_loss(tmp_path):
    truth, found = tmp_path / "truth.csv", tmp_path / "found.csv"
    truth.write_text("image,label\na.png,cat\nb.png,dog\n")
    found.write_text("input,class,score,class_2,score_2\na.png,dog,0.75,cat,0.25\nb.png,dog,0.5,cat,0.5\n")
    report = score(str(found), str(truth))
    np.testing.assert_allclose(report.arrays["losses"], -np.log([0.25, 0.5]), rtol=1e-6)
    assert report.arrays["places"].tolist() == [1, 0]
    found.write_text("input,class,score\na.png,dog,0.75\nb.png,dog,0.5\n")
    report = score(str(found), str(truth))
    assert "no loss: it needs the scores of all classes" in report.protocol and np.isnan(report.arrays["losses"]).all()


def test_headings_that_are_no_class_may_be_in_capitals(read):
    content = "image,Cat,Dog,PREDICTION_note,Truth,Unnamed: 7\na.png,0.5,0.5,1,2,3\n"
    layout, _ = read(content.replace("PREDICTION_note,", "").replace("a.png,0.5,0.5,1,", "a.png,0.5,0.5,"))
    assert (layout.scores, layout.classes) == ([1, 2], ["Cat", "Dog"])
