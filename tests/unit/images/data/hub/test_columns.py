"""Which columns are read."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.manifest import BOX_LABELS, CLASS_LABELS, MASK_LABELS, NO_LABELS, TAG_LABELS
from paddlevit_dist.core.runtime.column_roles import XYWH, XYXY
from paddlevit_dist.images.data.hub.columns import HubChoices, choose_columns, find_contents
from paddlevit_dist.images.data.hub.features import CLASS, IMAGE, LIST, STRUCT, VALUE, Feature

PICTURE, KIND, TEXT, WHOLE = (
    Feature(IMAGE),
    Feature(CLASS, ("a", "b")),
    Feature(VALUE, dtype="string"),
    Feature(VALUE, dtype="int64"),
)
BOXES = Feature(LIST, item=Feature(LIST, item=Feature(VALUE, dtype="float32")))


def choose(features, contents=CLASS_LABELS, image=None, labels=()):
    return choose_columns(features, contents, HubChoices(image, tuple(labels)), "f")


@pytest.mark.parametrize(
    ("features", "contents", "wanted"),
    [
        ({"x": PICTURE, "odd": KIND}, CLASS_LABELS, ("x", ("odd",))),
        ({"mask": PICTURE, "image": PICTURE, "label": KIND}, CLASS_LABELS, ("image", ("label",))),
        ({"x": PICTURE, "label": KIND, "coarse": KIND}, CLASS_LABELS, ("x", ("label",))),
        ({"x": PICTURE, "text": TEXT, "category": TEXT}, CLASS_LABELS, ("x", ("category",))),
        ({"x": PICTURE, "id": WHOLE, "y": WHOLE}, CLASS_LABELS, ("x", ("y",))),
        ({"x": PICTURE, "kind": KIND, "tags": Feature(LIST, item=KIND)}, TAG_LABELS, ("x", ("tags",))),
        ({"x": PICTURE, "text": TEXT}, NO_LABELS, ("x", ())),
        ({"x": PICTURE, "label": PICTURE}, MASK_LABELS, ("x", ("label",))),
        ({"one": PICTURE, "image": PICTURE}, MASK_LABELS, ("image", ("one",))),
    ],
)
def test_types_then_names_decide(features, contents, wanted):
    assert choose(features, contents)[:2] == wanted


@pytest.mark.parametrize(
    ("features", "contents", "message"),
    [
        (
            {"x": PICTURE, "fine": KIND, "coarse": KIND},
            CLASS_LABELS,
            r"fine, coarse; choose one with DATA.TABLE.LABELS",
        ),
        ({"left": PICTURE, "right": PICTURE, "label": KIND}, CLASS_LABELS, r"left, right; choose .* DATA.TABLE.IMAGE"),
        (
            {"x": PICTURE, "score": Feature(VALUE, dtype="float32")},
            CLASS_LABELS,
            r"no column of labels among x .image.",
        ),
        ({"a": PICTURE, "b": PICTURE, "c": PICTURE}, MASK_LABELS, r"a, b, c may be each: set DATA.TABLE.IMAGE"),
        ({"x": PICTURE, "y": KIND}, BOX_LABELS, r"no column of boxes"),
    ],
)
def test_several_or_none_are_refused_with_the_columns(features, contents, message):
    with pytest.raises(UserError, match=message):
        choose(features, contents)


def test_the_users_columns_come_first():
    features = {"left": PICTURE, "right": PICTURE, "fine": KIND, "coarse": KIND}
    assert choose(features, image="right", labels=["coarse"])[:2] == ("right", ("coarse",))
    with pytest.raises(UserError, match="has no column odd .DATA.TABLE.LABELS., only left .image."):
        choose(features, labels=["odd"])


def test_objects_are_lists_in_a_struct_or_structs_in_a_list_or_columns():
    fields = {"bbox": BOXES, "category": Feature(LIST, item=KIND), "iscrowd": Feature(LIST, item=WHOLE)}
    of_structs = Feature(LIST, item=Feature(STRUCT, fields={name: field.item for name, field in fields.items()}))
    for objects in (Feature(STRUCT, fields=fields), of_structs):
        features = {"image": PICTURE, "width": WHOLE, "height": WHOLE, "image_id": WHOLE, "objects": objects}
        found = choose(features, BOX_LABELS).objects
        assert found[:4] == ("objects", "bbox", XYWH, "category") and found.names == ("a", "b")
        assert (found.crowd, found.area, found.height, found.image_id) == ("iscrowd", "", "height", "image_id")
        assert find_contents(features) == BOX_LABELS
    flat = {"image": PICTURE, "label": Feature(LIST, item=TEXT), "xyxy": BOXES}
    found = choose(flat, BOX_LABELS).objects
    assert found[:4] == ("", "xyxy", XYXY, "label") and found.names is None
