"""Lists of images next to annotation files, their changes, and warnings about them."""

import os
import unicodedata

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.runtime.files import readable
from paddlevit_dist.core.runtime.printing import count
from paddlevit_dist.images.data.annotated_files import (
    list_image_names,
    list_images_below,
    map_images_by_stem,
    stamp,
)
from paddlevit_dist.images.data.data_warnings import DataWarnings


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return str(folder)


def test_images_are_listed_by_their_names_without_suffix(tmp_path):
    decomposed = unicodedata.normalize("NFD", "ä")
    folder = write(tmp_path, "b.png", "a.v2.JPG", f"{decomposed}.jpg", "notes.txt", "b.txt", "inner/c.png")
    assert list_image_names(folder) == sorted(["a.v2.JPG", "b.png", f"{decomposed}.jpg"])
    assert map_images_by_stem(folder) == {"a.v2": "a.v2.JPG", "b": "b.png", "ä": f"{decomposed}.jpg"}
    write(tmp_path, "b.jpg")
    with pytest.raises(UserError, match=r"has b\.jpg and b\.png: an annotation file would be for both; rename one"):
        map_images_by_stem(folder)
    with pytest.raises(UserError):
        list_image_names(str(tmp_path / "absent"))


def test_images_below_are_relative_and_links_are_not_followed(tmp_path):
    folder = write(tmp_path / "top", "b.png", "x/a.png", "x/y/c.jpg", "z/d.txt", "z/e.png")
    os.symlink(tmp_path / "top" / "x", tmp_path / "top" / "link")
    assert sorted(list_images_below(folder)) == ["b.png", "x/a.png", "x/y/c.jpg", "z/e.png"]


def test_errors_of_files_are_one_line():
    with pytest.raises(UserError, match="^f cannot be read: No space left"), readable("f"):
        raise OSError(28, "No space left")
    with pytest.raises(UserError, match="^f cannot be read: bad number$"), readable("f"):
        raise ValueError("bad number")


def test_a_stamp_is_of_a_place_also_if_a_relative_path_is_equal(tmp_path, monkeypatch):
    stamps = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text(folder)
        os.utime(tmp_path / folder / "x", (5, 5))
        monkeypatch.chdir(tmp_path / folder)
        stamps += [stamp("boxes", ["x"]), stamp("boxes", [f"{tmp_path}/{folder}/x"])]
    assert stamps[0] == stamps[1] != stamps[2] == stamps[3]


def test_a_stamp_changes_with_kind_names_sizes_and_times(tmp_path):
    folder = write(tmp_path, "a", "b")
    files = [f"{folder}/a", f"{folder}/b"]
    stamps = [stamp("boxes", files), stamp("masks", files), stamp("boxes", files[::-1]), stamp("boxes", files[:1])]
    stamps.append(stamp("boxes", [*files, f"{folder}/absent"]))
    os.utime(files[1], ns=(5, 7))
    stamps.append(stamp("boxes", files))
    (tmp_path / "b").write_text("xy")
    os.utime(files[1], ns=(5, 7))
    stamps.append(stamp("boxes", files))
    assert len(set(stamps)) == 7 and stamp("boxes", files) == stamps[-1]
    os.remove(files[1])
    assert stamp("boxes", files) not in stamps


def test_warnings_of_one_kind_are_one_line_with_their_number_and_the_first():
    warnings = DataWarnings("my.json")
    warnings.note("box", "outside", 17)
    warnings.note("image", "without boxes", "a.png", 2000)
    warnings.note("box", "outside", 18, 2)
    warnings.note_all("category", "unused", [])
    warnings.note_all("category", "unused", ["dog", "cat"])
    assert warnings.lines() == [
        "my.json has 3 boxes outside, such as 17",
        "my.json has 2,000 images without boxes, such as a.png",
        "my.json has 2 categories unused, such as dog",
    ]
    plain = DataWarnings()
    plain.note("box", "outside", 1)
    assert plain.lines() == ["1 box outside, such as 1"] and count(0, "image") == "0 images"


def test_a_stamp_changes_with_files_that_have_the_sizes_and_set_times_of_others(tmp_path):
    path = write(tmp_path, "a.txt") + "/a.txt"
    os.utime(path, (10**9, 10**9))
    first = stamp("kind", [path])
    assert stamp("kind", [path]) == first != stamp("other", [path])
    os.unlink(path)
    (tmp_path / "a.txt").write_text("y")
    os.utime(path, (10**9, 10**9))
    assert stamp("kind", [path]) != first
