"""ImageNet from lists of paths and labels, and from class folders."""

import os
import shutil

import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.classification.opening import open_images
from paddlevit_dist.images.data.imagenet import ImageNet2012


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr("paddlevit_dist.images.data.imagenet._LINES_PER_BATCH", 2)  # lists have several batches
    folder = tmp_path / "imagenet"
    folder.mkdir()
    return folder


def save_image(path, color=(10, 200, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 9), color).save(path)


def listed(root, cache, text, split="val"):
    """A dataset of the list ``text``; its images need not exist."""
    (root / f"{split}_list.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return ImageNet2012(str(root), split, cache)


def entries(dataset):
    return [(dataset.describe(i), int(dataset.labels[i])) for i in range(len(dataset))]


@pytest.mark.parametrize("fraction", [(), ("DATA.VAL_FRACTION", "0.5")])
def test_lists_have_the_number_of_classes_that_the_configuration_states(root, cache, tmp_path, fraction):
    for split in ("train", "val"):
        listed(root, cache, "".join(f"{split}/{number}.png {number % 3}\n" for number in range(12)), split)
    words = ["-dataset=imagenet2012", f"-data_path={root}", f"-output={tmp_path}", *fraction]
    for number in (3, 5, 20_000):
        dataset, _ = open_images(load([*words, f"-num_classes={number}"]).values, "val", cache)
        assert dataset.num_classes == number and set(dataset.labels) == {0, 1, 2}
    assert open_images(load(words).values, "val", cache)[0].num_classes == 1000
    with pytest.raises(UserError, match="line 3: label 2 is out of range; with 2 classes, labels are 0 to 1"):
        open_images(load([*words, "-num_classes=2"]).values, "val", cache)
    (root / "classes.txt").write_text("a\nb\nc\nd\n")
    assert open_images(load([*words, "-num_classes=9"]).values, "val", cache)[0].num_classes == 4


def test_list_gives_images_and_labels_in_its_order(root, cache):
    save_image(root / "val" / "b.png", (255, 0, 0))
    save_image(root / "val" / "a.png", (0, 0, 255))
    dataset = listed(root, cache, "val/b.png 7\nval/a.png 999\nval/absent.jpg 1\n")
    train = listed(root, cache, "t.jpg 2\nu.jpg 3\n", "train")
    assert entries(dataset)[:2] == [(f"{root}/val/b.png", 7), (f"{root}/val/a.png", 999)]
    assert dataset.num_classes == 1000 and dataset.class_names is None
    image, label = dataset.read(0)
    assert (image.mode, image.size, image.getpixel((3, 3)), label) == ("RGB", (12, 9), (255, 0, 0), 7)
    assert dataset.read(1)[0].getpixel((3, 3)) == (0, 0, 255)
    with pytest.raises(UserError, match=rf"{root}/val/absent.jpg cannot be read as an image: No such file"):
        dataset.read(2)
    assert entries(train) == [(f"{root}/t.jpg", 2), (f"{root}/u.jpg", 3)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("val/my  photo 2.jpg 5\nval/Größe/图.jpg\t6\n", [("val/my  photo 2.jpg", 5), ("val/Größe/图.jpg", 6)]),
        (b"\xef\xbb\xbfa.jpg 1\r\n\r\n   \nb.jpg 2\r\n\n", [("a.jpg", 1), ("b.jpg", 2)]),
        ("a.jpg 1\nb.jpg 2", [("a.jpg", 1), ("b.jpg", 2)]),
    ],
    ids=["spaces and other alphabets", "blank lines, Windows and a byte order mark", "no last line end"],
)
def test_lines_of_every_form_are_read(text, expected, root, cache):
    assert entries(listed(root, cache, text)) == [(f"{root}/{path}", label) for path, label in expected]


def test_names_that_are_no_utf8_are_found_on_disk(root, cache):
    name = b"val/caf\xe9.png"
    save_image(root / "val" / "plain.png")
    os.rename(root / "val" / "plain.png", os.path.join(os.fsencode(root), name))
    assert listed(root, cache, name + b" 3\n").read(0)[1] == 3


@pytest.mark.parametrize(
    "bad_line, said",
    [
        ("lonely.jpg", "expected 'path label' with an integer label, found 'lonely.jpg'"),
        ("my photo.jpg", "expected 'path label' with an integer label, found 'my photo.jpg'"),
        ("a.jpg 1.5", "expected 'path label' with an integer label, found 'a.jpg 1.5'"),
        ("a.jpg 1000", "label 1000 is out of range; with 1000 classes, labels are 0 to 999"),
        ("a.jpg -1", "label -1 is out of range; with 1000 classes, labels are 0 to 999"),
        ("a.jpg 99999999999999999999", "label 99999999999999999999 is out of range"),
    ],
)
@pytest.mark.parametrize("rest", ["b.jpg 2\n", "b.jpg 5000\nc.jpg\n"], ids=["alone", "first of three"])
def test_first_wrong_line_is_named_with_its_number(root, cache, bad_line, said, rest):
    message = refusal_of(listed, root, cache, f"a.jpg 1\n\n{bad_line}\n{rest}")
    assert message.startswith(f"{root}/val_list.txt line 3: {said}")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    "text, message", [("\n\n", "val_list.txt contains no samples"), (None, "val_list.txt cannot be read: No")]
)
def test_a_list_without_samples_or_of_the_other_split_alone_is_refused(text, message, root, cache):
    (root / "train_list.txt").write_text("a.jpg 1\n")
    if text is not None:
        (root / "val_list.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        ImageNet2012(str(root), "val", cache)


def test_changed_list_is_read_anew(root, cache):
    assert len(listed(root, cache, "a.jpg 1\n")) == 1
    stamp = os.stat(root / "val_list.txt")
    (root / "val_list.txt").write_text("b.jpg 2\n")
    os.utime(root / "val_list.txt", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert entries(ImageNet2012(str(root), "val", cache)) == [(f"{root}/b.jpg", 2)]


def test_class_folders_are_numbered_by_sorted_name(root, cache):
    for wnid in ("n02000000", "n01000000", "n03000000"):
        save_image(root / "train" / wnid / f"{wnid}_1.JPEG")
    save_image(root / "val" / "n03000000" / "x.JPEG")
    train = ImageNet2012(str(root), "train", cache)
    assert train.num_classes == 3 and train.class_names == ["n01000000", "n02000000", "n03000000"]
    assert entries(train) == [(f"{root}/train/n0{k}000000/n0{k}000000_1.JPEG", k - 1) for k in (1, 2, 3)]
    val = ImageNet2012(str(root), "val", cache)
    assert entries(val) == [(f"{root}/val/n03000000/x.JPEG", 2)] and val.num_classes == 3
    shutil.rmtree(root / "train")
    val = ImageNet2012(str(root), "val", cache)
    assert entries(val) == [(f"{root}/val/n03000000/x.JPEG", 0)] and val.class_names == ["n03000000"]


def test_neither_layout_names_path_and_both_layouts(root, cache):
    save_image(root / "something" / "a.png")
    message = refusal_of(ImageNet2012, str(root), "train", cache)
    for part in (str(root), "train_list.txt", "val_list.txt", "train/<wnid>/", "val/<wnid>/"):
        assert part in message


@pytest.mark.parametrize("data_path", [None, "/does/not/exist", __file__])
def test_data_path_must_be_a_folder(data_path, cache):
    with pytest.raises(UserError, match=r"imagenet2012.*train_list.txt"):
        ImageNet2012(data_path, "train", cache)


def test_folders_of_another_machine_are_removed_from_all_paths_of_a_list(root, cache):
    save_image(root / "val" / "b.png")
    dataset = listed(root, cache, "/home/me/data/val/gone.png 6\n/home/me/data/val/b.png 7\n")
    assert entries(dataset) == [(f"{root}/val/gone.png", 6), (f"{root}/val/b.png", 7)]
    assert dataset.notices == [f"{root}/val_list.txt: all paths begin with /home/me/data/, which is removed"]
    with pytest.raises(UserError, match="/mnt/val/c.png does not begin with /home/me/data/"):
        listed(root, cache, "/home/me/data/val/b.png 7\n" * 21 + "/mnt/val/c.png 8\n")
