"""A file of annotations that has changed is read again."""

import os

from support.files.coco_writer import BOX, annotation, write_coco

from paddlevit_dist.images.detection.data.coco import Coco


def test_a_file_with_other_content_of_the_same_size_and_time_is_indexed_again(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    found = []
    for left in (2.0, 4.0, 2.0):
        write_coco(tmp_path / "data", [annotation(1, 11, [left, *BOX[1:]])])
        for file in (tmp_path / "data" / "annotations").iterdir():
            os.utime(file, (10**9, 10**9))
        found.append([Coco(str(tmp_path / "data"), "train", cache).annotations(at).boxes.tolist() for at in range(2)])
    assert found[0] == found[2] and [boxes for boxes in found[0] if boxes] == [[BOX]]
    assert [boxes for boxes in found[1] if boxes] == [[[4.0, *BOX[1:]]]]
