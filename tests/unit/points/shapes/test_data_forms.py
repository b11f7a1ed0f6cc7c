"""Forms in which people have shapes are read as the plain one is, or refused by a line that names the field."""

import numpy as np
import pytest

from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.points import SampledShape, ShapeDataset, make_shape

XYZ = np.array([[0, 0, 0], [1, 2, 3]], np.float64)
NORMALS = np.array([[0, 0, 1], [0, 1, 0]], np.float64)
PLAIN = {"xyz": XYZ, "normals": NORMALS, "label": 1}


class Objects(ShapeDataset):
    class_names = ["ball", "cube"]

    def __init__(self, sample):
        self.sample = sample

    def __len__(self):
        return 1

    def read(self, index):
        return self.sample


@pytest.mark.parametrize(
    "changes",
    [
        {"xyz": XYZ.tolist(), "normals": NORMALS.tolist()},
        {"xyz": XYZ.astype(int)},
        {"xyz": XYZ.astype(">f8")},
        {"label": "cube"},
        {"label": np.int64(1)},
        {"label": 1.0},
        {"label": True},
        {"label": np.array([1])},
        {"label": ["cube"]},
    ],
    ids=repr,
)
def test_a_form_is_read_as_the_plain_one(changes):
    for sample in ({**PLAIN, **changes}, SampledShape(**{**PLAIN, **changes})):
        found = OpenedDataset(Objects(sample)).read(0)
        np.testing.assert_array_equal(found.xyz, XYZ, strict=True)
        np.testing.assert_array_equal(found.normals, NORMALS, strict=True)
        assert found.label == 1 and type(found.label) is int


def test_normals_and_label_may_be_unknown_and_single_precision_stays():
    found = make_shape(XYZ.astype(np.float32))
    assert found.xyz.dtype == np.float32 and found.normals is None and found.label == -1
    assert OpenedDataset(Objects({"xyz": XYZ, "label": None})).read(0).label == -1
    assert make_shape(XYZ).xyz is XYZ


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"xyz": []}, "the shape has no points"),
        ({"xyz": None}, "xyz is None"),
        ({"xyz": XYZ * np.nan}, r"xyz\[0, 0\] is nan"),
        ({"xyz": XYZ.T}, r"xyz has the shape \(3, 2\)"),
        ({"normals": NORMALS[:1]}, "xyz 2, normals 1"),
        ({"normals": NORMALS * np.inf}, "normals"),
        ({"label": 2}, "label is 2, which is out of range"),
        ({"label": -2}, "label is -2"),
        ({"label": 0.5}, "label has 0.5"),
        ({"label": np.nan}, "label is nan"),
        ({"label": "cone"}, r"label\[?0?\]? ?has 'cone'"),
        ({"label": [0, 1]}, "expected one class"),
        ({"points": XYZ}, "a field 'points', which is none of xyz, normals, label"),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_form_is_refused(changes, said):
    with pytest.raises(BadSample, match=f"^sample 0: .*{said}") as refused:
        OpenedDataset(Objects({**PLAIN, **changes})).read(0)
    assert "\n" not in str(refused.value)
    with pytest.raises(BadSample, match="Objects.read returns"):
        OpenedDataset(Objects((XYZ, 1))).read(0)
