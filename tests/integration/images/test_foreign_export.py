"""``export`` of weights without a run describes what files beside them, or their model, say."""

import json

import numpy as np
import paddle
import pytest
import yaml
from PIL import Image

from paddlevit_dist import Predictor
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.extensions.export.command import run
from paddlevit_dist.extensions.export.foreign_weights import make_classifier_parts
from paddlevit_dist.extensions.export.trained_models import load_trained_model
from paddlevit_dist.images.imagenet_classes import names_by_synset
from paddlevit_dist.images.transforms.crops import EvaluationTransform

HIGH = {"size": {"height": 32, "width": 32}, "rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "resample": 2}


@pytest.fixture
def folder(tmp_path):
    paddle.seed(0)
    paddle.save(create_model("resnet18", num_classes=2).state_dict(), str(tmp_path / "model.pdparams"))
    return tmp_path


def test_files_beside_the_weights_are_in_the_description(folder):
    about = {"image_processor_type": "ViTImageProcessor", "image_std": [1.0] * 3, **HIGH}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "cat", "1": "dog"}}))
    run([str(folder), str(folder / "out"), "-model=resnet18"])
    found = yaml.safe_load((folder / "out.about.yaml").read_text(encoding="utf-8"))
    assert found["classes"] == ["cat", "dog"] and found["input_shape"] == [None, 3, 32, 32]
    assert found["mean"] == found["standard_deviation"] == [0.5] * 3
    assert found["preprocessing"]["resize"] == [32, 32] and "bilinear" in found["preprocessing"]["interpolation"]
    example = np.load(folder / "out.example.npz")
    pixels = EvaluationTransform(32, 1.0, 3, "bilinear", "squash")(Image.fromarray(example["picture"]), None)
    np.testing.assert_allclose(example["input"][0], pixels / 127.5 - 1, atol=1e-6)


def test_an_export_of_weights_alone_predicts_as_the_model_does_with_the_usual_input(folder):
    (folder / "images").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (80, 80, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "images" / "a.png")
    run([str(folder / "model.pdparams"), str(folder / "out"), "-model=resnet18", "-image_size=64"])
    about = yaml.safe_load((folder / "out.about.yaml").read_text(encoding="utf-8"))
    assert "says what the weights expect" in about["note"] and "classes" not in about
    rows = Predictor(str(folder / "out"))([str(folder / "images" / "a.png")])
    model = create_model("resnet18", num_classes=2)
    model.set_state_dict(paddle.load(str(folder / "model.pdparams")))
    model.eval()
    cropped = EvaluationTransform(64, 0.95)(Image.fromarray(pixels), None)  # timm's share for ResNet-18
    normalized = (
        (cropped / 255 - np.reshape([0.485, 0.456, 0.406], (3, 1, 1))) / np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
    )[None]
    logits = model(paddle.to_tensor(normalized.astype("float32"))).numpy()[0]
    probabilities = np.exp(logits) / np.exp(logits).sum()
    [row] = rows
    assert row["class"] == str(probabilities.argmax()) and row["score"] == pytest.approx(probabilities.max(), abs=1e-5)


def test_published_weights_have_their_own_input():
    (_, parts), size = make_classifier_parts("resnet18.tv_in1k", "resnet18", None, None)
    assert size == 224 and parts.about["mean"] == [0.485, 0.456, 0.406]
    assert parts.about["preprocessing"]["resize_shorter_side"] == 256
    assert parts.about["preprocessing"]["interpolation"].startswith("bilinear")


def test_a_thousand_classes_without_names_are_those_of_imagenet(tmp_path):
    paddle.save(create_model("resnet18", num_classes=1000).state_dict(), str(tmp_path / "w.pdparams"))
    about = load_trained_model(str(tmp_path / "w.pdparams"), "resnet18", image_size=32).about
    assert about["classes"] == list(names_by_synset().values()) and "ImageNet's names are used" in about["note"]
