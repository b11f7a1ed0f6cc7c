"""Which family weights are of, and how many networks are built to find it."""

import numpy as np
import pytest
from support.networks.other_names import in_torch_layout, small

from paddlevit_dist.core.checkpoint import families
from paddlevit_dist.core.checkpoint.weights import SourceWeights, weights_from_mapping


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


def test_families_are_built_up_to_the_first_that_has_every_name(built):
    model = small("mixer_s16_224", seed=1)
    converted = families.with_our_names(weights_from_mapping(in_torch_layout(model), None))
    assert converted.origin == "mlp_mixer, timm names, Linear weights (out, in)"
    listed = [name for _, name in families.list_families()]
    place = next(place for place, (family, _) in enumerate(families.list_families()) if family == "mlp_mixer")
    assert built == listed[: place + 1] and len(built) < len(listed)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(converted.state[name], value.numpy(), name)
