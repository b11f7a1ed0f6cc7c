"""Networks whose queries learn masks give the same weights for any number of processes, also without objects, in
micro-batches and recomputed; and resume as if nothing had happened, with masks and points that are drawn."""

import numpy as np
import pytest
from support.processes import run_together
from support.trainings import small_detections, small_panoptic, small_segmenters

SMALL = "backbone_options: {patch_size: 8, embed_dim: 16, depth: 2, num_heads: 2}, num_blocks: 1, loss_points: 64"
EVEN = ["TRAIN.RANDOM_SAMPLING", "False", "MODEL.TYPE", "eomt", "MODEL.OPTIONS", f"{{{SMALL}, num_queries: 6}}"]
MAPS = [*EVEN, "MODEL.NAME", "eomt_semantic_shapes", "DATA.SHAPES.TRAIN", "12", "DATA.SHAPES.VAL", "3"]
BOXES = [*EVEN[:-1], f"{{{SMALL}}}", "MODEL.NUM_QUERIES", "6", "MODEL.NAME", "eomt_instance_shapes"]
BOXES += ["MODEL.MASK_PADDING", "False", "DATA.SCALE_JITTER", "[0.7, 1.5]", "DATA.EVAL_LONGEST_SIDE", "32"]
BOXES += ["DATA.SHAPES.OBJECTS_PER_IMAGE", "[0, 2]", "DATA.SHAPES.TRAIN", "12", "DATA.SHAPES.VAL", "3"]
SEGMENTS = [*EVEN[:2], "MODEL.TYPE", "eomt_panoptic", *EVEN[4:], "MODEL.NAME", "eomt_panoptic_shapes"]
SEGMENTS += ["DATA.SHAPES.TRAIN", "12", "DATA.SHAPES.VAL", "3", "TRAIN.WARMUP_STEPS", "None"]
TASKS = {"maps": (small_segmenters, MAPS), "boxes": (small_detections, BOXES), "segments": (small_panoptic, SEGMENTS)}
MODULE = "support.trainings.small_{}:train"
NAMES = {"maps": "segmenters", "boxes": "detections", "segments": "panoptic"}


def _largest_difference(left, right):
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trainings by one process, by two and by three, in updates of six images."""
    folder = tmp_path_factory.mktemp("queries")
    whole = {}
    for name, (training, words) in TASKS.items():
        whole[name] = training.train(str(folder / f"{name}_1"), ["-batch_size=6", *words])
    shared = {}
    for processes in (2, 3):
        calls = {
            name: (
                MODULE.format(NAMES[name]),
                (str(folder / f"{name}_{processes}"), [f"-batch_size={6 // processes}", *words]),
            )
            for name, (_, words) in TASKS.items()
        }
        shared[processes] = run_together(calls, processes=processes)
    return folder, whole, shared


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", TASKS)
def test_any_number_of_processes_gives_the_weights_of_one(name, processes, runs):
    folder, whole, shared = runs
    training, words = TASKS[name]
    ranks = shared[processes][name]
    assert all(_largest_difference(ranks[0]["weights"], rank["weights"]) == 0.0 for rank in ranks)
    start = training.make_weights(training.build(str(folder / f"{name}_start_{processes}"), *words))
    moved = _largest_difference(start, whole[name]["weights"])
    assert moved > 1e-3 and _largest_difference(whole[name]["weights"], ranks[0]["weights"]) < 1e-3 * moved


@pytest.mark.parametrize("words", [["-batch_size=3", "-accum_iter=2"], ["-batch_size=6", "TRAIN.RECOMPUTE", "True"]])
@pytest.mark.parametrize("name", TASKS)
def test_micro_batches_and_recomputed_blocks_give_the_same_weights(name, words, runs, tmp_path):
    folder, whole, _ = runs
    training, own = TASKS[name]
    found = training.train(str(tmp_path / "run"), [*own, *words])["weights"]
    start = training.make_weights(training.build(str(tmp_path / "start"), *own))
    moved = _largest_difference(start, whole[name]["weights"])
    assert _largest_difference(whole[name]["weights"], found) < 1e-3 * moved


def test_low_rank_terms_train_beside_frozen_blocks_and_resume(runs, tmp_path):
    """Also with an average of the weights, whose names are those of the run."""
    folder, whole, _ = runs
    words = [*SEGMENTS, "-batch_size=6", "TRAIN.LORA.RANK", "2", f"-pretrained={folder / 'segments_1'}", "-epochs=2"]
    words += ["TRAIN.MODEL_EMA", "True", "TRAIN.MODEL_EMA_DECAY", "0.5"]
    found = small_panoptic.train(str(tmp_path / "whole"), words)["weights"]
    start = whole["segments"]["weights"]
    added = {name for name in found if name not in start}
    assert {name.split(".")[2] for name in added} == {"0", "1"} and len(added) == 2 * 4 * 2  # blocks, layers, factors
    changed = {name for name in start if np.abs(found[name] - start[name]).max() > 0}
    assert "class_head.weight" in changed and not any(name.startswith("backbone.blocks") for name in changed)
    output = str(tmp_path / "parts")
    small_panoptic.train(output, [*words, "-stop_after_epoch=1"])
    resumed = small_panoptic.train(output, [*words, "-resume=auto"])
    assert _largest_difference(found, resumed["weights"]) == 0.0


def test_a_resumed_training_draws_what_it_would_have_drawn(tmp_path):
    words = [*MAPS, "TRAIN.RANDOM_SAMPLING", "True", "-epochs=2", "-batch_size=6"]
    whole = small_segmenters.train(str(tmp_path / "whole"), words)
    output = str(tmp_path / "parts")
    small_segmenters.train(output, [*words, "-stop_after_epoch=1"])
    resumed = small_segmenters.train(output, [*words, "-resume=auto"])
    assert _largest_difference(whole["weights"], resumed["weights"]) == 0.0
