"""An exported landmark network: the same heatmaps, and a description that suffices to find positions with numpy."""

import importlib.util

import numpy as np
import paddle
import pytest
import yaml

from paddlevit_dist import settings
from paddlevit_dist.export.command import Trained, export
from paddlevit_dist.export.scoring import exported_model
from paddlevit_dist.tasks.prediction import TrainedMeta
from paddlevit_dist.tasks.task import make_task
from paddlevit_dist.volumes import decode

SIZE = (12, 10, 14)  # no multiple of what the network halves
NAMES = ("chin", "nose")
RECIPE = ["-cfg=./configs/landmark_unet3d.yaml", "VOLUMES.CROP_SIZE", str(SIZE), "VOLUMES.UNET_WIDTH", "2"]
RECIPE += ["VOLUMES.UNET_DEPTH", "2"]
MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]


def trained(*words):
    values = settings.load([*RECIPE, "-eval", "-pretrained=weights.pdparams", *words]).values
    task = make_task(values)
    task.set_up_from(TrainedMeta(2, NAMES, {"spacing_mm": [4.0, 3.0, 3.0]}))
    paddle.seed(3)
    model = task.build_model(2)
    model.head.weight.set_value(paddle.randn(model.head.weight.shape))
    model.eval()
    parts = task.export_parts()
    facts = {"model": "unet3d", "num_classes": 2, "input_shape": [None, 1, *SIZE], **parts.about}
    return Trained(model, facts, parts)


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
    task.set_up_from(TrainedMeta(2, NAMES, {"spacing_mm": [4.0, 3.0, 3.0]}))
    exported = task.evaluated_model(exported_model(values, task))
    volume = paddle.to_tensor(np.random.default_rng(1).random((1, 15, 13, 20), np.float32))
    with paddle.no_grad():
        places, confidences = task.find(exported, volume)
        expected_places, expected_confidences = task.find(found.model, volume)
    np.testing.assert_allclose(places, expected_places, atol=1e-3)
    np.testing.assert_allclose(confidences, expected_confidences, atol=1e-5)


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")
def test_positions_are_read_from_an_onnx_file_as_described(tmp_path):
    import onnxruntime

    export(trained(), str(tmp_path / "heads"), "onnx")
    example = np.load(tmp_path / "heads.example.npz")
    session = onnxruntime.InferenceSession(str(tmp_path / "heads.onnx"))
    (maps,) = session.run(None, {"volume": np.repeat(example["input"], 3, axis=0)})
    np.testing.assert_allclose(maps[2], example["output"][0], atol=1e-5)
    expected, _ = decode(paddle.to_tensor(example["output"][0]))
    for name, heatmap in enumerate(maps[1]):
        peak = np.array(np.unravel_index(heatmap.argmax(), heatmap.shape))
        position = peak.astype(float)
        for axis in range(3):  # "the vertex of the parabola through the logarithms ..., at most half a voxel away"
            step = np.eye(3, dtype=int)[axis]
            if 0 < peak[axis] < heatmap.shape[axis] - 1:
                before, at, after = (np.log(max(heatmap[tuple(peak + n * step)], 1e-6)) for n in (-1, 0, 1))
                position[axis] += np.clip(0.5 * (before - after) / (before - 2 * at + after), -0.5, 0.5)
        np.testing.assert_allclose(position, expected[name], atol=1e-2)
