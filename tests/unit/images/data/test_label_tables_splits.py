"""Splits and folds of tables of labels."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_tables import TableOptions, list_splits, read_table

from . import test_label_tables
from .test_label_tables import pairs, save_image

read = test_label_tables.read  # a fixture
root = test_label_tables.root  # a fixture

SPLITS = "image,label,{}\nb/1.png,dog,{}\nb/2.png,cat,{}\nb/3.jpg,dog,{}\na/4.png,cat,{}\na/5.png,dog,{}\n"


def test_a_column_names_the_split(root, read):
    table = SPLITS.format("Split", "Training", "train", "VALIDATION", "test", "")
    assert read(table).paths == ["b/1.png", "b/2.png"]
    assert pairs(read(table, "val")) == [("b/3.jpg", "dog")] and read(table, "test").paths == ["a/4.png"]
    assert list_splits(str(root)) >= {"train", "val", "test"}
    assert any(line.endswith("1 image without a split, not used: a/5.png") for line in read(table).notices)
    assert any(
        line.endswith(
            "labels.csv: 1 image of other splits than train and val, not used unless -split names theirs: 1 of test"
        )
        for line in read(table).notices
    )
    with pytest.raises(UserError, match=r"no split 'extra' .*test, train, val"):
        read(table, "extra")
    with pytest.raises(UserError, match=r"the column of splits has 0, 1: expected train and val"):
        read(SPLITS.format("split", 0, 0, 1, 1, 0))


def test_images_of_splits_that_no_run_reads_are_counted(read):
    typo = SPLITS.format("split", "train", "trian", "trian", "hold out", "val")
    assert any(line.endswith(": 2 of trian, 1 of hold out") for line in read(typo).notices)
    assert not any("other splits" in line for line in read(typo, "val").notices)
    replaced = SPLITS.format("split", "train", "train", "train", "test", "test")
    assert not any("other splits" in line for line in read(replaced).notices)


@pytest.mark.parametrize("no, yes", [("False", "True"), ("0", "1"), ("0.0", "1.0")])
def test_a_column_tells_the_rows_of_validation(root, read, no, yes):
    head = f"image,cat,dog,is_valid\n1,1,0,{no}\n2,0,1,{yes}\n3,0,1,\n"
    found = read(head + f"4,0,1,{no}\n", has_several=True)
    assert found.paths == ["b/1.png", "a/4.png"] and found.class_names == ["cat", "dog"]
    assert any("1 image without a split, not used: 3" in line for line in found.notices)
    assert read(head, "val", has_several=True).paths == ["b/2.png"]
    assert list_splits(str(root)) == {"train", "val", ""}
    assert read("image,is_valid\n1,True\n2,False\n").class_names == ["False", "True"]


def test_the_test_split_replaces_a_missing_validation_split(read):
    table = SPLITS.format("subset", "", "train", "train", "test", "test")
    found = read(table, "val")
    assert found.split == "test"
    assert found.paths == ["a/4.png", "a/5.png"] and "the val images are the test images of" in " ".join(found.notices)
    with pytest.raises(UserError, match=r"has no split 'val' .*train: add a column split or a table val.csv"):
        read("image,label\nb/1.png,dog\nb/2.png,cat\n", "val")


def test_a_fold_is_validation(root, read):
    table = SPLITS.format("fold", 10, 2, 10, 9, 2)
    assert read(table, "val").paths == ["b/2.png", "a/5.png"]  # 2 is the first
    assert read(table, "val", fold="10").paths == ["b/1.png", "b/3.jpg"]
    assert read(table, fold="10").paths == ["b/2.png", "a/4.png", "a/5.png"]
    assert list_splits(str(root)) == {"train", "val"}
    assert read(SPLITS.format("fold", "1.0", "2.0", "1.0", "", "2.0"), "val", fold="2").paths == ["b/2.png", "a/5.png"]
    with pytest.raises(UserError, match=r"DATA.TABLE.FOLD 3: its folds are 2, 9, 10"):
        read(table, fold="3")


def test_folds_divide_the_training_rows_of_a_column_of_splits(read):
    rows = ["image,label,split,fold", "b/1.png,dog,train,0", "b/2.png,cat,train,1", "b/3.jpg,dog,train,0"]
    rows += ["a/4.png,cat,test,", "a/5.png,dog,test,"]
    assert read("\n".join(rows), fold="1").class_names == ["cat", "dog"]  # also the class that no training image has
    found = {split: read("\n".join(rows), split, fold="1").paths for split in ("train", "val", "test")}
    assert found == {"train": ["b/1.png", "b/3.jpg"], "val": ["b/2.png"], "test": ["a/4.png", "a/5.png"]}
    rows = [row.replace("test", "val") for row in rows]  # validation is given, so that folds are of no use
    assert read("\n".join(rows)).paths == ["b/1.png", "b/2.png", "b/3.jpg"]
    told = "FOLD 1 is not used: its column of splits has validation rows"
    assert told in read("\n".join(rows), fold="1").notices[-1]
    rows = [row.rpartition(",")[0] for row in rows]
    assert "FOLD 1 is not used: it has no column of folds" in read("\n".join(rows), fold="1").notices[-1]


def test_each_split_may_have_a_table(root, read):
    (root / "other.csv").write_text("anything\n")
    read("image,label\nb/1.png,dog\nb/2.png,cat\n", name="train_labels.csv")
    found = read("label;image\ncat;a/4.png\ncat;b/1.png\n", "val", name="Valid.csv")
    assert pairs(found) == [("a/4.png", "cat"), ("b/1.png", "cat")]
    assert found.notices[-1].endswith("Valid.csv: 1 image is also named as a training image: b/1.png")
    assert list_splits(str(root)) == {"train", "val"}
    with pytest.raises(UserError, match=r"Valid.csv: 1 label that no training image has: ape; correct them, or list"):
        read("image,label\na/4.png,ape\n", "val", name="Valid.csv")
    with pytest.raises(UserError, match=r"several tables, train.tsv, train_labels.csv: name one with -data_path=FILE"):
        read("image\tlabel\nb/1.png\tdog\n", name="train.tsv")


def test_folders_of_splits_may_have_tables_with_a_column_of_each_class(root):
    for split, label in (("train", (0, 1)), ("valid", (1, 0))):
        for name in "xy":
            save_image(root / split / f"{name}.jpg")
        rows = f"filename, sick, fine\nx.jpg, {label[0]}, {label[1]}\ny.jpg, 1, 0\n"
        (root / split / "_classes.csv").write_text(rows)
    found = read_table(str(root), "val", TableOptions(), False)
    assert pairs(found) == [("valid/x.jpg", "sick"), ("valid/y.jpg", "sick")] and found.class_names == ["sick", "fine"]
