"""An exported landmark network: the same heatmaps, and a description that suffices to find positions with numpy."""

import numpy as np
import paddle
import pytest
import yaml
from support.networks.exported_landmarks import NAMES, RECIPE, SIZE, trained

from paddlevit_dist import settings
from paddlevit_dist.export.command import export
from paddlevit_dist.export.scoring import load_exported_layer
from paddlevit_dist.tasks.aspects import get_aspect
from paddlevit_dist.tasks.prediction import CheckpointMeta
from paddlevit_dist.tasks.protocols import Exportable
from paddlevit_dist.tasks.task_factory import make_task
from paddlevit_dist.volumes.export import make_example


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


@pytest.mark.parametrize(
    "words, intensities, reach",
    [
        (("VOLUMES.INTENSITY_WINDOW", "null"), "percentiles 0.5 and 99.5 of each volume are mapped to 0 and 1", None),
        (("VOLUMES.INTENSITY_WINDOW", "[-100,300.5]"), "-100 and 300.5 are mapped to 0 and 1, without clipping", None),
        (
            ("VOLUMES.DECODING", "soft_argmax", "VOLUMES.SIGMA_MM", "[5,5,5]"),
            "-1000 and 1000 are mapped to 0 and 1, without clipping",
            [4, 5, 5],
        ),
    ],
)
def test_intensities_and_reach_are_described_as_they_are_set(words, intensities, reach):
    about = trained(*words).parts.about
    assert about["preprocessing"]["intensities"] == intensities
    assert about["postprocessing"].get("reach_voxels") == reach  # 3 deviations of 5 mm in voxels of 4, 3 and 3 mm


def test_an_example_is_a_ball_in_noise():
    example = make_example((8, 12, 9))
    assert example.shape == (1, 1, 8, 12, 9) and example.dtype == np.float32
    noise = 0.1 * np.random.default_rng(0).random((8, 12, 9))
    for place in np.ndindex(8, 12, 9):
        distance = sum((at - (length - 1) / 2) ** 2 for at, length in zip(place, (8, 12, 9))) ** 0.5
        assert example[(0, 0, *place)] == pytest.approx(noise[place] + (0.8 if distance < 2 else 0), abs=1e-6)


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
