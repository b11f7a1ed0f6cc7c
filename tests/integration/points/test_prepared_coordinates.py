"""Prepared scenes: where they lie, their units and labels, from the raw files to predictions."""

import dataclasses

import numpy as np
import paddle
import pytest
from support.files.georeferenced_scenes import UTM, room, write_ply

from paddlevit_dist.core import settings
from paddlevit_dist.core.inference.evaluation import SavedPredictions
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.prepare.store import prepare_store
from paddlevit_dist.points.prepare.tables import PlyReader

WRITING = ("-eval", "-pretrained=x", "SAVE_PREDICTIONS", "true")


@pytest.mark.parametrize("name, written", (("semantic_segmentation", ""), ("pointgroup", "_truth _prediction")))
def test_predictions_have_the_coordinates_of_the_source(tmp_path, name, written):
    """From PLY files over the store, the batch and an untrained network to PLY files."""
    xyz = {letter: room(600, seed)[0].astype(np.float64) + UTM for seed, letter in enumerate("abc")}
    prepare(tmp_path / "in", tmp_path / "out", xyz)
    words = ["TASK", name, "-dataset=scenes", f"-data_path={tmp_path / 'out'}", "DATA.VOXEL_SIZE_M", "0.2"]
    instances = "pointgroup MODEL.OPTIONS.width 4 POINTS.INSTANCES.STUFF_CLASSES []"
    network = instances if name == "pointgroup" else "minkunet_tutorial"
    task = resolve("task", name)(settings.load([*words, "MODEL.NAME", *network.split(), *WRITING]).values)
    samples = task.build_dataset("train", tmp_path)
    evaluated = task.build_dataset("val", tmp_path)
    written_to = tmp_path / "predictions"
    written_to.mkdir()
    model = task.build_model()
    model.eval()
    plain = dataclasses.replace(samples, steps=evaluated.steps)
    batch = task.collate([plain.sample(index, np.random.default_rng(0)) for index in range(2)])
    tensors = {key: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value for key, value in batch.items()}
    writer = SavedPredictions(get_aspect(task, Predictable).prediction_writer(written_to, plain), written_to, range(2))
    with paddle.no_grad():
        task.eval_step(model, tensors, EvaluationStep(task.build_metrics(), writer))
    for letter in "ab":
        for ending in written.split() or [""]:
            columns = read_vertices(written_to / f"{letter}{ending}.ply")
            found = np.stack([columns[axis] for axis in "xyz"], axis=1)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, xyz[letter], rtol=0, atol=1e-6)


def prepare(folder, output, scenes, reader=PlyReader):
    """A store of these scenes: arrays (P, 3) by name."""
    folder.mkdir(exist_ok=True)
    for name, xyz in scenes.items():
        write_ply(folder / f"{name}.ply", xyz, np.zeros(xyz.shape, np.uint8))
    splits = reader().sources(str(folder), dict.fromkeys(("train", "val", "test")))
    return prepare_store(reader(), splits, str(folder), output, workers=1)
