"""Links, repeated names and odd members of tar files: images and labels are those of the unpacked folder."""

import io
import os
import re
import tarfile

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.tar import TarImages

from . import test_tar
from .test_tar import contents, image, tar_bytes, write_tar

folder = test_tar.folder  # a fixture


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


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
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


@pytest.mark.parametrize(("members", "message", "images"), LOST.values(), ids=LOST)
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
@pytest.mark.parametrize("members", AS_UNPACKED.values(), ids=AS_UNPACKED)
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


def test_endings_of_tar_files_within_others_may_be_in_capitals(folder, cache):
    write_tar(
        folder / "train.tar", {"cat.tar": tar_bytes({"1.png": image(1)}), "DOG.TAR": tar_bytes({"2.png": image(2)})}
    )
    assert [row[1:] for row in contents(TarImages(str(folder), "train", cache))] == [(1, 1), (2, 0)]


def test_the_ending_of_a_tar_file_may_be_in_capitals(folder, cache):
    write_tar(folder / "train-0.TAR", {"cat/1.png": image(1), "dog/2.png": image(2)})
    images = TarImages(str(folder), "train", cache)
    assert [row[1:] for row in contents(images)] == [(1, 0), (2, 1)] and images.num_bytes(0) == len(image(1))
