"""Words that the tables and folders of others use, each alone, as written, in capitals and with spaces."""

import itertools

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.formats import split_in_name
from paddlevit_dist.images.data.label_layouts import (
    COLUMNS,
    LABEL,
    LABELS,
    TableChoices,
    find_image_column,
    find_layout,
    find_split_columns,
)
from paddlevit_dist.images.data.table_columns import open_columns

IMAGES = (
    "name file filename file_name filepath file_path path image image_id image_name img img_path picture input id "
    "sample case image_index imageid image_path images img_name id_code"
).split()
ONE_LABEL = (
    "label class class_name label_name labelname category category_name target y class_label class_id label_id "
    "category_id"
).split()
SEVERAL = "labels tags classes finding_labels attributes categories".split()


@pytest.fixture
def table(tmp_path):
    numbers = itertools.count()

    def write(*lines):
        file = tmp_path / f"{next(numbers)}.csv"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return open_columns(str(file))

    return write


def spell(word):
    return {word, word.upper(), word.title().replace("_", " "), word.replace("_", "-")}


def test_headings_of_images(table):
    for word in IMAGES:
        for heading in spell(word):
            assert find_image_column(table(f"note,{heading},more", "a,b,c")) == 1, heading
    with pytest.raises(UserError, match="no column of images"):
        find_image_column(table("note,other,more", "a,b,c"))


@pytest.mark.parametrize(
    ("words", "has_several", "kind"), [(ONE_LABEL, False, LABEL), (SEVERAL, True, LABELS), (ONE_LABEL, True, LABELS)]
)
def test_headings_of_labels(table, words, has_several, kind):
    for heading in (heading for word in words for heading in spell(word)):
        found = find_layout(table(f"image,note,{heading}", "0.png,x,a", "1.png,y,b"), has_several, TableChoices())
        assert (found.kind, found.labels) == (kind, [2]), heading


def test_headings_of_splits_of_rows_of_validation_and_of_folds(table):
    for word in ("split", "subset", "partition", "set", "phase"):
        for heading in spell(word):
            assert find_split_columns(table(f"image,{heading},label", "0,train,a", "1,val,b")) == (1, None), heading
    for word in ("is_valid", "is_val", "is_validation"):
        for heading in spell(word):
            assert find_split_columns(table(f"image,{heading},label", "0,True,a", "1,,b")) == (1, None), heading
    for word in ("fold", "folds", "kfold", "cv_fold", "fold_id"):
        for heading in spell(word):
            assert find_split_columns(table(f"image,{heading},label", "0,0,a", "1,1,b")) == (None, 1), heading
    for heading in ("index", "unnamed: 0", "Unnamed_12", "level_1"):  # numbers of rows are not a class
        lines = (f"{row},{row}.png,{row % 2},{1 - row % 2}" for row in range(2))
        found = find_layout(table(f"{heading},image,a,b", *lines), True, TableChoices())
        assert (found.kind, found.labels) == (COLUMNS, [2, 3]), heading


def test_words_of_splits_in_names():
    words = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
    around = ("{}", "{}_set", "{}-sets", "{} data", "{}2017", "seg_{}", "dataset_{}", "{} split", "samples {}")
    around += (
        "{}set",
        "{}sets",
        "{}data",
        "{}images",
        "{}image",
        "{}imgs",
        "{}img",
        "images/{}",
        "image {}",
        "imgs {}",
    )
    for split, own in words.items():
        for word in own:
            for form in around:
                for name in (form.format(word), form.format(word).upper(), form.format(word.title())):
                    assert split_in_name(name) == split, name
            assert split_in_name(f"my {word}") is None and split_in_name(f"my {word}", is_whole=False) == split
    for name in ("train_val", "trainvalid_test_train", "rain", "", "2017", "trainer", "contest"):
        assert split_in_name(name) is None, name
