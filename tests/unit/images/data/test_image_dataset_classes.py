"""Images of a user whose class does not say which classes there are are refused in one line when they are opened."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.images import DetectionDataset, KeypointDataset, PanopticDataset, SegmentationDataset

KINDS = [DetectionDataset, KeypointDataset, PanopticDataset, SegmentationDataset]


def make_own(base, **attributes):
    methods = {"__len__": lambda self: 3, "read": lambda self, index: None, "is_thing": [True, False]}
    return OpenedDataset(type("Own", (base,), {**methods, **attributes})(None, "train", None))


@pytest.mark.parametrize("base", KINDS)
def test_data_without_classes_are_refused_with_the_attribute_that_is_meant(base):
    said = "^dataset own does not say which classes it has: give its class an attribute class_names, or num_classes if "
    with pytest.raises(UserError, match=said + r"the classes have no names \(it has class_name, which is not read\)$"):
        make_own(base, class_name=["a", "b"]).make_facts("dataset own")
    with pytest.raises(UserError, match=said + "the classes have no names$"):
        make_own(base, palette=None).make_facts("dataset own")
    for attributes in ({"class_names": []}, {"class_names": np.array([])}, {"class_names": (), "num_classes": 0}):
        with pytest.raises(UserError, match=said + "the classes have no names$"):
            make_own(base, **attributes).make_facts("dataset own")
    for attributes in ({"class_names": ["a", "b"], "class_name": "x"}, {"num_classes": 2}):
        made = make_own(base, **attributes)
        made.make_facts("dataset own")
        assert made.num_classes == 2


@pytest.mark.parametrize("base", [DetectionDataset, KeypointDataset])
@pytest.mark.parametrize("number", [2, np.int64(2), 2.0, None])
def test_objects_without_names_of_classes_are_named_by_the_numbers_of_these(base, number):
    ids = {} if number is not None else {"category_ids": [3, 8]}  # which say how many classes there are
    made = make_own(base, num_classes=number, **ids)
    made.make_facts("dataset own")
    assert made.class_names == ["0", "1"] and made.num_classes == 2 and type(made.num_classes) is int
    assert made.category_ids == ((1, 2) if number is not None else (3, 8))
    empty = {"boxes": [[1, 2, 3, 4]], "labels": [1], "box_format": "xywh", "points": np.zeros((1, 0, 3))}
    made = make_own(base, num_classes=2, read=lambda self, index: (Image.new("RGB", (8, 8)), empty))
    made.make_facts("dataset own")
    assert made.summary() == "3 images, 3 boxes: 1 3, 0 0"
