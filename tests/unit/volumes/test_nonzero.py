"""z_score of volumes that were set to 0 around a head: as nnU-Net crops and normalizes, whatever weights were trained
with."""

import json

import numpy as np
import pytest
from scipy.ndimage import binary_fill_holes
from support.files.volume_files import world, write_landmarks, write_volume
from support.processes import ROOT

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Exportable, Predictable
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection
from paddlevit_dist.volumes.nonzero import BOX, MASK, choose_region, compute_box, compute_box_share, nonzero_mask
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

SHAPE = (12, 14, 16)
AFFINE = np.diag([0.9, 1.2, 2.0, 1.0])


def head(seed, margin, channel=0):
    """Intensities about 500 with a deviation of 90 in a ball, a hole of zeros in it, and zeros around."""
    grid = (np.indices(SHAPE).T - (np.array(SHAPE) - 1) / 2).T / (np.array(SHAPE)[:, None, None, None] / 2 - margin)
    inside = (grid**2).sum(axis=0) < 1
    values = np.where(inside, np.random.default_rng([seed, channel]).normal(500, 90, SHAPE), 0).astype(np.float32)
    values[5:7, 6:8, 7:9] = 0
    if channel:
        values[2, 7, 8] = 0
    return values


def make_dataset(root, margin, channels=2):
    names = {str(number): ("CT", "MR", "PET")[number] for number in range(channels)}
    for case in range(3):
        for channel in range(channels):
            file = root / "imagesTr" / f"case_{case}_{channel:04d}.nii.gz"
            write_volume(file, head(case, margin, channel), AFFINE)
        write_volume(root / "labelsTr" / f"case_{case}.nii.gz", (head(case, margin) > 500).astype(np.uint8), AFFINE)
    labels = {"background": 0, "bright": 1}
    (root / "dataset.json").write_text(json.dumps({"channel_names": names, "labels": labels}))
    return root


def make_task(data, *words, kind=VolumeSegmentation, recipe="volume_unet3d_phantoms"):
    keys = ("VOLUMES.INTENSITY_WINDOW", "None", "VOLUMES.INTENSITY_MEAN_STD", "None")
    place = f"-cfg={ROOT}/configs/{recipe}.yaml", f"-data_path={data}", "-dataset=nnunet"
    return kind(load([*place, *keys, *words]).values)


def test_masks_are_those_of_all_channels_without_holes():
    one, other = head(0, 2), head(0, 2, 1)
    mask = nonzero_mask([one, other])
    np.testing.assert_array_equal(mask, binary_fill_holes((one != 0) | (other != 0)), strict=True)
    assert mask[5, 6, 7] and not mask[0, 0, 0]
    places = np.argwhere(mask)
    sides = places.max(axis=0) - places.min(axis=0) + 1
    assert compute_box_share(mask) == pytest.approx(sides.prod() / mask.size)
    assert mask[compute_box(mask)].sum() == mask.sum() and mask[compute_box(mask)].shape == tuple(sides)
    assert nonzero_mask([np.zeros(SHAPE)]).all()
    assert choose_region([0.2, 0.74, 0.9]) == MASK and choose_region([0.2, 0.75, 0.9]) == BOX


@pytest.mark.parametrize("margin, within", [(2.5, "mask"), (-0.2, "box")])
def test_z_score_is_of_what_is_not_zero_and_of_stored_voxels(tmp_path, margin, within):
    """Also of several channels, of which the one with another kind stays as it is; and at another spacing."""
    data = make_dataset(tmp_path / "raw", margin)
    task = make_task(data, "VOLUMES.NORMALIZE", "[none,z_score]", "VOLUMES.SPACING_MM", "[2.0,1.2,0.9]")
    samples = task.build_dataset("train", tmp_path / "cache")
    assert (
        sum(
            f"z_score uses {'the nonzero voxels' if within == 'mask' else 'the box'}" in line
            for line in samples.notices
        )
        == 1
    )
    assert (
        task.signature()["z_score"] == within
        and get_aspect(task, Exportable).export_parts().about["preprocessing"]["z_score"] == within
    )
    evaluated = task.build_dataset("val", tmp_path / "cache")
    case = int(evaluated.dataset.case(0)[-1])
    volume = evaluated.sample(0, np.random.default_rng(0))["volume"]
    one, other = head(case, margin), head(case, margin, 1)
    mask = nonzero_mask([one, other])
    chosen = mask if within == "mask" else np.zeros_like(mask)
    chosen[compute_box(mask)] |= within == "box"
    mean, deviation = other[chosen].mean(dtype=np.float64), other[chosen].std(dtype=np.float64)
    expected = (other - mean) / deviation if within == "box" else np.where(mask, (other - mean) / deviation, 0)
    np.testing.assert_array_equal(volume[0], one, strict=True)
    np.testing.assert_allclose(volume[1], expected, atol=1e-4)

    finer = make_task(data, "VOLUMES.NORMALIZE", "[none,z_score]", "VOLUMES.SPACING_MM", "[1.0,1.2,0.9]")
    finer.build_dataset("train", tmp_path / "cache")
    between = finer.build_dataset("val", tmp_path / "cache").sample(0, np.random.default_rng(0))["volume"][1]
    np.testing.assert_allclose(between[::2], expected, atol=1e-4)  # each second plane is a stored one
    np.testing.assert_allclose(between[1:-1:2], (expected[1:] + expected[:-1]) / 2, atol=1e-4)

    predicting = make_task(data, "VOLUMES.NORMALIZE", "[none,z_score]")
    predicting.load_meta(CheckpointMeta(2, ("background", "bright"), task.signature()))
    files = [str(data / "imagesTr" / f"case_{case}_{channel:04d}.nii.gz") for channel in range(2)]
    again = (
        get_aspect(predicting, Predictable).open_inputs(files, tmp_path).sample(0, np.random.default_rng(0))["volume"]
    )
    np.testing.assert_array_equal(again, volume, strict=True)
    silent = {name: value for name, value in task.signature().items() if name != "z_score"}
    predicting.load_meta(CheckpointMeta(2, ("background", "bright"), silent))
    whole = (
        get_aspect(predicting, Predictable)
        .open_inputs(files, tmp_path)
        .sample(0, np.random.default_rng(0))["volume"][1]
    )
    assert whole.mean() == pytest.approx(0, abs=1e-5) and whole.std() == pytest.approx(1, abs=1e-5)


def test_landmarks_have_it_too(tmp_path):
    for split in ("train", "val"):
        for number in range(2):
            write_volume(tmp_path / split / f"a{number}.nii.gz", head(number, 3), AFFINE)
            write_landmarks(tmp_path / split / f"a{number}.csv", {"nose": world((3.0, 4.0, 5.0), AFFINE)})
    words = ("-dataset=landmarks", "VOLUMES.NORMALIZE", "z_score", "VOLUMES.MIRROR_PAIRS", "none")
    task = make_task(tmp_path, *words, kind=LandmarkDetection, recipe="landmark_unet3d")
    volume = task.build_dataset("train", tmp_path / "cache").dataset.read(0)[0].array
    mask = nonzero_mask([head(0, 3)])
    assert task.signature()["z_score"] == "mask" and not volume[~mask].any()
    assert volume[mask].mean() == pytest.approx(0, abs=1e-5) and volume[mask].std() == pytest.approx(1, abs=1e-5)
