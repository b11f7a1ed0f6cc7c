"""Lists of classes are read in British spelling, too."""

import json

import pytest

from paddlevit_dist.images.data.class_lists import read_class_list


@pytest.mark.parametrize("word", ["unlabeled", "unlabelled", "Unlabelled", "void", "ignore"])
def test_pixels_without_a_class_are_no_class(tmp_path, word):
    (tmp_path / "classes.txt").write_text(f"sky\nroad\n{word}\n", encoding="utf-8")
    listed = read_class_list(str(tmp_path / "classes.txt"))
    assert listed.names == ["sky", "road"] and listed.ignored == (2,)


@pytest.mark.parametrize("word", ["color", "colour", "rgb"])
def test_colors_of_classes_are_read(tmp_path, word):
    entries = [{"name": "sky", word: [1, 2, 3]}, {"name": "road", word: [4, 5, 6]}]
    (tmp_path / "classes.json").write_text(json.dumps(entries), encoding="utf-8")
    listed = read_class_list(str(tmp_path / "classes.json"))
    assert listed.colors.tolist() == [1 + (2 << 8) + (3 << 16), 4 + (5 << 8) + (6 << 16)]
