"""Forms in which people have volumes, label maps and landmarks are read as the plain one, or refused by their name."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.volumes import (
    DecodedVolume,
    LabelMap,
    SegmentedVolumes,
    VolumeDataset,
    VolumeGeometry,
    make_label_map,
    make_landmarks,
    make_volume,
)
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

SHAPE = (2, 3, 4)
ARRAY = np.arange(24, dtype=np.int16).reshape(SHAPE)
AFFINE = np.diag([0.5, 1.0, 2.0, 1.0])
SPACING = (2.0, 1.0, 0.5)
GEOMETRY = VolumeGeometry(SHAPE, AFFINE)
LABELS = (np.arange(24, dtype=np.uint8) % 3).reshape(SHAPE)
NAMES = ["chin", "nose"]
POINTS = np.array([[0, 1, 2], [1, 2, 3]], np.float64)
CLASSES = ["background", "liver", "tumor"]


def with_nan(array):
    array = array.astype(np.float64)
    array[1, 1] = np.nan
    return array


class Heads(VolumeDataset):
    """One volume with landmarks, in any form."""

    class_names = NAMES
    spacing = list(SPACING)

    def __init__(self, sample):
        self.sample = sample

    def __len__(self):
        return 1

    def case(self, index):
        return "head"

    def read(self, index):
        return self.sample


class Livers(SegmentedVolumes):
    """One volume with a label map, in any form."""

    class_names = CLASSES
    spacing = list(SPACING)
    __init__, __len__, case, read = Heads.__init__, Heads.__len__, Heads.case, Heads.read


VOLUME = make_volume(ARRAY, axes="zyx", spacing=SPACING)
LABEL_MAP = LabelMap.from_array(LABELS, GEOMETRY)
TURNED = np.diag([-0.5, -1.0, 2.0, 1.0])  # voxels of an LPS file, in RAS

VOLUMES = {
    "lists": {"array": ARRAY.tolist(), "spacing": list(SPACING)},
    "float64": {"array": ARRAY.astype(np.float64)},
    "int64": {"array": ARRAY.astype(np.int64)},
    "other byte order": {"array": ARRAY.astype(">i4")},
    "axes of nibabel": {"array": ARRAY.T, "axes": "xyz", "spacing": SPACING[::-1]},
    "axes as a list": {"axes": ["z", "y", "x"]},
    "other axes": {"array": ARRAY.transpose(1, 0, 2), "axes": "yzx", "spacing": (1, 2, 0.5)},
    "an affine": {"spacing": None, "affine": AFFINE},
    "an affine as lists": {"spacing": None, "affine": AFFINE.astype(int).tolist(), "is_scaled": True},
    "an affine of another order": {"array": ARRAY.T, "axes": "xyz", "spacing": None, "affine": AFFINE},
    "a leading axis": {"array": ARRAY[None]},
    "mirrored": {"array": ARRAY[:, ::-1, ::-1], "spacing": None, "affine": TURNED},
}
REFUSED_VOLUMES = {
    "none": ({"array": None}, "array is None"),
    "two axes": ({"array": ARRAY[0]}, r"array has the shape \(3, 4\), expected three axes"),
    "four axes": ({"array": np.stack([ARRAY, ARRAY])}, "expected three axes: a volume for each channel"),
    "no voxels": ({"array": ARRAY[:0]}, "it is empty"),
    "ragged": ({"array": [[[1, 2]], [[1]]]}, "array"),
    "a NaN": ({"array": with_nan(ARRAY)}, r"array\[1, 1, 0\] is nan"),
    "an infinity": ({"array": ARRAY / np.float64(0.0)}, "array.* is (nan|inf)"),
    "beyond 32 bits": (
        {"array": np.full(SHAPE, 1e300)},
        r"^array\[0, 0, 0\] is 1e\+300; 24 of its 24 numbers are too large for float32",
    ),
    "complex": ({"array": ARRAY * 1j}, "array is ndarray complex"),
    "texts": ({"array": ARRAY.astype(str)}, "array is ndarray"),
    "masked": ({"array": np.ma.masked_less(ARRAY, 3)}, "array is a masked array"),
    "unknown axes": ({"axes": "dhw"}, "axes is 'dhw'"),
    "too few axes": ({"axes": "yx"}, "axes is 'yx'"),
    "axes by number": ({"axes": (0, 1, 2)}, "axes is"),
    "no spacing": ({"spacing": None}, "either the spacing or the affine"),
    "both": ({"affine": AFFINE}, "either the spacing or the affine"),
    "two lengths": ({"spacing": (1, 2)}, r"spacing is tuple of 2 \(1, 2\)"),
    "a length of 0": ({"spacing": (1, 0, 2)}, "spacing is"),
    "a negative length": ({"spacing": (1, -1, 2)}, "spacing is"),
    "a NaN length": ({"spacing": (1, np.nan, 2)}, "spacing is"),
    "an affine of 3 x 3": ({"spacing": None, "affine": np.eye(3)}, "affine is not 4 x 4"),
    "a NaN affine": ({"spacing": None, "affine": AFFINE * np.nan}, "affine is not 4 x 4 finite"),
    "a singular affine": ({"spacing": None, "affine": np.diag([1.0, 0, 1, 1])}, "affine is singular"),
    "a reversed window": ({"window": (3, 1)}, "window is"),
}
READ_POINTS = {
    "lists": POINTS.tolist(),
    "float32": POINTS.astype(np.float32),
    "integers": POINTS.astype(np.int64),
    "by name": {"nose": [1, 2, 3], "chin": (0, 1, 2)},
}
MISSING = {
    "a row of NaN": [[0, 1, 2], [np.nan] * 3],
    "no row": [[0, 1, 2], None],
    "a row of None": [[0, 1, 2], [None] * 3],
    "one NaN": np.array([[0, 1, 2], [1, np.nan, 3]]),
    "not named": {"chin": [0, 1, 2]},
    "named as None": {"chin": [0, 1, 2], "nose": None},
}
REFUSED_POINTS = {
    "none": (None, "points is None"),
    "no rows": (np.array([]), r"points has the shape \(0,\)"),
    "too few": (POINTS[:1], r"points has the shape \(1, 3\), expected \(2, 3\)"),
    "two columns": (POINTS[:, :2], r"points has the shape \(2, 2\)"),
    "an infinity": ([[0, 1, 2], [np.inf, 1, 2]], "landmark nose has an infinite coordinate"),
    "texts": ([["a", "b", "c"]] * 2, "points is"),
    "an unknown name": ({"chin": [0, 1, 2], "ear": [0, 1, 2]}, "points has the landmark 'ear'"),
    "millimeters": (GEOMETRY.world(POINTS) + [0, 40, 0], "landmark chin is at voxel .* converts millimeters"),
}
READ_LABELS = {
    "lists": {"array": LABELS.tolist()},
    "int64": {"array": LABELS.astype(np.int64)},
    "whole numbers": {"array": LABELS.astype(np.float32)},
    "names": {"array": np.array(CLASSES)[LABELS]},
    "axes of nibabel": {"array": LABELS.T, "axes": "xyz", "spacing": SPACING[::-1]},
}
REFUSED_LABELS = {
    "class 3 of 3": ({"array": LABELS + 1}, r"labels\[0, 0, 2\] is 3, which is out of range"),
    "a negative class": ({"array": LABELS.astype(int) - 1}, r"labels\[0, 0, 0\] is -1"),
    "half a class": ({"array": LABELS / 2}, "labels has 0.5"),
    "a NaN": ({"array": with_nan(LABELS)}, r"labels\[1, 1, 0\] is nan"),
    "an unknown name": ({"array": np.full(SHAPE, "spleen")}, "labels has 'spleen'"),
    "shares": ({"array": np.ones((3, *SHAPE))}, "labels has the shape"),
}


def require_same_volume(found, expected):
    np.testing.assert_array_equal(found.array, expected.array)
    np.testing.assert_allclose(found.geometry.affine[:3, :3], expected.geometry.affine[:3, :3])
    assert found.geometry.shape == expected.geometry.shape
    np.testing.assert_allclose([*found[2:]], [*expected[2:]], rtol=1e-6)


@pytest.mark.parametrize("form", VOLUMES)
def test_a_form_of_a_volume_is_read_as_the_plain_one(form):
    arguments = {"array": ARRAY, "axes": "zyx", "spacing": SPACING, **VOLUMES[form]}
    if arguments.pop("is_scaled", False):
        arguments["affine"] = [[0.5, 0, 0, 7], [0, 1, 0, 8], [0, 0, 2, 9], [0, 0, 0, 1]]
    found = make_volume(arguments.pop("array"), **arguments)
    require_same_volume(found, VOLUME)
    assert OpenedDataset(Heads((found, POINTS))).read(0)[0].array is found.array


def test_a_volume_has_the_statistics_of_its_voxels():
    assert VOLUME.array.dtype == np.int16 and VOLUME.geometry.spacing.tolist() == list(SPACING)
    assert VOLUME.extremes == (0.0, 23.0) and VOLUME.moments == pytest.approx((11.5, np.arange(24).std()))
    assert VOLUME.window == pytest.approx(np.percentile(np.arange(24), (0.5, 99.5)))
    assert make_volume(ARRAY.astype(float), axes="zyx", spacing=SPACING, window=[0, 9]).window == (0.0, 9.0)


@pytest.mark.parametrize("form", REFUSED_VOLUMES)
@pytest.mark.filterwarnings("ignore:divide by zero|invalid value")
def test_a_form_of_a_volume_is_refused(form):
    changes, said = REFUSED_VOLUMES[form]
    arguments = {"array": ARRAY, "axes": "zyx", "spacing": SPACING, **changes}
    with pytest.raises(BadSample, match=said) as refused:
        make_volume(arguments.pop("array"), **arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("form", READ_POINTS)
def test_positions_are_read_as_plain_ones(form):
    np.testing.assert_array_equal(OpenedDataset(Heads((VOLUME, READ_POINTS[form]))).read(0)[1], POINTS, strict=True)


@pytest.mark.parametrize("form", MISSING)
def test_a_landmark_is_missing_if_a_coordinate_is_unknown(form):
    expected = np.array([[0, 1, 2], [np.nan] * 3])
    np.testing.assert_array_equal(OpenedDataset(Heads([VOLUME, MISSING[form]])).read(0)[1], expected, strict=True)
    np.testing.assert_array_equal(make_landmarks(MISSING[form], NAMES), expected, strict=True)


@pytest.mark.parametrize("form", REFUSED_POINTS)
def test_positions_are_refused_by_a_line_that_names_the_sample(form):
    points, said = REFUSED_POINTS[form]
    with pytest.raises(BadSample, match=rf"^sample 0 .*: .*{said}"):
        OpenedDataset(Heads((VOLUME, points))).read(0)


@pytest.mark.parametrize("form", READ_LABELS)
def test_labels_are_read_as_plain_ones(form):
    arguments = {"axes": "zyx", "spacing": SPACING, "class_names": CLASSES, **READ_LABELS[form]}
    found = OpenedDataset(Livers(([VOLUME], make_label_map(arguments.pop("array"), **arguments)))).read(0)[1]
    np.testing.assert_array_equal(found.array, LABELS, strict=True)
    assert [*found.places] == [1, 2] and (LABELS[tuple(found.places[2].T)] == 2).all()
    assert OpenedDataset(Livers(([VOLUME], LABEL_MAP))).read(0)[1].array is LABELS


@pytest.mark.parametrize("form", REFUSED_LABELS)
def test_labels_are_refused(form):
    changes, said = REFUSED_LABELS[form]
    arguments = {"axes": "zyx", "spacing": SPACING, "class_names": CLASSES, **changes}
    with pytest.raises(BadSample, match=said):
        make_label_map(arguments.pop("array"), **arguments)


def test_names_of_labels_and_the_order_of_axes_are_asked_for():
    with pytest.raises(BadSample, match="labels has 'air', expected .*which have no names here: give class_names"):
        make_label_map(np.full(SHAPE, "air"), axes="zyx", spacing=SPACING)
    for make in (make_volume, make_label_map):
        with pytest.raises(BadSample, match="^axes is None, expected the order of the array's axes, such as "):
            make(LABELS, spacing=SPACING)


def test_volumes_without_names_of_classes_are_refused():
    bare = type("Bare", (Livers,), {"class_names": [], "class_name": ["background", "liver"]})(None)
    with pytest.raises(UserError, match=r"^dataset own does not say which classes .*it has class_name, which is not"):
        bare.make_facts("dataset own")
    for base in (Livers, Heads):
        with pytest.raises(UserError, match="^dataset own does not say which classes it has"):
            type("Bare", (base,), {"class_names": None})(None).make_facts("dataset own")
        numbered = type("Numbered", (base,), {"class_names": None, "num_classes": 3})(None)
        numbered.make_facts("dataset own")
        assert list(numbered.list_class_names()) == ["0", "1", "2"]


def other(volume=VOLUME, **changes):
    return volume._replace(**changes)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (None, r"Heads.read returns None, expected \(DecodedVolume, points\)"),
        (VOLUME, "Heads.read returns DecodedVolume"),
        ((ARRAY, POINTS), "volume is ndarray .*make_volume creates one"),
        ((other(geometry=None), POINTS), "volume has the geometry None"),
        (
            (other(array=ARRAY[:1]), POINTS),
            r"volume has the shape \(1, 3, 4\), and its geometry tuple of 3 \(2, 3, 4\)",
        ),
        ((other(geometry=VolumeGeometry(SHAPE, TURNED)), POINTS), "make_volume turns them"),
        ((other(geometry=VolumeGeometry(SHAPE, np.eye(4))), POINTS), "voxels of 1 x 1 x 1 mm .* data set's are 2 x 1"),
        ((other(window=(1.0, 1.0)), POINTS), "volume.window is"),
        ((other(moments=(np.nan, 1.0)), POINTS), "volume.moments is"),
        ((other(array=ARRAY.astype(str)), POINTS), "expected real numbers"),
    ],
)
def test_a_sample_of_landmarks_that_does_not_fit_is_refused(sample, said):
    with pytest.raises(BadSample, match=said):
        OpenedDataset(Heads(sample)).read(0)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (VOLUME, "Livers.read returns DecodedVolume"),
        (([VOLUME, VOLUME], None), r"channels are list of 2 .*expected a list of 1 DecodedVolume \(intensity\)"),
        ((ARRAY, None), "channels are ndarray"),
        (([ARRAY], None), "channel intensity is ndarray"),
        (([VOLUME], LABELS), "labels are ndarray .*make_label_map creates one"),
        (([VOLUME], LABEL_MAP._replace(array=LABELS.astype(int))), "the label map has ndarray int64"),
        (([VOLUME], make_label_map(LABELS[:, :2], axes="zyx", spacing=SPACING)), r"has the shape \(2, 2, 4\), and the"),
    ],
)
def test_a_sample_of_labels_that_does_not_fit_is_refused(sample, said):
    with pytest.raises(BadSample, match=said):
        OpenedDataset(Livers(sample)).read(0)


def test_one_channel_needs_no_list_and_no_source():
    channels, labels = OpenedDataset(Livers((VOLUME, None))).read(0)
    assert isinstance(channels[0], DecodedVolume) and labels is None
    assert OpenedDataset(Livers((VOLUME, None))).source(0).geometry.shape == SHAPE


def test_channels_have_one_shape():
    class Both(Livers):
        channels = ["T1", "T2"]

    short = make_volume(ARRAY[:, :2], axes="zyx", spacing=SPACING)
    with pytest.raises(BadSample, match=r"channel T2 has the shape \(2, 2, 4\), and channel T1 \(2, 3, 4\)"):
        OpenedDataset(Both(([VOLUME, short], None))).read(0)


def at(spacing=SPACING, shift=0.0, make=make_volume, array=ARRAY):
    affine = np.diag([*spacing[::-1], 1.0])
    affine[0, 3] = shift
    return make(array, axes="zyx", affine=affine)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"spacing": (2.0, 3.0, 0.5)}, r"spacing 0.5 x 3 x 2 and 0.5 x 1 x 2 mm \(x, y, z\)"),
        ({"shift": 500}, "origin 500.00, 0.00, 0.00 and 0.00, 0.00, 0.00 mm, .*; corners are 500 mm apart"),
        ({"shift": 0.02}, None),  # of the shortest step, 0.5 mm, a twentieth is allowed, as for files
        ({"shift": 0.03}, ".*corners are 0.03 mm apart"),
    ],
)
def test_volumes_and_labels_of_different_places_are_refused_as_their_files_are(labels, said):
    class Both(Livers):
        spacing = None
        channels = ["T1", "T2"]

    label_map, volume = at(**labels, make=make_label_map, array=LABELS), at(**labels)
    dataset, other_channel = map(OpenedDataset, (Livers(([at()], label_map)), Both(([at(), volume], None))))
    if said is None:
        assert dataset.read(0)[1].array.shape == other_channel.read(0)[0][1].array.shape == SHAPE
        return
    for each, field in ((dataset, "the label map and channel intensity"), (other_channel, "channel T2 and channel T1")):
        said_of_both = rf"^sample 0 \(.*\): {field} have different geometries: {said}.*; make both with the same affine"
        with pytest.raises(BadSample, match=said_of_both):
            each.read(0)


HEADS = ["TASK", "landmarks", "MODEL.NAME", "unet3d", "-dataset=synthetic_landmarks"]
LIVERS = ["TASK", "volume_segmentation", "MODEL.NAME", "unet3d", "-dataset=synthetic_organs"]


def test_first_volumes_of_own_datasets_are_described():
    task = LandmarkDetection(settings.load(HEADS).values)
    task.names = ["ear_left", "ear_right", "chin"]

    class Ears(Heads):
        class_names = task.names

    where = "note: the first 1 volumes of dataset synthetic_landmarks: "
    fine = {"ear_left": [0, 0, 1], "ear_right": [0, 0, 2], "chin": [0, 1, 1]}
    assert task._describe_first(OpenedDataset(Ears((VOLUME, fine)))) == []
    exchanged, absent = (task._describe_first(OpenedDataset(Ears((VOLUME, {**fine, **other})))) for other in OTHERS)
    assert [note.startswith(f"{where}in 1 of 1 volumes landmarks named left") for note in exchanged] == [True]
    assert absent == [f"{where}no volume has a position of chin: the model cannot learn it"]


OTHERS = ({"ear_left": [0, 0, 3]}, {"chin": None})


def test_numbers_of_labels_are_one_for_each_class():
    task = VolumeSegmentation(settings.load(LIVERS).values)
    dataset = Livers(([VOLUME], LABEL_MAP))
    task._load_dataset_meta(dataset)
    assert task.numbers == [0, 1, 2] and task.spacing.tolist() == list(SPACING)
    dataset.numbers = [0, 5]
    with pytest.raises(UserError, match="numbers has 2 entries, expected .* each of 3 classes with the background"):
        task._load_dataset_meta(dataset)
    dataset.numbers, dataset.spacing = [0, 5, 7], [1, 2]
    with pytest.raises(UserError, match=r"spacing is list of 2 \(1, 2\), expected three positive numbers"):
        task._load_dataset_meta(dataset)


def test_first_label_maps_of_own_datasets_are_described():
    task = VolumeSegmentation(settings.load(LIVERS).values)
    task.channels = ["intensity"]
    assert task._describe_first(OpenedDataset(Livers(([VOLUME], LABEL_MAP)))) == []
    empty = make_volume(np.ones(SHAPE), axes="zyx", spacing=SPACING)
    nothing = make_label_map(np.zeros(SHAPE, bool), axes="zyx", spacing=SPACING)
    assert task._describe_first(OpenedDataset(Livers((empty, nothing)))) == [
        "note: no voxel of the first 1 volumes of dataset synthetic_organs has a class but the background",
        "note: all voxels of the first 1 volumes of dataset synthetic_organs have one intensity in channel intensity",
    ]


@pytest.mark.parametrize(
    "cases, told",
    [
        (["a", "b", "a"], r"case\(0\) and case\(2\) are both 'a': return another name for each volume"),
        (["a", 3, "b"], r"case\(1\) is 3, expected a short text without '/'"),
        ([None, "b", "c"], r"case\(0\) is None, expected a short text"),
        (["a", "b", "day/c"], r"case\(2\) is 'day/c', expected a short text without '/'"),
        (["a", "b" * 201, "c"], r"case\(1\) is 'b+.*, expected a short text"),
    ],
    ids=["repeated", "a number", "forgotten", "in a folder", "too long"],
)
@pytest.mark.parametrize("base", [Heads, Livers])
def test_volumes_whose_predictions_would_overwrite_one_another_are_refused(base, cases, told):
    class Named(base):
        def __len__(self):
            return len(cases)

        def case(self, index):
            return self.sample[index]

    Named(["a", "A", "c"]).make_facts("dataset named")
    with pytest.raises(UserError, match=f"^dataset named: {told}"):
        Named(cases).make_facts("dataset named")


def test_labels_that_are_no_classes_are_refused_where_a_volume_is_read_by_its_name():
    form = {"axes": "zyx", "spacing": SPACING}
    with pytest.raises(BadSample) as refused:
        OpenedDataset(Livers(([VOLUME], make_label_map(LABELS + 1, **form)))).read(0)
    assert str(refused.value) == (
        "sample 0 (volume head): 8 of 24 voxels have a label that is out of range, such as 3: with 3 classes labels go "
        "from 0, the background, to 2, and 255 means no class"
    )
    OpenedDataset(Livers(([VOLUME], make_label_map(np.where(LABELS == 2, 255, LABELS), **form)))).read(0)


def test_volumes_are_described_by_their_names_but_identified_by_their_origin():
    class Placed(Heads):
        root = "/data"

        def describe(self, index):
            return f"/data/{index}.nii"

    heads, placed = Heads(None), Placed(None)
    assert (heads.describe(0), heads.identity(0)) == ("volume head", "sample 0")
    assert (placed.describe(0), placed.identity(0)) == ("/data/0.nii", "0.nii")
