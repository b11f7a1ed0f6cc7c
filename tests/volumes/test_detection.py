"""The landmark task: one process or several, what it writes, and what it says about bad input."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from support.processes import ROOT, run_main, run_workers, succeeded
from support.small_runs import Part
from volumes.volume_files import world, write_landmarks, write_volume

from paddlevit_dist import Run, settings
from paddlevit_dist.engine.compatibility import Compatibility
from paddlevit_dist.registry import resolve
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.volumes.geometry import Geometry

TINY = "VOLUMES.UNET_WIDTH 4 VOLUMES.UNET_DEPTH 2 VOLUMES.CROP_SIZE [16,16,16] VOLUMES.OVERLAP 0.1".split()
TINY += ["DATA.NUM_WORKERS", "0"]
SGD = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.05", "TRAIN.GRAD_CLIP", "None", "TRAIN.WARMUP_STEPS", "0"]


def build(output: str, *arguments: str, train_size: int = 8, val_size: int = 3) -> Run:
    recipe = f"-cfg={ROOT}/configs/landmark_unet3d.yaml"
    values = settings.load([recipe, f"-output={output}", *TINY, "REPORT_FREQ", "1", *arguments]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    task = resolve("task", values.TASK)(values)
    sizes = {"train": train_size, "val": val_size}
    return Run(values, task, {split: Part(task.build_dataset(split, Path(output)), n) for split, n in sizes.items()})


def train(output: str, *arguments: str) -> dict[str, Any]:
    trainer = build(output, "-epochs=2", *SGD, *arguments, val_size=1)
    values = trainer.train()
    lines = [json.loads(line) for line in Path(output, "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": {name: tensor.numpy() for name, tensor in trainer.model.state_dict().items()},
        "losses": [line["heatmap"] for line in lines if line["kind"] == "training"],
        "evaluation": values,
    }


def evaluate(output: str) -> dict[str, float]:
    trainer = build(output, "-epochs=1", "-batch_size=2", "VOLUMES.CROP_SIZE", "[40,48,48]", val_size=5)
    return trainer.evaluation("evaluation")[0]


@pytest.mark.parametrize("loss, rate", [("mse", "0.05"), ("focal", "0.002")])
def test_two_processes_train_as_one_on_the_whole_batch(tmp_path, loss, rate):
    """Phantoms miss landmarks at random, so the ranks hold different numbers of them."""
    chosen = ["VOLUMES.LOSS", loss, "TRAIN.BASE_LR", rate]
    one = train(str(tmp_path / "1"), "-batch_size=4", *chosen)
    first, second = succeeded(
        run_workers("volumes.test_detection:train", str(tmp_path / "2"), "-batch_size=2", *chosen, processes=2)
    ).results
    assert len(one["losses"]) == 4 and one["losses"][-1] < one["losses"][0]
    np.testing.assert_allclose(first["losses"], one["losses"], rtol=1e-4)
    for name, expected in one["weights"].items():
        assert np.array_equal(first["weights"][name], second["weights"][name]), name
        np.testing.assert_allclose(first["weights"][name], expected, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.long
def test_the_recipe_learns_within_an_epoch(tmp_path):
    """The short form of the scored training."""
    recipe = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "-dataset=synthetic_landmarks", "-ngpus=2", "-epochs=1"]
    smaller = ["VOLUMES.CROP_SIZE", "[24,32,32]", "VOLUMES.OVERLAP", "0.1", "VOLUMES.UNET_DEPTH", "2"]
    succeeded(run_main(*recipe, *smaller, f"-output={tmp_path}"))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    windows = [line["heatmap"] for line in lines if line["kind"] == "training"]
    assert len(windows) == 3 and windows[-1] < 0.75 * windows[0]


def test_evaluation_is_equal_for_1_2_and_3_processes(tmp_path):
    one = evaluate(str(tmp_path / "1"))
    results: list[dict[str, float]] = []
    for processes in (2, 3):
        target = "volumes.test_detection:evaluate"
        ended = succeeded(run_workers(target, str(tmp_path / str(processes)), processes=processes))
        assert all(values == ended.results[0] for values in ended.results)
        results.append(ended.results[0])
    assert 30 <= one["landmarks"] <= 40
    assert results[1] == pytest.approx(results[0], rel=1e-9)
    # This process computes products without the workers' tuning, which rounds differently.
    assert results[0] == pytest.approx(one, rel=1e-5)


def small_folder(folder: Path) -> Path:
    """Two splits of two volumes whose sizes differ; one landmark is missing in one of them."""
    for split in ("train", "val"):
        for number, shape in enumerate([(10, 12, 14), (16, 18, 20)]):
            array = np.random.default_rng(number).integers(-1000, 1000, shape).astype(np.int16)
            write_volume(folder / split / f"case{number}.nii.gz", array)
            positions = {"nose": world((3.0, 4.0, 5.0)), "chin": world((8.0, 9.0, 6.0)) if number else None}
            write_landmarks(folder / split / f"case{number}.csv", positions)
    return folder


def test_a_folder_trains_and_its_predictions_are_written(tmp_path):
    data = small_folder(tmp_path / "data")
    recipe = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "-dataset=landmarks", f"-data_path={data}"]
    recipe += ["-batch_size=1", "VOLUMES.MIRROR_PAIRS", "none", *TINY]
    succeeded(run_main(*recipe, "-ngpus=1", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", f"-output={tmp_path / 'run'}"))
    weights = tmp_path / "run" / "checkpoints" / "last"
    evaluation = ["-eval", f"-pretrained={weights}", f"-output={tmp_path / 'eval'}", "SAVE_PREDICTIONS", "true"]
    ended = succeeded(run_main(*recipe, "-ngpus=2", *evaluation, f"-per_sample={tmp_path / 'samples.csv'}"))
    mean = float(ended.out.strip().splitlines()[-1].split()[1])
    folder = tmp_path / "eval" / "predictions"
    with open(folder / "landmarks.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["case"], row["landmark"]) for row in rows] == [
        (case, name) for case in ("case0", "case1") for name in ("chin", "nose")
    ]
    assert rows[0]["radial_error_mm"] == "" and all(0 <= float(row["confidence"]) <= 1 for row in rows)
    place = np.array([float(rows[1][axis]) for axis in ("x_mm", "y_mm", "z_mm")])
    error = np.linalg.norm(place - world((3.0, 4.0, 5.0)))
    assert error == pytest.approx(float(rows[1]["radial_error_mm"]), abs=1e-3)
    errors = [float(row["radial_error_mm"]) for row in rows if row["radial_error_mm"]]
    assert mean == pytest.approx(np.mean(errors), abs=1e-3)
    with open(tmp_path / "samples.csv", encoding="utf-8", newline="") as lines:
        samples = list(csv.DictReader(lines))
    assert [sample["world"] for sample in samples] == [rows[0]["world"]] * 2
    for row in rows:
        sample = samples[int(row["case"].removeprefix("case"))]
        assert row["case"] in sample["name"]
        for ours, theirs in (("error_mm", "radial_error_mm"), ("x_mm", "x_mm"), ("y_mm", "y_mm"), ("z_mm", "z_mm")):
            assert float(sample[f"{row['landmark']} {ours}"] or 0) == pytest.approx(float(row[theirs] or 0), abs=1e-3)
    summary = (folder / "per_landmark.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in summary] == ["landmark", "chin", "nose", "all"]
    assert float(summary[-1].split(",")[1]) == pytest.approx(mean, abs=1e-3)
    for case in ("case0", "case1"):
        with Image.open(folder / f"{case}.png") as image:
            assert image.width > 2 * image.height > 400
        assert all((folder / f"{case}{suffix}").is_file() for suffix in (".fcsv", ".mrk.json"))
    check_what_weights_say(data, weights, [*recipe, "-eval", f"-pretrained={weights}"])


def check_what_weights_say(data: Path, weights: Path, arguments: list[str]) -> None:
    """Evaluations with another window stop."""

    def compare(*more: str) -> list[str]:
        values = settings.load([*arguments, *more]).values
        task = resolve("task", values.TASK)(values)
        task.build_dataset("val", data / "cache")
        return Compatibility("evaluate", weights, values, task).input()

    assert yaml.safe_load((weights / "about.yaml").read_text())["input"] == {
        "orientation": "RAS",
        "spacing_mm": [2.0, 1.5, 1.0],
        "intensity_window": [-1000.0, 1000.0],
        "landmarks": ["chin", "nose"],
    }
    assert compare() == []
    with pytest.raises(UserError, match=r"intensity_window \[-1000.0, 1000.0\] there, percentiles here"):
        compare("VOLUMES.INTENSITY_WINDOW", "None")
    assert "other input" in compare("VOLUMES.INTENSITY_WINDOW", "None", "-allow_changes")[0]


def task_of(*arguments: str) -> Any:
    values = settings.load([f"-cfg={ROOT}/configs/landmark_unet3d.yaml", *TINY, *arguments]).values
    return resolve("task", values.TASK)(values)


def test_a_batch_carries_coordinates_not_heatmaps():
    task = task_of()
    samples = task.build_dataset("train", Path("unused"))
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(3)])
    assert batch["volume"].shape == (3, 1, 16, 16, 16)
    label_bytes = sum(array.nbytes for name, array in batch.items() if name != "volume") / 3
    assert label_bytes <= 1024
    assert task.counts(batch)["heatmap"] == int(np.isfinite(batch["points"]).all(axis=-1).sum()) <= 24


def test_whole_volumes_of_different_sizes_share_a_batch(tmp_path):
    data = small_folder(tmp_path)
    task = task_of("-dataset=landmarks", f"-data_path={data}", "VOLUMES.MIRROR_PAIRS", "none")
    samples = task.build_dataset("val", tmp_path / "cache")
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in range(2)])
    assert batch["volume"].shape == (2, 1, 16, 18, 20) and batch["sizes"].tolist() == [[10, 12, 14], [16, 18, 20]]
    geometry = Geometry((16, 18, 20), batch["affine"][1])
    np.testing.assert_allclose(geometry.world(batch["points"][1].astype(float))[1], world((3.0, 4.0, 5.0)), atol=1e-4)


def test_a_map_of_zeros_costs_one_per_landmark():
    import paddle

    task = task_of("VOLUMES.CROP_SIZE", "[40,48,48]")
    task.build_dataset("val", Path("unused"))
    points = paddle.to_tensor([[[20.0, 24.0, 24.0]] * 8])
    terms = task.train_step(lambda volume: paddle.zeros([1, 8, 40, 48, 48]), {"points": points, "volume": points}, None)
    assert (terms["heatmap"].sum / terms["heatmap"].count).item() == pytest.approx(1.0, rel=1e-3)


def test_images_show_training_crops_and_whole_volumes():
    task = task_of()
    samples = task.build_dataset("train", Path("unused"))
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(2)])
    for images in (task.images(samples, batch, 1), task.evaluation_images(samples, [0, 1])):
        assert len(images) == 2 and images[0][0].dtype == np.uint8 and images[0][1].endswith("of 8 landmarks")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["-dataset=digits"],
            "digits holds images, but TASK landmarks reads volumes: take landmarks, syn",
        ),
        (
            ["TASK", "classification"],
            "VOLUMES.CROP_SIZE is read by tasks landmarks, volume_segmentation, not by classification",
        ),
        (["-num_classes=3"], "MODEL.NUM_CLASSES .* is 3, but there are 8 landmarks"),
        (["VOLUMES.INTENSITY_WINDOW", "[5,1]"], "expected the smaller number first"),
        (["VOLUMES.MIRROR_PAIRS", "[nose]"], "VOLUMES.MIRROR_PAIRS 'nose'"),
    ],
)
def test_bad_settings_are_told(arguments, message):
    with pytest.raises(UserError, match=message):
        task_of(*arguments).build_dataset("train", Path("unused"))


def test_options_that_only_classifiers_have_are_refused(tmp_path):
    for option, message in (("TO_STATIC", "cannot be compiled"), ("TRAIN.RECOMPUTE", "cannot recompute")):
        with pytest.raises(UserError, match=rf"{option}: task landmarks {message}; leave it out"):
            build(str(tmp_path), "-batch_size=2", option, "True").train()
