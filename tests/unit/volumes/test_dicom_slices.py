"""Slices of a series by their headers alone: which differences are rounding, and which voxels fit into two bytes."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist.volumes import dicom

STEPS = np.array([[-0.5, 0.0], [0.0, -0.8], [0.0, 0.0]])
NORMAL = np.array([0.0, 0.0, 1.0])


def make_slice(name: str, place: float, steps: np.ndarray = STEPS) -> dicom.DicomSlice:
    return dicom.DicomSlice(f"f/{name}", "1.2", "head", (5, 4), (True,) * 3, np.array([1.0, 2.0, place]), steps)


@pytest.mark.parametrize(("change", "is_same"), [(7e-4, True), (-7e-4, True), (9e-4, False), (-9e-4, False)])
def test_directions_may_differ_by_a_thousandth_of_the_largest_step(change, is_same):
    slices = [make_slice("a", 0), make_slice("b", 1, STEPS + np.array([[0, 0], [0, 0], [change, 0]]))]
    if is_same:
        dicom.check_alike("f", slices)
    else:
        assert refusal_of(dicom.check_alike, "f", slices).startswith(
            "f: a and b differ in direction or pixel spacing; "
        )


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([0, 2, 4, 6, 7, 9, 11], "1 mm from d to e, usually 2 mm"),
        ([0, 2, 4, 6, 9, 11, 13], "3 mm from d to e, usually 2 mm"),
    ],
)
def test_the_gap_that_differs_most_is_named_be_it_narrow_or_wide(places, said):
    slices = [make_slice(name, place) for name, place in zip("abcdefg", places)]
    assert f"slices are not evenly spaced: {said}; is one missing?" in refusal_of(
        dicom.find_even_step, "f", slices, NORMAL
    )
    even = [make_slice(name, 2.5 * number) for number, name in enumerate("abc")]
    np.testing.assert_allclose(dicom.find_even_step("f", even, NORMAL), [0, 0, 2.5])


@pytest.mark.parametrize(
    ("step", "moved", "is_even"),
    [(2.0, 0.1, True), (2.0, 0.103, False), (0.2, 0.049, True), (0.2, 0.051, False), (0.3, -0.07, True)],
)
def test_slices_may_lie_off_by_a_tenth_of_a_millimeter_or_a_quarter_of_a_step(step, moved, is_even):
    """Two inner ones do, and each counts alone."""
    slices = [make_slice(name, step * number) for number, name in enumerate("abcdefg")]
    for number in (2, 4):
        slices[number] = make_slice("x", step * number + moved)
    if is_even:
        np.testing.assert_allclose(dicom.find_even_step("f", slices, NORMAL), [0, 0, step])
    else:
        assert "slices are not evenly spaced" in refusal_of(dicom.find_even_step, "f", slices, NORMAL)
    near = [make_slice("a", 0), make_slice("b", 5e-4), make_slice("c", 5)]
    assert refusal_of(dicom.find_even_step, "f", near, NORMAL).startswith("f: a and b have the same position; several ")
    fine = [
        make_slice(name, 3e-4 * number)._replace(steps=2e-4 * np.eye(3)[:, :2]) for number, name in enumerate("abc")
    ]
    np.testing.assert_allclose(dicom.find_even_step("f", fine, NORMAL), [0, 0, 3e-4])  # of a microscope


@pytest.mark.parametrize(
    ("least", "most", "kind", "expected"),
    [
        (-32768, 32767, np.int32, np.int16),
        (-32769, 0, np.int32, np.int32),
        (0, 32768, np.int32, np.int32),
        (0, 255, np.uint8, np.int16),
        (0, 1, np.float32, np.float32),
    ],
)
def test_whole_numbers_that_fit_are_stored_in_two_bytes(least, most, kind, expected):
    arrays = {"f/a": np.full((1, 2, 3), least, kind), "f/b": np.full((1, 2, 3), most, kind)}
    itk = SimpleNamespace(ReadImage=lambda file, **_: arrays[file], GetArrayFromImage=lambda image: image)
    voxels = dicom._load([make_slice("a", 0), make_slice("b", 1)], itk)
    assert voxels.dtype == expected and voxels.shape == (2, 2, 3)
    assert (voxels[0] == least).all() and (voxels[1] == most).all()


def test_links_to_folders_are_no_slices_and_links_to_nothing_are(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to("nowhere")
    (tmp_path / "c").symlink_to("inner")
    (tmp_path / "d").symlink_to("a")
    assert dicom.list_regular_files(str(tmp_path)) == [str(tmp_path / name) for name in ("a", "b", "d")]
