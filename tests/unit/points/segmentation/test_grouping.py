"""Learning rates and weight decay of a point network's parameters."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.optimizer import complete_groups, decay_groups, layer_decay_groups
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import ParameterGrouping
from paddlevit_dist.points.segmentation.task import SemanticSegmentation

WORDS = ["TASK", "semantic_segmentation", "-dataset=synthetic_rooms", "TRAIN.WEIGHT_DECAY", "0.2"]
NARROW = (
    "{encoder_depths: [1, 1], encoder_channels: [4, 8], encoder_heads: [1, 1], strides: [2], decoder_depths: [1], "
    "decoder_channels: [4], decoder_heads: [1], patch_size: 8}"
)


def group(name, *words):
    task = SemanticSegmentation(settings.load([*WORDS, "MODEL.NAME", name, *words]).values)
    task.num_classes = 3
    model = task.build_model()
    groups = get_aspect(task, ParameterGrouping).parameter_groups(model)
    return complete_groups(groups, model, 0.2, set(), None, print)[0], model


def test_blocks_have_a_rate_of_their_own():
    groups, model = group("ptv3", "MODEL.OPTIONS", NARROW, "POINTS.BLOCK_LR_FACTOR", "0.1")
    found = {(each["learning_rate"], each["weight_decay"]): each["names"] for each in groups}
    assert sorted(found) == [(0.1, 0.0), (0.1, 0.2), (1.0, 0.0), (1.0, 0.2)]
    parameters = {name: parameter for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    assert sorted(name for names in found.values() for name in names) == sorted(parameters)
    for (rate, decay), names in found.items():
        assert all((".block" in name) == (rate == 0.1) for name in names)
        assert all((parameters[name].ndim > 1) == (decay > 0) for name in names)


def test_the_rate_of_a_block_is_multiplied_by_its_layers_decay():
    groups, model = group("ptv3", "MODEL.OPTIONS", NARROW, "POINTS.BLOCK_LR_FACTOR", "0.1")
    found = layer_decay_groups(groups, model.layer_groups(), 0.5)
    rates = {name: each["learning_rate"] for each in found for name in each["names"]}
    blocks = ["enc.enc0.block0", "enc.enc1.block0", "dec.dec0.block0"]
    for place, block in enumerate(blocks):
        assert {rates[name] for name in rates if name.startswith(f"{block}.")} == {0.1 * 0.5 ** (3 - place)}
    others = {name: rate for name, rate in rates.items() if ".block" not in name}
    assert others["seg_head.weight"] == 1 and others["embedding.stem.conv.kernel"] == 0.5**4


def test_without_the_key_groups_are_those_of_any_task():
    groups, model = group("minkunet_tutorial")
    plain = decay_groups(model, 0.2)
    assert [(each["names"], each["weight_decay"]) for each in groups] == [
        (each["names"], each["weight_decay"]) for each in plain
    ]
    with pytest.raises(UserError, match="minkunet_tutorial has no numbered blocks; remove this key"):
        group("minkunet_tutorial", "POINTS.BLOCK_LR_FACTOR", "0.1")
