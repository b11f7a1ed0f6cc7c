"""Networks of a made-up clone of PaddleClas and of paddle.vision, by name."""

import sys

import numpy as np
import paddle
import pytest
from support.hosts.paddleclas_clone import write_clone

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.commands.inspect_model import listing
from paddlevit_dist.core.library.models import create_model as create_pretrained
from paddlevit_dist.core.registry.lookup import list_models
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.models.bridges import package_files
from paddlevit_dist.images.models.pretrained_input import find_variant_input

IMAGES = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype("float32"))


@pytest.fixture
def clone(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLECLAS", str(write_clone(tmp_path / "PaddleClas")))
    yield tmp_path / "PaddleClas"
    for name in [name for name in sys.modules if name.partition(".")[0] == "ppcls"]:
        del sys.modules[name]


def test_a_network_of_paddleclas_is_built_without_what_the_package_pins(clone):
    before = dict(sys.modules)
    model = create_model("paddleclas:Small_x1_0", 7)

    assert model.classifier_layers == ("fc",) and model(IMAGES).shape == [2, 7]
    assert "six" in before or getattr(sys.modules.get("six"), "__spec__", True)  # no placeholder stays
    assert all(sys.modules[name] is module for name, module in before.items())
    again = create_model("paddleclas:Small_x1_0", 7)  # names of parameters may be fixed
    linear = {one.name for network in (model, again) for one in network.network.fc.parameters()}
    assert len(linear) == 4
    model.eval()
    assert model.forward_features(IMAGES).shape == [2, model.embed_dim]


def test_lists_begin_with_the_logits_and_what_nothing_else_reads_is_frozen(clone):
    model = create_model("paddleclas:Listed", 7)

    model(IMAGES).sum().backward()

    assert model.classifier_layers == ("fc", "aux")
    frozen = [name for name, one in model.named_parameters() if one.stop_gradient]
    assert frozen == ["bn._mean", "bn._variance", "aux.weight", "aux.bias"]
    assert all(one.grad is not None for one in model.parameters() if not one.stop_gradient)


def test_names_are_listed_and_unknown_ones_name_close_ones(clone, refuse):
    assert list_models("paddleclas:*") == ["paddleclas:Listed", "paddleclas:Small_x1_0"]
    assert listing("paddleclas:S") == "paddleclas:Small_x1_0"
    assert "paddle:resnet50" in list_models("paddle:*") and all(":" not in name for name in list_models())
    message = refuse(create_model, "paddleclas:small_x2_0")
    assert message.startswith("model 'paddleclas:small_x2_0' is not known: did you mean paddleclas:Small_x1_0? ")
    assert "'inspect --list paddle:' names all" in refuse(create_model, "paddle:resnet51")
    message = refuse(lambda: create_model("paddle:resnet18", in_channels=1))
    assert message.endswith("takes images of 3 channels alone: leave out DATA.IMAGE_CHANNELS")


def test_a_clone_that_is_not_there_is_one_line(monkeypatch, tmp_path, refuse):
    monkeypatch.setenv("PADDLECLAS", str(tmp_path))
    assert refuse(list_models, "paddleclas:*").startswith(f"PADDLECLAS={tmp_path}: there is no ppcls/arch/backbone in")
    monkeypatch.delenv("PADDLECLAS")
    monkeypatch.setattr(sys, "path", [])
    assert refuse(list_models, "paddleclas:*").startswith(
        "PaddleClas is not installed: pip install paddleclas --no-deps"
    )


def test_its_yaml_file_says_what_images_look_like(clone):
    expected = find_variant_input("paddleclas:Small_x1_0")
    assert (expected.image_size, expected.crop_pct, expected.interpolation) == (16, 0.8, "bilinear")
    np.testing.assert_allclose(expected.mean, (0.485, 0.456, 0.406))
    np.testing.assert_allclose(expected.std, (0.229, 0.224, 0.225))
    assert expected.crop_mode == "center" and find_variant_input("paddle:resnet18").crop_pct == 0.875
    assert find_variant_input("paddle:resnet18").image_size == 224
    whole = find_variant_input("paddleclas:Listed")
    assert (whole.image_size, whole.crop_pct, whole.crop_mode, whole.interpolation) == (24, 1.0, "squash", "bicubic")
    assert (whole.mean, whole.std) == ((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
    data = load(["MODEL.NAME", "paddleclas:Small_x1_0", "-dataset=folder"]).values.DATA
    assert (data.IMAGE_SIZE, data.CROP_PCT, data.INTERPOLATION) == (16, 0.8, "bilinear")


def test_weights_are_those_at_the_address_that_its_files_have(clone, refuse):
    expected = paddle.load(str(clone / "small.pdparams"))
    for model in (create_model("paddleclas:Small_x1_0"), create_pretrained("paddleclas:Small_x1_0", pretrained=True)):
        load_weights(model, "paddleclas:Small_x1_0")
        np.testing.assert_array_equal(model.network.fc.weight.numpy(), expected["fc.weight"].numpy())
    zoo = clone / "ppcls/arch/backbone/model_zoo/small.py"
    zoo.write_text(zoo.read_text() + "def Blue(pretrained=False, **kwargs): pass\ndef Bare(pretrained=False): pass\n")
    package_files._read.cache_clear()
    assert "its weights take images with blue first" in refuse(load_weights, model, "paddleclas:Blue")
    message = refuse(load_weights, model, "paddleclas:Bare")
    assert message.endswith("no address of weights for it: give a file (-pretrained=FILE)")


def test_a_recipe_that_needs_weights_takes_those_of_the_model(clone):
    run = load(["-cfg=finetune_folder", "MODEL.NAME", "paddleclas:Small_x1_0"])
    assert run.values.MODEL.PRETRAINED == "paddleclas:Small_x1_0" and run.values.DATA.CROP_PCT == 0.8


def test_a_network_of_paddle_vision_is_paddle_s():
    paddle.seed(3)
    model = create_model("paddle:squeezenet1_1", 6)
    expected = paddle.vision.models.squeezenet1_1(num_classes=6)
    expected.set_state_dict(model.state_dict())
    expected.eval()
    model.eval()
    np.testing.assert_array_equal(model(IMAGES).numpy(), expected(IMAGES).numpy())
