"""Models with their weights, their feature maps, and what their transform makes of images."""

import contextlib
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import paddle
import pytest
import yaml
from PIL import Image
from support.trainings import small_segmenters
from support.trainings.trained import network, write_weights

import paddlevit_dist as pv
from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.library import models
from paddlevit_dist.images.transforms.crops import EvaluationTransform

SMALL = {"image_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 4, "num_heads": 2}


def make_arrays(model) -> dict:
    return {name: value.numpy() for name, value in model.state_dict().items()}


@pytest.fixture
def weights(tmp_path):
    """A file of a small network with 7 classes, and its arrays."""
    arrays = make_arrays(pv.create_model("vit", 7, **SMALL))
    paddle.save({name: paddle.to_tensor(value) for name, value in arrays.items()}, str(tmp_path / "w.pdparams"))
    return tmp_path / "w.pdparams", arrays


def test_a_file_of_weights_decides_the_classes_and_others_begin_afresh(weights):
    file, arrays = weights
    model = pv.create_model("vit", pretrained=file, **SMALL)
    assert not model.training
    for name, value in make_arrays(model).items():
        np.testing.assert_array_equal(value, arrays[name])
    other = make_arrays(pv.create_model("vit", 3, pretrained=file, **SMALL))
    assert other["head.weight"].shape == (24, 3)
    np.testing.assert_array_equal(other["blocks.3.mlp.fc2.weight"], arrays["blocks.3.mlp.fc2.weight"])


def test_feature_maps_are_those_of_features_and_have_their_channels_and_strides(weights):
    images = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32))
    whole = pv.create_model("vit", pretrained=weights[0], **SMALL)
    body = pv.create_model("vit", pretrained=weights[0], features_only=True, **SMALL)
    maps = body(images)
    assert [tuple(one.shape) for one in maps] == [(2, c, 32 // s, 32 // s) for c, s in zip((24,) * 4, (8,) * 4)]
    assert (body.feature_channels, body.feature_strides) == ((24,) * 4, (8,) * 4)
    for one, other in zip(maps, whole.feature_maps(images)):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert not any("head" in name for name in body.state_dict())
    resnet = pv.create_model("resnet18", features_only=True)
    resnet.eval()
    assert [tuple(one.shape) for one in resnet(images)] == [(2, 64 << k, 8 >> k, 8 >> k) for k in range(4)]


def test_names_are_found_by_a_pattern():
    assert pv.list_models("ViT_tiny*_?8?") == ["vit_tiny_patch16_384"]
    assert set(pv.list_models("vit*")) < set(pv.list_models()) and pv.list_models("nothing*") == []


@pytest.mark.parametrize(
    "name, options, said",
    [
        ("vit_huge_patch14_224", {"pretrained": True}, "no published weights of vit_huge_patch14_224 are known"),
        ("hf:somebody/something", {"pretrained": True}, r"name it, for example create_model\('resnet50', pretrained="),
        ("resnet18", {"pretrained": "nowhere.pdparams"}, "nowhere.pdparams"),
        ("vit_tinny", {"pretrained": "nowhere.pdparams"}, "^model 'vit_tinny' is not known: did you mean 'vit"),
        ("mixer_b16_224", {"features_only": True}, "MlpMixer has no feature maps"),
        ("resnet18", {"num_classes": -1}, "num_classes=-1: expected a whole number, 0 for features only"),
        ("resnet18", {"num_classes": "ten"}, "num_classes='ten': expected a whole number"),
        ("resnet18", {"num_classes": True}, "num_classes=True: expected a whole number"),
        ("resnet18", {"image_size": (0, 32)}, r"image_size=\(0, 32\): expected a whole number, or \(height, width\)"),
        ("resnet18", {"image_size": (32, 32, 3)}, r"image_size=\(32, 32, 3\): expected a whole number, or"),
    ],
)
def test_what_is_not_there_is_one_line(name, options, said, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=said) as raised, paddle.LazyGuard():
        pv.create_model(name, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name, mean, side, kept",
    [("resnet18", (0.485, 0.456, 0.406), 224, 0.95), ("vit_tiny_patch16_384", (0.5, 0.5, 0.5), 384, 1.0)],
)
def test_a_transform_is_the_one_that_the_weights_expect(name, mean, side, kept):
    with paddle.LazyGuard():
        transform = pv.create_transform(pv.create_model(name))
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (300, 420, 3)).astype(np.uint8))
    generator = np.random.default_rng(0)
    assert (transform.mean, transform.image_size) == (mean, side)
    pixels = EvaluationTransform(side, kept)(image, generator)
    np.testing.assert_array_equal(transform.pixels(image), pixels)
    std = np.array(transform.std).reshape(-1, 1, 1)
    expected = (pixels / 255.0 - np.array(mean).reshape(-1, 1, 1)) / std
    np.testing.assert_allclose(transform(image).numpy(), expected, atol=1e-5)


def test_a_training_transform_draws_and_a_layer_of_ones_own_has_none(tmp_path):
    with paddle.LazyGuard():
        model = pv.create_model("resnet18")
    image = np.random.default_rng(1).integers(0, 256, (90, 70, 3)).astype(np.uint8)
    transform = pv.create_transform(model, training=True)
    first, same, other = (transform.pixels(image, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    np.testing.assert_array_equal(first, transform.pixels(image, 0))
    assert first.shape == (3, 224, 224) and (first != other).any()
    Image.fromarray(image).save(tmp_path / "image.png")
    again = pv.create_transform(model)
    np.testing.assert_array_equal(again.pixels(tmp_path / "image.png"), again.pixels(image))
    rectangular = pv.create_transform(pv.create_model("vit", **{**SMALL, "image_size": (16, 32)}))
    assert rectangular.image_size == [16, 32] and rectangular.pixels(image).shape == (3, 16, 32)
    with pytest.raises(UserError, match="the preprocessing of Linear is unknown"):
        pv.create_transform(paddle.nn.Linear(2, 2))
    with pytest.raises(UserError, match="cannot be read as an image"):
        again("nowhere.png")
    with pytest.raises(UserError, match="no published weights of vit_huge_patch14_224 are known"):
        pv.create_transform("vit_huge_patch14_224")  # as create_model with its weights


@pytest.mark.parametrize("name", ["segformer_b0", "detr_resnet50", "minkunet14a"])
def test_a_network_of_another_task_has_no_transform(name):
    with paddle.LazyGuard():
        model = pv.create_model(name, 4)
    with pytest.raises(UserError, match=f"^create_transform is for image classifiers, not for {name}: use Predictor$"):
        pv.create_transform(model)


def test_weights_of_ones_own_network_of_another_task_have_no_transform(tmp_path):
    values = settings.load(small_segmenters.SHAPES).values
    paddle.save(pv.create_model("segformer_of_tests", 4).state_dict(), str(tmp_path / "w.pdparams"))
    about = {"task": "image_segmentation", "model": "segformer_of_tests", "settings": to_plain_settings(values)}
    (tmp_path / "about.yaml").write_text(yaml.safe_dump({**about, "data": {"val": {"samples": 1}}}))
    model = pv.create_model(tmp_path / "w.pdparams", pretrained=True)
    with pytest.raises(UserError, match="^create_transform is for image classifiers, not for TASK image_segmentation:"):
        pv.create_transform(model)


class WasAsked(Exception):
    """Weights are read; the message is their source."""


@pytest.mark.parametrize(
    "name, pretrained, source",
    [
        ("vit_small_patch16_224", True, "vit_small_patch16_224.augreg_in21k_ft_in1k"),
        ("vit_small_patch16_224.some_tag", True, "hf:timm/vit_small_patch16_224.some_tag"),
        ("vit_small_patch16_224", Path("w.npz"), "w.npz"),
        ("vit_small_patch16_224.some_tag", "w.npz", "w.npz"),
        ("vit", "run", "run/checkpoints/best/model_ema.pdparams"),
        ("paddle:resnet18", True, "paddle:resnet18"),
    ],
)
def test_true_means_the_published_weights_of_a_name_and_else_they_are_given(
    monkeypatch, tmp_path, name, pretrained, source
):
    def read_weights(asked):
        raise WasAsked(asked)

    monkeypatch.chdir(tmp_path)
    Path("run/checkpoints/epoch_1").mkdir(parents=True)
    Path("run/checkpoints/best").symlink_to("epoch_1")
    Path("run/checkpoints/best/model_ema.pdparams").touch()
    monkeypatch.setattr(models, "read_weights", read_weights)
    with pytest.raises(WasAsked) as asked:
        pv.create_model(name, pretrained=pretrained, **SMALL)
    assert str(asked.value) == source


@pytest.mark.parametrize("classes, is_strict", [(None, True), (7, True), (3, False), (0, False)])
def test_all_weights_are_needed_unless_the_classifier_is_another_one(weights, classes, is_strict):
    file, arrays = weights
    model = pv.create_model("vit", classes, pretrained=file, **SMALL)
    assert model.made_of == ("vit", str(file)) and not model.training
    assert classes == 0 or model.head.weight.shape == [24, classes or 7]
    unknown = {**arrays, "of_another_network": arrays["head.bias"]}
    paddle.save({name: paddle.to_tensor(value) for name, value in unknown.items()}, str(file))
    with pytest.raises(UserError, match="of_another_network") if is_strict else contextlib.nullcontext():
        pv.create_model("vit", classes, pretrained=file, **SMALL)


def test_weights_that_miss_a_part_say_what_helps(weights):
    state = paddle.load(str(weights[0]))
    del state["blocks.1.norm1.bias"]
    paddle.save(state, str(weights[0]))
    with pytest.raises(UserError, match="load a part of them with load_weights"):
        pv.create_model("vit", 3, pretrained=weights[0], **SMALL)


@pytest.fixture(scope="module")
def run_weights(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("run"), ["cat", "ant", "bee"]))


def test_weights_with_settings_build_their_model_with_as_many_classes_as_wanted(run_weights):
    images = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32))
    model = pv.create_model(run_weights, pretrained=True)
    np.testing.assert_allclose(model(images).numpy(), network(3)(images).numpy(), rtol=1e-4, atol=1e-5)
    assert not model.training and models.find_settings(model).DATA.IMAGE_SIZE == 16
    assert models.load_trained(run_weights, 7)(images).shape == [2, 7]
    maps = pv.create_model(run_weights, pretrained=True, features_only=True)
    assert maps.feature_channels == (16,) and maps(images)[0].shape == [2, 16, 2, 2]
    for options in ({"image_size": 32}, {"depth": 2}):
        with pytest.raises(UserError, match=r"weights.pdparams stores how its model is built: remove image_size and"):
            pv.create_model(run_weights, pretrained=True, **options)


def test_a_file_without_settings_needs_the_name_of_its_model(weights):
    with pytest.raises(UserError, match=r"the model of .* is unknown: .*; name the model: create_model\('resnet50'"):
        pv.create_model(weights[0], pretrained=True)


def test_numbers_may_be_numpys_and_sizes_lists():
    sizes = {**SMALL, "image_size": [16, np.int64(32)]}
    model = pv.create_model("vit", np.int32(0), **sizes)
    assert tuple(model.image_size) == (16, 32) and models.find_settings(paddle.nn.Linear(1, 1)) is None
    for wrong in (1.5, -3, np.float32(2)):
        with pytest.raises(UserError, match="^create_model: num_classes=.*: expected a whole number, 0 for features"):
            pv.create_model("vit", wrong, **SMALL)


def test_settings_of_a_model_name_its_weights_and_its_size(weights):
    model = pv.create_model("vit", pretrained=weights[0], **SMALL)
    values = models.find_settings(model)
    facts = values.MODEL.NAME, values.MODEL.PRETRAINED, values.DATA.IMAGE_SIZE, values.DATA.DATASET
    assert facts == ("vit", str(weights[0]), 32, "folder")
    assert models.find_settings(pv.create_model("vit", **SMALL)).MODEL.PRETRAINED is None
