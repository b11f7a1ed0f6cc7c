"""Exported detectors: labels, boxes in pixels and scores, as the trained network finds them, from pixels or floats."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from PIL import Image
from support.processes import ROOT, run_command, run_main
from support.rtdetr_networks import CLASSES, SIDE, SMALL, network_of
from support.runs import events, refusal, well

from paddlevit_dist.export.command import export, load_trained, run
from paddlevit_dist.export.pixels import of_pixels
from paddlevit_dist.images.detection.export import difference
from paddlevit_dist.models import create_model
from paddlevit_dist.runtime.errors import UserError

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
MISSING += [] if paddle.__version__ >= "3" else ["Paddle 3, which paddle2onnx needs"]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")
NAMES = ["detr_small", *SMALL]
MEANS = {"detr_small": (0.485, 0.456, 0.406)}
DEVIATIONS = {"detr_small": (0.229, 0.224, 0.225)}
HOST_DECISIONS = {"NonZero", "If", "Loop", "Scan", "Unique", "Compress", "NonMaxSuppression"}


@pytest.fixture(scope="module", params=NAMES)
def weights(request, tmp_path_factory):
    """The name of a detector, the network, and a file with its weights alone."""
    network, file = network_of(request.param, "float32"), tmp_path_factory.mktemp("weights") / "bare.pdparams"
    paddle.save(network.state_dict(), str(file))
    return request.param, network, str(file)


def images_of(given, name):
    """What pixels (number, height, width, 3) become for the network, in float32; others as they are."""
    if given.dtype != np.uint8:
        return given
    images = (given / 255 - MEANS.get(name, (0,) * 3)) / DEVIATIONS.get(name, (1,) * 3)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).astype(np.float32))


def inputs_of(number, name):
    """Pixels, the images that they become, and widths and heights of the pictures they are from."""
    random = np.random.default_rng(number)
    pixels = random.integers(0, 256, (number, SIDE, SIDE, 3)).astype(np.uint8)
    return pixels, images_of(pixels, name), random.integers(50, 2000, (number, 2))


def found_by(network, images, sizes):
    """Labels, boxes and scores, from the outputs of the network in evaluation, as the papers say."""
    with paddle.no_grad():
        outputs = {name: value.numpy() for name, value in network(paddle.to_tensor(images)).items()}
    logits, boxes = outputs["logits"].astype(np.float64), outputs["boxes"].astype(np.float64)
    if network.has_no_object:
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        shares = (shares / shares.sum(-1, keepdims=True))[..., :-1]
        scores, labels = shares.max(-1), shares.argmax(-1)
        queries = np.argsort(-scores, axis=1)
        labels = np.take_along_axis(labels, queries, 1)
    else:
        scores = 1 / (1 + np.exp(-logits)).reshape(len(logits), -1)
        places = np.argsort(-scores, axis=1)[:, : logits.shape[1]]
        queries, labels = places // CLASSES, places % CLASSES
    corners = np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
    corners = np.take_along_axis(corners, queries[..., None], 1) * np.tile(sizes, 2)[:, None]
    return labels, corners, -np.sort(-scores, axis=1)[:, : logits.shape[1]]


def require_same(found, expected, sizes, atol=1e-4):
    """Boxes to ``atol`` of their pictures; objects of equal scores may change places."""
    np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=atol)
    assert found[0].dtype == np.int64 and found[1].dtype == found[2].dtype == np.float32
    for image, size in enumerate(sizes):
        apart = np.abs(found[1][image][:, None] - expected[1][image]).max(-1) / size.max()
        is_same = (apart <= atol) & (found[0][image][:, None] == expected[0][image])
        assert is_same.any(axis=1).all() and is_same.any(axis=0).all(), apart.min(axis=1).max()


@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_bare_weights_become_files_that_find_what_the_network_finds(weights, kind, tmp_path):
    (name, network, file), expected = weights, {}
    for number in (1, 3):  # Paddle 2.6 cannot compute with a network that it has traced
        pixels, images, sizes = inputs_of(number, name)
        expected[number] = found_by(network, images, sizes)
    trained = load_trained(file, name, image_size=(SIDE, SIDE))
    assert trained.about["num_classes"] == CLASSES and trained.about["preprocessing"]["resize"] == [SIDE, SIDE]
    export(trained if kind == "float" else of_pixels(trained), str(tmp_path / "out"))
    loaded = paddle.jit.load(str(tmp_path / "out"))
    for number in (1, 3):
        pixels, images, sizes = inputs_of(number, name)
        given = {"float": images, "uint8": pixels}[kind]
        found = [part.numpy() for part in loaded(paddle.to_tensor(given), paddle.to_tensor(sizes))]
        require_same(found, expected[number], sizes)
    example, sizes = np.load(tmp_path / "out.example.npz"), np.load(tmp_path / "out.example.npz")["orig_target_sizes"]
    again = found_by(network, images_of(example["input"], name), sizes)
    require_same([example[part] for part in ("labels", "boxes", "scores")], again, sizes)


@needs_onnx
@pytest.mark.parametrize("kind, precision, atol", [("float", "float32", 1e-4), ("uint8", "float16", 1e-2)])
def test_one_graph_finds_what_the_network_finds(weights, kind, precision, atol, tmp_path):
    import onnx
    import onnxruntime

    (name, network, file), out = weights, tmp_path / "out"
    words = [f"-model={name}", f"-image_size={SIDE}", "-format=onnx", f"-input={kind}", f"-precision={precision}"]
    run([file, str(out), *words])
    graph = onnx.load(f"{out}.onnx").graph
    assert not HOST_DECISIONS & {node.op_type for node in graph.node}
    session = onnxruntime.InferenceSession(f"{out}.onnx", providers=["CPUExecutionProvider"])
    of_images = {"float": [3, SIDE, SIDE], "uint8": [SIDE, SIDE, 3]}[kind]
    assert [(one.name, one.shape) for one in session.get_inputs()] == [
        ("images", ["batch", *of_images]),
        ("orig_target_sizes", ["batch", 2]),
    ]
    assert [one.name for one in session.get_outputs()] == ["labels", "boxes", "scores"]
    for number in (1, 3):
        pixels, images, sizes = inputs_of(number, name)
        given = {"float": images.astype(precision), "uint8": pixels}[kind]
        found = session.run(None, {"images": given, "orig_target_sizes": sizes})
        expected = found_by(network, images, sizes)
        if precision == "float32":
            require_same(found, expected, sizes, atol)
        else:  # which queries are chosen, half precision may decide otherwise
            np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=atol)
            assert difference(expected, found)[0] <= atol


def test_a_difference_is_of_objects_whatever_their_order():
    random = np.random.default_rng(0)
    boxes, scores = random.random((2, 20, 4)), -np.sort(-random.random((2, 20)), axis=1)
    one = np.zeros((2, 20), np.int64), boxes, scores
    order = random.permutation(20)
    assert difference(one, [part[:, order] for part in one])[0] == 0
    moved = one[0], boxes + 0.25 * (np.arange(20) == 3)[None, :, None], scores
    assert difference(one, moved)[0] == 0  # the one in ten that is left out
    assert difference(one, (one[0], boxes + 0.01, scores))[0] == pytest.approx(0.01)
    assert difference(one, (one[0], boxes, scores * 0.99))[0] == pytest.approx(0.01, abs=5e-3)
    assert difference(one, (one[0] + 1, boxes, scores))[0] == 1.0
    assert difference(one, (one[0], boxes * np.nan, scores))[0] == np.inf


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on drawn shapes that has learnt little, and the evaluation of its weights in "checked"."""
    folder = tmp_path_factory.mktemp("run")
    well(run_main(*SHAPES, f"-output={folder / 'run'}", timeout=200))
    well(evaluated(folder, "checked", f"-pretrained={folder / 'run'}"))
    return folder


SHAPES = [f"-cfg={ROOT / 'configs' / 'rtdetr_shapes.yaml'}", "-ngpus=1", "-epochs=1", "DATA.NUM_WORKERS", "0"]
SHAPES += "DATA.SHAPES.TRAIN 480 DATA.SHAPES.VAL 40 TRAIN.WARMUP_STEPS 5 DATA.BATCH_SIZE 4 VALIDATE_FREQ 1".split()


def evaluated(folder, name, *words):
    command = [sys.executable, "-m", "paddlevit_dist", "evaluate", *words, *SHAPES, f"-output={folder / name}"]
    return run_command([word for word in command if word != "-epochs=1"], timeout=120)


def values_of(folder):
    """Each score, of COCO's twelve and of the categories, with the ends of its interval."""
    found = json.loads((folder / "eval_intervals.json").read_text())["values"]
    return {f"{name} {part}": value for name, parts in found.items() for part, value in parts.items()}


@needs_onnx
@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_an_exported_detector_has_the_scores_of_its_weights(trained, tmp_path, kind):
    run([str(trained / "run"), str(tmp_path / "out"), "-format=onnx", f"-input={kind}"])
    ended = well(evaluated(tmp_path, "scored", str(tmp_path / "out.onnx")))
    expected, found = values_of(trained / "checked"), values_of(tmp_path / "scored")
    assert expected["AR_100 value"] > 0
    assert found == pytest.approx(expected, abs=1e-5)
    lines = ended.out.splitlines()[-3:]
    assert lines[0].startswith("trained weights: AP 0.") and lines[2].startswith("AP 0.")
    assert lines[1].startswith("after the export: AP ")
    assert "; boxes (as shares) and scores of nine in ten objects differ by at most " in lines[1]
    assert events(tmp_path / "scored")[-1]["largest_difference"] < 1e-4
    about = yaml.safe_load((tmp_path / "out.about.yaml").read_text())
    assert about["classes"] == ["circle", "square", "triangle"] and "note" not in about


@needs_onnx
def test_the_pages_program_finds_what_the_weights_find(trained, tmp_path):
    """The program of docs/exporting.md, as it stands."""
    image = np.random.default_rng(0).integers(0, 256, (60, 90, 3)).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "image.png")
    run([str(trained / "run"), str(tmp_path / "shapes"), "-format=onnx", "-input=uint8"])
    program = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8").split("```python\n")[2].split("```")[0]
    (tmp_path / "detect.py").write_text(program, encoding="utf-8")
    words = [sys.executable, "detect.py", "shapes", "image.png"]
    ended = well(run_command(words, timeout=60, folder=tmp_path))
    pixels = np.asarray(Image.fromarray(image).resize((48, 48), Image.Resampling.BILINEAR))[None]
    network, images = load_trained(str(trained / "run")).model.model, images_of(pixels, "detr_small")  # ImageNet's mean
    labels, boxes, scores = found_by(network, images, np.array([[90, 60]]))
    lines = [line.split() for line in ended.out.splitlines()]
    assert [name for name, *_ in lines] == [("circle", "square", "triangle")[label] for label in labels[0]]
    found = np.array([line[1:] for line in lines], float)
    np.testing.assert_allclose(found, np.concatenate([scores[0][:, None], boxes[0]], 1), rtol=0, atol=0.06)


def test_paddles_files_are_scored_and_another_preparation_is_refused(trained, tmp_path):
    run([str(trained / "run"), str(tmp_path / "out"), "-input=uint8"])
    ended = well(evaluated(tmp_path, "scored", str(tmp_path / "out"), "-pretrained=none"))
    assert values_of(tmp_path / "scored") == pytest.approx(values_of(trained / "checked"), abs=1e-5)
    assert "Paddle's inference model on cpu)" in ended.out.splitlines()[-1]
    other = evaluated(tmp_path, "other", str(tmp_path / "out"), "DATA.IMAGENET_MEAN", "[0.4,0.4,0.4]")
    assert "expects other input: preprocessing.subtract [0.485, 0.456, 0.406] there" in refusal(other)


@pytest.mark.parametrize(
    "name, words, message",
    [
        ("detr_small", [], "detr_small takes images of any size .*add -image_size=HEIGHTxWIDTH"),
        ("rtdetr_small", ["-image_size=40"], "takes images whose sides 16 divides, and these are 40 x 40"),
        ("detr_small", ["-image_size=64", "-outputs=probabilities"], "-outputs=probabilities is for classifiers"),
        ("mask_rcnn_small", ["-image_size=64"], "mask_rcnn_small decides on the host .* at which paddle2onnx ends"),
        ("resnet18", ["-image_size=32", "-input=uint8"], "-input=uint8: weights alone do not say how images are norm"),
    ],
)
def test_what_cannot_be_exported_is_one_line(name, words, message, tmp_path):
    options = {"image_size": 32} if name == "resnet18" else {}
    paddle.save(create_model(name, num_classes=2, **options).state_dict(), str(tmp_path / "bare.pdparams"))
    with pytest.raises(UserError, match=message) as error:
        run([str(tmp_path / "bare.pdparams"), str(tmp_path / "out" / "model"), f"-model={name}", *words])
    assert "\n" not in str(error.value) and not [file for file in Path(tmp_path, "out").rglob("*") if file.is_file()]


@needs_onnx
def test_a_model_of_one_output_is_none_of_a_detector(trained, tmp_path):
    from ..test_exported_scores import write_onnx

    file = write_onnx(tmp_path / "others.onnx", ("batch", 3, 48, 48))
    message = refusal(evaluated(tmp_path, "scored", str(file)))
    assert "takes 1 inputs (pixels (batch, 3, 48, 48) float32): expected two, images and orig_target_sizes" in message
    file = write_onnx(tmp_path / "two.onnx", ("batch", 3, 48, 48), inputs=("pixels", "sizes"))
    assert "two.onnx: cannot be computed for (batch, 3, 48, 48)" in refusal(evaluated(tmp_path, "scored", str(file)))


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
        assert "EXPORTED gives label 7, and these data have 0 to 2: name data of its classes" in refusal(ended)
        return
    well(ended)
    assert "does not say how its input is prepared; it gets: mode RGB, resize [48, 48]" in ended.out
    found = json.loads((tmp_path / "scored" / "predictions" / "results.json").read_text())
    assert len(found) == 2 * 40 and found[0]["category_id"] == found[1]["category_id"]
    np.testing.assert_allclose(found[0]["bbox"], 48 * np.array([0.1, 0.2, 0.4, 0.6]), atol=1e-4)
    np.testing.assert_allclose(found[1]["bbox"], [0, 0, 48, 48], atol=1e-4)
