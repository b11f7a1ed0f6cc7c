"""What the columns of tables of labels are taken for, in whole layouts."""

import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_layouts import (
    COLUMNS,
    LABEL,
    LABELS,
    ROWS,
    VECTOR,
    LabelLayout,
    TableChoices,
    find_image_column,
    find_layout,
    find_split_words,
)
from paddlevit_dist.images.data.table_columns import open_columns


@pytest.fixture
def table(tmp_path):
    """Write a table and open its columns."""

    def write(*lines):
        file = tmp_path / "t.csv"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return open_columns(str(file))

    return write


def one_hot(headings, *rows):
    return [headings, *(f"{number}.png,{row}" for number, row in enumerate(rows))]


OPEN_IMAGES = ["ImageID,Source,LabelName,Confidence", "0.png,x,/m/1,1"]
NAMED = ["unnamed: 0,Photo,File Name,class-name,Label,k fold", "0,b/0.png,3,dog,1,2", "1,b/1.png,4,cat,0,1"]
CASES = {
    "two columns": (["image,x", "0.png,a"], False, LabelLayout(LABEL, 0, [1], None, None, None, [])),
    "two columns of lists": (["x,image", "a,0.png"], True, LabelLayout(LABELS, 1, [0], None, None, None, [])),
    "one class": (one_hot("image,cat", 1, 0), True, LabelLayout(LABELS, 0, [1], None, None, None, [])),
    "paths before a heading": (
        NAMED,
        False,
        LabelLayout(LABEL, 1, [4], None, 5, None, ["unnamed: 0", "File Name", "class-name"]),
    ),
    "heading and paths": (
        ["mask,id,image,label", "0.png,7,1.png,a"],
        False,
        LabelLayout(LABEL, 2, [3], None, None, None, ["mask", "id"]),
    ),
    "heading": (["note,image,label", "x,0,a"], False, LabelLayout(LABEL, 1, [2], None, None, None, ["note"])),
    "some paths": (
        ["note,image,label", "x.png,0,a", "no,1,b"],
        False,
        LabelLayout(LABEL, 1, [2], None, None, None, ["note"]),
    ),
    "paths with a gap": (
        ["note,scan,label", "n,0.png,a", "m,,b", "k,2.png,b"],
        False,
        LabelLayout(LABEL, 1, [2], None, None, None, ["note"]),
    ),
    "classes": (
        one_hot("image,cat,,dog,note", "1,x,0,a", "0,y,1,b"),
        False,
        LabelLayout(COLUMNS, 0, [1, 3], None, None, None, ["column 3", "note"]),
    ),
    "one class and a note": (
        one_hot("image,note,cat", "a,1", "b,0"),
        True,
        LabelLayout(COLUMNS, 0, [2], None, None, None, ["note"]),
    ),
    "a class called labels": (
        one_hot("image,cat,labels", "1,0", "0,1"),
        True,
        LabelLayout(COLUMNS, 0, [1, 2], None, None, None, []),
    ),
    "lists beside classes": (
        one_hot("image,cat,tags,dog", "1,a;b,0", "0,b,1"),
        True,
        LabelLayout(LABELS, 0, [2], None, None, None, ["cat", "dog"]),
    ),
    "nine of ten cells": (
        one_hot("image,cat,dog", *["1,0"] * 9, "x,z"),
        True,
        LabelLayout(COLUMNS, 0, [1, 2], None, None, None, []),
    ),
    "classes without a known cell": (
        one_hot("image,cat,dog,tags", "-1,,a", ",-1,b"),
        True,
        LabelLayout(LABELS, 0, [3], None, None, None, ["cat", "dog"]),
    ),
    "numbers of rows": (
        ["index,image,a,b", "0,0.png,1,0", "1,1.png,0,1"],
        True,
        LabelLayout(COLUMNS, 1, [2, 3], None, None, None, ["index"]),
    ),
    "headings in other scripts, of one sign, and with other meanings": (
        one_hot("image,猫,+,index,split,level_0", "1,0,0,1,0", "0,1,0,0,1", "1,1,1,1,2"),
        True,
        LabelLayout(COLUMNS, 0, [1, 2, 3, 4], None, None, None, ["level_0"]),
    ),
    "a class called fold beside splits": (
        one_hot("image,fold,flat,subset", "1,ja,train", "0,nein,train", "1,ja,val"),
        True,
        LabelLayout(COLUMNS, 0, [1, 2], 3, None, None, []),
    ),
    "a list of PaddleClas": (["0.png\t0,1,0", "1.png\t1,1,1"], True, LabelLayout(VECTOR, 0, [1], None, None, None, [])),
    "labels that are numbers with a comma": (
        ["image;label", "0.png;0,0", "1.png;1,0"],
        False,
        LabelLayout(LABEL, 0, [1], None, None, None, []),
    ),
    "rows": (OPEN_IMAGES, True, LabelLayout(ROWS, 0, [2], None, None, 3, ["Source"])),
    "confidence alone": (
        ["image,label,confidence", "0.png,a,1"],
        False,
        LabelLayout(LABEL, 0, [1], None, None, None, ["confidence"]),
    ),
    "split and fold": (
        ["Split,image,kfold,label", "x,0.png,1,a"],
        False,
        LabelLayout(LABEL, 1, [3], 0, 2, None, []),
    ),
    "words of splits": (
        ["image,label,phase,set", "0.png,a,one,other", "1.png,a,two,Train"],
        False,
        LabelLayout(LABEL, 0, [1], 3, None, None, ["phase"]),
    ),
    "rows of validation": (
        ["image,label,is_valid", "0.png,a,True", "1.png,b,"],
        False,
        LabelLayout(LABEL, 0, [1], 2, None, None, []),
    ),
    "a label called so": (["image,is_valid", "0.png,1"], False, LabelLayout(LABEL, 0, [1], None, None, None, [])),
    "other words of validation": (
        ["image,label,is_valid", "0.png,a,often"],
        False,
        LabelLayout(LABEL, 0, [1], None, None, None, ["is_valid"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_columns_have_their_meaning_by_headings_and_cells(table, name):
    lines, has_several, expected = CASES[name]
    found = table(*lines)
    assert find_layout(found, has_several, TableChoices()) == expected
    assert find_image_column(found) == expected.image


@pytest.mark.parametrize(
    ("labels", "has_several", "kind", "columns"),
    [
        (("b", "a"), False, COLUMNS, [3, 1]),
        (("a", "note"), True, COLUMNS, [1, 2]),
        (("a",), True, COLUMNS, [1]),
        (("a",), False, LABEL, [1]),
        (("note",), True, LABELS, [2]),
    ],
)
def test_columns_are_those_that_the_user_names(table, labels, has_several, kind, columns):
    found = table("image,a,note,b,other", "0.png,1,v,0,1.png", "2.png,0,w,1,3.png")
    layout = find_layout(found, has_several, TableChoices("other", labels))
    rest = [name for name in ("image", "a", "note", "b") if name not in labels]
    assert layout == LabelLayout(kind, 4, columns, None, None, None, rest)


@pytest.mark.parametrize(
    ("lines", "choices", "message"),
    [
        (
            one_hot("image,cat,note", "1,a", "0,b"),
            {},
            ": no column of labels among image, cat, note: name it label, or set DATA.TABLE.LABELS to the column of "
            "labels, or to the columns of the classes",
        ),
        (["a,b", "x,y"], {}, ": no column of images among a, b: name it image, or set DATA.TABLE.IMAGE"),
        (["image,b", "x,y"], {"image": "Image"}, " has no column Image (DATA.TABLE.IMAGE), only image, b"),
        (["image,b", "x,y"], {"labels": ("b", "c")}, " has no column c (DATA.TABLE.LABELS), only image, b"),
        (
            one_hot("image,cat,dog", *["1,0"] * 8, "x,z", "x,z"),
            {},
            ": no column of labels among image, cat, dog: name it label, or set DATA.TABLE.LABELS to the column of "
            "labels, or to the columns of the classes",
        ),
    ],
)
def test_tables_without_images_or_labels_are_refused(table, tmp_path, lines, choices, message):
    assert refusal_of(find_layout, table(*lines), False, TableChoices(**choices)) == f"{tmp_path / 't.csv'}{message}"


@pytest.mark.parametrize(
    ("lines", "has_several", "message"),
    [
        (one_hot("image,cat,dog", "ok,1", "nok,0"), True, ""),
        (one_hot("image,cat,dog", "ok,1x", "1,0y"), True, r" with 1 and 0 \(.*t.csv, line 2, column cat: 'ok'\)$"),
        (["0.png\t0,1,0"], False, r"column label has several labels .* \(TASK multi_label reads several\)$"),
    ],
)
def test_several_labels_are_read_or_refused_with_the_first_cell(table, lines, has_several, message):
    found = table(*lines)
    if not message:
        assert find_layout(found, has_several, TableChoices()).unused == ["cat"]
        return
    with pytest.raises(UserError, match=message):
        find_layout(found, has_several, TableChoices())


def test_words_of_splits_are_translated_and_others_kept(table):
    found = table("image,is_valid,split,label", "0.png,1,x,a")
    assert find_split_words(found, 1, ["False", "1.0", "", "often"]) == ["train", "val", "", "often"]
    assert find_split_words(found, 2, ["Training", "1", "", "TestSet"]) == ["train", "1", "", "test"]
