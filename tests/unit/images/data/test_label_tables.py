"""Tables of labels in the layouts that users have, with odd and wrong files."""

import csv
import io
import os

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_layouts import TableChoices
from paddlevit_dist.images.data.label_rows import read_rows, require_size
from paddlevit_dist.images.data.label_tables import TableOptions, read_table


def save_image(path, size=(9, 7)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (10, 200, 30)).save(path)


@pytest.fixture
def root(tmp_path):
    """Five images in two folders, whose names are not in the order of their classes."""
    folder = tmp_path / "pets"
    for name in ("b/1.png", "b/2.png", "b/3.jpg", "a/4.png", "a/5.png"):
        save_image(folder / name)
    return folder


@pytest.fixture
def read(root):
    """Write a table and read a split of it: paths, labels and classes."""

    def run(text, split="train", has_several=False, name="labels.csv", **options):
        content = text if isinstance(text, bytes) else text.encode()
        (root / name).write_bytes(content)
        choices = TableChoices(**{key: options.pop(key) for key in list(options) if key in TableChoices._fields})
        found = read_table(str(root), split, TableOptions(choices, **options), has_several)
        assert found.root == str(root)
        return found

    return run


def pairs(found):
    return [(path, found.class_names[label]) for path, label in zip(found.paths, found.labels)]


def test_a_folder_that_cannot_be_listed_is_named(read, root):
    (root / "c").symlink_to("c")
    with pytest.raises(UserError, match=rf"^folder {root}/c cannot be listed: Too many levels of symbolic links$"):
        read("image,label\nb/1.png,x\nc/2.png,y\n")


def test_tables_of_many_labels_are_read_up_to_a_limit(tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text("image,label\n" + "".join(f"{number}.png,l{number}\n" for number in range(33_000)))
    rows = read_rows(str(file), False, TableChoices())
    assert rows.codes.tolist() == [*range(33_000)] and rows.sets[-1] == ("l32999",)
    random = np.random.default_rng(0)
    columns, folds = random.integers(-1, 2, (1000, 3)), random.integers(4, size=1000)
    lines = (f"{at}.png,{fold},{','.join(map(str, row))}\n" for at, (fold, row) in enumerate(zip(folds, columns)))
    file.write_text(f"image,fold,a,b,c\n{''.join(lines)}")
    rows = read_rows(str(file), True, TableChoices(fold="2"))
    assert rows.names == [f"{number}.png" for number in range(1000)]
    assert rows.splits.tolist() == ["val" if fold == 2 else "train" for fold in folds]
    np.testing.assert_array_equal(rows.matrix, columns)
    require_size(1 << 30, 8, "t.csv")
    with pytest.raises(UserError, match="^t.csv: 1,073,741,825 images of 8 classes each; expected at most 8 GiB"):
        require_size((1 << 30) + 1, 8, "t.csv")


WANTED = [("b/2.png", "big, dog"), ("a/4.png", "cat"), ("b/3.jpg", 'say "no"')]


def write_csv(separator, quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO()
    rows = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator="\r\n")
    rows.writerows([("image", "label"), *WANTED])
    return out.getvalue()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", ":", "^", "~", "#"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separator_quotes_and_byte_order_mark_are_found(read, separator, encoding):
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        found = read(write_csv(separator, quoting).encode(encoding))
        assert pairs(found) == WANTED and found.class_names == ["big, dog", "cat", 'say "no"']


def test_a_line_that_names_the_separator_for_excel_is_skipped(read):
    for separator in ",;\t|":
        found = read(f"sep={separator}\r\nimage,label\r\nb/2.png,dog\r\n".replace(",", separator))
        assert pairs(found) == [("b/2.png", "dog")]
        assert pairs(read(f"SEP={separator}\nimage{separator}label\nb/2.png{separator}dog\n")) == [("b/2.png", "dog")]
    with pytest.raises(UserError, match="labels.csv, line 4: 3 columns, but 2 in the first line"):
        read("sep=,\nimage,label\nb/2.png,dog\nb/1.png,dog,7\n")


def test_a_table_without_headings_has_two_columns(read):
    assert pairs(read("b/2.png;dog\na/4.png;cat\n")) == [("b/2.png", "dog"), ("a/4.png", "cat")]
    with pytest.raises(UserError, match=r"labels.csv: line 1 has no headings; .* its 3 columns"):
        read("b/2.png,dog,7\na/4.png,cat,8\n")


@pytest.mark.parametrize(
    "names, options",
    [
        (("b/2.png", "a/4.png"), {}),
        (("b/2", "a/4"), {}),
        (("2.png", "4.png"), {}),  # the end of a path
        (("2", "4"), {}),
        (("b\\2.png", "a\\4.png"), {}),
        (("./b/2.png", "b/../a/4.png"), {}),
        (("b//2.png", "a/./4.png"), {}),
        (("pets/b/2.png", "pets/a/4.png"), {}),  # relative to the folder above, as in CheXpert
    ],
)
def test_images_are_named_relative_to_the_table_or_by_their_end_with_or_without_ending(read, names, options):
    found = read(f"image,label\n{names[0]},dog\n{names[1]},cat\n", **options)
    assert pairs(found) == [("b/2.png", "dog"), ("a/4.png", "cat")]


def test_an_image_without_its_ending_is_no_folder_or_text_of_this_name(root, read):
    (root / "b" / "2").mkdir()
    (root / "a" / "4.txt").write_text("notes")
    save_image(root / "a" / "4.txt.png")
    found = read("image,label\nb\\2,dog\na\\4.txt,cat\n")
    assert pairs(found) == [("b/2.png", "dog"), ("a/4.txt.png", "cat")]


def test_images_are_elsewhere_or_named_absolutely(root, tmp_path, read):
    (tmp_path / "lists").mkdir()
    table = tmp_path / "lists" / "mine.csv"
    table.write_text(f"file,class\n{root}/b/2.png,dog\na/4.png,cat\n")
    with pytest.raises(UserError, match="1 of 2 images is missing below .*lists: a/4.png; .*set DATA.TABLE.IMAGES"):
        read_table(str(table), "train", TableOptions(), False)
    found = read_table(str(table), "train", TableOptions(images=str(root)), False)
    assert found.root == str(root) and pairs(found) == [("b/2.png", "dog"), ("a/4.png", "cat")]


def test_folders_of_images_that_contain_themselves_are_refused(root, read):
    (root / "a" / "again").symlink_to(root)
    with pytest.raises(UserError, match=r"^folder .*/pets/a/again: "):
        read("image,label\n5,dog\n")


def test_of_two_columns_that_may_be_labels_the_better_known_word_counts(read):
    found = read("image,category,label\nb/1.png,canis,dog\nb/2.png,felis,cat\n")
    assert found.class_names == ["cat", "dog"] and pairs(found) == [("b/1.png", "dog"), ("b/2.png", "cat")]


def test_composed_and_decomposed_names_are_one(root, read):
    save_image(root / "a" / "e\u0301te\u0301.png")
    found = read("image,label\na/\u00e9t\u00e9.png,\u00e9\na/4.png,e\u0301\nb/2.png,z\n")
    assert found.paths[0] == "a/e\u0301te\u0301.png"
    assert found.class_names == ["z", "\u00e9"] and found.labels.tolist() == [1, 1, 0]


def test_an_end_that_several_images_have_is_refused_unless_their_split_is_known(root, read):
    for name in ("train/9.png", "val/9.png"):
        save_image(root / name)
    table = "image,label,split\n9,dog,train\na/4.png,cat,train\n9.png,cat,val\n"
    assert read(table).paths == ["train/9.png", "a/4.png"]
    assert pairs(read(table, "val")) == [("val/9.png", "cat")]
    save_image(root / "b" / "5.png")
    with pytest.raises(UserError, match=r"5.png may be each of a/5.png, b/5.png in .*pets: name its folder"):
        read("image,label\n5.png,dog\n")
    save_image(root / "b" / "1.jpg")
    with pytest.raises(UserError, match=r"b/1 may be each of 1.jpg, 1.png in .*b: write the ending"):
        read("image,label\nb/1,dog\n")


def test_missing_images_are_counted_with_the_first_three_names(read):
    rows = "".join(f"b/{number}.png,{'dog' if number % 2 else 'cat'}\n" for number in (1, 8, 2, 6, 9, 7))
    with pytest.raises(UserError, match=r"4 of 6 images are missing below .*pets: b/8.png, b/6.png, b/9.png, \.\.\.;"):
        read(f"image,label\n{rows}")
    found = read(f"image,label\n{rows}", allows_missing=True)
    assert found.paths == ["b/1.png", "b/2.png"] and found.skipped_files.num_images == 4
    assert found.skipped_files.lines() == [
        f"skipped below {found.root}/labels.csv: 4 missing images: b/8.png, b/6.png, b/9.png ..."
    ]
    with pytest.raises(UserError, match=r"1 of 1 image is missing .* DATA.TABLE.IMAGES to their folder$"):
        read("image,label\nb/8.png,dog\n", allows_missing=True)


def test_an_image_that_is_named_again_is_read_once_and_refused_with_another_label(read):
    found = read("image,label\nb/1.png,dog\na/4.png,cat\nb/1,dog\n1.png,dog\n")
    assert found.paths == ["b/1.png", "a/4.png"]
    assert any(line.endswith("labels.csv names 1 image again, read once: b/1.png") for line in found.notices)
    with pytest.raises(UserError, match=r"names 2 images again with other labels: a/4.png, b/1.png; keep one row"):
        read("image,label\nb/1.png,dog\na/4.png,cat\n4,dog\nb/2.png,dog\nb/1,cat\na/4.png,cat\n")
    with pytest.raises(UserError, match=r"names 1 image again with other labels: b/1.png"):
        read("image,labels\nb/1.png,a;b\nb/2.png,b\nb/1.png,b\n", has_several=True)
    assert len(read("image,labels\nb/1.png,a;b\nb/2.png,b\nb/1.png,b|a\n", has_several=True).paths) == 2
    with pytest.raises(UserError, match=r"again with other labels: b/1.png; .* with its labels in one cell \(a;b\)"):
        read("image,label\nb/1.png,dog\nb/1.png,cat\n", has_several=True)


def test_images_next_to_named_ones_are_counted(root, read):
    found = read("image,label\nb/1.png,dog\nb/3.jpg,cat\n")
    assert found.notices[-1].startswith("1 image next to these is not in ") and found.notices[-1].endswith(": b/2.png")
    for name in ("0.png", "6.png", ".7.png", "b/._1.png", "c/1.png"):  # hidden ones, and a folder that no row names
        save_image(root / name)
    (root / "b" / "notes.txt").write_text("no image")
    found = read("image,label\nb/1.png,dog\nb/3.jpg,cat\n0.png,dog\n")
    table = f"{root}/labels.csv"
    assert found.notices[-1] == f"2 images next to these are not in {table}, and not used: 6.png, b/2.png"
    for name in ("0.png", "6.png", ".7.png"):
        (root / name).unlink()
    table = "image,label,split\nb/1.png,dog,train\nb/3.jpg,cat,train\nb/2.png,cat,val\n"
    assert "next to" not in " ".join(read(table).notices)


def test_columns_and_rows_without_content_are_ignored(read):
    found = read(",image,label,\n0,b/2.png,dog,\n,,,\n1,a/4.png,cat,\n")
    assert pairs(found) == [("b/2.png", "dog"), ("a/4.png", "cat")] and found.notices[0].endswith(
        "; not used: column 1"
    )
    for text, message in (("", "it is empty; expected"), ("image\nb/2.png\n", "one column; expected headings such as")):
        with pytest.raises(UserError, match=f"labels.csv: {message}"):
            read(text)
    with pytest.raises(UserError, match="labels.csv is not UTF-8 text; save it as UTF-8"):
        read("image,label\nb/2.png,k\u00e4fer\n".encode("latin-1"))


def test_rows_without_label_are_refused_with_their_number(read):
    with pytest.raises(UserError, match=r"2 images have no label: b/1.png, a/5.png; add them, or remove the rows"):
        read("image,label\nb/1.png,\nb/2.png,dog\na/5.png, \n")
    with pytest.raises(UserError, match=r"line 3: no image is named"):
        read("image,label\nb/1.png,cat\n,dog\n")
    with pytest.raises(UserError, match=r"has headings, but no rows"):
        read("image,label\n")
    with pytest.raises(UserError, match=r"line 4: 3 columns, but 2 in the first line; quote cells"):
        read("image,label\nb/1.png,cat\n\nb/2.png,cat,dog\n")


def test_classes_are_sorted_numbers_by_value_and_named_by_a_list(root, read):
    rows = "image,label\nb/1.png,10\nb/2.png,9\na/4.png,10\na/5.png,0\n"
    assert read(rows).class_names == ["0", "9", "10"] and read(rows).labels.tolist() == [2, 1, 2, 0]
    for labels in (["1.0", "2.0", "10.0"], ["-2", "-1", "3"], ["01", "1", "2"]):  # of pandas; in one order everywhere
        text = "image,label\n" + "".join(f"{image},{label}\n" for image, label in zip((1, 2, 3), reversed(labels)))
        assert read(text).class_names == labels
    (root / "classes.txt").write_text("zero\nnine\nten\n")
    assert read(rows).class_names == ["zero", "nine", "ten"]
    (root / "classes.txt").write_text("n2 big dog\nn1 cat\n")
    found = read("image,label\nb/1.png,n2\nb/2.png,n1\n")
    assert pairs(found) == [("b/1.png", "big dog"), ("b/2.png", "cat")]
    (root / "classes.txt").write_text("dog\nape\ncat\n")  # their order, and one without an image
    found = read("image,label\nb/1.png,cat\nb/2.png,dog\n")
    assert found.class_names == ["dog", "ape", "cat"] and found.labels.tolist() == [2, 0]


def test_columns_are_chosen(read):
    table = "photo,mask,a,b,kind\nb/1.png,b/2.png,1,0,x\na/4.png,b/3.jpg,0,1,y\n"
    assert pairs(read(table, labels=("kind",))) == [("b/1.png", "x"), ("a/4.png", "y")]
    assert read(table, image="mask", labels=("kind",)).paths == ["b/2.png", "b/3.jpg"]
    assert read(table, has_several=True, labels=("b", "a")).class_names == ["b", "a"]
    with pytest.raises(UserError, match=r"labels.csv has no column kinds \(DATA.TABLE.LABELS\), only photo, mask"):
        read(table, labels=("kinds",))
    with pytest.raises(UserError, match=r"no column of labels among photo, kind, note: name it label, or set"):
        read("photo,kind,note\nb/1.png,x,1 y\n")
    with pytest.raises(UserError, match=r"no column of images among colour, label: name it image, or set"):
        read("colour,label\nred,x\n")
    with pytest.raises(UserError, match=r"two columns are named label; rename or remove one"):
        read("image,label,label\nb/1.png,x,y\n")


def test_parquet_is_read_with_pyarrow(root, read):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ["b/1.png", "a/4.png", "b/2"]

    def write(columns):
        out = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), out)
        return out.getvalue()

    for name in ("LABELS.PARQUET", "labels.pq"):
        assert read(write({"image": names, "label": [10, 9, 10]}), name=name).class_names == ["9", "10"]
        (root / name).unlink()
    found = read(write({"image": names, "label": [10, 9, 10]}), name="labels.parquet")
    assert found.paths == ["b/1.png", "a/4.png", "b/2.png"] and found.class_names == ["9", "10"]
    found = read(write({"image": names, "labels": [["b"], [], ["a", "b"]]}), has_several=True, name="labels.parquet")
    assert found.class_names == ["a", "b"] and found.labels.tolist() == [[0, 1], [0, 0], [1, 1]]
    columns = {"image": names, "No. Finding": [1.0, None, float("nan")], "b": [True, False, True], "c": [0, -1, 1]}
    found = read(write(columns), has_several=True, name="labels.parquet")
    assert found.class_names == ["No. Finding", "b", "c"]
    assert found.labels.tolist() == [[1, 1, 0], [-1, 0, -1], [-1, 1, 1]]
    with pytest.raises(UserError, match=r"row 1: expected the path of an image, found its content"):
        read(write({"image": [{"bytes": b"1"}], "label": ["x"]}), name="labels.parquet")
    content = write({"image": names, "label": [1, 2, 3]})
    with pytest.raises(UserError, match=r"labels.parquet cannot be read"):
        read(content[:-20], name="labels.parquet")


def test_where_there_is_no_table_or_split_one_line_says_so(root):
    (root / "train_images").mkdir()  # a folder of images, not of a split's table
    (root / "train_images" / "sizes.csv").write_text("image,label\nb/1.png,dog\n")
    for place, message in (
        (None, r"dataset table needs -data_path=<folder>, with a table such as labels.csv"),
        (str(root), r"has no table of labels, such as labels.csv, train.csv or train.parquet"),
        (os.path.join(root, "nowhere"), r"nowhere does not exist; dataset table expects"),
    ):
        with pytest.raises(UserError, match=message):
            read_table(place, "train", TableOptions(), False)
