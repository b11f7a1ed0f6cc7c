"""Models by name: what is handed to their class, and the model of a run."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn
from support.registrations import forgotten
from support.thread_ranks import acting_as

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import count_classes
from paddlevit_dist.core.checkpoint.weights import weights_from_mapping
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.model_factory import (
    build_model,
    build_outline,
    create_model,
    default_classes,
    fit_backbone_options,
    model_options,
    prepare,
    variant_options,
)


class Net(Model):
    """A batch norm and a classifier."""

    variants = {"small": {"width": 2}, "large": {"width": 5}}

    def forward(self): ...

    def __init__(self, num_classes: int = 1000, image_size: int = 8, width: int = 1, depth: int = 7):
        super().__init__()
        self.arguments = num_classes, image_size, width, depth
        self.norm = nn.BatchNorm1D(width)

    @classmethod
    def default_classes(cls, name):
        return {"small": 10, "large": 21}[name]

    @classmethod
    def list_notices(cls, name):
        return [f"{name} is a test's"]


@pytest.fixture(autouse=True)
def registered():
    with forgotten():
        register_model("small", Net)
        register_model("large", Net)
        yield


def test_classes_size_and_options_reach_the_class_and_none_keeps_the_variant():
    assert create_model("large").arguments == (21, 8, 5, 7)
    assert create_model("large", 0).arguments == (0, 8, 5, 7)
    assert create_model("Small", 3, 16, width=4, depth=None).arguments == (3, 16, 4, 7)
    assert create_model("small", width=None, depth=2).arguments == (10, 8, 2, 2)
    assert default_classes("SMALL") == 10


def test_a_model_without_its_number_of_classes_is_given_it():
    assert create_model("small", 3).num_classes == 3 and create_model("small").num_classes == 10


@pytest.mark.parametrize("network", [None, print, nn.Linear, [nn.Linear(3, 4)]])
def test_what_is_no_network_is_refused(network):
    model = SimpleNamespace(NAME="own", OPTIONS=None)
    config = SimpleNamespace(SEED=0, TRAIN=SimpleNamespace(BATCH_NORM_MOMENTUM=None), MODEL=model)
    with pytest.raises(
        UserError, match="^SimpleNamespace.build_model returns .*, expected a paddle.nn.Layer: return the"
    ):
        build_model(config, SimpleNamespace(build_model=lambda: network))


@pytest.mark.parametrize("kind", [list, tuple, lambda layers: dict(enumerate(layers))])
def test_layers_that_nothing_would_train_or_save_are_refused(kind):
    network, registered = nn.Sequential(nn.Linear(3, 4)), nn.Linear(3, 4)
    network.views, network.named = [network[0]], {"first": network[0]}  # others know these
    network.frozen = [nn.Linear(3, 4)]
    for parameter in network.frozen[0].parameters():
        parameter.stop_gradient = True
    config = SimpleNamespace(
        SEED=0, TRAIN=SimpleNamespace(BATCH_NORM_MOMENTUM=None), MODEL=SimpleNamespace(NAME="own", OPTIONS=None)
    )
    assert build_model(config, SimpleNamespace(build_model=lambda: network)) is network
    network.blocks = kind([registered])
    with pytest.raises(UserError, match=r"^Sequential.blocks is a plain (list|tuple|dict) with layers, .*LayerList"):
        build_model(config, SimpleNamespace(build_model=lambda: network))


class Port(Model):
    """Takes channels and does not keep them."""

    def __init__(self, num_classes: int = 10, in_channels: int = 1):
        super().__init__()
        self.classifier = nn.Sequential(nn.Conv2D(in_channels, 4, 1), nn.Linear(4, num_classes))

    def forward(self, images): ...


def test_a_network_that_does_not_keep_its_channels_is_given_them_and_its_weights_tell_its_classes():
    register_model("port", Port)
    assert [create_model("port", **given).in_channels for given in ({}, {"in_channels": 5})] == [1, 5]
    state = {name: value.numpy() for name, value in create_model("port", 7).state_dict().items()}
    outline, wider = create_model("port", 1), create_model("port", 2)
    assert count_classes(outline, weights_from_mapping(state), wider) == 7
    assert count_classes(outline, weights_from_mapping({"other.bias": state["classifier.1.bias"]}), wider) is None


def test_another_spelling_has_the_variant_of_its_name():
    assert variant_options("mixer_base_patch16_224") == variant_options("mixer_b16_224") != {}
    assert variant_options("large") == {"width": 5}
    options = model_options("small")
    assert options.defaults == {"width": 2, "depth": 7} and options.variant == {"width": 2}
    assert options.fixed == {} and options.notices == ["small is a test's"]


def test_running_variances_are_unbiased_once():
    model = prepare(create_model("small"))
    model.norm(paddle.to_tensor([[1.0, 2.0], [3.0, 6.0]]))
    np.testing.assert_allclose(model.norm._variance.numpy(), 0.9 + 0.1 * np.array([2.0, 8.0]), rtol=1e-6)


def build(seed: int, momentum: float | None = None, layer: type = nn.BatchNorm1D) -> nn.Layer:
    train = SimpleNamespace(BATCH_NORM_MOMENTUM=momentum)
    config = SimpleNamespace(SEED=seed, TRAIN=train, MODEL=SimpleNamespace(NAME="mine", OPTIONS=None))
    task = SimpleNamespace(build_model=lambda: nn.Sequential(nn.Linear(3, 4), layer(4)))
    return build_model(config, task)


def test_the_initial_weights_follow_the_seed_and_not_the_rank():
    weights = []
    for rank, seed in ((0, 1), (1, 1), (1, 2)):
        with acting_as(rank, 2):
            weights.append(build(seed)[0].weight.numpy())
    assert (weights[0] == weights[1]).all() and (weights[0] != weights[2]).any()


def test_the_momentum_of_batch_norms_is_set_or_refused():
    assert build(0)[1]._momentum == 0.9 and build(0, 0.25)[1]._momentum == 0.25
    assert build(0, 0.0)[1]._momentum == 0.0
    with pytest.raises(UserError, match="^TRAIN.BATCH_NORM_MOMENTUM 0.25: mine has no batch norm; remove this key$"):
        build(0, 0.25, nn.LayerNorm)


@pytest.mark.parametrize("has_kernels", [True, False])
def test_the_model_of_a_run_is_accelerated_and_unbiased(monkeypatch, has_kernels):
    accelerated = []
    monkeypatch.delitem(REGISTRY.functions, "accelerate", raising=False)
    if has_kernels:
        monkeypatch.setitem(REGISTRY.functions, "accelerate", accelerated.append)
    model = build(0)
    assert accelerated == [model] * has_kernels
    model(paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3)).astype("float32")))
    values = model[0](paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3)).astype("float32"))).numpy()
    np.testing.assert_allclose(model[1]._variance.numpy(), 0.9 + 0.1 * values.var(axis=0, ddof=1), rtol=1e-4)


VARIANT = {"backbone": "resnet50", "backbone_options": {"dilation": True, "frozen_stages": 2, "width": 3}}


@pytest.mark.parametrize(
    ("backbone", "uses"), [("resnet18", {"dilation", "frozen_stages"}), ("swin_tiny_patch4_window7_224", {"any_size"})]
)
def test_another_backbone_keeps_its_uses_that_it_supports_and_no_dimension(backbone, uses):
    supported = model_options(backbone).defaults
    assert {key for key in ("any_size", "dilation", "frozen_stages") if key in supported} == uses
    fitted = fit_backbone_options(VARIANT, {"backbone": backbone, "depth": 2})
    wanted = {"any_size": True, "dilation": True, "frozen_stages": 2}
    assert fitted == {
        "backbone": backbone,
        "depth": 2,
        "backbone_options": {key: value for key, value in wanted.items() if key in supported},
    }


def test_the_same_or_no_backbone_changes_nothing_and_options_of_the_user_win():
    assert fit_backbone_options(VARIANT, {"depth": 2}) == {"depth": 2}
    assert fit_backbone_options(VARIANT, {"backbone": "resnet50", "depth": 2}) == {"backbone": "resnet50", "depth": 2}
    chosen = {"backbone": "resnet18", "backbone_options": {"dilation": False}}
    assert fit_backbone_options(VARIANT, chosen) == chosen
    assert fit_backbone_options({}, {"backbone": "small"})["backbone_options"] == {}


def test_an_outline_has_names_and_shapes_also_of_a_network_that_cannot_be_built_without_memory():
    recurrent, linear = build_outline(lambda: nn.LSTM(3, 4)), build_outline(lambda: nn.Linear(3, 4))
    assert {name: tuple(each.shape) for name, each in recurrent.named_parameters()}["weight_ih_l0"] == (16, 3)
    assert tuple(linear.weight.shape) == (3, 4) and not linear.weight._is_initialized()  # LazyGuard has ended
    assert nn.Linear(3, 4).weight._is_initialized()
    with pytest.raises(UserError, match="no such option"):
        build_outline(lambda: (_ for _ in ()).throw(UserError("no such option")))


def test_the_backbone_of_each_registered_variant_is_a_registered_network():
    backbones = {name: variant_options(name).get("backbone") for name in REGISTRY.models}
    named = {name: backbone for name, backbone in backbones.items() if backbone is not None}
    assert len(named) > 80 and set(named.values()) <= set(REGISTRY.models), named
