"""How exported detectors are compared, and what cannot be exported."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.trainings.small_detections import SHAPES

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.core.tasks.protocols import Exportable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.export.command import run
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.export import EvaluatedFunction, compare_detections


def test_a_difference_is_of_objects_whatever_their_order():
    random = np.random.default_rng(0)
    boxes, scores = random.random((2, 20, 4)), -np.sort(-random.random((2, 20)), axis=1)
    one = np.zeros((2, 20), np.int64), boxes, scores
    order = random.permutation(20)
    assert compare_detections(one, [part[:, order] for part in one])[0] == 0
    moved = one[0], boxes + 0.25 * (np.arange(20) == 3)[None, :, None], scores
    assert compare_detections(one, moved)[0] == 0  # the one in ten that is left out
    moved = one[0], boxes + 0.25 * (np.arange(20) % 10 == 3)[None, :, None], scores
    assert compare_detections(one, moved)[0] > 0.1  # the next one, and nothing between both
    assert compare_detections(one, (one[0], boxes + 0.01, scores))[0] == pytest.approx(0.01)
    assert compare_detections(one, (one[0], boxes, scores * 0.99))[0] == pytest.approx(0.01, abs=5e-3)
    assert compare_detections(one, (one[0] + 1, boxes, scores))[0] == 1.0
    assert compare_detections(one, (one[0], boxes * np.nan, scores))[0] == np.inf


def test_a_difference_is_also_of_the_probabilities_of_masks():
    random = np.random.default_rng(0)
    boxes, scores = random.random((2, 20, 4)), -np.sort(-random.random((2, 20)), axis=1)
    one = np.zeros((2, 20), np.int64), boxes, scores, random.standard_normal((2, 20, 3, 5))
    order = random.permutation(20)
    difference, compared = compare_detections(one, [part[:, order] for part in one])
    assert difference == 0 and compared == "masks, boxes (as fractions) and scores of nine in ten objects"
    half = np.where(np.arange(5) < 2, 0.0, one[3])  # two of five columns
    full = [1 / (1 + np.exp(-one[3][..., :2])), 0.5]
    expected = np.sort(np.abs(full[0] - full[1]).sum(axis=(2, 3)).ravel() / 15)[36]
    assert compare_detections(one, (*one[:3], half))[0] == pytest.approx(expected)
    assert compare_detections(one, (*one[:3], one[3] * np.nan))[0] == np.inf


@pytest.mark.parametrize("labels, wrong", [([0, 2, 1], None), ([0, 3, 9], 3), ([2, -1, 0], -1)])
def test_labels_of_an_exported_function_are_classes_of_the_data(labels, wrong):
    found = [DetectedObjects(np.zeros((1, 4)), np.ones(1), np.array([label])) for label in labels]
    outputs = SimpleNamespace(read=lambda sizes: found)
    for classes in (3, None):
        model = EvaluatedFunction(paddle.nn.Identity(), classes)
        if classes is None and min(labels) >= 0 or wrong is None:
            assert model.decode(outputs, None, np.ones((3, 2))) is found
            continue
        with pytest.raises(UserError, match=f"^EXPORTED returns label {wrong}, but these data have 0 to "):
            model.decode(outputs, None, np.ones((3, 2)))
    assert not model.computes_alone
    model.function.pairs = None
    assert model.computes_alone


@pytest.mark.parametrize(
    "name, words, message",
    [
        ("detr_small", [], "detr_small takes images of any size.*add -image_size=HEIGHTxWIDTH"),
        ("rtdetr_small", ["-image_size=40"], "takes images whose sides are multiples of 16, not 40 x 40"),
        ("detr_small", ["-image_size=64", "-outputs=probabilities"], "-outputs=probabilities is for classifiers"),
        (
            "mask_rcnn_small",
            ["-image_size=64"],
            "mask_rcnn_small selects regions on the host .* which paddle2onnx does not",
        ),
    ],
)
def test_what_cannot_be_exported_is_one_line(name, words, message, tmp_path):
    options = {"image_size": 32} if name == "resnet18" else {}
    with weights_of_zero():
        paddle.save(create_model(name, num_classes=2, **options).state_dict(), str(tmp_path / "bare.pdparams"))
    with pytest.raises(UserError, match=message) as error, weights_of_zero():
        run([str(tmp_path / "bare.pdparams"), str(tmp_path / "out" / "model"), f"-model={name}", *words])
    assert "\n" not in str(error.value) and not [file for file in Path(tmp_path, "out").rglob("*") if file.is_file()]


def test_outputs_of_an_exported_detector_have_the_types_and_shapes_of_their_description():
    task = make_task(settings.load([*SHAPES, "-num_classes=3", "DETECTION.EXPORT_SIZE", "[64,64]"]).values)
    export = get_aspect(task, Exportable)
    with weights_of_zero():
        model = task.build_model()
    model.eval()
    outputs = export.exported_model(model)(paddle.zeros([2, 3, 64, 64]), paddle.to_tensor([[64, 64], [9, 5]]))
    described = export.export_parts().about["output"]
    assert len(outputs) == len(described) == 3
    for output, text in zip(outputs, described.values()):
        kind, axes = text.partition(")")[0].split(" (")
        assert str(output.dtype).endswith(kind) and len(axes.split(",")) == output.ndim


@pytest.mark.parametrize("batching", ["single", "one_size"])
def test_an_exported_detector_is_described_for_programs_without_this_package(batching):
    words = ["DATA.IMAGENET_MEAN", "[0.5,0.25,0]", "DATA.IMAGENET_STD", "[1,0.5,0.2]", "DATA.EXIF_ROTATE", "True"]
    words += ["DETECTION.EVAL_BATCHING", batching, "DETECTION.EXPORT_SIZE", "[60,80]", "DETECTION.FLIP", "False"]
    parts = get_aspect(make_task(settings.load([*SHAPES, *words]).values), Exportable).export_parts()
    about = dict(parts.about)
    assert parts.output_names == tuple(about.pop("output")) == ("labels", "boxes", "scores")
    note = "an evaluation keeps the aspect ratio of images, with a shorter side of 32 pixels; it detects slightly more "
    note += "than this model of one size"
    assert about.pop("note", None) == (note if batching == "single" else None)
    mean, deviation = [0.5, 0.25, 0.0], [1.0, 0.5, 0.2]
    assert about == {
        "mean": mean,
        "standard_deviation": deviation,
        "preprocessing": {
            "mode": "RGB",
            "upright": "turned as its EXIF orientation says",
            "resize": [60, 80],
            "interpolation": "bilinear, as PIL's BILINEAR",
            "divide_by": 255,
            "subtract": mean,
            "divide_by_deviation": deviation,
            "layout": "batch, channels, height, width",
        },
        parts.sizes_name: "int64 (batch, 2), width and height of the stored images",
    }
    assert (parts.channels, parts.size, parts.sizes_name) == (3, (60, 80), "orig_target_sizes")
    assert parts.example["picture"].shape == (90, 120, 3) and parts.example["input"].shape == (1, 3, 60, 80)
