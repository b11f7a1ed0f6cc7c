"""Written labels are where their volume is."""

import nibabel
import numpy as np
import pytest
from support.files.nnunet_folders import make_labels
from support.files.volume_files import AFFINE, SHAPE, voxels, write_series

from paddlevit_dist.volumes.geometry import VolumeGeometry, from_canonical, rotation, to_canonical
from paddlevit_dist.volumes.reading import read_header
from paddlevit_dist.volumes.segmentation.dataset import LabelSource
from paddlevit_dist.volumes.segmentation.prediction import write_labels

pytestmark = pytest.mark.usefixtures("fewer_drawn_voxels")


@pytest.mark.parametrize("angles", [(0, 0, 0), (170, 10, -95), (90, 5, 90)])
def test_written_labels_lie_where_the_volume_lies(tmp_path, angles):
    affine = AFFINE.copy()
    affine[:3, :3] = rotation(np.deg2rad(angles)) @ np.diag([1.0, 1.5, 2.0])
    labels = make_labels(0)
    image = nibabel.Nifti1Image(labels.T.astype(np.int16), affine)
    image.set_sform(affine, 2)
    image.to_filename(tmp_path / "a.nii.gz")
    upright, _ = to_canonical(labels, affine)
    np.testing.assert_array_equal(from_canonical(upright, affine), labels, strict=True)
    for source in (str(tmp_path / "a.nii.gz"), None):
        write_labels(tmp_path / "out.nii.gz", upright, LabelSource(source, VolumeGeometry(SHAPE, affine)))
        written = nibabel.load(tmp_path / "out.nii.gz")
        np.testing.assert_array_equal(np.asarray(written.dataobj).T, labels, strict=True)
        np.testing.assert_allclose(written.affine, affine, atol=1e-5)
        assert written.get_data_dtype() == np.uint8
        assert source is None or int(written.header["sform_code"]) == 2


def test_labels_of_a_volume_without_a_position_have_none_either(tmp_path):
    image = nibabel.Nifti1Image(make_labels(0).T.astype(np.int16), None)
    image.to_filename(tmp_path / "a.nii")
    affine = nibabel.load(tmp_path / "a.nii").affine
    source = LabelSource(str(tmp_path / "a.nii"), VolumeGeometry(SHAPE, affine))
    write_labels(tmp_path / "out.nii.gz", to_canonical(make_labels(0), affine)[0], source)
    header = nibabel.load(tmp_path / "out.nii.gz").header
    assert (header["sform_code"], header["qform_code"]) == (0, 0)


@pytest.mark.parametrize("tilt", [0.0, 0.5])
def test_written_labels_of_a_tilted_series_open_in_itk_where_it_puts_the_series(tmp_path, tilt):
    import SimpleITK

    affine = AFFINE.copy()
    affine[:3, 2] += tilt * affine[:3, 1]  # each slice begins further in front
    series = write_series(tmp_path / "anna", voxels(), affine)
    labels = make_labels(0)
    upright, _ = to_canonical(labels, affine)
    write_labels(tmp_path / "out.nii.gz", upright, LabelSource(str(series), read_header(str(series)).geometry))
    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(series)))
    expected, found = reader.Execute(), SimpleITK.ReadImage(str(tmp_path / "out.nii.gz"))
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(found), labels, strict=True)
    for value in ("GetOrigin", "GetSpacing", "GetDirection"):
        np.testing.assert_allclose(getattr(found, value)(), getattr(expected, value)(), atol=1e-4)
    written = nibabel.load(tmp_path / "out.nii.gz")
    np.testing.assert_allclose(written.affine, affine, atol=1e-4)  # the sform has the shear
    assert written.header["sform_code"] and written.header["qform_code"]
