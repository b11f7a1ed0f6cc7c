"""z_score of volumes that were set to 0 around a head: as nnU-Net crops and normalises, whatever weights were trained
with."""

import json
import sys

import numpy as np
import pytest
import yaml
from scipy.ndimage import binary_fill_holes
from support.processes import ROOT, run_command, run_main, succeeded
from volumes.volume_files import world, write_landmarks, write_volume

from paddlevit_dist.settings import load
from paddlevit_dist.tasks.prediction import TrainedMeta
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection
from paddlevit_dist.volumes.nonzero import BOX, MASK, _of_weights, box_of, decision, nonzero_mask, share_of
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

SHAPE = (12, 14, 16)
AFFINE = np.diag([1.0, 1.0, 2.0, 1.0])


def head(seed, margin, channel=0):
    """Intensities about 500 with a deviation of 90 in a ball, a hole of zeros in it, and zeros around."""
    grid = (np.indices(SHAPE).T - (np.array(SHAPE) - 1) / 2).T / (np.array(SHAPE)[:, None, None, None] / 2 - margin)
    inside = (grid**2).sum(axis=0) < 1
    values = np.where(inside, np.random.default_rng([seed, channel]).normal(500, 90, SHAPE), 0).astype(np.float32)
    values[5:7, 6:8, 7:9] = 0
    if channel:
        values[2, 7, 8] = 0
    return values


def dataset_of(root, margin, channels=2):
    names = {str(number): ("CT", "MR", "PET")[number] for number in range(channels)}
    for case in range(3):
        for channel in range(channels):
            file = root / "imagesTr" / f"case_{case}_{channel:04d}.nii.gz"
            write_volume(file, head(case, margin, channel), AFFINE)
        write_volume(root / "labelsTr" / f"case_{case}.nii.gz", (head(case, margin) > 500).astype(np.uint8), AFFINE)
    labels = {"background": 0, "bright": 1}
    (root / "dataset.json").write_text(json.dumps({"channel_names": names, "labels": labels}))
    return root


def task_of(data, *words, kind=VolumeSegmentation, recipe="volume_unet3d_phantoms"):
    keys = ("VOLUMES.INTENSITY_WINDOW", "None", "VOLUMES.INTENSITY_MEAN_STD", "None")
    place = f"-cfg={ROOT}/configs/{recipe}.yaml", f"-data_path={data}", "-dataset=nnunet"
    return kind(load([*place, *keys, *words]).values)


def test_masks_are_those_of_all_channels_without_holes():
    one, other = head(0, 2), head(0, 2, 1)
    mask = nonzero_mask([one, other])
    np.testing.assert_array_equal(mask, binary_fill_holes((one != 0) | (other != 0)))
    assert mask[5, 6, 7] and not mask[0, 0, 0]
    places = np.argwhere(mask)
    sides = places.max(axis=0) - places.min(axis=0) + 1
    assert share_of(mask) == pytest.approx(sides.prod() / mask.size)
    assert mask[box_of(mask)].sum() == mask.sum() and mask[box_of(mask)].shape == tuple(sides)
    assert nonzero_mask([np.zeros(SHAPE)]).all()
    assert decision([0.2, 0.74, 0.9]) == MASK and decision([0.2, 0.75, 0.9]) == BOX


@pytest.mark.parametrize("margin, within", [(2.5, "mask"), (-0.2, "box")])
def test_z_score_is_of_what_is_not_zero_and_of_stored_voxels(tmp_path, margin, within):
    """Also of several channels, of which the one with another kind stays as it is; and at another spacing."""
    data = dataset_of(tmp_path / "raw", margin)
    task = task_of(data, "VOLUMES.NORMALISE", "[none,z_score]", "VOLUMES.SPACING_MM", "[2.0,1.0,1.0]")
    samples = task.build_dataset("train", tmp_path / "cache")
    assert sum(f"z_score is of {'what' if within == 'mask' else 'the box'}" in line for line in samples.notices) == 1
    assert task.about_input()["z_score"] == within and task.export_parts().about["preprocessing"]["z_score"] == within
    evaluated = task.build_dataset("val", tmp_path / "cache")
    case = int(evaluated.dataset.case(0)[-1])
    volume = evaluated.sample(0, np.random.default_rng(0))["volume"]
    one, other = head(case, margin), head(case, margin, 1)
    mask = nonzero_mask([one, other])
    chosen = mask if within == "mask" else np.zeros_like(mask)
    chosen[box_of(mask)] |= within == "box"
    mean, deviation = other[chosen].mean(dtype=np.float64), other[chosen].std(dtype=np.float64)
    expected = (other - mean) / deviation if within == "box" else np.where(mask, (other - mean) / deviation, 0)
    np.testing.assert_array_equal(volume[0], one)
    np.testing.assert_allclose(volume[1], expected, atol=1e-4)

    finer = task_of(data, "VOLUMES.NORMALISE", "[none,z_score]", "VOLUMES.SPACING_MM", "[1.0,1.0,1.0]")
    finer.build_dataset("train", tmp_path / "cache")
    between = finer.build_dataset("val", tmp_path / "cache").sample(0, np.random.default_rng(0))["volume"][1]
    np.testing.assert_allclose(between[::2], expected, atol=1e-4)  # each second plane is a stored one
    np.testing.assert_allclose(between[1:-1:2], (expected[1:] + expected[:-1]) / 2, atol=1e-4)

    predicting = task_of(data, "VOLUMES.NORMALISE", "[none,z_score]")
    predicting.set_up_from(TrainedMeta(2, ("background", "bright"), task.about_input()))
    files = [str(data / "imagesTr" / f"case_{case}_{channel:04d}.nii.gz") for channel in range(2)]
    again = predicting.open_inputs(files, tmp_path).sample(0, np.random.default_rng(0))["volume"]
    np.testing.assert_array_equal(again, volume)
    silent = {name: value for name, value in task.about_input().items() if name != "z_score"}
    predicting.set_up_from(TrainedMeta(2, ("background", "bright"), silent))
    whole = predicting.open_inputs(files, tmp_path).sample(0, np.random.default_rng(0))["volume"][1]
    assert whole.mean() == pytest.approx(0, abs=1e-5) and whole.std() == pytest.approx(1, abs=1e-5)


def test_landmarks_have_it_too(tmp_path):
    for split in ("train", "val"):
        for number in range(2):
            write_volume(tmp_path / split / f"a{number}.nii.gz", head(number, 3), AFFINE)
            write_landmarks(tmp_path / split / f"a{number}.csv", {"nose": world((3.0, 4.0, 5.0), AFFINE)})
    words = ("-dataset=landmarks", "VOLUMES.NORMALISE", "z_score", "VOLUMES.MIRROR_PAIRS", "none")
    task = task_of(tmp_path, *words, kind=LandmarkDetection, recipe="landmark_unet3d")
    volume = task.build_dataset("train", tmp_path / "cache").dataset.volume(0).array
    mask = nonzero_mask([head(0, 3)])
    assert task.about_input()["z_score"] == "mask" and not volume[~mask].any()
    assert volume[mask].mean() == pytest.approx(0, abs=1e-5) and volume[mask].std() == pytest.approx(1, abs=1e-5)


def test_a_run_is_evaluated_and_continued_as_its_weights_were_trained(tmp_path):
    """Weights of a training within masks: an evaluation on volumes without zeros around keeps to it, and inspect data
    says what would be decided."""
    data, other = dataset_of(tmp_path / "raw", 2.5, 1), dataset_of(tmp_path / "other", -0.2, 1)
    tiny = ("VOLUMES.CROP_SIZE", "[8,8,8]", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "2", "SAVE_FREQ", "1")
    keys = (*tiny, "VOLUMES.NORMALISE", "z_score", "VOLUMES.INTENSITY_WINDOW", "None", "DATA.NUM_WORKERS", "0")
    recipe = [f"-cfg={ROOT}/configs/volume_unet3d_phantoms.yaml", "-ngpus=1", "-batch_size=1", *keys]
    words = [*recipe, f"-data_path={data}", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", f"-output={tmp_path / 'run'}"]
    assert "z_score is of what is not zero" in succeeded(run_main(*words)).out
    weights = tmp_path / "run" / "checkpoints" / "last"
    evaluation = [*recipe, f"-data_path={other}", "-eval", f"-pretrained={weights}", "-allow_changes", "-split=train"]
    said = succeeded(run_main(*evaluation, f"-output={tmp_path / 'eval'}")).out
    assert "z_score is of what is not zero, holes filled" in said and "as the weights were trained" in said
    inspected = run_command(
        [sys.executable, "-m", "paddlevit_dist", "inspect", "data", f"-data_path={other}", *recipe[:1], *keys],
        timeout=120.0,
    )
    assert "box around what is not zero: median 100 % of a volume" in succeeded(inspected).out

    assert yaml.safe_load((weights / "about.yaml").read_text())["input"]["z_score"] == "mask"
    assert _of_weights(load([*evaluation, "-dataset=nnunet"]).values, False) == "mask"
    assert _of_weights(load([*words, "-resume=auto"]).values, True) == "mask"
    assert _of_weights(load(words).values, True) is None
