"""What is said of a split of images with boxes before training."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.data.split_checks import check_files, note_crowded

OBJECTS = np.array([[3, 2], [1200, 7], [5, 5], [1001, 900]])  # of an image, and of its most frequent category


def test_images_with_more_objects_than_are_detected_are_counted():
    dataset = SimpleNamespace(object_counts=lambda: OBJECTS)
    lines = note_crowded(dataset, "train", ("300 queries", 1000), None)
    assert lines == [
        "2 of 4 train images with more objects than the 1,000 that the model detects in an image (300 queries), up to "
        "1,200: 201 objects exceed this limit"
    ]
    (line,) = note_crowded(dataset, "val", None, 5)
    assert line == (
        "2 of 4 val images with more objects of a category than the 5 counted detections (-max_detections), up to 900: "
        "897 objects exceed this limit"
    )
    assert len(note_crowded(dataset, "val", ("q", 1), 1)) == 2
    assert note_crowded(dataset, "val", ("q", 1200), 900) == note_crowded(dataset, "val", None, None) == []


class Images(list):
    def __init__(self, size, missing=(), unannotated=()):
        super().__init__(range(size))
        self.missing, self.list_unannotated = lambda: list(missing), lambda: list(unannotated)

    def describe(self, index):
        return f"{index}.png"


def test_missing_files_are_refused_or_replaced():
    assert check_files(Images(4), "train", False) == []
    skipped = ["2 images without annotations in the folder of val skipped, such as x.png"]
    assert check_files(Images(4, unannotated=["x.png", "y.png"]), "val", True) == skipped
    scope = "2 of 4 images of train are missing, such as 3.png, 1.png"
    lines = check_files(Images(4, [3, 1], ["x.png"]), "train", True)
    assert lines[0].startswith("1 image without annotations in the folder of train")
    assert lines[1:] == [f"{scope}: the next images replace them (DATA.ON_INVALID_SAMPLE skip)"]
    for images, split, is_replaced, end in (
        (Images(4, [3, 1]), "train", False, ", or set DATA.ON_INVALID_SAMPLE skip"),
        (Images(2, [1, 0]), "train", True, ", or set DATA.ON_INVALID_SAMPLE skip"),
        (Images(4, [3, 1]), "val", False, ""),
    ):
        with pytest.raises(
            UserError, match=f"missing, such as .*: restore them, remove them from the annotations{end}$"
        ):
            check_files(images, split, is_replaced)
