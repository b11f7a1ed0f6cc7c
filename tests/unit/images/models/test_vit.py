import math
import re

import numpy as np
import paddle
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model, variant_options
from paddlevit_dist.images.models.layers import DropPath
from paddlevit_dist.images.models.resampling import resize_position_embedding
from paddlevit_dist.images.models.vit import VisionTransformer

SMALL = {"image_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4}


def small_vit(num_classes=10, **options):
    paddle.seed(7)
    return create_model("vit", num_classes=num_classes, **{**SMALL, **options})


def images(batch=2, channels=3, height=32, width=32, seed=0):
    return np.random.default_rng(seed).standard_normal((batch, channels, height, width)).astype("float32")


def num_parameters(model):
    return sum(int(parameter.size) for parameter in model.parameters())


# Variants and names


def test_a_variant_has_the_patch_and_image_size_of_its_name():
    names = [name for name in VisionTransformer.variants if "_patch" in name]
    for name in names:
        patch = int(re.findall(r"_patch(\d+)", name)[0])
        named = re.findall(r"_(\d+)$", name)
        image = int(named[0]) if named else {"dinov2": 518, "dinov3": 256}[re.findall("dinov[23]", name)[0]]  # timm's
        assert (variant_options(name)["patch_size"], variant_options(name)["image_size"]) == (patch, image), name
    assert len(names) > 100


def test_image_size_is_that_of_the_variant_unless_given():
    dimensions = {"depth": 1, "num_classes": 1}
    assert create_model("vit_tiny_patch16_384", **dimensions).pos_embed.shape[1] == 1 + 24 * 24
    assert create_model("vit_tiny_patch16_384", image_size=64, **dimensions).pos_embed.shape[1] == 1 + 4 * 4


def test_an_unknown_model_names_the_closest():
    with pytest.raises(UserError, match="did you mean 'vit_tiny_patch16_224'"):
        create_model("vit_tiny_patch16_2244")


def test_an_unknown_option_is_named_with_the_valid_ones():
    with pytest.raises(UserError, match=r"no option 'embed_dims': did you mean 'embed_dim'\?.*mlp_ratio, norm_epsilon"):
        create_model("vit_tiny_patch16_224", embed_dims=10)
    with pytest.raises(UserError, match="option pool_norm is for pool 'average', not 'token'"):
        create_model("vit_tiny_patch16_224", depth=1, pool_norm=True)
    with pytest.raises(UserError, match="option pool 'token' needs the class token"):
        create_model("vit_tiny_patch16_224", depth=1, class_token=False)


def test_an_option_that_is_none_keeps_the_variants_value():
    with_none = create_model("vit_tiny_patch16_224", depth=1, num_heads=None, mlp_ratio=None, attn_head_size=None)
    assert num_parameters(with_none) == num_parameters(create_model("vit_tiny_patch16_224", depth=1))


# What goes in and comes out


def reference_logits(model, pixels, patch, heads):
    """Equations 1-4 of the paper (and of Vaswani et al. for the attention) in float64 numpy."""
    weights = {name: value.numpy().astype(np.float64) for name, value in model.state_dict().items()}

    def affine(x, name):
        bias = weights.get(f"{name}.bias", 0.0)
        return x @ weights[f"{name}.weight"] + bias

    def norm(x, name):
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def one(image):
        rows, columns = image.shape[1] // patch, image.shape[2] // patch
        kernel = weights["patch_embed.proj.weight"].reshape(weights["patch_embed.proj.weight"].shape[0], -1)
        cut = [
            kernel @ image[:, r * patch : (r + 1) * patch, c * patch : (c + 1) * patch].ravel()
            for r in range(rows)
            for c in range(columns)
        ]
        patches = np.array(cut) + weights["patch_embed.proj.bias"]
        x = np.concatenate([weights["cls_token"][0], patches]) + weights["pos_embed"][0]
        for block in (f"blocks.{index}" for index in range(len(model.blocks))):
            qkv = np.split(affine(norm(x, f"{block}.norm1"), f"{block}.attn.qkv"), 3, axis=-1)
            outputs = []
            for q, k, v in zip(*(np.split(part, heads, axis=-1) for part in qkv)):
                scores = np.exp(q @ k.T / math.sqrt(q.shape[-1]))
                outputs.append(scores / scores.sum(-1, keepdims=True) @ v)
            x = x + affine(np.concatenate(outputs, -1), f"{block}.attn.proj")
            hidden = affine(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1")
            gelu = hidden * 0.5 * (1.0 + np.vectorize(math.erf)(hidden / math.sqrt(2.0)))
            x = x + affine(gelu, f"{block}.mlp.fc2")
        return affine(norm(x, "norm")[0], "head")

    return np.stack([one(image) for image in pixels.astype(np.float64)])


@pytest.mark.parametrize(
    "options, shape",
    [
        ({}, (3, 32, 32)),
        ({"in_channels": 1, "image_size": (16, 40)}, (1, 16, 40)),
        ({"attn_head_size": 20, "qkv_bias": False, "mlp_ratio": 2.5}, (3, 32, 32)),
    ],
    ids=["square", "one channel, rectangular", "own head size, no qkv bias"],
)
def test_logits_equal_the_papers_equations(options, shape):
    model = small_vit(**options)
    model.eval()
    rng = np.random.default_rng(1)
    for parameter in model.parameters():  # far from the initial values, so that each term counts
        parameter.set_value(rng.standard_normal(parameter.shape).astype("float32") * 0.2)
    pixels = images(2, *shape)
    expected = reference_logits(model, pixels, patch=8, heads=4)
    logits = model(paddle.to_tensor(pixels)).numpy()
    assert expected.std() > 0.1
    np.testing.assert_allclose(logits, expected, atol=2e-5)


def test_biases_of_queries_and_values_alone_give_the_logits_of_all_three():
    full, own = small_vit(), small_vit(qkv_bias="queries and values")
    rng = np.random.default_rng(2)
    state = {
        name: (rng.standard_normal(value.shape) * 0.2).astype("float32") for name, value in full.state_dict().items()
    }
    full.set_state_dict(state)
    for name in [name for name in state if name.endswith("qkv.bias")]:
        query, _, value = np.split(state.pop(name), 3)  # the softmax takes the same from all scores of a query
        state |= {name.replace("qkv.bias", "q_bias"): query, name.replace("qkv.bias", "v_bias"): value}
    assert own.set_state_dict(state) == ([], [])
    full.eval()
    own.eval()
    expected, found = (model(paddle.to_tensor(images())).numpy() for model in (full, own))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert expected.std() > 0.1


def test_an_image_size_that_patches_do_not_fill_is_refused_with_sizes_that_fit():
    with pytest.raises(UserError, match=r"225 x 224 .* 16 px: instead of 225 use 224 or 240"):
        create_model("vit_tiny_patch16_224", image_size=(225, 224))
    with pytest.raises(UserError, match="instead of 8 use 16"):
        create_model("vit_tiny_patch16_224", image_size=8)


def test_images_of_another_size_than_the_models_are_refused():
    with pytest.raises(UserError, match="built for images of 32 x 32 px, the batch has 32 x 40"):
        small_vit()(paddle.to_tensor(images(width=40)))


def test_an_embedding_that_heads_cannot_share_is_refused_unless_the_head_size_is_given():
    with pytest.raises(UserError, match="EMBED_DIM 50 is not divisible by NUM_HEADS 4"):
        small_vit(embed_dim=50)
    model = small_vit(embed_dim=50, attn_head_size=8)
    assert model.blocks[0].attn.qkv.weight.shape == [50, 3 * 4 * 8]


def test_a_forward_pass_brings_nothing_to_the_host(other_paddle, monkeypatch):
    model = small_vit(dropout=0.1, attention_dropout=0.1, drop_path=0.1)
    x = paddle.to_tensor(images())

    def refuse(*arguments):
        raise AssertionError("a forward pass waited for the device")

    methods = ("numpy", "item", "tolist", "__bool__", "__int__", "__float__")
    other_paddle({f"Tensor.{method}": refuse for method in methods})
    logits = model(x)
    monkeypatch.undo()
    assert np.isfinite(logits.numpy()).all()


# The start of training


def test_initial_weights_are_truncated_normal_of_deviation_02_and_biases_zero():
    paddle.seed(3)
    model = create_model("vit_tiny_patch16_224")
    for name, value in model.state_dict().items():
        array = value.numpy()
        if name.endswith(".bias"):
            assert (array == 0).all(), name
        elif name.endswith(("norm1.weight", "norm2.weight", "norm.weight")):
            assert (array == 1).all(), name
        elif name == "patch_embed.proj.weight":
            assert array.std() == pytest.approx(1 / math.sqrt(3 * 16 * 16), rel=0.03)
        else:
            tolerance = 0.2 if name == "cls_token" else 0.03  # 192 numbers only
            assert array.std() == pytest.approx(0.02, rel=tolerance), name
            assert np.abs(array).max() <= 2 * 0.02 / 0.8796 + 1e-6, name


def test_the_seed_decides_the_initial_weights():
    first, second = small_vit(), small_vit()
    other = create_model("vit", num_classes=10, **SMALL)
    same = [name for name, value in first.state_dict().items() if (value == second.state_dict()[name]).all()]
    assert same == list(first.state_dict())
    assert (first.pos_embed != other.pos_embed).any()


# Regularization


def test_drop_path_drops_whole_samples_and_keeps_the_mean():
    paddle.seed(11)
    layer = DropPath(0.3)
    x = paddle.to_tensor(np.random.default_rng(0).random((4000, 3, 2)).astype("float32") + 1.0)
    ratios = (layer(x) / x).numpy().reshape(4000, 6)
    kept = np.isclose(ratios[:, 0], 1 / 0.7)
    assert np.allclose(ratios, np.where(kept, 1 / 0.7, 0.0)[:, None])
    assert kept.mean() == pytest.approx(0.7, abs=0.03)


def test_drop_path_rates_grow_linearly_to_the_last_block():
    model = small_vit(depth=5, drop_path=0.2)
    assert [block.drop_path.rate for block in model.blocks] == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])
    assert small_vit(depth=1, drop_path=0.2).blocks[0].drop_path.rate == pytest.approx(0.2)


@pytest.mark.parametrize("site", ["pos_drop", "blocks.0.attn.dropout", "blocks.0.mlp.dropout"])
def test_dropout_acts_on_positions_attention_output_and_mlp(site):
    model = small_vit(depth=1, dropout=0.5)
    for name, layer in model.named_sublayers():
        if isinstance(layer, paddle.nn.Dropout) and name != site:
            layer.p = 0.0
    x = paddle.to_tensor(images())
    assert (model(x) != model(x)).any()


def test_dropout_acts_on_both_layers_of_the_mlp():
    mlp = small_vit(depth=1, dropout=0.5).blocks[0].mlp
    hidden_is_alive = paddle.ones([1, 400, 48])
    mlp.fc1.weight.set_value(paddle.ones([48, 192]))
    mlp.fc2.weight.set_value(paddle.eye(192)[:, :48])
    outputs = mlp(hidden_is_alive).numpy()
    assert (outputs == 0).mean() == pytest.approx(0.75, abs=0.03)  # either of two halvings makes a zero
    np.testing.assert_allclose(outputs[outputs != 0], 4 * 48, rtol=1e-5)


# Position embeddings for other grids


@pytest.mark.parametrize(
    "old, new", [((14, 14), (24, 24)), ((14, 14), (7, 7)), ((8, 8), (5, 13)), ((24, 24), (14, 20))]
)
def test_position_embeddings_are_resampled_as_pillow_resamples_an_image(old, new):
    embedding = np.random.default_rng(0).standard_normal((1, 1 + old[0] * old[1], 3)).astype("float32")
    resized = resize_position_embedding(embedding, new, num_prefix_tokens=1)
    assert resized.shape == (1, 1 + new[0] * new[1], 3) and resized.dtype == np.float32
    np.testing.assert_array_equal(resized[:, 0], embedding[:, 0])
    for channel in range(3):
        image = Image.fromarray(embedding[0, 1:, channel].reshape(old))
        expected = np.asarray(image.resize((new[1], new[0]), Image.BICUBIC))
        np.testing.assert_allclose(resized[0, 1:, channel].reshape(new), expected, atol=2e-6)


def test_a_model_in_half_precision_resamples_its_positions_in_single_precision():
    model = small_vit(depth=1, any_size=True).to(dtype="bfloat16")
    half = model.resample_positions((3, 5))
    assert half.dtype == paddle.bfloat16 and half.shape == [1, 1 + 15, 48]
    single = model.to(dtype="float32").resample_positions((3, 5))
    np.testing.assert_array_equal(half.astype("float32"), single.astype("bfloat16").astype("float32"))


@pytest.mark.parametrize(("height", "width"), [(35, 40), (40, 35)])
def test_images_that_do_not_fill_a_patch_get_zeros_at_the_bottom_and_right(height, width):
    model, image = small_vit(depth=1, any_size=True), images(height=height, width=width)
    model.eval()
    padded = np.pad(image, [(0, 0), (0, 0), (0, 40 - height), (0, 40 - width)])
    found, expected = (model(paddle.to_tensor(x)).numpy() for x in (image, padded))
    np.testing.assert_array_equal(found, expected)


def test_a_rectangular_embedding_is_taken_to_have_the_proportions_of_the_new_grid():
    old, new = (4, 8), (6, 12)
    embedding = np.random.default_rng(0).standard_normal((1, 1 + 32, 1)).astype("float32")
    resized = resize_position_embedding(embedding, new, num_prefix_tokens=1)
    expected = np.asarray(Image.fromarray(embedding[0, 1:, 0].reshape(old)).resize((12, 6), Image.BICUBIC))
    np.testing.assert_allclose(resized[0, 1:, 0].reshape(new), expected, atol=2e-6)


@pytest.mark.parametrize("new", [(14, 14), (24, 24)])
def test_the_position_of_a_distillation_token_is_dropped_or_begins_as_the_class_tokens(new):
    distilled = np.random.default_rng(0).standard_normal((1, 2 + 14 * 14, 3)).astype("float32")
    plain = np.delete(distilled, 1, axis=1)
    expected = resize_position_embedding(plain, new, num_prefix_tokens=1)
    np.testing.assert_array_equal(resize_position_embedding(distilled, new, num_prefix_tokens=1), expected)
    added = resize_position_embedding(plain, new, num_prefix_tokens=2)
    np.testing.assert_array_equal(added[:, :2], plain[:, [0, 0]])
    np.testing.assert_array_equal(added[:, 2:], expected[:, 1:])


def test_an_embedding_that_forms_no_grid_is_not_resized():
    assert resize_position_embedding(np.zeros((1, 1 + 13, 4), "float32"), (4, 4), num_prefix_tokens=1) is None
    assert resize_position_embedding(np.zeros((1, 1, 4), "float32"), (4, 4), num_prefix_tokens=1) is None


@pytest.mark.parametrize("rate, number", [(0.0, 0), (0.1, 1 + 3 * 3)])
def test_dropout_of_rate_0_launches_nothing(rate, number, other_paddle):
    """The recipe of ViT has 0.1, after each dense layer but queries, keys and values, and on embedded patches."""
    drawn, dropout = [], paddle._C_ops.dropout
    other_paddle({"_C_ops.dropout": lambda *given: drawn.append("dropout") or dropout(*given)})
    other_paddle({"rand": lambda *given: pytest.fail("a path of rate 0 is dropped")})
    model = small_vit(dropout=rate)
    model.train()
    model(paddle.to_tensor(images())).sum().backward()
    assert len(drawn) == number
