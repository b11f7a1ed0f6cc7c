"""Files of annotations in COCO's format: sizes of images without which there are no masks."""

import json

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.evaluation.scored_files import read_annotations, read_results


def write(folder, height, width):
    """One image of a size with two objects, only the second of which has a mask."""
    objects = [{"id": n, "image_id": 5, "category_id": 3, "bbox": [0, 0, 1, 1], "iscrowd": 0} for n in (1, 2)]
    objects[1]["segmentation"] = [[0, 0, width, 0, width, height, 0, height]]
    image = {"id": 5, "file_name": "a.png", "height": height, "width": width}
    content = {"images": [image], "annotations": objects, "categories": [{"id": 3, "name": "cat"}]}
    (folder / "a.json").write_text(json.dumps(content))
    return folder / "a.json"


@pytest.mark.parametrize("size", [(1, 9), (9, 1)])
def test_images_of_one_row_or_column_have_masks_and_the_box_replaces_a_missing_one(tmp_path, size):
    found = read_annotations(write(tmp_path, *size), "segm")
    assert found.get_size(0) == size and found.truth.areas.tolist() == [1, 9] and len(found.get_masks(0)) == 2
    assert any("1 object without a mask: its box is used, such as 1" in notice for notice in found.notices)


@pytest.mark.parametrize("size", [(0, 9), (9, 0)])
def test_masks_of_images_without_a_height_or_a_width_are_refused(tmp_path, size):
    file = write(tmp_path, *size)
    with pytest.raises(UserError, match="a.json: image 5 needs 'height' and 'width' for its masks"):
        read_annotations(file, "segm")
    of_boxes = read_annotations(file)
    np.testing.assert_array_equal(of_boxes.truth.boxes, [[0, 0, 1, 1]] * 2)
    with pytest.raises(UserError, match="a.json: image 5 needs 'height' and 'width' for its masks"):
        of_boxes.get_size(0)


@pytest.mark.parametrize("box", [[10, 10, 0, 20], [10, 10, 20, 0]])
def test_a_box_without_an_area_does_not_hide_that_the_others_are_fractions(tmp_path, box):
    file = write(tmp_path, 50, 60)
    content = json.loads(file.read_text())
    content["annotations"][0]["bbox"], content["annotations"][1]["bbox"] = box, [0.1, 0.1, 0.5, 0.5]
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="all of the 1 are fractions of the images from 0 to 1"):
        read_annotations(file)


@pytest.mark.parametrize("size", [(0, 9), (9, 0), (0, 0), (6, 9)])
def test_masks_of_results_have_boxes_even_if_the_size_of_their_image_is_not_known(tmp_path, size):
    annotations = read_annotations(write(tmp_path, *size))
    runs = {"size": [6, 9], "counts": [13, 2, 4, 3, 32]}  # column by column: 2 pixels in the third, 3 in the fourth
    result = {"image_id": 5, "category_id": 3, "score": 0.5, "segmentation": runs}
    (tmp_path / "found.json").write_text(json.dumps([result]))
    found = read_results(str(tmp_path / "found.json"), annotations)
    assert found.boxes.tolist() == [[2, 1, 2, 3]] and found.areas.tolist() == [5] and found.masks is None
    assert (found.labels.tolist(), found.scores.tolist(), found.first.tolist()) == ([0], [0.5], [0, 1])
