"""A folder in nnU-Net's layout is trained on, evaluated and predicted."""

import csv
import sys

import nibabel
import numpy as np
import pytest
from support.files.nnunet_folders import REGIONS, SECOND, raw_data
from support.processes import ROOT, run_command, run_main, succeeded
from support.trainings.runs import last_line, read_events

PHANTOMS = "configs/volume_unet3d_phantoms.yaml"
PLANNED = ["VOLUMES.UNET_WIDTH", "2", "VALIDATE_FREQ", "1", "SAVE_FREQ", "1", "DATA.NUM_WORKERS", "0"]
TINY = [
    *("VOLUMES.CROP_SIZE", "[8, 12, 10]", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "2", "VALIDATE_FREQ", "1"),
    *("VOLUMES.NORMALIZE", "[percentiles, z_score]", "VOLUMES.SPACING_MM", "[2.0, 2.0, 2.0]", "SAVE_FREQ", "1"),
    *("VOLUMES.INTENSITY_WINDOW", "None", "VOLUMES.TEST_MIRROR", "true", "DATA.NUM_WORKERS", "0"),
]


def test_a_folder_of_nnunets_trains_and_predictions_lie_in_it(tmp_path):
    """One of regions at night."""
    groups = {"spleen": [2], "liver": [5]}
    require_a_training_and_predictions(tmp_path, SECOND, "classes background, spleen, liver", groups)


def compute_dice(written, labels, groups) -> list[float]:
    """The Dice of each group of a file that an evaluation has written, which lies where the labels do."""
    true, found = nibabel.load(labels), nibabel.load(written)
    np.testing.assert_allclose(found.affine, true.affine, atol=1e-5)
    found, true = (np.asarray(image.dataobj) for image in (found, true))
    assert set(np.unique(found)) <= {0, 2, 5}
    dice = []
    for numbers in groups.values():
        is_true, is_found = np.isin(true, numbers), np.isin(found, numbers) & (true != 9)
        dice.append(2 * (is_true & is_found).sum() / (is_true.sum() + is_found.sum()))
    return dice


def require_a_training_and_predictions(tmp_path, description, kind, groups):
    """Two channels and another spacing: the scores are those of the files that are written, for any number of
    processes, and ``predict`` writes the same labels with the numbers and the affine of the folder. Regions are trained
    by a plan."""
    data = raw_data(tmp_path / "raw", description=description)
    recipe = [f"-cfg={ROOT}/{PHANTOMS}", f"-data_path={data}", "-batch_size=1", *TINY]
    components: list[str] = []  # of the evaluation
    if description is REGIONS:
        plan = str(tmp_path / "plan.yaml")
        succeeded(run_command([sys.executable, "-m", "paddlevit_dist", "prepare", "plan", str(data), plan]))
        recipe, components = [f"-cfg={plan}", "-batch_size=1", *PLANNED], ["VOLUMES.LARGEST_COMPONENT", "[liver]"]
    weights, evaluated = tmp_path / "run" / "checkpoints" / "last", tmp_path / "eval"
    ended = succeeded(
        run_main(*recipe, "-ngpus=1", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", f"-output={tmp_path / 'run'}")
    )
    assert "data: nnunet" in ended.out.replace("dataset", "data") and f"channels CT, PET, {kind}" in ended.out
    evaluation = [*recipe, "-eval", f"-pretrained={weights}", "-split=train", "SAVE_PREDICTIONS", "true", *components]
    lines = {}
    for processes, batch in ((1, 2), (3 if description is REGIONS else 2, 1)):
        words = [f"-output={evaluated}{processes}", f"-ngpus={processes}", f"-batch_size={batch}"]
        ended = succeeded(run_main(*evaluation, *words, f"-per_sample={tmp_path / 'samples.csv'}"))
        lines[processes] = last_line(ended)
    assert len(set(lines.values())) == 1
    values = read_events(tmp_path / "eval1")[-1]
    written = sorted((tmp_path / "eval1" / "predictions").glob("*.nii.gz"))
    assert len(written) == 2
    dice = [compute_dice(file, data / "labelsTr" / file.name, groups) for file in written]
    assert values["Dice"] == pytest.approx(np.mean(dice), abs=1e-6)
    with open(tmp_path / "samples.csv", encoding="utf-8", newline="") as rows:
        assert [float(row["Dice liver"]) for row in csv.DictReader(rows)] == pytest.approx(
            [own[1] for own in dice], abs=1e-4
        )
    command = [
        sys.executable,
        "-m",
        "paddlevit_dist",
        "predict",
        *[str(weights)] * (2 if description is REGIONS else 1),  # the mean of a model with itself
        str(data),  # without what lies in labelsTr
        f"--output={tmp_path / 'new'}",
        *(["-largest_component=liver"] if components else []),
    ]
    assert "3 predicted" in succeeded(run_command(command)).out
    for file in written:
        again, before = (nibabel.load(place) for place in (tmp_path / "new" / file.name, file))
        np.testing.assert_array_equal(np.asarray(again.dataobj), np.asarray(before.dataobj))
        np.testing.assert_array_equal(again.affine, before.affine)
    decide = ["evaluate", "components", str(tmp_path / "eval1" / "predictions"), str(data)]
    ended = succeeded(run_command([sys.executable, "-m", "paddlevit_dist", *decide]))
    assert ended.out.startswith(f"foreground: Dice {values['Dice']:.4f}, ") and "2 volumes: " in ended.out
