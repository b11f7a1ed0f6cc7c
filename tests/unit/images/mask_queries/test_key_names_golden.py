"""Names of the authors, of whom tests/golden/eomt.json has the rules."""

import itertools

import numpy as np
import paddle
import pytest
from support.networks.golden_eomt import GOLDEN, MODELS, make_network, name_like_authors, split_differences

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.foreign_names import from_torch_names
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.commands.differences import add_backbone
from paddlevit_dist.core.tasks.model_factory import build_outline, create_model
from paddlevit_dist.images.mask_queries.key_names import EOMT
from paddlevit_dist.images.models.foundation_names import FOUNDATION, OF_HUGGING_FACE


@pytest.mark.parametrize("model", [name for name, about in MODELS.items() if about["parameters"] < 1e7])
def test_golden_eomt_names_of_authors_give_the_same_weights(model):
    first, second = make_network(model, "float32"), make_network(model, "float32", name_like_authors(model))
    parameters = dict(second.named_parameters())
    for name, value in first.named_parameters():
        np.testing.assert_array_equal(value.numpy(), parameters[name].numpy(), name)
    assert sum(value.size for value in parameters.values()) == MODELS[model]["parameters"]


def test_differences_to_another_file_are_refused_until_they_are_whole():
    """As the authors publish what they trained from DINOv3's weights."""
    model = next(name for name, about in MODELS.items() if about["config"]["kind"] == "eomt_dinov3")
    differences, base = split_differences(model)
    with pytest.raises(UserError, match="differences"):
        make_network(model, "float32", differences)
    own = from_torch_names(FOUNDATION[OF_HUGGING_FACE[1]](base))
    whole = add_backbone(EOMT["the authors'"](differences), own, "in", "base")
    found, expected = (dict(make_network(model, "float32", each).named_parameters()) for each in (whole, None))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value.numpy(), rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("names", "match"),
    [(["head.weight"], "has no backbone"), (["backbone.norm.weight"], "is not there"), (["backbone.a"], "has shape")],
)
def test_a_base_that_does_not_fit_is_refused(names, match):
    with pytest.raises(UserError, match=match):
        add_backbone({name: np.zeros(2) for name in names}, {"a": np.zeros(3)}, "in", "base")
    zero = {"backbone.blocks.0.attn.q_bias": np.ones(2, np.float32)}
    assert add_backbone(zero, {}, "in", "base")["backbone.blocks.0.attn.q_bias"].tolist() == [1, 1]


@pytest.mark.parametrize("size", GOLDEN["published"])
def test_golden_eomt_published_names_and_shapes_are_those_of_our_sizes(size):
    """Through the map of transformers' names, every entry has its place, and every parameter its entry."""
    about = GOLDEN["published"][size]
    config = about["config"]
    state = {}
    for name, shape, ranges in about["keys"]:
        for numbers in itertools.product(*(range(first, last + 1) for first, last in ranges)):
            state[name.replace("#", "{}").format(*numbers)] = np.zeros(shape, np.int8)
    assert len(state) == about["entries"]
    model = build_outline(
        lambda: create_model(f"eomt_semantic_{size}", config["num_labels"], image_size=config["image_size"])
    )
    expected = {name: list(value.shape) for name, value in model.state_dict().items()}
    linear = {id(layer.weight) for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)}
    transposed = {name for name, value in model.state_dict().items() if id(value) in linear}
    ours = {name: list(value.shape) for name, value in EOMT["Hugging Face"](state).items()}
    assert {name: shape[::-1] if name in transposed else shape for name, shape in ours.items()} == expected
    assert model.num_queries == config["num_queries"] and model.num_blocks == config["num_blocks"]
    assert sum(int(np.prod(shape)) for shape in expected.values()) == about["parameters"]


@pytest.mark.parametrize("prefix", ["network.", ""])
def test_weights_that_transformers_evaluates_with_masks_are_told(prefix):
    model = next(name for name, about in MODELS.items() if about["parameters"] < 1e7)
    network, state = make_network(model, "float32"), name_like_authors(model)
    state = {f"{prefix}{name.removeprefix('network.')}": value for name, value in state.items()}
    for probability in (0.0, 0.25):
        state[f"{prefix}attn_mask_probs"] = np.array([0.0, probability, 0.0], np.float32)
        report = load_weights(network, state, strict=True)
        assert [line for line in report.notices if "attn_mask_probs is 0, 0.25, 0: " in line] == report.notices
        assert bool(report.notices) == (probability > 0)
