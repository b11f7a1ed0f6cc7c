"""The file of a plan: a run takes it, and its network fits its patch and its labels."""

import numpy as np
import paddle
import pytest
import yaml
from support.files.nnunet_folders import raw_data
from support.files.volume_files import write_volume

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.volumes.commands import run_plan
from paddlevit_dist.volumes.planning import plan_network
from paddlevit_dist.volumes.segmentation.nnunet import NnUNet
from paddlevit_dist.volumes.segmentation.plan_file import write_plan
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

SHAPE, AFFINE = (10, 40, 44), np.diag([1.0, 1.0, 4.0, 1.0])


@pytest.fixture
def folder(tmp_path):
    root = raw_data(tmp_path / "raw")
    for number in range(3):
        labels = np.zeros(SHAPE, np.uint8)
        labels[3:6, 10:20, 10:30], labels[5, 30:35, 5:9] = 5, 2
        write_volume(root / "labelsTr" / f"case_{number}.nii.gz", labels, AFFINE)
        for channel in range(2):
            voxels = np.where(labels > 0, 100.0 * (channel + 1) + labels % 2, 1.0).astype(np.float32)  # CT: 100, 101
            write_volume(root / "imagesTr" / f"case_{number}_{channel:04d}.nii.gz", voxels, AFFINE)
    return root


def test_a_run_takes_the_plan_of_its_data(folder, tmp_path, fewer_drawn_voxels, capsys):
    file = tmp_path / "plan.yaml"
    run_plan([str(folder), str(file), "-memory_gb=11"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"written to {file}: train with -cfg={file}"
    assert lines[0] == "3 volumes of training and validation, median 10 x 40 x 44 voxels, resampled to 4 x 1 x 1 mm"
    size = " x ".join(map(str, yaml.safe_load(file.read_text())["VOLUMES"]["CROP_SIZE"]))
    assert lines[1].startswith(f"patches of {size} voxels, ") and lines[1].endswith(
        " in a batch, for one device of 11 GB"
    )
    assert file.read_text().splitlines()[:3] == [f"# {line}" for line in lines]
    written = yaml.safe_load(file.read_text())
    assert written["VOLUMES"].pop("INTENSITY_MEAN_STD")[0] == pytest.approx(100.97, abs=0.02)
    assert written == {
        "BASE": "volume_unet3d_phantoms",
        "DATA": {"DATASET": "nnunet", "DATA_PATH": str(folder), "BATCH_SIZE": 2},
        "VOLUMES": {
            "SPACING_MM": [4.0, 1.0, 1.0],
            "CROP_SIZE": [10, 40, 48],
            "UNET_WIDTH": 32,
            "UNET_MAX_WIDTH": 320,
            "UNET_DEPTH": 3,
            "UNET_KERNELS": ["1x3x3", "1x3x3", "3x3x3", "3x3x3"],
            "UNET_STRIDES": ["1x2x2", "1x2x2", "2x2x2"],
            "FOREGROUND_FRACTION": 0.33,
            "MIRROR_AXES": ["depth", "height", "width"],
            "NORMALIZE": ["ct", "z_score"],
            "INTENSITY_WINDOW": [100.0, 101.0],
        },
    }
    assert list(written["VOLUMES"])[:3] == ["SPACING_MM", "CROP_SIZE", "UNET_WIDTH"]  # as they are explained
    config = load([f"-cfg={file}", "VOLUMES.UNET_WIDTH", "2"]).values
    expected = plan_network(np.array([[4.0, 1.0, 1.0]] * 3), np.array([SHAPE] * 3), 3, 11, 3)
    volumes = config.VOLUMES
    assert volumes.CROP_SIZE == list(expected.levels.size) and config.DATA.BATCH_SIZE == expected.batch_size
    assert lines[2] == "intensities: channel CT ct, channel PET z_score"
    task = VolumeSegmentation(config)
    task._load_dataset_meta(NnUNet(str(folder), "train", tmp_path / "cache"))
    model, size = task.build_model(), (2, *volumes.CROP_SIZE)
    labels = np.random.default_rng(0).integers(0, 3, size).astype(np.uint8)
    batch = {"volume": paddle.randn([2, 2, *volumes.CROP_SIZE]), "labels": paddle.to_tensor(labels)}
    terms, counts = task.train_step(model, batch, StepPosition(1, 0, 1)), task.loss_normalizers({"labels": labels})
    assert len(terms) == 2 * (task.supervised + 1) and {name: float(t.count) for name, t in terms.items()} == counts
    assert counts["cross_entropy 1/2"] == labels.size // 4
    with pytest.raises(UserError, match=r"plan.yaml exists: remove it"):
        write_plan(str(folder), file, 8, tmp_path / "cache")


def test_a_plan_tells_which_volumes_the_fold_leaves_out(folder, tmp_path, fewer_drawn_voxels):
    (folder / "splits_final.json").write_text('[{"train": ["case_0"], "val": ["case_2"]}]')
    *lines, last = write_plan(str(folder), tmp_path / "plan.yaml", 11, tmp_path / "cache")
    assert lines[0].startswith("2 volumes of training and validation, ") and last.endswith(
        "neither in train nor in val, not used: case_1"
    )


def test_strides_of_labels_are_set_by_their_key_alone():
    words = ["-cfg=configs/volume_unet3d_phantoms.yaml", "MODEL.OPTIONS.strides", "[[1, 2, 2], [2, 2, 2], [2, 2, 2]]"]
    told = "MODEL.OPTIONS.strides: task volume_segmentation sets the option strides itself: set VOLUMES.UNET_STRIDES "
    with pytest.raises(UserError, match=told):
        VolumeSegmentation(load([*words, "VOLUMES.DEEP_SUPERVISION", "true"]).values).build_model(2)
    plain = VolumeSegmentation(load([*words, "VOLUMES.DEEP_SUPERVISION", "false"]).values)
    assert plain.build_model(2).strides[0] == [1, 2, 2]
    for name, value, told in (
        ("norm", "batch", "sets the option norm itself: set VOLUMES.UNET_NORM instead"),
        ("blocks", "two", "MODEL.OPTIONS.blocks is 'two': expected a whole number >= 1"),
    ):
        with pytest.raises(UserError, match=told):
            VolumeSegmentation(load([words[0], f"MODEL.OPTIONS.{name}", value]).values).build_model(2)


def test_the_number_of_strides_is_that_of_levels():
    task = VolumeSegmentation(
        load(["-cfg=configs/volume_unet3d_phantoms.yaml", "VOLUMES.UNET_STRIDES", "[1x2x2]"]).values
    )
    task.class_names = ["a", "b"]
    with pytest.raises(UserError, match=r"VOLUMES.UNET_STRIDES has 1 values, expected 3 \(UNET_DEPTH\)"):
        task.build_model()
