"""Rows of tables of labels: what is read of each, in whole, and what is refused, in whole messages."""

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_layouts import TableChoices
from paddlevit_dist.images.data.label_rows import describe_other_splits, group_by_split, read_rows, read_split_words


@pytest.fixture
def read(tmp_path):
    """Write a table and read its rows."""

    def run(lines, has_several=False, **choices):
        file = tmp_path / "t.csv"
        file.write_text("".join(f"{line}\n" for line in lines))
        return read_rows(str(file), has_several, TableChoices(**choices))

    return run


CELLS = {  # as a list of labels, and as one label
    "a;b| c;a;": (("a", "b", "c"), ("a;b| c;a;",)),
    "No Finding": ((), ("No Finding",)),
    "no finding;a": (("a",), ("no finding;a",)),
    " NaN ": ((), ()),
    "<NA>": ((), ()),
    "[]": ((), ("[]",)),
    "['x y', 'z']": (("x y", "z"), ("['x y', 'z']",)),
    "('x',)": (("x",), ("('x',)",)),
    "[''a'', 3, 3]".replace("''", '"'): (("a", "3"), ('["a", 3, 3]',)),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("has_several", [True, False])
def test_a_cell_is_a_list_of_labels_or_one(read, cell, has_several):
    quoted = cell.replace('"', '""')
    rows = read(["image,tags,label", "0.png,q,q", f'1.png,"{quoted}","{quoted}"', "2.png,q,q"], has_several)
    labels = rows.sets[1]
    assert labels == CELLS[cell][not has_several] and rows.sets[0] == ("q",) and rows.codes.tolist() == [0, 1, 0]
    assert rows.codes.dtype == np.int32 and rows.matrix is None and rows.classes == []
    column, unused = ("tags", "label") if has_several else ("label", "tags")
    assert rows.notices == [
        f"{rows.path}: 3 rows, images in column image, labels in column {column}; not used: {unused}"
    ]


def test_rows_of_splits_are_grouped_and_those_without_one_named(read):
    splits = ["TestSet", "", "valid", "", "Train", "x", "", "", "train"]
    table = ["image,label,split", *(f"{number}.png,a,{word}" for number, word in enumerate(splits))]
    rows = read(table)
    assert rows.splits.tolist() == ["test", "", "val", "", "train", "x", "", "", "train"] and not rows.has_folds
    assert describe_other_splits(rows) == [
        f"{rows.path}: 4 images without a split, not used: 1.png, 3.png, 6.png, ...",
        f"{rows.path}: 2 images of other splits than train and val, not used unless -split names theirs: "
        "1 of test, 1 of x",
    ]
    groups = group_by_split({"": rows})
    assert {word: indices.tolist() for word, (_, indices) in groups.items()} == {
        "test": [0],
        "train": [4, 8],
        "val": [2],
        "x": [5],
    }
    assert all(of is rows for of, _ in groups.values())
    assert read_split_words(rows.path) == {"train", "val", "test", "x", ""}
    three = read(["image,label,split", *(line for line in table[1:] if not line.startswith("7"))])
    assert describe_other_splits(three)[0].endswith(": 3 images without a split, not used: 1.png, 3.png, 6.png")
    whole = read(["image,label", "0.png,a", "1.png,b"])
    for tables in ({"": whole}, {"train": whole}):
        [(word, (of, indices))] = group_by_split(tables).items()
        assert (word, indices.tolist()) == ("train", [0, 1]) and of is whole and indices.dtype == np.int64


@pytest.mark.parametrize(
    ("folds", "chosen", "splits", "shown"),
    [
        (["10", "9", "", "10"], None, ["train", "val", "", "train"], "9 of 9, 10"),
        (["10", "9", "", "10"], "10", ["val", "train", "", "val"], "10 of 9, 10"),
        (["2.0", "1.0", "", "2.0"], "2", ["val", "train", "", "val"], "2.0 of 1.0, 2.0"),
        (["2", "2.0", "1", "b"], "2.0", ["train", "val", "train", "train"], "2.0 of b, 1, 2, 2.0"),
        (["b", "a", "a", "c"], None, ["train", "val", "val", "train"], "a of a, b, c"),
    ],
)
def test_one_fold_is_validation(read, folds, chosen, splits, shown):
    rows = read(["image,label,Fold", *(f"{at}.png,a,{fold}" for at, fold in enumerate(folds))], fold=chosen)
    assert rows.splits.tolist() == splits and rows.has_folds
    assert rows.notices[1:] == [f"{rows.path}: fold {shown} is validation (DATA.TABLE.FOLD)"]
    assert read_split_words(rows.path) == {"train", "val"}


def test_folds_divide_training_rows_alone_and_none_if_validation_is_given(read):
    table = ["image,label,split,fold", "0.png,a,train,1", "1.png,b,test,0", "2.png,c,train,0", "3.png,d,,1"]
    rows = read(table, fold="1")
    assert rows.splits.tolist() == ["val", "test", "train", ""] and rows.has_folds
    assert read_split_words(rows.path) == {"train", "val", "test", ""}
    given = read([line.replace("test", "val") for line in table], fold="1")
    assert given.splits.tolist() == ["train", "val", "train", ""] and not given.has_folds
    assert given.notices[-1] == (
        f"{given.path}: DATA.TABLE.FOLD 1 is not used: its column of splits has validation rows"
    )
    none = read(["image,label", "0.png,a"], fold="1")
    assert none.notices[1:] == [f"{none.path}: DATA.TABLE.FOLD 1 is not used: it has no column of folds"]


def test_columns_of_classes_are_a_matrix(read):
    lines = ["cat,split,image,dog,,note", "1,train,0.png,0,7,x", ",val,1.png,true,8,y", "-1,val,2.png,1.0,9,z"]
    for is_empty_absent in (False, True):
        rows = read(lines, True, is_empty_absent=is_empty_absent)
        expected = np.array([[1, 0], [-(not is_empty_absent), 1], [-1, 1]], np.int8)
        np.testing.assert_array_equal(rows.matrix, expected, strict=True)
        assert (rows.classes, rows.names, rows.codes, rows.sets) == (
            ["cat", "dog"],
            ["0.png", "1.png", "2.png"],
            None,
            [],
        )
        assert rows.splits.tolist() == ["train", "val", "val"]
        assert rows.notices == [
            f"{rows.path}: 3 rows, images in column image, 2 columns of classes (cat, dog); not used: column 5, note"
        ]


OPEN_IMAGES = "ImageID,Source,LabelName,Confidence,Split"


def test_minus_one_without_any_zero_is_asked(read):
    rows = ["image,bald,young", "a.png,1,-1", "b.png,-1,1"]
    with pytest.raises(UserError, match="1 and -1 alone.*write 0 .* as in CelebA"):
        read(rows, has_several=True)
    assert (read([*rows, "c.png,0,"], has_several=True).matrix == [[1, -1], [-1, 1], [0, -1]]).all()


def test_rows_of_one_label_are_joined(read):
    rows = read(
        [
            OPEN_IMAGES,
            "b.png,human,/m/2,1,val",
            "a.png,human,/m/1,0,train",
            "b.png,x,/m/1,1.0,val",
            "b.png,x,/m/2,1,val",
        ],
        True,
    )
    np.testing.assert_array_equal(rows.matrix, np.array([[1, 1], [0, -1]], np.int8), strict=True)
    assert (rows.names, rows.classes, rows.codes, rows.sets) == (["b.png", "a.png"], ["/m/1", "/m/2"], None, [])
    assert rows.splits.tolist() == ["val", "train"]
    assert rows.notices == [
        f"{rows.path}: 4 rows, images in column ImageID, labels in column LabelName; not used: Source"
    ]


@pytest.mark.parametrize(
    ("lines", "has_several", "choices", "message"),
    [
        (["image,label"], False, {}, " has headings, but no rows"),
        (["image,label", "0.png,a", ",b"], False, {}, ", line 3: no image is named; correct or remove the row"),
        (
            [OPEN_IMAGES, "a.png,x,/m/1,1,"],
            False,
            {},
            ": column LabelName has several labels of an image; expected one (TASK multi_label reads several)",
        ),
        (
            ["image,label,split", "0.png,a,dev", "1.png,b,", "2.png,b,all"],
            False,
            {},
            ": the column of splits has dev, all: expected train and val",
        ),
        (
            ["image,label,split", "0.png,a,", "1.png,b,"],
            False,
            {},
            ": the column of splits has no words: expected train and val",
        ),
        (["image,label,fold", "0.png,a,", "1.png,b,"], False, {}, ": its column of folds is empty; fill or remove it"),
        (
            ["image,label,fold", "0.png,a,2", "1.png,b,10"],
            False,
            {"fold": "b"},
            ": DATA.TABLE.FOLD b: its folds are 2, 10",
        ),
        (
            ["image,tags", '0.png,"[""a"", 1.5]"'],
            True,
            {},
            ': labels ["a", 1.5]: expected a;b, a|b or a list such as ["a", "b"]',
        ),
        (["image,tags", "0.png,[a"], True, {}, ': labels [a: expected a;b, a|b or a list such as ["a", "b"]'),
        (
            ["image,a,b", *(f"{number}.png,0,1" for number in range(300)), "x.png,1,2"],
            True,
            {},
            ", line 302, column b: '2': expected 1, 0, or for not known -1 or nothing; name the columns of classes "
            "with DATA.TABLE.LABELS if it is another column",
        ),
        (
            [OPEN_IMAGES, "a.png,x,/m/1,0.7,train"],
            True,
            {},
            ": confidence '0.7': expected 1 or 0; write these "
            "into the column, by a threshold of your choice (no key sets one)",
        ),
        (
            [OPEN_IMAGES, "a.png,x,/m/1,-1,train"],
            True,
            {},
            ": confidence '-1': expected 1 or 0; write these "
            "into the column, by a threshold of your choice (no key sets one)",
        ),
        (
            [OPEN_IMAGES, "a.png,x,/m/1,1,train", "a.png,x,,1,train"],
            True,
            {},
            ": a row has no label; correct or remove it",
        ),
        (
            [OPEN_IMAGES, "a.png,x,/m/1,1,train", "b.png,x,/m/1,1,train", "b.png,x,/m/1,0,train"],
            True,
            {},
            " says of one label that it is and is not in an image: b.png; keep one row",
        ),
        (
            [OPEN_IMAGES, "a.png,x,/m/1,1,train", "b.png,x,/m/1,1,train", "b.png,x,/m/2,0,val"],
            True,
            {},
            " gives rows of one image several splits: b.png; correct them",
        ),
    ],
)
def test_wrong_rows_are_refused(read, tmp_path, lines, has_several, choices, message):
    assert refusal_of(read, lines, has_several, **choices) == f"{tmp_path / 't.csv'}{message}"


def test_one_column_of_a_class_is_a_matrix_of_one_column(read):
    rows = read(["image,note,cat", "0.png,a,1", "1.png,b,0"], True)
    np.testing.assert_array_equal(rows.matrix, np.array([[1], [0]], np.int8), strict=True)
    assert rows.notices == [f"{rows.path}: 2 rows, images in column image, 1 column of classes (cat); not used: note"]


def test_missing_values_of_parquet_are_no_labels(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    content = {"image": ["0.png", "1.png", "2.png"], "label": [None, "a", None], "tags": [None, ["b", None], []]}
    parquet.write_table(pyarrow.table(content), tmp_path / "t.parquet")
    single, lists = (read_rows(str(tmp_path / "t.parquet"), several, TableChoices()) for several in (False, True))
    assert [single.sets[code] for code in single.codes] == [(), ("a",), ()]
    assert [lists.sets[code] for code in lists.codes] == [(), ("b",), ()]


@pytest.mark.parametrize(
    ("labels", "kind", "expected"),
    [
        ([{"name": "ant"}, None], None, None),
        ([[["ant"]], [["bee"]]], None, None),
        ([10**11, 0], "timestamp", [("5138-11-16 09:46:40.000",), ("1970-01-01 00:00:00.000",)]),
        ([5 * 10**11, 0], "timestamp", [("17814-05-16 00:53:20.000",), ("1970-01-01 00:00:00.000",)]),
        (["12.50", "3.00"], "decimal", [("12.50",), ("3.00",)]),
    ],
)
def test_columns_of_parquet_are_texts_or_refused(tmp_path, labels, kind, expected):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array(labels, pyarrow.timestamp("s") if kind == "timestamp" else None)
    column = column.cast(pyarrow.decimal128(8, 2)) if kind == "decimal" else column
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"image": ["0.png", "1.png"], "label": column}), path)
    for has_several in (False, True):
        if expected is not None:
            assert read_rows(str(path), has_several, TableChoices()).sets == expected
            continue
        with pytest.raises(UserError, match=r"t.parquet, column label: .*: expected text, a number or a list of texts"):
            read_rows(str(path), has_several, TableChoices())


def test_lists_of_paddleclas_have_0_or_1_of_each_class(read):
    rows = read(["0.png\t0,1,0", "1.png\t1,1,1", "2.png\t", "3.png\t0,1,0"], True)
    assert rows.matrix.tolist() == [[0, 1, 0], [1, 1, 1], [-1, -1, -1], [0, 1, 0]] and rows.classes == ["0", "1", "2"]
    with pytest.raises(UserError, match="line 2: labels 1,1: expected 0 or 1 of each of 3 classes"):
        read(["0.png\t0,1,0", "1.png\t1,1"], True)


def test_words_of_one_letter_are_truth_and_the_first_columns_of_classes_are_named(read):
    heads = [f"c{number}" for number in range(9)]
    rows = read([f"image,{','.join(heads)}", f"0.png{',Y,n' * 4},y", f"1.png{',N,y' * 4},n"], True)
    assert rows.matrix.tolist() == [[1, 0] * 4 + [1], [0, 1] * 4 + [0]]
    assert rows.notices[0].endswith("9 columns of classes (c0, c1, c2, c3, c4, c5, c6, c7, ...)")
    rows = read([f"image,{','.join(heads[:8])}", f"0.png{',Y,n' * 4}", f"1.png{',N,y' * 4}"], True)
    assert rows.notices[0].endswith("8 columns of classes (c0, c1, c2, c3, c4, c5, c6, c7)")
    with pytest.raises(UserError, match=r"line 302, column a: 'P': expected 1, 0"):
        read(["image,a,b", *(f"{number}.png,Y,N" for number in range(300)), "x.png,P,N"], True)
