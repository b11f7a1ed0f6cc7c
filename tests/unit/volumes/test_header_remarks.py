"""What nibabel and SimpleITK assume or replace in silence is remarked."""

import re

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist.volumes import header_remarks, read_volume
from paddlevit_dist.volumes.geometry import rotation

DIRECTIONS = "space directions: (1,0,0) (0,2,0) (0,0,3)"
META = "NDims = 3\nTransformMatrix = 1 0 0 0 1 0 0 0 1\n"


@pytest.mark.parametrize(
    ("is_nrrd", "header", "expected"),
    [
        (True, f"space: left-posterior-superior\n{DIRECTIONS}\n", []),
        (True, f"space: RAS\n{DIRECTIONS} none\n", []),
        (True, f"space: scanner-xyz\n{DIRECTIONS}\n", ["no line 'space:'"]),
        (True, "space: LAS\nspace directions: (1,0,0) none (0,0,3)\nspace origin: (0,0,0)\n", ["space directions"]),
        (False, META + "ElementToIntensityFunctionSlope = 1\nElementToIntensityFunctionOffset = 0\n", []),
        (False, META + "ElementToIntensityFunctionSlope = 1.5\n", ["ElementToIntensityFunction"]),
        (False, "NDims = 3\nElementToIntensityFunctionOffset = -1024\n", ["TransformMatrix", "Function"]),
        *((True, f"SPACE:\t{word} \n{DIRECTIONS}\n", []) for word in ("Right-Anterior-Superior", "ras", "LPS", "LAS")),
        *((True, f"space: {word}\n{DIRECTIONS}\n", ["no line 'space:'"]) for word in ("LPI", "right-up", "3D")),
        *((False, META.replace("TransformMatrix", word), []) for word in ("Orientation", "rotation")),
        *((False, f"{META}ElementToIntensityFunctionSlope = {one}\n", []) for one in ("1.", "1.00")),
        *((False, f"{META}elementToIntensityFunctionslope = {one}\n", ["Function"]) for one in ("1.05", "10", "0")),
        *((False, f"{META}ElementToIntensityFunctionOffset = {one}\n", []) for one in ("0.", "0.00")),
        (False, f"{META}ElementToIntensityFunctionOffset = 0.5\n", ["Function"]),
        (False, META + "AnatomicalOrientation = rai\n", []),
        (False, META + "AnatomicalOrientation = ???\n", []),
        (False, META + "AnatomicalOrientation = RAS\n", ["AnatomicalOrientation is RAS, but the axes .* give RAI"]),
        (True, f"space: LPS\n{DIRECTIONS}\nold min: -1000\noldmax: 3000\n", ["old min and old max"]),
    ],
)
def test_headers_that_itk_completes_are_remarked(is_nrrd, header, expected):
    remarks = header_remarks.of_itk(is_nrrd, header.encode(), np.eye(4))
    assert len(remarks) == len(expected) and all(re.search(part, remark) for part, remark in zip(expected, remarks))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("pixdim", [1, 0, 2, 3, 0, 0, 0, 0], "non-zero"),
        ("sform_code", 9, "sform_code 9"),
        ("scl_slope", np.inf, "stored"),
    ],
)
def test_headers_that_nibabel_corrects_are_remarked(tmp_path, field, value, said):
    import nibabel

    path, voxels = tmp_path / "case.nii", np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    nibabel.Nifti1Image(voxels.T, np.eye(4)).to_filename(path)
    assert read_volume(path)[1].remarks == ()
    content = path.read_bytes()
    header = nibabel.Nifti1Header(content[:348], check=False)
    header[field] = value
    path.write_bytes(header.binaryblock + content[348:])
    read, volume = read_volume(path)
    assert any(said in remark for remark in volume.remarks)
    np.testing.assert_array_equal(read, voxels)


@pytest.mark.parametrize(
    ("sform", "qform", "is_remarked"), [(0, 0, True), (1, 0, False), (0, 1, False), (2, 1, False), (0, 4, False)]
)
def test_either_place_of_nifti_is_enough(sform, qform, is_remarked):
    import nibabel

    header = nibabel.Nifti1Header()
    header["sform_code"], header["qform_code"] = sform, qform
    remarks = header_remarks.of_nifti(header, header.binaryblock)
    assert [remark.startswith("no orientation in the header") for remark in remarks] == [True] * is_remarked


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_letters_of_axes_are_those_that_itk_writes(tmp_path, axes):
    import SimpleITK

    image = SimpleITK.GetImageFromArray(np.zeros((2, 3, 4), np.int16))
    direction = (np.eye(3) * [-1, 1, -1])[:, axes] @ rotation(np.deg2rad([10.0, -8.0, 12.0]))
    image.SetDirection(direction.ravel().tolist())
    SimpleITK.WriteImage(image, str(tmp_path / "a.mha"))
    header = (tmp_path / "a.mha").read_bytes().split(b"ElementDataFile")[0]
    assert b"AnatomicalOrientation" in header and read_volume(tmp_path / "a.mha")[1].remarks == ()


def test_lengths_by_the_ends_of_axes_are_refused(tmp_path):
    header = "NRRD0005\ntype: short\ndimension: 3\nsizes: 4 3 2\nencoding: raw\nendian: little\n"
    for more, is_read in (
        ("axis mins: 0 0 0\naxis maxs: 2 1.5 4\n", False),
        ("spacings: 0.5 0.5 2\naxis maxs: 2 2 4\n", True),
    ):
        (tmp_path / "a.nrrd").write_bytes(f"{header}{more}\n".encode() + bytes(48))
        if is_read:
            assert read_volume(tmp_path / "a.nrrd")[1].geometry.spacing.tolist() == [2.0, 0.5, 0.5]
        else:
            assert "axis mins and axis maxs, but no spacings" in refusal_of(read_volume, tmp_path / "a.nrrd")


@pytest.mark.parametrize(
    ("step", "unit", "said"),
    [(0.001, 0, "they are meters"), (800.0, 0, "they are micrometers"), (0.001, 2, None), (0.5, 0, None)],
)
def test_steps_without_a_unit_that_are_hardly_millimeters_are_told(tmp_path, step, unit, said):
    import nibabel

    image = nibabel.Nifti1Image(np.zeros((2, 3, 4), np.int16), np.diag([step, step, 2 * step, 1]))
    image.header["xyzt_units"] = unit
    image.to_filename(tmp_path / "a.nii")
    _, volume = read_volume(tmp_path / "a.nii")
    assert volume.geometry.spacing == pytest.approx([2 * step, step, step])
    assert [said in remark for remark in volume.remarks] == ([] if said is None else [True])
