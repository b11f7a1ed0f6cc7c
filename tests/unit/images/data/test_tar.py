"""Images in tar files with several layouts, read in place."""

import gzip
import io
import os
import pickle
import tarfile

import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.reading import UnreadableImage
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.images.data.tar_files import LocalTars, find_shards


def image(shade):
    """A gray PNG: what is read back is exact."""
    out = io.BytesIO()
    Image.new("RGB", (5, 4), (shade, shade, shade)).save(out, "PNG")
    return out.getvalue()


def tar_bytes(files, form=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def write_tar(path, files, form=tarfile.GNU_FORMAT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(files, form))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def contents(dataset):
    """(member, shade, label) of each sample."""
    found = []
    for index in range(len(dataset)):
        image, label = dataset.read(index)
        assert image.mode == "RGB" and image.size == (5, 4) and label == dataset.labels[index]
        found.append((os.path.relpath(dataset.describe(index), dataset.root), image.getpixel((0, 0))[0], label))
    return found


def write_webdataset(folder, split="train", shards=2, label_of=lambda number: number // 2 % 3):
    for shard in range(shards):
        files = {}
        for number in range(shard * 3, shard * 3 + 3):
            files[f"{number:04d}.png"] = image(number)
            files[f"{number:04d}.cls"] = f"{label_of(number)}\n".encode()
        write_tar(folder / f"{split}-{shard:02d}.tar", files)


def test_webdataset_shards_with_cls_labels(folder, cache):
    write_webdataset(folder)
    dataset = TarImages(str(folder), "train", cache)
    assert contents(dataset) == [(f"train-0{n // 3}.tar/{n:04d}.png", n, n // 2) for n in range(6)]
    assert dataset.num_classes == 3 and dataset.class_names is None
    told = "has no tar files of the val images, such as val-00000.tar; .*train; set DATA.VAL_FRACTION to"
    assert TarImages.has_validation(None) and not TarImages.has_validation(str(folder))
    with pytest.raises(UserError, match=told):
        TarImages(str(folder), "val", cache)
    write_webdataset(folder, "val", 1, lambda number: 0)
    assert TarImages(str(folder), "val", cache).num_classes == 3
    write_webdataset(folder, shards=3)  # the index follows a change
    assert len(TarImages(str(folder), "train", cache)) == 9


def test_webdataset_shards_with_json_labels_and_other_members(folder, cache):
    files = {
        "a.b/x.json": b'{"label": 2, "source": "y"}',
        "a.b/x.png": image(7),
        "a.b/x.mask.png": b"?",
        "a.b/x.txt": b"?",
    }
    write_tar(folder / "imagenet1k-train-0.tar", {**files, "z.jpg": image(9), "z.json": b'{"cls": 0}'})
    assert [(shade, label) for _, shade, label in contents(TarImages(str(folder), "train", cache))] == [(7, 2), (9, 0)]


def test_other_files_of_a_sample_are_not_its_label(folder, cache):
    files = {"1.png": image(1), "1.cls": b"2", "1.boxes.json": b'{"label": 5}', "1.mask.cls": b"no number"}
    write_tar(folder / "train-0.tar", files)
    assert contents(TarImages(str(folder), "train", cache)) == [("train-0.tar/1.png", 1, 2)]


def test_a_tar_file_that_has_gone_is_an_unreadable_image(folder, cache):
    write_webdataset(folder)
    dataset = pickle.loads(pickle.dumps(TarImages(str(folder), "train", cache)))
    os.unlink(folder / "train-01.tar")
    assert dataset.read(0)[1] == 0
    for read in (lambda: dataset.read(4), lambda: dataset.part(4, 0, 3)):
        with pytest.raises(UnreadableImage, match=r"train-01\.tar/0004\.png.*No such file"):
            read()


def test_classes_that_are_numbered_in_training_and_named_in_validation_are_refused(folder, cache):
    write_webdataset(folder)
    write_tar(folder / "val.tar", {"bee/1.png": image(1)})
    with pytest.raises(UserError, match=r"number their classes in label files, .* name them \('bee'\); pack both"):
        TarImages(str(folder), "val", cache)


def test_an_image_that_is_not_in_the_list_of_labels_is_named(folder, cache):
    write_tar(folder / "ILSVRC2012_img_val.tar", {f"ILSVRC2012_val_{n}.JPEG": image(n) for n in range(2)})
    (folder / "val_list.txt").write_text("val/ILSVRC2012_val_1.JPEG 2\n")
    with pytest.raises(UserError, match="contains ILSVRC2012_val_0.JPEG, which is not in the list of labels"):
        TarImages(str(folder), "val", cache)


def test_the_imagenet_archive_of_class_archives(folder, cache):
    boxes = {"boxes.json": b"[[1, 2, 3, 4]]", "other.json": b'{"label": "tench"}'}  # belong to no label file's sample
    inner = {
        wnid: tar_bytes({**{f"{wnid}_{number}.JPEG": image(shade + number) for number in range(2)}, **boxes})
        for wnid, shade in (("n02", 20), ("n01", 10))
    }
    write_tar(folder / "ILSVRC2012_img_train.tar", {f"{wnid}.tar": content for wnid, content in inner.items()})
    dataset = TarImages(str(folder), "train", cache)
    archive = "ILSVRC2012_img_train.tar"
    assert contents(dataset) == [
        (f"{archive}/n02.tar/n02_0.JPEG", 20, 1),
        (f"{archive}/n02.tar/n02_1.JPEG", 21, 1),
        (f"{archive}/n01.tar/n01_0.JPEG", 10, 0),
        (f"{archive}/n01.tar/n01_1.JPEG", 11, 0),
    ]
    assert dataset.class_names == ["n01", "n02"] and dataset.num_classes == 2


def test_a_validation_archive_without_classes_takes_them_from_the_list(folder, cache):
    write_tar(folder / "ILSVRC2012_img_train.tar", {f"n0{n}.tar": tar_bytes({"x.JPEG": image(n)}) for n in range(3)})
    write_tar(folder / "ILSVRC2012_img_val.tar", {f"ILSVRC2012_val_{n}.JPEG": image(n) for n in range(2)})
    with pytest.raises(UserError, match=r"img_val.tar has no class for ILSVRC2012_val_0.JPEG: expected a label file"):
        TarImages(str(folder), "val", cache)
    (folder / "val_list.txt").write_text("val/ILSVRC2012_val_1.JPEG 2\nval/ILSVRC2012_val_0.JPEG 0\n")
    dataset = TarImages(str(folder), "val", cache)
    assert dataset.labels.tolist() == [0, 2] and dataset.class_names == ["n00", "n01", "n02"]


@pytest.mark.parametrize("inside", ["", "./", "deep/er/"])
def test_class_folders_inside_the_archives(inside, folder, cache):
    write_tar(folder / "train.tar", {f"{inside}{name}/1.png": image(ord(name)) for name in "ba"})
    write_tar(folder / "val.tar", {f"{inside}b/1.png": image(1)})
    assert [label for *_, label in contents(TarImages(str(folder), "train", cache))] == [1, 0]
    dataset = TarImages(str(folder), "val", cache)
    assert dataset.labels.tolist() == [1] and dataset.class_names == ["a", "b"]


def test_a_folder_of_class_archives(folder, cache):
    for name in ("bee", "ant"):
        write_tar(folder / "train" / f"{name}.tar", {"1.png": image(len(name)), "2.txt": b"no image"})
        write_tar(folder / "val" / f"{name}.tar", {"1.png": image(0)})
    dataset = TarImages(str(folder), "train", cache)
    assert [(name, label) for name, _, label in contents(dataset)] == [
        ("train/ant.tar/1.png", 0),
        ("train/bee.tar/1.png", 1),
    ]
    write_tar(folder / "val" / "cat.tar", {"1.png": image(0)})
    with pytest.raises(UserError, match="class 'cat' of .* does not exist in the training files"):
        TarImages(str(folder), "val", cache)


@pytest.mark.parametrize(("pack", "command"), [(gzip.compress, "gunzip"), (__import__("lzma").compress, "unxz")])
def test_compressed_archives_are_refused_with_the_mend(pack, command, folder, cache):
    content = tar_bytes({"a/1.png": image(1)})
    (folder / "train.tar").write_bytes(pack(content))
    with pytest.raises(UserError, match=rf"train.tar is compressed.*uncompress it once with {command}"):
        TarImages(str(folder), "train", cache)
    write_tar(folder / "train.tar", {"n01.tar": pack(content)})
    with pytest.raises(UserError, match=rf"train.tar member n01.tar is compressed.*{command}"):
        TarImages(str(folder), "train", cache)
    os.rename(folder / "train.tar", folder / "train.tar.gz")
    with pytest.raises(UserError, match=r"train.tar.gz is compressed, but"):
        TarImages(str(folder), "train", cache)


def test_a_folder_that_cannot_be_listed_is_named(folder, cache):
    (folder / "train").symlink_to("train")
    with pytest.raises(
        UserError, match=rf"^folder {folder}/train cannot be listed: Too many levels of symbolic links$"
    ):
        TarImages(str(folder), "train", cache)


def test_truncated_and_damaged_archives_are_named(folder, cache):
    path = folder / "train.tar"

    def refused(content, message):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"train.tar{message}") as caught:
            TarImages(str(folder), "train", cache)
        assert "\n" not in str(caught.value) and list(cache.iterdir()) == []

    whole = tar_bytes({"a/1.png": bytes(3000), "b/2.png": bytes(3000)})
    refused(whole[:5000], " is truncated at 5000 bytes: member b/2.png ends at byte .*again")
    refused(whole[:3584], " is truncated at 3584 bytes: no end mark at byte 3584")
    refused(whole[:3800], " is truncated at 3800 bytes: no end mark")
    refused(whole[:3600] + b"x" + whole[3601:], " is damaged: no valid header at byte 3584")
    refused(b"words " * 200, " is not a tar file")
    refused(b"", " is not a tar file")
    refused(tar_bytes({"n01.tar": whole[:3584]}), r" member n01.tar is truncated at 3584 bytes")
    backwards = tarfile.TarInfo("a/1.png")
    backwards.size = -512
    refused(backwards.tobuf(tarfile.GNU_FORMAT) + bytes(1024), " is damaged before byte ")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"1.png": b"", "1.cls": b"x"}, r"member 1.cls: expected a whole number from 0 up"),
        ({"1.png": b"", "1.cls": b"-1"}, r"member 1.cls: expected a whole number"),
        (
            {"1.png": b"", "1.json": b'{"label": "cat"}'},
            r'member 1.json: expected an object with a whole number "label"',
        ),
        ({"1.png": b"", "1.cls": b"1", "2.png": b""}, r"has no label for 2.png: expected 2.cls or .json"),
        ({"1.png": b"", "1.jpg": b"", "1.cls": b"1"}, r"has two images for 1;"),
        ({"1.png": b"", "1.cls": b"1", "1.json": b'{"label": 2}'}, r"gives 1 two labels, 1 and 2"),
        ({"1.png": b"", "1.json": b'{"width": 3}'}, r"has no class for 1.png"),  # metadata
        ({"1.png": b"", "1.cls": b"1", "1.json": b'{"width": 3}', "2.png": b""}, r"has no label for 2.png"),
        ({"1.txt": b""}, r"contains no images"),
    ],
)
def test_labels_that_are_missing_or_wrong_are_named(files, reason, folder, cache):
    write_tar(folder / "train-0.tar", files)
    with pytest.raises(UserError, match=reason):
        TarImages(str(folder), "train", cache)


def test_classes_txt_names_numbered_classes_and_bounds_them(folder, cache):
    write_webdataset(folder)
    (folder / "classes.txt").write_text("cat\ndog\nelk\nfox\n")
    dataset = TarImages(str(folder), "train", cache)
    assert dataset.class_names == ["cat", "dog", "elk", "fox"] and dataset.num_classes == 4
    (folder / "classes.txt").write_text("cat\ndog\n")
    with pytest.raises(UserError, match="has label 2, but only 2 classes are named"):
        TarImages(str(folder), "train", cache)


def test_a_bad_image_and_a_shortened_archive_are_named(folder, cache):
    write_tar(folder / "train.tar", {"a/1.png": image(1)[:40], "a/2.png": b"", "a/3.png": image(1)})
    dataset = TarImages(str(folder), "train", cache)
    with pytest.raises(UnreadableImage, match=rf"{folder}/train.tar/a/1.png cannot be read as an image: "):
        dataset.read(0)
    with pytest.raises(UnreadableImage, match=r"train.tar/a/2.png cannot be read as an image: the file is empty"):
        dataset.read(1)
    for size in (2048 + len(image(1)) - 1, 2000):  # the last byte is lost, or all
        os.truncate(folder / "train.tar", size)
        with pytest.raises(UserError, match=rf"{folder}/train.tar has become shorter since it was indexed"):
            dataset.read(2)


def test_a_member_is_read_from_a_byte_on_to_its_end_or_as_far_as_asked(folder):
    write_tar(folder / "train.tar", {"a/1.png": image(1), "a/2.png": image(2)})
    tars = LocalTars(str(folder))
    member = list(tars.members("train.tar"))[1]
    for wanted, expected in (((), image(2)), ((3,), image(2)[3:]), ((3, 7), image(2)[3:10])):
        assert tars.read("train.tar", member.offset, member.size, *wanted).tobytes() == expected


def test_pickle_is_small_with_many_archives_and_reads_elsewhere(folder, cache):
    write_webdataset(folder, shards=100)
    dataset = TarImages(str(folder), "train", cache)
    expected = contents(dataset)
    assert len(pickle.dumps(dataset)) <= 1000
    assert contents(pickle.loads(pickle.dumps(dataset))) == expected
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    archives = [path for path in opened if path.startswith(os.path.realpath(folder)) and path.endswith(".tar")]
    assert len(archives) == 64  # of 100: more might exceed what a process may open


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.tar", "train"),
        ("train-00000.tar", "train"),
        ("train_0.tar", "train"),
        ("train0001.tar", "train"),
        ("my.train.v2.tar", "train"),
        ("imagenet1k-validation-07.tar", "val"),
        ("ILSVRC2012_img_val.tar", "val"),
        ("valid-0.tar", "val"),
        ("training-3.tar", "train"),
        ("constrain.tar", None),
        ("trainer.tar", None),
        ("values.tar", None),
        ("test-0.tar", None),
        (".train.tar", None),
        ("train.txt", None),
    ],
)
def test_which_split_a_file_belongs_to(name, split, folder):
    (folder / name).write_bytes(b"")
    assert {s: find_shards(str(folder), s) for s in ("train", "val")} == {
        s: [name] if s == split else [] for s in ("train", "val")
    }
