"""Images in tar files with several layouts, read in place."""

import gzip
import io
import os
import pickle
import re
import tarfile

import pytest
from PIL import Image
from support.night import by_day

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
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
        ({"1.png": b"", "1.cls": b"-1"}, r"member 1.cls: expected a whole number"),
        (
            {"1.png": b"", "1.json": b'{"label": "cat"}'},
            r'member 1.json: expected an object with a whole number "label"',
        ),
        ({"1.png": b"", "1.cls": b"1", "2.png": b""}, r"has no label for 2.png: expected 2.cls or .json"),
        ({"1.png": b"", "1.jpg": b"", "1.cls": b"1"}, r"has two images for 1;"),
        ({"1.png": b"", "1.cls": b"1", "1.json": b'{"label": 2}'}, r"gives 1 two labels, 1 and 2"),
        ({"1.png": b"", "1.cls": b"1", "1.json": b'{"width": 3}', "2.png": b""}, r"has no label for 2.png"),
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
        ("train-00000.tar", "train"),
        ("my.train.v2.tar", "train"),
        ("imagenet1k-validation-07.tar", "val"),
        ("training-3.tar", "train"),
        ("constrain.tar", None),
        (".train.tar", None),
    ],
)
def test_which_split_a_file_belongs_to(name, split, folder):
    (folder / name).write_bytes(b"")
    assert {s: find_shards(str(folder), s) for s in ("train", "val")} == {
        s: [name] if s == split else [] for s in ("train", "val")
    }


def link(name, target, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def mixed_tar(*entries, form=tarfile.GNU_FORMAT):
    """A tar file of TarInfo members and (name, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for entry in entries:
            member = entry if isinstance(entry, tarfile.TarInfo) else tarfile.TarInfo(entry[0])
            content = b"" if isinstance(entry, tarfile.TarInfo) else entry[1]
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
@pytest.mark.parametrize("long", ["", 60 * "long/"])
def test_links_are_read_as_the_files_that_they_lead_to(form, kind, long, folder, cache):
    if long and form == tarfile.USTAR_FORMAT:
        long = 8 * "long/"
    up = "../" * (long.count("/") + 1) if kind == tarfile.SYMTYPE else ""
    (folder / "train-0.tar").write_bytes(
        mixed_tar(
            link(f"{long}b/before.png", f"{up}{long}a/1.png", kind),
            (f"./{long}a/1.png", image(1)),
            (f"{long}blob", image(2)),
            (f"{long}.store/3.png", image(3)),
            link(f"{long}b/2.png", f"{up}{long}blob", kind),
            link(f"{long}b/3.png", f"{up}{long}.store/3.png", kind),
            link(f"{long}c/4.png", f"{up}{long}b/2.png", kind),
            form=form,
        )
    )
    dataset = TarImages(str(folder), "train", cache)
    assert sorted((path.removeprefix(f"train-0.tar/{long}"), *rest) for path, *rest in contents(dataset)) == [
        ("a/1.png", 1, 0), ("b/2.png", 2, 1), ("b/3.png", 3, 1), ("b/before.png", 1, 1), ("c/4.png", 2, 2)
    ]  # fmt: skip
    assert "4 images in " in " ".join(dataset.skipped_files.lines())
    again = TarImages(str(folder), "train", cache)  # from the index
    assert again.skipped_files.lines() == dataset.skipped_files.lines()


def test_links_are_read_with_label_files_and_in_tar_files_of_classes(folder, cache):
    files = [("0.png", image(7)), ("0.cls", b"1"), link("1.png", "0.png"), ("1.cls", b"0"), link("2.png", "1.png")]
    (folder / "train.tar").write_bytes(mixed_tar(*files, link("2.cls", "0.cls", tarfile.LNKTYPE)))
    assert [row[1:] for row in contents(TarImages(str(folder), "train", cache))] == [(7, 1), (7, 0), (7, 1)]
    (folder / "train.tar").unlink()
    inner = mixed_tar(("0.png", image(1)), link("1.png", "./0.png"))
    (folder / "train").mkdir()
    (folder / "train" / "ant.tar").write_bytes(inner)
    (folder / "train" / "bee.tar").write_bytes(mixed_tar(("x.tar", inner), link("y.tar", "x.tar")))
    assert [row[1:] for row in contents(TarImages(str(folder), "train", cache))] == [(1, 0)] * 2 + [(1, 1)] * 2 + [
        (1, 2)
    ] * 2


LOST = {
    "link to nothing": ([link("a/2.png", "3.png")], "links that lead to no file in it .*: a/2.png", 1),
    "link out": ([link("a/2.png", "/data/1.png")], "2 links .*: a/2.png, a/3.png", 2),
    "link to itself": ([link("a/2.png", "2.png")], "links .*: a/2.png", 1),
    "folder": ([link("b", "a")], "1 links .*: b", 0),
    "hard link out": ([link("a/2.png", "else/1.png", tarfile.LNKTYPE)], "links .*: a/2.png", 1),
    "pipe": ([link("a/2.png", "", tarfile.FIFOTYPE)], "1 devices, pipes and other special files: a/2.png", 1),
    "device": ([link("null", "", tarfile.CHRTYPE)], "1 devices, pipes and other special files: null", 0),
    "next volume": ([link("a/2.png", "", b"M")], "1 devices, pipes and other special files: a/2.png", 1),
}
LOST["link out"][0].append(link("a/3.png", "../../1.png"))


@by_day(("members", "message", "images"), LOST.values(), day=(0, 3, 6), ids=LOST)
def test_what_cannot_be_used_is_counted_and_told_with_names(members, message, images, folder, cache):
    (folder / "train.tar").write_bytes(mixed_tar(("a/1.png", image(1)), *members))
    for _ in range(2):  # also from the index
        dataset = TarImages(str(folder), "train", cache)
        assert len(dataset) == 1 and dataset.skipped_files.num_images == images
        [line] = dataset.skipped_files.lines()
        assert re.search(rf"skipped below {folder}/train.tar: .*{message}$", line)


def test_many_that_cannot_be_used_are_told_with_the_first_names(folder, cache):
    for shard in range(2):
        links = [link(f"a/{number}.png", "none") for number in range(shard, 30, 2)]
        (folder / f"train-{shard}.tar").write_bytes(mixed_tar(("a/x.png", image(1)), *links))
    [line] = TarImages(str(folder), "train", cache).skipped_files.lines()
    assert "in 2 tar files: 30 links " in line and line.endswith(": a/0.png, a/2.png, a/4.png ...")


def test_folders_volume_labels_and_empty_tar_files_lose_nothing(folder, cache):
    others = [link("a", "", tarfile.DIRTYPE), link("name", "", b"V"), link("a/", "", b"D")]
    (folder / "train-0.tar").write_bytes(mixed_tar(*others, ("a/1.png", image(1))))
    (folder / "train-1.tar").write_bytes(mixed_tar())
    dataset = TarImages(str(folder), "train", cache)
    assert len(dataset) == 1 and dataset.skipped_files.lines() == []


@pytest.mark.parametrize("zeros", [0, 512, 1 << 16, (1 << 17) + 512])
def test_members_behind_an_end_mark_are_read_and_other_bytes_told(zeros, folder, cache):
    first, second = (
        tar_bytes({f"{name}/{n}.png": image(n) for n in numbers}) for name, numbers in (("a", (1, 2)), ("b", (3,)))
    )
    third = mixed_tar(link("b/4.png", "../a/1.png"))
    path = folder / "train.tar"
    path.write_bytes(first + bytes(zeros) + second + third)
    dataset = TarImages(str(folder), "train", cache)
    assert sorted(row[1:] for row in contents(dataset)) == [(1, 0), (1, 1), (2, 0), (3, 1)]
    path.write_bytes(first + bytes(zeros) + b"a signature")
    dataset = TarImages(str(folder), "train", cache)
    [line] = dataset.skipped_files.lines()
    assert len(dataset) == 2 and line.endswith(
        f"1 parts behind the end mark that are not a tar file: byte {len(first) + zeros}"
    )
    path.write_bytes(first + bytes(zeros) + second[:700])
    with pytest.raises(UserError, match="train.tar is (truncated at|damaged before byte)"):
        TarImages(str(folder), "train", cache)
    write_tar(path, {"c.tar": first + bytes(zeros) + second})
    assert len(TarImages(str(folder), "train", cache)) == 3


def test_the_last_file_of_a_name_counts_as_in_unpacking(folder, cache, tmp_path):
    twice = [("a/1.png", image(1)), ("b/2.png", image(2)), ("a/1.png", image(5))]
    (folder / "train.tar").write_bytes(mixed_tar(*twice))
    dataset = TarImages(str(folder), "train", cache)
    with tarfile.open(folder / "train.tar") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(
            tmp_path / "unpacked"
        )
    unpacked = ClassFolders.whole(str(tmp_path / "unpacked"), cache)
    expected = sorted((unpacked.read(n)[0].getpixel((0, 0))[0], unpacked.read(n)[1]) for n in range(len(unpacked)))
    assert sorted(row[1:] for row in contents(dataset)) == expected == [(2, 1), (5, 0)]
    [line] = dataset.skipped_files.lines()
    assert line.endswith("1 files that later ones of the same name replace, as in unpacking: a/1.png")
    assert dataset.skipped_files.num_images == 0
    labeled = [("1.png", image(1)), ("1.cls", b"0"), ("1.cls", b"2"), ("1.png", image(3))]
    (folder / "train.tar").write_bytes(mixed_tar(*labeled))
    assert [row[1:] for row in contents(TarImages(str(folder), "train", cache))] == [(3, 2)]
    (folder / "train.tar").write_bytes(
        mixed_tar(("a/1.png", image(1)), link("a/1.png", "2.png"), ("a/2.png", image(4)), ("a/1.png", image(6)))
    )
    assert sorted(row[1] for row in contents(TarImages(str(folder), "train", cache))) == [4, 6]


def hard(name, target):
    return link(name, target, tarfile.LNKTYPE)


def unpack(members, folder):
    """Create what GNU's tar does, which removes a file before it writes another of its name."""
    for member in members:
        is_link = isinstance(member, tarfile.TarInfo)
        path = folder / (member.name if is_link else member[0])
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if is_link and member.islnk():
            os.link(folder / member.linkname, path, follow_symlinks=False)
        elif is_link:
            path.symlink_to(member.linkname)
        else:
            path.write_bytes(member[1])


AS_UNPACKED = {
    "file replaced behind a hard link": [("a/1.png", image(1)), hard("b/2.png", "a/1.png"), ("a/1.png", image(5))],
    "file replaced by a hard link": [
        ("a/1.png", image(1)), ("b/4.png", image(4)), hard("b/5.png", "b/4.png"), hard("b/4.png", "a/1.png"),
        link("a/6.png", "../b/4.png"),
    ],
    "file replaced by a symbolic link": [
        ("a/1.png", image(1)), ("b/2.png", image(2)), link("a/1.png", "../b/2.png"), link("b/3.png", "../a/1.png"),
    ],
    "hard link to a symbolic link": [
        ("a/1.png", image(1)), ("b/1.png", image(2)), link("a/2.png", "1.png"), hard("b/2.png", "a/2.png"),
    ],
    "decomposed names": [("A\u0308/1.png", image(1)), ("B/2.png", image(2)), ("a/3.png", image(3))],
}  # fmt: skip


@pytest.mark.parametrize("classes", ["", "first\nsecond\nthird\n"])
@by_day("members", AS_UNPACKED.values(), day=(0, 2, 4), ids=AS_UNPACKED)
def test_images_and_labels_are_those_of_the_unpacked_folder(members, classes, folder, cache, tmp_path):
    (folder / "train.tar").write_bytes(mixed_tar(*members))
    (tmp_path / "unpacked").mkdir()
    unpack(members, tmp_path / "unpacked")
    names = classes.splitlines()[: len(list((tmp_path / "unpacked").iterdir()))]
    for place in (folder, tmp_path / "unpacked") if names else ():
        (place / "classes.txt").write_text("\n".join(names))
    unpacked = ClassFolders.whole(str(tmp_path / "unpacked"), cache)
    expected = [
        (unpacked.identity(n), unpacked.read(n)[0].getpixel((0, 0))[0], unpacked.labels[n])
        for n in range(len(unpacked))
    ]
    dataset = TarImages(str(folder), "train", cache)
    assert sorted((name.removeprefix("train.tar/"), *rest) for name, *rest in contents(dataset)) == sorted(expected)
    assert dataset.class_names == unpacked.class_names


def test_an_index_is_of_one_place_also_if_names_sizes_and_times_are_those_of_another(tmp_path, cache):
    for place, labels in (("first", b"01"), ("second", b"10")):
        files = {f"{n}.png": image(n) for n in range(2)} | {f"{n}.cls": labels[n : n + 1] for n in range(2)}
        write_tar(tmp_path / place / "train.tar", files)
        os.utime(tmp_path / place / "train.tar", (10**9, 10**9))
    (tmp_path / "link").symlink_to("first")
    assert TarImages(str(tmp_path / "first"), "train", cache).labels.tolist() == [0, 1]
    assert TarImages(str(tmp_path / "second"), "train", cache).labels.tolist() == [1, 0]
    assert TarImages(str(tmp_path / "link"), "train", cache).labels.tolist() == [0, 1]
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("second")
    assert TarImages(str(tmp_path / "link"), "train", cache).labels.tolist() == [1, 0]
    (tmp_path / "first").rename(tmp_path / "third")
    (tmp_path / "second").rename(tmp_path / "first")
    assert TarImages(str(tmp_path / "first"), "train", cache).labels.tolist() == [1, 0]


def test_an_index_is_of_all_tar_files(folder, cache):
    for number in range(3):
        write_tar(folder / f"train-{number}.tar", {"0.png": image(number), "0.cls": b"0"})
    assert [shade for _, shade, _ in contents(TarImages(str(folder), "train", cache))] == [0, 1, 2]
    for number in range(3):
        write_tar(
            folder / f"train-{number}.tar",
            {f"{k}.{e}": c for k in range(2) for e, c in (("png", image(9 + k)), ("cls", b"1"))},
        )
        os.utime(folder / f"train-{number}.tar", (10**9, 10**9))
        found = contents(TarImages(str(folder), "train", cache))
        assert [shade for _, shade, _ in found] == [*[9, 10] * (number + 1), *range(number + 1, 3)]


def test_a_file_with_holes_is_refused(folder, cache):
    member = tarfile.TarInfo("a/1.png")
    member.type = tarfile.GNUTYPE_SPARSE
    (folder / "train.tar").write_bytes(mixed_tar(member, ("a/2.png", image(1))))
    with pytest.raises(UserError, match=r"train\.tar stores a/1\.png with holes; pack it again without --sparse"):
        TarImages(str(folder), "train", cache)
