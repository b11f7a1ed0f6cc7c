"""z_score of volumes that were set to 0 around a head: as nnU-Net crops and normalizes, whatever weights were trained
with."""

import sys

import yaml
from support.processes import ROOT, run_command, run_main, succeeded
from unit.volumes.test_nonzero import make_dataset

from paddlevit_dist.core.settings import load
from paddlevit_dist.volumes.nonzero import read_checkpoint_region


def test_a_run_is_evaluated_and_continued_as_its_weights_were_trained(tmp_path):
    """Weights of a training within masks: an evaluation on volumes without zeros around keeps to it, and inspect data
    says what would be decided."""
    data, other = make_dataset(tmp_path / "raw", 2.5, 1), make_dataset(tmp_path / "other", -0.2, 1)
    tiny = ("VOLUMES.CROP_SIZE", "[6,10,8]", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "2", "SAVE_FREQ", "1")
    keys = (*tiny, "VOLUMES.NORMALIZE", "z_score", "VOLUMES.INTENSITY_WINDOW", "None", "DATA.NUM_WORKERS", "0")
    recipe = [f"-cfg={ROOT}/configs/volume_unet3d_phantoms.yaml", "-ngpus=1", "-batch_size=1", *keys]
    words = [*recipe, f"-data_path={data}", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", f"-output={tmp_path / 'run'}"]
    assert "z_score uses the nonzero voxels" in succeeded(run_main(*words)).out
    weights = tmp_path / "run" / "checkpoints" / "last"
    evaluation = [*recipe, f"-data_path={other}", "-eval", f"-pretrained={weights}", "-allow_changes", "-split=train"]
    said = succeeded(run_main(*evaluation, f"-output={tmp_path / 'eval'}")).out
    assert "z_score uses the nonzero voxels with holes filled" in said and "setting of the weights" in said
    inspected = run_command(
        [sys.executable, "-m", "paddlevit_dist", "inspect", "data", f"-data_path={other}", *recipe[:1], *keys],
    )
    assert "box around nonzero voxels: median 100 % of a volume" in succeeded(inspected).out

    assert yaml.safe_load((weights / "about.yaml").read_text())["input"]["z_score"] == "mask"
    assert read_checkpoint_region(load([*evaluation, "-dataset=nnunet"]).values, False) == "mask"
    assert read_checkpoint_region(load([*words, "-resume=auto"]).values, True) == "mask"
    assert read_checkpoint_region(load(words).values, True) is None
