"""The landmark task: one process or several, what it writes, and what it says about bad input."""

from support.processes import ROOT, run_main, succeeded
from support.trainings.runs import read_events


def test_the_recipe_learns_within_an_epoch(tmp_path):
    """The short form of the scored training."""
    recipe = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "-dataset=synthetic_landmarks", "-ngpus=2", "-epochs=1"]
    smaller = ["VOLUMES.CROP_SIZE", "[24,32,40]", "VOLUMES.OVERLAP", "0.1", "VOLUMES.UNET_DEPTH", "2"]
    succeeded(run_main(*recipe, *smaller, f"-output={tmp_path}"))
    lines = read_events(tmp_path)
    windows = [line["heatmap"] for line in lines if line["kind"] == "training"]
    assert len(windows) == 3 and windows[-1] < 0.75 * windows[0]
