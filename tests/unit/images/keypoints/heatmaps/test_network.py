"""Heatmap networks: names of published weights, backbones, and what is refused."""

import re

import numpy as np
import paddle
import pytest
from support.networks import golden
from support.networks.cheap_weights import weights_of_zero
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.distributed import recompute_layers
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.keypoints.heatmaps.backbone import PoseTransformer
from paddlevit_dist.images.keypoints.heatmaps.network import HeatmapNetwork, SimpleDecoder
from paddlevit_dist.images.models.vit import VisionTransformer
from paddlevit_dist.images.pretraining.masked_autoencoder.network import MaskedAutoencoder

TINY = {"patch_size": 16, "embed_dim": 16, "depth": 2, "num_heads": 2}
SIZE = (64, 48)
# Our names as those of mmpose, whose decoders count their ReLUs as layers.
MMPOSE = (
    (r"^head\.deconv(\d)\.", lambda m: f"keypoint_head.deconv_layers.{3 * int(m[1]) - 3}."),
    (r"^head\.batchnorm(\d)\.", lambda m: f"keypoint_head.deconv_layers.{3 * int(m[1]) - 2}."),
    (r"^head\.conv\.", "keypoint_head.final_layer."),
    (r"^backbone\.norm\.", "backbone.last_norm."),
)
# Those of mmpose 1.x in its ViT.
MMPOSE1 = (
    (r"^head\.conv\.", "head.final_layer."),
    (r"^backbone\.blocks\.(\d)\.norm(\d)\.", r"backbone.layers.\1.ln\2."),
    (r"^backbone\.blocks\.(\d)\.mlp\.fc1\.", r"backbone.layers.\1.ffn.layers.0.0."),
    (r"^backbone\.blocks\.(\d)\.mlp\.fc2\.", r"backbone.layers.\1.ffn.layers.1."),
    (r"^backbone\.blocks\.", "backbone.layers."),
    (r"^backbone\.patch_embed\.proj\.", "backbone.patch_embed.projection."),
    (r"^backbone\.norm\.", "backbone.ln1."),
)
# Those of the authors of SimpleBaseline.
BEFORE = (*MMPOSE[:3], (r"^keypoint_head\.", ""), (r"^backbone\.", ""))


def renamed(state, rules):
    """A state of ours as torch stores it: statistics by other names, Linear weights (out, in)."""
    result = {}
    for name, value in state.items():
        is_linear = value.ndim == 2
        name = name.replace("._mean", ".running_mean").replace("._variance", ".running_var")
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        result[name] = value.T if is_linear else value
    return result


@pytest.mark.parametrize(
    ("options", "rules", "naming"),
    [
        (TINY, MMPOSE, "mmpose"),
        ({**TINY, "decoder": "simple"}, MMPOSE, "mmpose"),
        ({"backbone": "resnet18", "channels": 8, "image_size": 64}, MMPOSE, "mmpose"),
        ({"backbone": "resnet18", "channels": 8, "image_size": 64}, BEFORE, "SimpleBaseline"),
    ],
)
def test_names_of_published_weights(options, rules, naming):
    with weights_of_zero():
        model = HeatmapNetwork(5, **{"image_size": SIZE, **options})
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    values = {name: golden.recipe().golden_weight(1, name, shape) for name, shape in shapes.items()}
    report = load_weights(model, renamed(values, rules), strict=True)
    assert report.origin.startswith(naming) and not report.unexpected
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), values[name], err_msg=name)


def test_names_of_mmpose_1_and_its_positions_without_a_class_token():
    with weights_of_zero():
        model = HeatmapNetwork(5, SIZE, **TINY, decoder="simple")
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    values = {name: golden.recipe().golden_weight(1, name, shape) for name, shape in shapes.items()}
    state = renamed(values, MMPOSE1)
    state["backbone.pos_embed"] = state["backbone.pos_embed"][:, 1:]
    report = load_weights(model, state, strict=True)
    values["backbone.pos_embed"][:, 0] = 0
    assert report.origin.startswith("mmpose") and not report.unexpected
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), values[name], err_msg=name)


def test_a_masked_autoencoder_brings_all_weights_of_the_backbone():
    encoder = VisionTransformer(0, 32, **TINY)
    autoencoder = MaskedAutoencoder(encoder, 0.5, 16, 1, 2)
    model = HeatmapNetwork(5, SIZE, **TINY)
    report = load_weights(model.pretrained_part, autoencoder.state_dict())
    assert report.missing == [] and report.resized == ["pos_embed"]
    assert report.unexpected == ["cls_token"]
    np.testing.assert_array_equal(model.backbone.pos_embed[:, 0].numpy(), encoder.pos_embed[:, 0].numpy())


@pytest.mark.parametrize(
    ("backbone", "options"),
    [
        ("vit_small_patch16_dinov3", {"embed_dim": 16, "depth": 1, "num_heads": 2}),
        ("swin_tiny_patch4_window7_224", {"embed_dim": 12, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1)}),
        ("convnext_tiny", {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8)}),
        ("hgnetv2_b0", {}),
    ],
)
def test_every_backbone_with_maps_trains_all_weights(backbone, options):
    model = HeatmapNetwork(3, (64, 96), backbone, options, channels=8)
    maps = model(paddle.rand([2, 3, 64, 96]))
    assert list(maps.shape) == [2, 3, 16, 24] and model.heatmap_size == (16, 24)
    tables = {len(each) for name, each in model.named_parameters() if name.endswith("relative_position_bias_table")}
    assert tables == ({13**2} if backbone.startswith("swin") else set())  # small maps leave windows as they are
    (maps * paddle.rand(maps.shape)).sum().backward()
    unused = [name for name, each in model.named_parameters() if not each.stop_gradient and each.grad is None]
    assert unused == []
    assert sorted(name for group in model.layer_groups() for name in group) == sorted(
        name for name, _ in model.named_parameters()
    )


@pytest.mark.parametrize(
    ("options", "is_padded"),
    [
        ({}, True),
        ({"class_token": False, "pool": "average"}, False),
        ({"registers": 2}, False),
        ({"positions": "patches"}, False),
        ({"rotary": "axial"}, False),
        ({"windows": 2}, False),
    ],
)
def test_patches_are_padded_if_all_tokens_but_one_are_patches_with_learned_positions(options, is_padded):
    with weights_of_zero():
        model = HeatmapNetwork(3, 64, backbone_options={**options, "patch_size": 4}, **{**TINY, "patch_size": 16})
    assert isinstance(model.backbone, PoseTransformer) == is_padded
    assert model.backbone.patch_embed.proj.weight.shape[-1] == 16  # the network's own option wins


def test_rates_and_names_of_the_backbone_are_passed_on():
    model = HeatmapNetwork(3, SIZE, decoder="simple", dropout=0.125, attention_dropout=0.25, drop_path=0.5, **TINY)
    block = model.backbone.blocks[1]
    assert (block.mlp.dropout.p, block.attn.attention_dropout.p, block.drop_path.rate) == (0.125, 0.25, 0.5)
    assert model.no_weight_decay() == ("backbone.pos_embed",) and model.pretrained_part is model.backbone
    assert model.layer_groups()[-1] == ["head.conv.weight", "head.conv.bias"] and len(model.layer_groups()) == 4
    assert 0.0008 < model.head.conv.weight.numpy().std() < 0.0012 and not model.head.conv.bias.numpy().any()
    assert model.head.conv.weight.shape == [3, 16, 3, 3] and HeatmapNetwork.default_classes("vitpose") == 17


def test_padded_patches_see_two_pixels_before_the_image():
    model = PoseTransformer(0, (32, 32), **TINY)
    images = paddle.randn([2, 3, 32, 32])
    proj = model.patch_embed.proj
    expected = paddle.nn.functional.conv2d(images, proj.weight, proj.bias, stride=16, padding=2).flatten(2)
    expected = expected.transpose([0, 2, 1]) + model.pos_embed[:, 1:] + model.pos_embed[:, :1]
    np.testing.assert_allclose(model.embedded(images).numpy(), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_the_simple_decoder_upsamples_and_convolves(scale):
    decoder, features = SimpleDecoder(5, 3, scale), paddle.randn([2, 5, 4, 3])
    large = paddle.nn.functional.interpolate(
        paddle.nn.functional.relu(features), scale_factor=scale, mode="bilinear", align_corners=False
    )
    decoder.conv.weight.set_value(paddle.randn(decoder.conv.weight.shape))
    decoder.conv.bias.set_value(paddle.randn([3]))
    np.testing.assert_allclose(decoder(features).numpy(), decoder.conv(large).numpy(), atol=1e-5)


def test_the_last_layer_takes_the_number_of_points():
    model = HeatmapNetwork(3, SIZE, decoder="simple", **TINY)
    model.reset_classifier(7)
    assert list(model(paddle.zeros([1, 3, *SIZE])).shape) == [1, 7, 16, 12]
    assert (
        model.resample_parameter("head.conv.weight", np.zeros((3, 64, 1, 1)), None) is None
    )  # as many points as it has


def test_recomputed_blocks_change_no_gradient():
    model = HeatmapNetwork(3, SIZE, decoder="simple", **TINY)
    model.train()
    images, found = paddle.randn([2, 3, *SIZE]), []
    for layers in ([], model.recomputed_layers()):
        recompute_layers(layers)
        (model(images) ** 2).sum().backward()
        found.append({name: parameter.grad.numpy() for name, parameter in model.named_parameters()})
        model.clear_gradients()
    assert len(layers) == TINY["depth"]
    for name, gradient in found[0].items():
        np.testing.assert_allclose(found[1][name], gradient, atol=1e-5 * np.abs(gradient).max(), err_msg=name)


def test_what_is_refused():
    with pytest.raises(
        UserError, match="64 x 48 px .HEATMAPS.CROP_SIZE.: resnet18 takes sides that are multiples of 32"
    ):
        HeatmapNetwork(3, SIZE, "resnet18")
    for stride in (3, 5, 32):
        assert refusal_of(HeatmapNetwork, 3, SIZE, heatmap_stride=stride, **TINY) == (
            f"heatmap_stride {stride} (HEATMAPS.STRIDE): the maps of vit_base_patch16_224 have stride 16; expected "
            "that divided by a power of two, such as 4"
        )
    with pytest.raises(UserError, match="decoder 'both'"):
        HeatmapNetwork(3, SIZE, decoder="both", **TINY)
    with pytest.raises(UserError, match="feature maps"), weights_of_zero():
        HeatmapNetwork(3, 224, "mixer_b16_224", {"depth": 1})
    with pytest.raises(UserError, match=r"ViTPose\+"):
        model = HeatmapNetwork(3, SIZE, **TINY)
        load_weights(model, {"backbone.encoder.layer.0.mlp.experts.0.weight": np.zeros((3, 3), np.float32)})
    with weights_of_zero():
        assert create_model("vitpose_small", depth=1).backbone.blocks[0].attn.num_heads == 12
