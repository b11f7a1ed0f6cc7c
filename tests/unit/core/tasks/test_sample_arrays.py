"""What no field of a sample can be is refused in one line by each function that makes one, whatever it raises."""

import io
import itertools
import types
from collections import deque

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.class_labels import make_class, make_classes, require_label
from paddlevit_dist.core.tasks.class_names import make_class_names
from paddlevit_dist.core.tasks.sample_arrays import as_array, to_array
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.data.image_labels import make_label_map, make_label_matrix, make_labels
from paddlevit_dist.images.detection.data.image_annotations import FORMATS, ImageAnnotations, make_annotations
from paddlevit_dist.points.data.scene_fields import make_scene
from paddlevit_dist.points.shapes.data import make_shape
from paddlevit_dist.volumes.segmentation.dataset import make_label_map as make_volume_labels
from paddlevit_dist.volumes.volume_fields import make_landmarks, make_volume

NAMES = ["ant", "bee"]


class Foreign:
    """A tensor of another library, on the host."""

    def __init__(self, values):
        self.values = np.asarray(values)

    dtype = property(lambda self: f"torch.{self.values.dtype}")
    shape = property(lambda self: self.values.shape)

    def numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def __len__(self):
        return len(self.values)


class Learned(Foreign):
    """One that has a gradient, or is on another device."""

    def numpy(self):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nUse tensor.detach().numpy() instead.")


class Unfriendly:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise RuntimeError("no")

    __array__ = __len__ = __iter__ = __str__ = __eq__ = __repr__
    __hash__ = None


ODD = {
    "a tensor with a gradient": Learned([[1.0, 2, 3, 4]] * 2),
    "unfriendly": Unfriendly(),
    "a list of them": [Unfriendly(), Unfriendly()],
    "a generator": (number for number in range(2)),
    "a map": map(float, [1, 2]),
    "without an end": itertools.repeat(1),
    "a module": types,
    "a stream": io.BytesIO(b"1"),
    "gaps": np.ma.array([1.0, 2.0], mask=[False, True]),
    "dates": np.zeros(2, "M8[s]"),
    "a table": np.zeros(2, [("x", "f4"), ("y", "i4")]),
    "complex numbers": np.ones((2, 4), complex),
    "a set": {1.5},
    "a function": len,
    "ragged": [[1, 2], [3]],
    "a number beyond 64 bits": [1 << 70, 1],
    "None in None": [[None] * 4] * 2,
}
GEOMETRY = {"axes": "zyx", "spacing": (1, 1, 1)}
BOXES = {"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": [0, 1], "box_format": "xywh"}
SCENE = {"xyz": [[1, 2, 3], [4, 5, 6]], "name": "room"}
MAKERS = {
    **{
        f"objects, {field}": lambda value, field=field: make_annotations({**BOXES, field: value})
        for field in (*ImageAnnotations._fields, "box_format")
    },
    "a mask": lambda value: make_annotations({**BOXES, "masks": [value, np.ones((9, 9))]}),
    "objects": make_annotations,
    **{
        f"scene, {field}": lambda value, field=field: make_scene(**{**SCENE, field: value}, class_names=NAMES)
        for field in ("xyz", "rgb", "semantic", "instance", "name", "offset", "channels", "skipped_rows", "floor")
    },
    "channel": lambda value: make_scene(**SCENE, channels={"time": value}),
    "shape": make_shape,
    "shape, label": lambda value: make_shape(SCENE["xyz"], label=value, class_names=NAMES),
    "volume": lambda value: make_volume(value, **GEOMETRY),
    "spacing": lambda value: make_volume(np.ones((2, 3, 4)), axes="zyx", spacing=value),
    "affine": lambda value: make_volume(np.ones((2, 3, 4)), axes="zyx", affine=value),
    "window": lambda value: make_volume(np.ones((2, 3, 4)), **GEOMETRY, window=value),
    "volume's labels": lambda value: make_volume_labels(value, **GEOMETRY),
    "names": lambda value: make_class_names(value, "names"),
    "volume's names": lambda value: make_volume_labels(np.ones((2, 3, 4), int), **GEOMETRY, class_names=value),
    "landmarks": lambda value: make_landmarks(value, NAMES),
    "a landmark": lambda value: make_landmarks({"ant": value}, NAMES),
    "several labels": lambda value: make_labels(value, 2, NAMES),
    "matrix": lambda value: make_label_matrix(value, 2, NAMES, str),
    "label map": lambda value: make_label_map(value, 2),
    "class": lambda value: make_class(value, 2, NAMES),
    "class of any number": lambda value: make_class(value, None),
    "classes": lambda value: make_classes(value, None, NAMES, str),
    "label": lambda value: require_label(value, 2),
}
#: what is read all the same: (maker, value)
READ = {
    ("scene, name", "a number beyond 64 bits"),
    ("names", "a number beyond 64 bits"),
    ("volume's names", "a number beyond 64 bits"),
    ("objects, masks", "ragged"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_odd_objects_are_refused_in_one_line(name):
    for kind, value in ODD.items():
        if (name, kind) in READ:
            continue
        with pytest.raises(UserError) as caught:
            MAKERS[name](value)
            pytest.fail(f"{name} takes {kind}")
        told = str(caught.value)
        assert "\n" not in told and 0 < len(told) < 500, (kind, told)


@pytest.mark.parametrize("values", [[[1.0, 2], [3, 4]], [1, 2]])
def test_tensors_of_any_library_and_masked_arrays_without_gaps_are_arrays(values):
    forms = [Foreign(values), np.ma.array(values), paddle.to_tensor(values), np.array(values)[::-1][::-1]]
    rows = [Foreign(part) for part in values] if np.ndim(values) == 2 else deque(values)
    forms += [np.asfortranarray(values), rows]
    for form in forms:
        np.testing.assert_array_equal(to_array(form, "it"), values)
        np.testing.assert_array_equal(as_array(form), values)


def test_half_precision_is_its_numbers_and_not_its_bits():
    halves = paddle.to_tensor([[0.5, 1.0, 2.0]]).astype("bfloat16")
    assert to_array(halves, "it").tolist() == as_array(halves).tolist() == [[0.5, 1.0, 2.0]]
    assert make_scene(halves, name="room").xyz.tolist() == [[0.5, 1.0, 2.0]]


def test_the_conversion_that_fails_is_told():
    with pytest.raises(BadSample, match=r"^it cannot become an array: Can't call numpy\(\) on Tensor that requires"):
        to_array(Learned([1]), "it")


def test_boxes_whose_area_is_infinite_and_polygons_as_tensors():
    with pytest.raises(UserError, match=r"^areas\[0\] is inf"):
        make_annotations({**BOXES, "boxes": [[0, 0, 1e200, 1e200], [1, 1, 1, 1]], "box_format": FORMATS[0]})
    polygon = [1.0, 1, 5, 1, 5, 5]
    made = make_annotations({**BOXES, "masks": [[Foreign(polygon)], [polygon]]})
    assert made.masks == [[polygon], [polygon]] and made.areas.tolist() == [8, 8]
