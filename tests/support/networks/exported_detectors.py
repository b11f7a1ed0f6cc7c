"""Exported detectors: their inputs, and what they must find, from the network's outputs as the papers say."""

import importlib.util

import numpy as np
import paddle
import pytest

from paddlevit_dist.extensions.export.command import export, run
from paddlevit_dist.extensions.export.pixels import convert_to_pixel_input
from paddlevit_dist.extensions.export.trained_models import load_trained_model
from paddlevit_dist.images.detection.export import compare_detections
from paddlevit_dist.images.detection.rfdetr.network import RfDetr
from support.networks.rtdetr_networks import CLASSES, SIZE, make_network

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
MISSING += [] if not paddle.__version__.startswith("2.") else ["Paddle 3, which paddle2onnx needs"]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")
MEANS = dict.fromkeys(("detr_small", "rfdetr_shapes", "rfdetr_seg_shapes"), (0.485, 0.456, 0.406))
DEVIATIONS = dict.fromkeys(MEANS, (0.229, 0.224, 0.225))
HOST_DECISIONS = {"NonZero", "If", "Loop", "Scan", "Unique", "Compress", "NonMaxSuppression"}


def make_weights(name, folder):
    """The network, and a file with its weights alone."""
    network, file = make_network(name, "float32"), folder / "bare.pdparams"
    paddle.save(network.state_dict(), str(file))
    return network, str(file)


def make_images(given, name):
    """What pixels (number, height, width, 3) become for the network, in float32; others as they are."""
    if given.dtype != np.uint8:
        return given
    images = (given / 255 - MEANS.get(name, (0,) * 3)) / DEVIATIONS.get(name, (1,) * 3)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).astype(np.float32))


def make_inputs(number, name, size=SIZE):
    """Pixels, the images that they become, and widths and heights of the pictures they are from."""
    random = np.random.default_rng(number)
    pixels = random.integers(0, 256, (number, *size, 3)).astype(np.uint8)
    return pixels, make_images(pixels, name), random.integers(50, 2000, (number, 2))


def found_by(network, images, sizes):
    """Labels, boxes, scores and masks, from the outputs of the network in evaluation, as the papers say."""
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
    if isinstance(network, RfDetr):
        corners = corners.clip(0, 1)
    corners = np.take_along_axis(corners, queries[..., None], 1) * np.tile(sizes, 2)[:, None]
    masks = [np.take_along_axis(outputs["masks"], queries[..., None, None], 1)] if network.learns_masks else []
    return labels, corners, -np.sort(-scores, axis=1)[:, : logits.shape[1]], *masks


def _list_outputs(network):
    return ["labels", "boxes", "scores", *(["masks"] if network.learns_masks else [])]


def require_same(found, expected, sizes, atol=1e-4):
    """Boxes to ``atol`` of their pictures, and masks; objects of equal scores may change places."""
    assert len(found) == len(expected)
    np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=atol)
    assert found[0].dtype == np.int64 and found[1].dtype == found[2].dtype == np.float32
    for image, size in enumerate(sizes):
        apart = np.abs(found[1][image][:, None] - expected[1][image]).max(-1) / size.max()
        is_same = (apart <= atol) & (found[0][image][:, None] == expected[0][image])
        assert is_same.any(axis=1).all() and is_same.any(axis=0).all(), apart.min(axis=1).max()
        for masks, others in zip(found[3:], expected[3:]):
            differences = np.abs(masks[image][:, None] - others[image]).max(axis=(2, 3))
            assert np.where(is_same, differences, np.inf).min(axis=1).max() <= 10 * atol * np.abs(others).max()


def require_paddle_files(name, kind, tmp_path):
    """Bare weights become files for Paddle that find what the network finds, and an example."""
    (network, file), expected = make_weights(name, tmp_path), {}
    for number in (1, 3):  # Paddle 2.6 cannot compute with a network that it has traced
        pixels, images, sizes = make_inputs(number, name)
        expected[number] = found_by(network, images, sizes)
    trained = load_trained_model(file, name, image_size=SIZE)
    assert trained.about["num_classes"] == CLASSES and trained.about["preprocessing"]["resize"] == list(SIZE)
    export(trained if kind == "float" else convert_to_pixel_input(trained), str(tmp_path / "out"))
    loaded = paddle.jit.load(str(tmp_path / "out"))
    for number in (1, 3):
        pixels, images, sizes = make_inputs(number, name)
        given = {"float": images, "uint8": pixels}[kind]
        found = [part.numpy() for part in loaded(paddle.to_tensor(given), paddle.to_tensor(sizes))]
        require_same(found, expected[number], sizes)
    example, sizes = np.load(tmp_path / "out.example.npz"), np.load(tmp_path / "out.example.npz")["orig_target_sizes"]
    again = found_by(network, make_images(example["input"], name), sizes)
    require_same([example[part] for part in _list_outputs(network)], again, sizes)


def require_graph(name, kind, precision, tmp_path, size=SIZE):
    """Bare weights become one ONNX graph that finds what the network finds."""
    import onnx
    import onnxruntime

    (network, file), out, atol = (
        make_weights(name, tmp_path),
        tmp_path / "out",
        1e-4 if precision == "float32" else 1e-2,
    )
    words = [
        f"-model={name}",
        f"-image_size={size[0]}x{size[1]}",
        "-format=onnx",
        f"-input={kind}",
        f"-precision={precision}",
    ]
    run([file, str(out), *words])
    graph = onnx.load(f"{out}.onnx").graph
    assert not HOST_DECISIONS & {node.op_type for node in graph.node}
    session = onnxruntime.InferenceSession(f"{out}.onnx", providers=["CPUExecutionProvider"])
    of_images = {"float": [3, *size], "uint8": [*size, 3]}[kind]
    assert [(one.name, one.shape) for one in session.get_inputs()] == [
        ("images", ["batch", *of_images]),
        ("orig_target_sizes", ["batch", 2]),
    ]
    assert [one.name for one in session.get_outputs()] == _list_outputs(network)
    for number in (1, 3):
        pixels, images, sizes = make_inputs(number, name, size)
        given = {"float": images.astype(precision), "uint8": pixels}[kind]
        found = session.run(None, {"images": given, "orig_target_sizes": sizes})
        expected = found_by(network, images, sizes)
        if precision == "float32":
            require_same(found, expected, sizes, atol)
        else:  # which queries are chosen, half precision may decide otherwise
            np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=atol)
            assert compare_detections(expected, found)[0] <= atol
