"""Labels and channels are turned by the first channel's axes, whatever the last digits of their own headers say."""

import numpy as np
import pytest

from paddlevit_dist.volumes.geometry import rotation
from paddlevit_dist.volumes.segmentation.dataset import LabelStore
from paddlevit_dist.volumes.store import DecodedStore

nibabel = pytest.importorskip("nibabel")


def write(path, array, angle):
    affine = np.eye(4)
    affine[:3, :3] = rotation(np.array([0, 0, angle]))
    image = nibabel.Nifti1Image(array, affine)
    image.set_qform(None)
    nibabel.save(image, path)
    return str(path)


@pytest.mark.parametrize("step", [1e-5, -1e-5])
def test_labels_lie_on_their_image_where_two_axes_are_equally_near(tmp_path, step):
    image = np.zeros((4, 5, 6), np.uint8)
    image[1:3, 0, 2:] = 1
    first = write(tmp_path / "case_0000.nii", image, np.pi / 4 + step)
    second = write(tmp_path / "case_0001.nii", image, np.pi / 4 - step)
    labels = write(tmp_path / "labels.nii", image, np.pi / 4 - step)
    store, label_store = DecodedStore(tmp_path / "a", None), LabelStore(tmp_path / "a", None, 1000, [0, 1])
    one, other = (store.get(file, channels=(first, second)) for file in (first, second))
    found = label_store.labels(labels, first)
    assert store.get(second).array.shape != one.array.shape  # by its own header
    for array, geometry in ((other.array, other.geometry), (found.array, found.geometry)):
        np.testing.assert_array_equal(array, one.array, strict=True)
        np.testing.assert_array_equal(geometry.affine, one.geometry.affine, strict=True)
    for within in ("mask", "box"):  # of the voxels of both
        both = [store.get(file, within, (first, second)) for file in (first, second)]
        np.testing.assert_array_equal(both[0].array, both[1].array, strict=True)
        assert both[0].moments == both[1].moments
