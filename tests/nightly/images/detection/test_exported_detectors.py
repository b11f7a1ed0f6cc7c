"""Exported detectors: labels, boxes in pixels and scores, as the trained network finds them, from pixels or floats."""

import json
import sys

import numpy as np
import pytest
import yaml
from PIL import Image
from support.networks.exported_detectors import found_by, make_images, needs_onnx, require_graph, require_paddle_files
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import last_line, read_events, refusal, well

from paddlevit_dist.extensions.export.command import run
from paddlevit_dist.extensions.export.trained_models import load_trained_model


def test_bare_weights_become_files_for_paddle(tmp_path):
    require_paddle_files("detr_small", "float", tmp_path)


@needs_onnx
def test_bare_weights_become_one_graph(tmp_path):
    require_graph("dfine_small", "uint8", "float16", tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on drawn shapes that has learned little, and the evaluation of its weights in "checked"."""
    folder = tmp_path_factory.mktemp("run")
    well(run_main(*SHAPES, f"-output={folder / 'run'}", timeout=600))
    well(evaluated(folder, "checked", f"-pretrained={folder / 'run'}"))
    return folder


SHAPES = [f"-cfg={ROOT / 'configs' / 'rtdetr_shapes.yaml'}", "-ngpus=1", "-epochs=1", "DATA.NUM_WORKERS", "0"]
SHAPES += "DATA.SHAPES.TRAIN 160 DATA.SHAPES.VAL 20 TRAIN.WARMUP_STEPS 5 DATA.BATCH_SIZE 4 VALIDATE_FREQ 1".split()


def evaluated(folder, name, *words):
    command = [sys.executable, "-m", "paddlevit_dist", "evaluate", *words, *SHAPES, f"-output={folder / name}"]
    return run_command([word for word in command if word != "-epochs=1"], timeout=600)


def make_values(folder):
    """Each score, of COCO's twelve and of the categories, with the ends of its interval."""
    found = json.loads((folder / "eval_intervals.json").read_text())["values"]
    return {f"{name} {part}": value for name, parts in found.items() for part, value in parts.items()}


@pytest.fixture(scope="module")
def graph(trained):
    """The folder of "shapes.onnx", which takes pixels, and what belongs to it."""
    run([str(trained / "run"), str(trained / "graph" / "shapes"), "-format=onnx", "-input=uint8"])
    return trained / "graph"


@needs_onnx
def test_an_exported_detector_has_the_scores_of_its_weights(trained, graph, tmp_path):
    ended = well(evaluated(tmp_path, "scored", str(graph / "shapes.onnx")))
    expected, found = make_values(trained / "checked"), make_values(tmp_path / "scored")
    assert expected["AR_100 value"] > 0
    assert found == pytest.approx(expected, abs=1e-5)
    lines = ended.out.splitlines()[-3:]
    assert lines[0].startswith("trained weights: AP 0.") and lines[2].startswith("AP 0.")
    assert lines[1].startswith("after the export: AP ")
    assert "; boxes (as fractions) and scores of nine in ten objects differ by at most " in lines[1]
    assert read_events(tmp_path / "scored")[-1]["largest_difference"] < 1e-4
    about = yaml.safe_load((graph / "shapes.about.yaml").read_text())
    assert about["classes"] == ["circle", "square", "triangle"] and "note" not in about


@needs_onnx
def test_the_pages_program_finds_what_the_weights_find(trained, graph):
    """The program of docs/guides/exporting.md, as it stands."""
    image = np.random.default_rng(0).integers(0, 256, (60, 90, 3)).astype(np.uint8)
    Image.fromarray(image).save(graph / "image.png")
    program = (
        (ROOT / "docs" / "guides" / "exporting.md").read_text(encoding="utf-8").split("```python\n")[2].split("```")[0]
    )
    (graph / "detect.py").write_text(program, encoding="utf-8")
    words = [sys.executable, "detect.py", "shapes", "image.png"]
    ended = well(run_command(words, timeout=600, folder=graph))
    pixels = np.asarray(Image.fromarray(image).resize((48, 48), Image.Resampling.BILINEAR))[None]
    network, images = (
        load_trained_model(str(trained / "run")).model.model,
        make_images(pixels, "detr_small"),
    )  # ImageNet's mean
    labels, boxes, scores = found_by(network, images, np.array([[90, 60]]))
    lines = [line.split() for line in ended.out.splitlines()]
    assert [name for name, *_ in lines] == [("circle", "square", "triangle")[label] for label in labels[0]]
    found = np.array([line[1:] for line in lines], float)
    np.testing.assert_allclose(found, np.concatenate([scores[0][:, None], boxes[0]], 1), rtol=0, atol=0.06)


def test_paddles_files_are_scored_and_another_preparation_is_refused(trained, tmp_path):
    run([str(trained / "run"), str(tmp_path / "out"), "-input=uint8"])
    ended = well(evaluated(tmp_path, "scored", str(tmp_path / "out"), "-pretrained=none"))
    assert make_values(tmp_path / "scored") == pytest.approx(make_values(trained / "checked"), abs=1e-5)
    assert "Paddle's inference model on cpu)" in last_line(ended)
    other = evaluated(tmp_path, "other", str(tmp_path / "out"), "DATA.IMAGENET_MEAN", "[0.4,0.4,0.4]")
    assert "expects other preprocessing: preprocessing.subtract [0.485, 0.456, 0.406] there" in refusal(other)


def write_identity(file, *inputs):
    """A model whose one output is its first input."""
    from onnx import TensorProto, helper, save

    sources = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", 3, 48, 48)) for name in inputs]
    found = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Identity", [inputs[0]], ["scores"])], "others", sources, found)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return str(file)


@needs_onnx
def test_a_model_of_one_output_is_none_of_a_detector(tmp_path):
    message = refusal(evaluated(tmp_path, "scored", write_identity(tmp_path / "others.onnx", "pixels")))
    assert "takes 1 inputs (pixels (batch, 3, 48, 48) float32): expected two, images and orig_target_sizes" in message
    file = write_identity(tmp_path / "two.onnx", "pixels", "sizes")
    assert "two.onnx: cannot be computed for (batch, 3, 48, 48)" in refusal(evaluated(tmp_path, "scored", file))


@needs_onnx
@pytest.mark.parametrize("label", [2, 7])
def test_another_makers_file_of_the_same_inputs_and_outputs_is_scored(label, tmp_path):
    """Two boxes at fixed shares of each picture, in a file without a description, for batches of three."""
    from onnx import TensorProto, helper, numpy_helper, save

    shares, scores = np.float32([[[0.1, 0.2, 0.5, 0.8], [0, 0, 1, 1]]]), np.float32([[0.75, 0.5]])
    constants = {"shares": shares, "given": scores, "zero": np.float32(0), "axes": np.array([1]), "label": label}
    nodes = [
        helper.make_node("Cast", ["orig_target_sizes"], ["size"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["size", "size"], ["sides"], axis=1),
        helper.make_node("Unsqueeze", ["sides", "axes"], ["of_picture"]),
        helper.make_node("Mul", ["of_picture", "shares"], ["boxes"]),
        helper.make_node("Mul", ["size", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "given"], ["scores"]),
        helper.make_node("Cast", ["nothing"], ["none"], to=TensorProto.INT64),
        helper.make_node("Add", ["none", "label"], ["labels"]),
    ]
    shapes = {"images": [3, 48, 48], "orig_target_sizes": [2], "scores": [2], "boxes": [2, 4], "labels": [2]}
    kinds = {"labels": TensorProto.INT64, "orig_target_sizes": TensorProto.INT64}
    values = {
        name: helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), [3, *shape])
        for name, shape in shapes.items()
    }
    inputs = [values.pop("images"), values.pop("orig_target_sizes")]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "others", inputs, list(values.values()), tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, str(tmp_path / "others.onnx"))
    ended = evaluated(tmp_path, "scored", str(tmp_path / "others.onnx"), "SAVE_PREDICTIONS", "true")
    if label == 7:
        assert "EXPORTED returns label 7, but these data have 0 to 2: use data with its classes" in refusal(ended)
        return
    well(ended)
    assert "does not store its preprocessing; this is used: mode RGB, resize [48, 48]" in ended.out
    found = json.loads((tmp_path / "scored" / "predictions" / "results.json").read_text())
    assert len(found) == 2 * 20 and found[0]["category_id"] == found[1]["category_id"]
    np.testing.assert_allclose(found[0]["bbox"], 48 * np.array([0.1, 0.2, 0.4, 0.6]), atol=1e-4)
    np.testing.assert_allclose(found[1]["bbox"], [0, 0, 48, 48], atol=1e-4)
