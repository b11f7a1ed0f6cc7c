"""Labels of tables: lists in a cell, a column of each class, and the forms of published tables."""

import json

import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError

from . import test_label_tables
from .test_label_tables import WANTED, pairs

read = test_label_tables.read  # a fixture
root = test_label_tables.root  # a fixture

ONE_HOT = "image_id,NV,MEL\nb/1,1.0,0.0\nb/2,0.0,1.0\na/4,0,1\n"


def test_one_column_of_each_class_gives_one_label(root, read):
    assert pairs(read(ONE_HOT)) == [("b/1.png", "NV"), ("b/2.png", "MEL"), ("a/4.png", "MEL")]
    (root / "classes.txt").write_text("MEL melanoma\nNV nevus\n")
    assert read(ONE_HOT).class_names == ["nevus", "melanoma"]
    with pytest.raises(UserError, match=r"2 images have several labels: b/1, a/5; expected one"):
        read(ONE_HOT.replace("b/1,1.0,0.0", "b/1,1,1") + "a/5,1,1\n")
    with pytest.raises(UserError, match=r"1 image has no label: a/5;"):
        read(ONE_HOT + "a/5,0,0\n")


def test_lists_of_labels_are_refused_where_one_is_read(read):
    with pytest.raises(UserError, match=r"1 image has several labels: b/1.png"):
        read("image,labels\nb/1.png,cat;dog\nb/2.png,cat\n")
    assert read("image,label\nb/1.png,cat;dog\nb/2.png,cat\n").class_names == ["cat", "cat;dog"]


@pytest.mark.parametrize(
    "text", ["big, dog;cat", "cat|big, dog", " cat ; big, dog; cat;", json.dumps(["cat", "big, dog"])]
)
def test_a_cell_lists_labels(read, text):
    found = read(
        f'image,labels\nb/1.png,"{text.replace(chr(34), chr(34) * 2)}"\nb/2.png,\na/4.png,cat\n', has_several=True
    )
    assert found.class_names == ["big, dog", "cat"]
    assert found.labels.tolist() == [[1, 1], [0, 0], [0, 1]] and found.labels.dtype == "int8"


@pytest.mark.parametrize("text", ["['a', b]", "['a' 'b']", "[1", "[[]]", '[{""a"": 1}]'])
def test_another_list_is_refused(read, text):
    with pytest.raises(UserError, match=r'labels .*: expected a;b, a\|b or a list such as \["a", "b"\]'):
        read(f'image,labels\nb/1.png,"{text}"\n', has_several=True)


def test_a_cell_lists_labels_as_pandas_writes_them(read):
    cells = [["big, dog", "it's"], [], ["it's"]]
    rows = [f'b/{number}.{ending},"{str(cell).replace(chr(34), chr(34) * 2)}"' for number, ending, cell in
            zip((1, 2, 3), ("png", "png", "jpg"), cells)]  # fmt: skip
    found = read("\n".join(["image,labels", *rows, "a/4.png,NaN"]), has_several=True)
    assert found.class_names == ["big, dog", "it's"]
    assert found.labels.tolist() == [[1, 1], [0, 0], [0, 1], [0, 0]]


def test_a_cell_lists_labels_as_a_tuple_or_a_set(read):
    found = read("""image,labels\n1,"('a', 'b')"\n2,{'b'}\n3,"('a',)"\n4,(c)\n""", has_several=True)
    assert found.class_names == ["(c)", "a", "b"]
    assert found.labels.tolist() == [[0, 1, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_spaces_before_cells_do_not_count_also_before_quotes(read):
    assert pairs(read('image, label\nb/2.png, "big, dog"\na/4.png,  cat\n')) == [*WANTED[:2]]


def test_a_missing_label_is_not_a_class(read):
    with pytest.raises(UserError, match="2 images have no label: a/4.png, b/2.png"):
        read("image,label\nb/1.png,dog\na/4.png,nan\nb/2.png,<NA>\n")


def test_cells_of_classes_are_what_programs_write_for_missing_values_and_decimal_commas(read):
    found = read("image;cat;dog\n1;1,0;0,00\n2;NaN;-1,0\n3;null;1\n4;NA;None\n5;0,0;true\n", has_several=True)
    assert found.class_names == ["cat", "dog"]
    assert found.labels.tolist() == [[1, 0], [-1, -1], [-1, 1], [-1, -1], [0, 1]]
    found = read("image,cat,dog\n1,N/A,1\n2,,0\n", has_several=True, is_empty_absent=True)
    assert found.labels.tolist() == [[0, 1], [0, 0]]
    with pytest.raises(UserError, match="line 12, column dog: '1,5': expected 1, 0"):
        read("image;cat;dog\n" + "1;1;0\n" * 10 + "2;1;1,5\n", has_several=True)


def test_columns_without_content_do_not_hide_the_labels(read):
    found = read("image,label,notes,width\n1,cat,,\n2,dog,,\n", has_several=True)
    assert found.class_names == ["cat", "dog"] and any("not used: notes, width" in line for line in found.notices)
    with pytest.raises(UserError, match="no column of labels among image, a, b"):
        read("image,a,b\n1,,\n2,,\n", has_several=True)


def test_a_class_may_be_called_labels_among_columns_of_classes(read):
    table = "image,cat,labels\n1,1,0\n2,0,1\n"
    assert read(table, has_several=True).class_names == ["cat", "labels"]
    assert read(table).class_names == ["0", "1"]  # one label of each image


def test_the_form_of_nih_has_lists_and_no_finding(root, read):
    headings = "Image Index,Finding Labels,Follow-up #,Patient Age,Patient Gender,OriginalImage[Width,Height],"
    rows = ["1.png,Hernia|Mass,0,58,M,2682,2749,", "2.png,No Finding,1,7,F,2500,2048,", "4.png,Mass,0,40,M,10,20,"]
    found = read("\n".join([headings, *rows]), has_several=True)
    assert found.class_names == ["Hernia", "Mass"] and found.labels.tolist() == [[1, 1], [0, 0], [0, 1]]


CHEXPERT = (
    "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Edema,Fracture\n"
    "pets/b/1.png,Male,68,Frontal,AP,,1.0,0.0\n"
    "pets/a/5.png,Female,1,Lateral,,1.0,-1.0,\n"
    "pets/b/2.png,Female,0,Frontal,PA,,,\n"
)


def test_the_form_of_chexpert_has_labels_that_are_not_known(read):
    found = read(CHEXPERT, has_several=True)
    assert found.class_names == ["No Finding", "Edema", "Fracture"]
    assert found.labels.tolist() == [[-1, 1, 0], [1, -1, -1], [-1, -1, -1]]
    assert any(line.endswith("not used: Sex, Age, Frontal/Lateral, AP/PA") for line in found.notices)
    assert any(line.endswith("1 image without a known label: b/2.png") for line in found.notices)
    found = read(CHEXPERT, has_several=True, is_empty_absent=True)
    assert found.labels.tolist() == [[0, 1, 0], [1, -1, 0], [0, 0, 0]]


def test_the_form_of_open_images_has_a_row_for_each_label(read):
    rows = "ImageID,Source,LabelName,Confidence\n4,v,/m/02,1\n1,v,/m/01,0\n4,v,/m/01,0\n1,v,/m/03,1.0\n1,v,/m/03,1\n"
    found = read(rows, has_several=True)
    assert found.paths == ["a/4.png", "b/1.png"] and found.class_names == ["/m/01", "/m/02", "/m/03"]
    assert found.labels.tolist() == [[0, 1, -1], [0, -1, 1]]
    with pytest.raises(UserError, match=r"says of one label that it is and is not in an image: 4; keep one row"):
        read(rows + "4,v,/m/02,0\n", has_several=True)
    with pytest.raises(UserError, match=r"confidence '0.7': expected 1 or 0; write these into the column"):
        read(rows + "2,v,/m/02,0.7\n", has_several=True)
    with pytest.raises(UserError, match=r"labels.csv: a row has no label; correct or remove it"):
        read(rows + "2,v,,1\n", has_several=True)
    with pytest.raises(UserError, match="column LabelName has several labels of an image; expected one"):
        read(rows)


def test_the_split_of_an_image_is_that_of_its_rows(read):
    rows = "ImageID,Subset,LabelName,Confidence\n4,train,a,1\n4,train,b,0\n1,validation,b,1\n2,train,b,1\n"
    assert read(rows, has_several=True).paths == ["a/4.png", "b/2.png"]
    assert read(rows, "val", has_several=True).paths == ["b/1.png"]
    message = refusal_of(read, rows + "2,validation,a,0\n4,,a,1\n", has_several=True)
    assert message.endswith("labels.csv gives rows of one image several splits: 2, 4; correct them")


def test_columns_of_another_order_are_matched_by_name(read):
    read("image,cat,dog\nb/1.png,1,0\nb/2.png,0,1\n", has_several=True, name="train.csv")
    found = read("dog,image,cat\n1,a/4.png,-1\n", "val", has_several=True, name="val.csv")
    assert found.class_names == ["cat", "dog"] and found.labels.tolist() == [[-1, 1]]
    with pytest.raises(UserError, match=r"val.csv: class ape, dog is not in both the training and this table"):
        read("image,cat,ape\na/4.png,1,0\n", "val", has_several=True, name="val.csv")


def test_a_bad_value_among_labels_of_classes_is_located(read):
    rows = "".join(f"b/{1 + number % 2}.png,{number % 2},1\n" for number in range(300))
    with pytest.raises(UserError, match=r"labels.csv, line 302, column cat: '2': expected 1, 0, or for not known -1"):
        read(f"image,cat,dog\n{rows}b/1.png,2,0\n", has_several=True)
    with pytest.raises(UserError, match=r"labels.csv, line 303: no image is named; correct or remove the row"):
        read(f"image,cat,dog\n{rows}b/1.png,0,0\n ,1,0\n", has_several=True)
