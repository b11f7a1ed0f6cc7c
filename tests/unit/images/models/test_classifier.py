"""What every registered image model must do, by name; computed with reduced dimensions."""

import functools
import math

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.every_classifier import (
    BATCH,
    CLASSES,
    NAMES,
    ONE_OF_EACH_FAMILY,
    WITHOUT_GRADIENT,
    far_from_the_start,
    image_size,
    images,
    learning,
    require_learning,
    require_published_size,
    small_model,
)

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import annotation_type, list_models
from paddlevit_dist.core.registry.manifest import CLASS_LABELS
from paddlevit_dist.core.registry.model_names import read_model_names
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model_factory import create_model, variant_options


def test_every_name_is_listed_and_every_spelling_means_a_name():
    assert set(NAMES) | set(REGISTRY.aliases) <= set(list_models())
    for spelling, name in REGISTRY.aliases.items():
        assert name in NAMES and variant_options(spelling) == variant_options(name)
    names = [name for family in read_model_names().values() for name in family]
    classifiers = [name for name in names if annotation_type("model", name) == CLASS_LABELS]
    assert sorted(classifiers) == sorted(NAMES)  # each belongs to one family


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_the_number_of_parameters_is_the_published_one(name):
    """Of the models of recipes too, see test_counting_recipes.py; of all others at night."""
    require_published_size(name)


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_forward_backward_and_state(name, tmp_path):
    """Of every other variant at night."""
    require_learning(name, tmp_path)


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_the_first_step_has_distinct_logits_and_a_gradient_in_every_parameter(name):
    model = small_model(name)
    logits = model(images(name))
    paddle.nn.functional.cross_entropy(logits, paddle.to_tensor([0, 3, 6])).backward()
    assert len(np.unique(logits.numpy())) == BATCH * CLASSES
    for parameter_name, parameter in learning(model):
        assert np.abs(parameter.grad.numpy()).max() > 0 or parameter_name.endswith(WITHOUT_GRADIENT), parameter_name


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_resetting_the_classifier_changes_only_the_last_layers(name):
    model = small_model(name)
    model.eval()
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    model.reset_classifier(4)
    assert model(images(name)).shape == [BATCH, 4]
    after = model.state_dict()
    last = tuple(f"{layer}." for layer in model.classifier_layers)
    assert set(after) == set(before)
    assert all((after[key].numpy() == before[key]).all() for key in before if not key.startswith(last))
    model.reset_classifier(0)
    x = images(name)
    np.testing.assert_allclose(model(x).numpy(), model.forward_features(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_other_channels_and_unknown_options(name):
    model = small_model(name, in_channels=1)
    assert model(images(name)[:, :1]).shape == [BATCH, CLASSES]
    assert (model.in_channels, tuple(model.image_size)) == (1, image_size(name))
    with pytest.raises(UserError, match=f"model '{name}' has no option 'width'"):
        create_model(name, width=3)


@functools.cache  # for each of the options
def compute_plain_logits(name):
    with weights_of_zero():
        model = small_model(name)
    far_from_the_start(model).eval()
    with paddle.no_grad():
        return model(images(name)).numpy()


@pytest.mark.parametrize("option", ["dropout", "attention_dropout", "drop_path"])
@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_each_regularization_is_random_in_training_and_absent_in_evaluation(name, option):
    if option == "attention_dropout" and name.startswith(("mixer", "convnext", "resnet", "hgnetv2")):
        pytest.skip("it has no attention")
    if option == "drop_path" and name.startswith("hgnetv2"):
        pytest.skip("few of its blocks have an identity beside them")
    with weights_of_zero():
        model = small_model(name, **{option: 0.5})
    x = images(name, batch=8)
    far_from_the_start(model).eval()
    with paddle.no_grad():
        np.testing.assert_array_equal(model(images(name)).numpy(), compute_plain_logits(name))
        model.train()
        assert (model(x) != model(x)).any()


BLOCKS = "swin_tiny_patch4_window7_224 cait_xxs24_224 pvt_v2_b0 mixer_s16_224 convnext_tiny resnet50".split()


@pytest.mark.parametrize("name", BLOCKS)
def test_paths_are_dropped_more_often_from_block_to_block(name):
    """From never in the first to the given rate in the last; CaiT's at one rate, but never those of its class token."""
    with weights_of_zero():
        model = small_model(name, drop_path=0.3)
    blocks = {
        place.rpartition(".")[0]: layer.rate for place, layer in model.named_sublayers() if hasattr(layer, "rate")
    }
    rates = list(blocks.values())
    if name.startswith("cait"):
        assert rates == [0.3 * place.startswith("blocks.") for place in blocks] and 0.0 in rates
    else:
        assert len(rates) > 1 and rates == pytest.approx([0.3 * n / (len(rates) - 1) for n in range(len(rates))])


def compute_first_deviation(name, key, shape):
    """Compute the deviation of a new parameter with several axes, as timm and the authors have it."""
    inputs, kernel = math.prod(shape[1:]), math.prod(shape[2:])
    if name.startswith("resnet"):  # He's by outputs; of the classifier PyTorch's uniform one
        return math.sqrt(2 / (kernel * shape[0])) if len(shape) == 4 else 1 / math.sqrt(3 * shape[0])
    if len(shape) == 4:
        if name.startswith("hgnetv2"):
            return math.sqrt(2 / inputs)
        if name.startswith(("pvt", "mit")):
            return math.sqrt(2 / (kernel * (1 if "dwconv" in key else shape[0])))
        return 0.02 if name.startswith("convnext") else 1 / math.sqrt(inputs)
    return 1 / math.sqrt(shape[0]) if ".mlp_" in key else 0.02


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_names_that_are_not_decayed_exist_and_have_several_axes(name):
    model = small_model(name)
    parameters = dict(model.named_parameters())
    for key, parameter in parameters.items():
        if parameter.ndim > 1 and parameter.size >= 400:
            expected = compute_first_deviation(name, key, parameter.shape)
            assert float(parameter.std()) == pytest.approx(expected, rel=0.2), key
        elif "gamma" in key:
            assert np.allclose(parameter.numpy(), 1e-6 if name.startswith("convnext") else 1e-5, atol=0), key
    exempt = model.no_weight_decay()
    assert all(parameters[key].ndim > 1 for key in exempt)
    assert bool(exempt) == name.startswith(("vit", "deit", "swin", "cait", "eva02"))


# What timm 1.0.31 says: ``no_weight_decay()``, and ``group_parameters(model, model.group_matcher(), reverse=True)``. Of
# a layer that is not here the name's beginning counts that is the longest.
TIMM_GROUPS = {
    "vit_tiny_patch16_224": "cls_token 0 pos_embed 0 patch_embed 0 blocks.0 1 blocks.11 12 norm 12 head 13",
    "deit_tiny_distilled_patch16_224": "dist_token 0 patch_embed 0 blocks.11 12 norm 12 head 13 head_dist 13",
    "swin_tiny_patch4_window7_224": "patch_embed 0 layers.0.blocks.0 1 layers.1.downsample 3 layers.1.blocks.0 3 "
    "layers.1.blocks.1 4 layers.2.downsample 5 layers.2.blocks.0 5 layers.3.blocks.1 12 norm 12 head.fc 13",
    "convnext_tiny": "stem 0 stages.0.blocks.0 1 stages.1.downsample 4 stages.1.blocks.0 4 stages.2.blocks.8 15 "
    "stages.3.downsample 16 stages.3.blocks.0 16 stages.3.blocks.2 18 head.norm 19 head.fc 19",
    "cait_xxs24_224": "cls_token 0 patch_embed 0 blocks.0 1 blocks.22 23 blocks_token_only.0 23 blocks.23 24 "
    "blocks_token_only.1 24 norm 24 head 25",
    "mixer_b16_224": "stem 0 blocks.0 1 blocks.11 12 norm 12 head 13",
    "pvtv2_b0": "patch_embed 0 stages.0 1 stages.1 2 stages.2 3 stages.3 4 head 5",
    "resnet18": "conv1 0 bn1 0 layer1.0 1 layer1.1 2 layer2.0 3 layer4.1 8 fc 9",
}
TIMM_EXEMPT = {
    "vit_tiny_patch16_224": {"pos_embed", "cls_token"},
    "deit_tiny_distilled_patch16_224": {"pos_embed", "cls_token", "dist_token"},
    "swin_tiny_patch4_window7_224": {
        f"layers.{stage}.blocks.{block}.attn.relative_position_bias_table"
        for stage, blocks in enumerate((2, 2, 6, 2))
        for block in range(blocks)
    },
    "cait_xxs24_224": {"pos_embed", "cls_token"},
}


@pytest.mark.parametrize("name", TIMM_GROUPS)
def test_layers_and_weights_without_decay_are_those_of_timm(name):
    words = TIMM_GROUPS[name].split()
    expected = dict(zip(words[::2], map(int, words[1::2])))
    with paddle.LazyGuard():  # shapes only
        model = create_model(name)
    groups = model.layer_groups()
    assert sorted(sum(groups, [])) == sorted(key for key, _ in model.named_parameters())
    assert len(groups) == 1 + max(expected.values())
    found = {
        part: {n for n, g in enumerate(groups) for key in g if f"{key}.".startswith(f"{part}.")} for part in expected
    }
    assert found == {part: {number} for part, number in expected.items()}
    assert set(model.no_weight_decay()) == TIMM_EXEMPT.get(name, set())


def test_distilled_training_returns_both_heads_whose_mean_is_the_evaluation():
    model = far_from_the_start(small_model("deit_tiny_distilled_patch16_224"))
    x = images("deit_tiny_distilled_patch16_224")
    together = model(x).numpy()
    model.distilled_training = True
    of_labels, of_teacher = model(x)
    assert np.abs(of_labels.numpy() - of_teacher.numpy()).max() > 0.01
    np.testing.assert_allclose((of_labels.numpy() + of_teacher.numpy()) / 2, together, rtol=1e-5, atol=1e-6)
    model.eval()
    np.testing.assert_allclose(model(x).numpy(), together, rtol=1e-5, atol=1e-6)


def test_a_width_that_heads_cannot_share_is_refused():
    for name in ("swin_tiny_patch4_window7_224", "cait_xxs24_224"):
        with pytest.raises(UserError, match="EMBED_DIM.* 50 is not divisible by its number of heads"):
            create_model(name, embed_dim=50)
