"""An exported landmark network: the same heatmaps, and a description that suffices to find positions with numpy."""

import numpy as np
import paddle
import yaml
from support.networks.exported_landmarks import NAMES, RECIPE, SIZE, trained

from paddlevit_dist import settings
from paddlevit_dist.export.command import export
from paddlevit_dist.export.scoring import load_exported_layer
from paddlevit_dist.tasks.aspects import get_aspect
from paddlevit_dist.tasks.prediction import CheckpointMeta
from paddlevit_dist.tasks.protocols import Exportable
from paddlevit_dist.tasks.task_factory import make_task


def test_the_description_names_landmarks_input_and_output(tmp_path):
    found = trained()
    export(found, str(tmp_path / "heads"))
    about = yaml.safe_load((tmp_path / "heads.about.yaml").read_text(encoding="utf-8"))
    assert about["landmarks"] == list(NAMES) and about["preprocessing"]["spacing_mm"] == [4.0, 3.0, 3.0]
    assert about["preprocessing"]["windows"] == list(SIZE) and about["input_name"] == "volume"
    example = np.load(tmp_path / "heads.example.npz")
    assert example["output"].shape == (1, 2, *SIZE)
    with paddle.no_grad():
        maps = paddle.jit.load(str(tmp_path / "heads"))(paddle.to_tensor(example["input"]))
    np.testing.assert_allclose(maps.numpy(), example["output"], atol=1e-5)


def test_the_exported_network_finds_what_the_trained_one_finds(tmp_path):
    """In a volume of several windows."""
    found = trained()
    export(found, str(tmp_path / "heads"))
    values = settings.load([*RECIPE, "-eval", f"EXPORTED={tmp_path / 'heads'}", "-pretrained=none"]).values
    task = make_task(values)
    task.load_meta(CheckpointMeta(2, NAMES, {"spacing_mm": [4.0, 3.0, 3.0]}))
    exported = get_aspect(task, Exportable).evaluated_model(load_exported_layer(values, task))
    volume = paddle.to_tensor(np.random.default_rng(1).random((1, 15, 13, 20), np.float32))
    with paddle.no_grad():
        places, confidences = task.find(exported, volume)
        expected_places, expected_confidences = task.find(found.model, volume)
    np.testing.assert_allclose(places, expected_places, atol=1e-3)
    np.testing.assert_allclose(confidences, expected_confidences, atol=1e-5)
