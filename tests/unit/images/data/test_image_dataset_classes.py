"""Images of a user whose class does not say which classes there are are refused in one line when they are opened."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images import DetectionDataset, KeypointDataset, PanopticDataset, SegmentationDataset

KINDS = [DetectionDataset, KeypointDataset, PanopticDataset, SegmentationDataset]


def make_own(base, **attributes):
    methods = {"__len__": lambda self: 3, "read": lambda self, index: None, "is_thing": [True, False]}
    return type("Own", (base,), {**methods, **attributes})(None, "train", None)


@pytest.mark.parametrize("base", KINDS)
def test_data_without_classes_are_refused_with_the_attribute_that_is_meant(base):
    said = "^dataset own does not say which classes it has: give its class an attribute class_names, or num_classes if "
    with pytest.raises(UserError, match=said + r"the classes have no names \(it has class_name, which is not read\)$"):
        make_own(base, class_name=["a", "b"]).make_facts("dataset own")
    with pytest.raises(UserError, match=said + "the classes have no names$"):
        make_own(base, palette=None).make_facts("dataset own")
    for attributes in ({"class_names": ["a", "b"], "class_name": "x"}, {"num_classes": 2}):
        made = make_own(base, **attributes)
        made.make_facts("dataset own")
        assert made.num_classes == 2
