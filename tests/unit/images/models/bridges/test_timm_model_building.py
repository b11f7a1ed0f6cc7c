"""What the bridge does with networks of timm that lack something: an option, or groups of their layers."""

from types import SimpleNamespace

import pytest
from paddle import nn
from support.networks.timm_zoo import needs_compat

from paddlevit_dist.engine.optimizer import block_matrices, decay_groups, layer_decay_groups
from paddlevit_dist.images.models.bridges.timm_model import TimmModel, _create
from paddlevit_dist.runtime.errors import UserError

PYTHON = "Network.__init__() got an unexpected keyword argument '{}'"
PYTHON_NEAR = PYTHON + ". Did you mean 'size'?"
TIMM = "Network.__init__() got unexpected keyword argument(s): ['{}']"


def timm_that_refuses(words, *names):
    """Return a package whose only network refuses one of these options at a time, or all at once in timm's words."""

    def create_model(name, **options):
        refused = [option for option in names if option in options]
        if refused:
            raise TypeError(words.format("', '".join(refused) if words == TIMM else refused[0]))
        return SimpleNamespace(options=options)

    return SimpleNamespace(create_model=create_model)


@pytest.mark.parametrize("words", [PYTHON, PYTHON_NEAR, TIMM])
def test_a_network_that_takes_no_size_is_built_without_one(words):
    timm = timm_that_refuses(words, "img_size", "dynamic_img_size", "dynamic_img_pad")
    arguments = {"num_classes": 3, "img_size": (64, 64), "dynamic_img_size": True, "dynamic_img_pad": True}
    assert _create(timm, "x", arguments).options == {"num_classes": 3}


@pytest.mark.parametrize("words", [PYTHON, PYTHON_NEAR, TIMM])
def test_another_option_that_a_network_refuses_is_named(words):
    timm = timm_that_refuses(words, "drop_path_rate", "img_size")
    with pytest.raises(UserError, match="'timm:x' has no option 'drop_path_rate': remove it"):
        _create(timm, "x", {"num_classes": 3, "img_size": (64, 64), "drop_path_rate": 0.1})


@pytest.mark.parametrize("message", ["missing a required argument: 'depth'", PYTHON.format("inner")])
def test_other_type_errors_stay(message):
    def create_model(name, **options):
        raise TypeError(message)

    with pytest.raises(TypeError, match=message.partition("(")[0]):
        _create(SimpleNamespace(create_model=create_model), "x", {"img_size": (64, 64)})


class UngroupedNetwork(nn.Layer):
    """Thirteen layers with two parameters each, one a batch norm, and a classifier; without ``group_matcher``."""

    def __init__(self, classifier):
        super().__init__()
        self.num_features, self.pretrained_cfg = 4, {"classifier": classifier}
        layers = [nn.Linear(4, 4) for _ in range(12)]
        self.layers = nn.LayerList([*layers[:3], nn.BatchNorm1D(4), *layers[3:]])
        self.head = nn.Linear(4, 3)


@needs_compat
def test_layers_without_groups_are_grouped_as_timm_does():
    """timm 1.0's ``auto_group_layers``: twelve parameters a group in their order, without statistics; then the head."""
    model = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    groups = model.layer_groups()
    assert sorted(sum(groups, [])) == sorted(name for name, _ in model.named_parameters())
    counts = [[name for name in group if not name.endswith(("_mean", "_variance"))] for group in groups]
    assert [len(names) for names in counts] == [12, 12, 2, 2]
    assert groups[0][0] == "layers.0.weight" and groups[0][-1] == "layers.5.bias"
    assert groups[-1] == ["head.weight", "head.bias"]
    assert {"layers.3._mean", "layers.3._variance"} < set(groups[0])


@needs_compat
def test_such_a_network_has_rates_by_layer_and_matrices():
    model = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    rates = layer_decay_groups(decay_groups(model, 0.05), model.layer_groups(), 0.5)
    by_name = {name: group["learning_rate"] for group in rates for name in group["names"]}
    assert by_name["layers.0.weight"] == 0.125 and by_name["layers.12.bias"] == 0.5 and by_name["head.bias"] == 1.0
    assert block_matrices(model) == [f"layers.{number}.weight" for number in range(6, 13)]
    assert model.recomputed_layers() == []


@needs_compat
def test_without_a_classifier_there_is_one_group():
    model = TimmModel(UngroupedNetwork(None), 3, (8, 8), 3)
    with pytest.raises(UserError, match="TRAIN.LAYER_DECAY: this model's parameters have no numbered blocks"):
        layer_decay_groups(decay_groups(model, 0.05), model.layer_groups(), 0.5)


@needs_compat
def test_stages_without_groups_cannot_be_frozen():
    model = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    with pytest.raises(UserError, match="does not name its stages: remove frozen_stages"):
        model.freeze(batch_norms=False, stages=1)
    assert not any(parameter.stop_gradient for name, parameter in model.named_parameters() if "layers.0" in name)
