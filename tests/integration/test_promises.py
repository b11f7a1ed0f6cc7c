"""The smallest test of each promise of the README: ``make test`` runs this file beside the unit tests.

One training run on two processes that resumes, its evaluation on one to three processes, its export, and one prediction
of each task.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import ROOT, Finished, run_command, run_main
from support.trainings.runs import DIGITS, contents, last_line, read_events, refused, well
from support.trainings.untrained import write_untrained_run

from paddlevit_dist.images.data.small_sets import DIGITS_FILE
from paddlevit_dist.points.data.ply import write_points

TRAIN = [
    *DIGITS,
    "-epochs=2",
    "-ngpus=2",
    "-batch_size=8",
    "-seed=3",
    "TRAIN.BASE_LR",
    "1e-2",
    "TRAIN.WARMUP_STEPS",
    "10",
]


def run_tool(*words: object) -> Finished:
    """Run ``python -m paddlevit_dist`` with these words, without an error."""
    return well(run_command([sys.executable, "-m", "paddlevit_dist", *map(str, words)]))


class Trained(NamedTuple):
    ended: Finished
    output: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    """Two epochs on two processes, without an interruption."""
    output = tmp_path_factory.mktemp("trained") / "output"
    return Trained(well(run_main(*TRAIN, f"-output={output}")), output)


def test_a_resumed_training_run_on_two_processes_ends_bit_equal(trained, tmp_path):
    words = [*TRAIN, f"-output={tmp_path}"]
    well(run_main(*words, "-stop_after_epoch=1"))
    resumed = well(run_main(*words, "-resume=auto"))
    weights = "checkpoints/epoch_0002/model.pdparams"
    assert contents(tmp_path)[weights] == contents(trained.output)[weights]
    assert last_line(resumed).split(" (")[0] == last_line(trained.ended).split(" (")[0]


def test_training_learns(trained):
    rows = read_events(trained.output)
    scores = [row["top-1"] for row in rows if row["kind"] == "evaluation"]
    assert scores[-1] > scores[0] and scores[-1] > 30  # one digit in ten by chance


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_score_does_not_depend_on_the_number_of_processes(trained, processes):
    """In four batches: processes have different numbers of them, and their rows do not come in the order of samples."""
    output = trained.output.parent / str(processes)
    words = [*DIGITS, "-eval", f"-pretrained={trained.output}", f"-ngpus={processes}", "-batch_size_eval=100"]
    evaluated = well(run_main(*words, f"-output={output}"))
    assert last_line(evaluated) == last_line(trained.ended).split(" (")[0]
    table, before = np.load(output / "eval_scored_samples.npz"), np.load(trained.output / "scored_samples.npz")
    np.testing.assert_array_equal(table["indices"], range(360))
    np.testing.assert_array_equal(table["labels"], np.load(DIGITS_FILE)["labels"][::5])
    np.testing.assert_array_equal(table["places"], before["places"])
    np.testing.assert_allclose(table["losses"], before["losses"], atol=1e-4)


def test_an_exported_model_gives_the_outputs_of_the_trained_one(trained, tmp_path):
    said = run_tool("export", trained.output, tmp_path / "digits")
    assert "differ by at most" in said.out
    example = np.load(tmp_path / "digits.example.npz")
    exported = paddle.jit.load(str(tmp_path / "digits"))
    outputs = exported(paddle.to_tensor(example["input"])).numpy()
    np.testing.assert_allclose(outputs, example["output"], rtol=1e-4, atol=1e-5)


def test_a_mistake_is_one_line_that_names_it():
    assert "BASE_LRR" in refused(*DIGITS, "TRAIN.BASE_LRR", "1")


def write_image(folder: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "new.png")
    return folder / "new.png"


def write_scene(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    columns = {name: generator.uniform(0, 2, 300).astype(np.float32) for name in "xyz"}
    columns.update({name: generator.integers(0, 256, 300, dtype=np.uint8) for name in ("red", "green", "blue")})
    write_points(folder / "new.ply", columns)
    return folder / "new.ply"


def write_volume(folder: Path) -> Path:
    np.savez(
        folder / "new.npz",
        volume=np.random.default_rng(0).integers(-900, 900, (8, 9, 10)).astype(np.int16),
        affine=np.eye(4),
    )
    return folder / "new.npz"


UNET = "VOLUMES.UNET_WIDTH 2 VOLUMES.UNET_DEPTH 1 VOLUMES.CROP_SIZE [6,10,8]".split()
CLUSTERS = "MODEL.OPTIONS.width 8 MODEL.OPTIONS.repeats 1 POINTS.INSTANCES.PREPARE_EPOCHS 0".split()
# Task -> recipe, keys that make its network small, and what writes an input.
TASKS = {
    "classification": ("vit_digits", [], write_image),
    "detection": ("detr_shapes", ["MODEL.NUM_QUERIES", "5"], write_image),
    "segmentation": ("segformer_b0_shapes", [], write_image),
    "semantic scenes": ("minkunet14_synthetic_rooms", ["MODEL.NAME", "minkunet_tutorial"], write_scene),
    "instances": ("pointgroup_synthetic_rooms", CLUSTERS, write_scene),
    "shapes": ("mink_classifier_solids", [], write_scene),
    "landmarks": ("landmark_unet3d", UNET, write_volume),
    "volume segmentation": ("volume_unet3d_phantoms", UNET, write_volume),
}


@pytest.mark.parametrize("task", TASKS)
def test_each_task_predicts_what_it_is_given(task, tmp_path):
    recipe, keys, write_input = TASKS[task]
    weights = write_untrained_run(tmp_path / "run", [f"-cfg={ROOT}/configs/{recipe}.yaml", *keys])
    new = write_input(tmp_path)
    said = run_tool("predict", weights, new, f"-output={tmp_path / 'out'}", "-num_workers=0")
    assert "1 predicted" in said.out
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert rows and all(row["input"] == str(new) for row in rows)
