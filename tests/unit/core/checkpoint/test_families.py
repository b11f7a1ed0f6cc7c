"""Which family weights are of, and how many networks are built to find it."""

import numpy as np
import pytest
from support.networks.other_names import in_torch_layout, small

from paddlevit_dist.core.checkpoint import families
from paddlevit_dist.core.checkpoint.weights import SourceWeights, weights_from_mapping
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model_factory import create_model


@pytest.fixture
def built(monkeypatch):
    """The models that are built, in order."""
    names, build = [], families.build_family
    monkeypatch.setattr(families, "build_family", lambda family, name: names.append(name) or build(family, name))
    return names


def test_only_the_network_that_the_record_names_is_built(built):
    state = {name: value.numpy() for name, value in small("resnet50", seed=1).state_dict().items()}
    converted = families.with_our_names(SourceWeights("w.pdparams", state, True), recorded="resnet50")
    assert built == ["resnet50"] and converted.unknown == [] and converted.origin.startswith("resnet, timm names")


@pytest.mark.parametrize("prefix", ["", "model."])
def test_only_the_network_with_the_telling_name_is_built(built, prefix):
    model = small("mixer_s16_224", seed=1)
    state = {f"{prefix}{name}": value for name, value in in_torch_layout(model).items()}
    converted = families.with_our_names(weights_from_mapping(state, None))
    assert converted.origin == "mlp_mixer, timm names, Linear weights (out, in)"
    assert built == [next(name for family, name in families.list_families() if family == "mlp_mixer")]
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(converted.state[name], value.numpy(), name)


def test_families_are_built_up_to_the_first_with_every_name_if_no_name_tells_it(built):
    families.with_our_names(weights_from_mapping({"head.fc.bias": np.ones(4, np.float32)}, None))
    listed = [name for _, name in families.list_families()]
    assert built == listed[: len(built)] and 1 < len(built) < len(listed)


def test_the_backbone_of_a_detector_keeps_the_detectors_names():
    state = create_model("mask_rcnn_small", num_classes=2).state_dict()
    backbone = {name: value.numpy() for name, value in state.items() if name.startswith("backbone.")}
    converted = families.with_our_names(SourceWeights("w.pdparams", backbone, True))
    assert converted.state.keys() == backbone.keys() and converted.notices == ()


FAMILIES = {REGISTRY.models[name]: (family, name) for family, name in families.list_families()[::-1]}


@pytest.mark.parametrize("target", FAMILIES)
def test_a_family_has_its_telling_name_and_few_others_have_it(target):
    telling = resolve("model", FAMILIES[target][1]).telling_name
    assert telling in families.build_family(*FAMILIES[target]).names
    assert sum(resolve("model", name).telling_name == telling for _, name in FAMILIES.values()) <= 2
