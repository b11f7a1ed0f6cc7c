"""A plain transformer as a backbone of detectors: four maps of one."""

import math

import numpy as np
import paddle
import pytest
from support.networks.rtdetr_networks import CLASSES, make_images, make_targets

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.models.simple_pyramid import SimplePyramid

NARROW = {"depth": 2, "embed_dim": 32, "num_heads": 2, "pyramid": 8}
BACKBONES = ["vit_small_patch16_dinov3", "vit_base_patch16_siglip_256", "eva02_base_patch16_clip_224"]


@pytest.mark.parametrize("name", BACKBONES)
def test_maps_are_the_last_one_enlarged_as_it_is_and_its_maxima(name):
    paddle.seed(0)
    model = create_model(name, num_classes=0, **NARROW)
    model.eval()
    assert (model.feature_strides, model.feature_channels) == ((4, 8, 16, 32), (8, 8, 8, 8))
    images = paddle.randn([2, 3, 48, 80])  # three rows of patches: a map of half has two
    maps = model.feature_maps(images)
    assert [tuple(one.shape) for one in maps] == [(2, 8, 12, 20), (2, 8, 6, 10), (2, 8, 3, 5), (2, 8, 2, 3)]
    tokens = model.tokens(images)[:, model.num_prefix_tokens :].numpy().reshape(2, 3, 5, 32)
    padded = np.pad(tokens, ((0, 0), (0, 1), (0, 1), (0, 0)), mode="edge")
    maxima = padded.reshape(2, 2, 2, 3, 2, 32).max(axis=(2, 4)).transpose(0, 3, 1, 2)
    expected = model.pyramid.outputs[3](paddle.to_tensor(maxima))
    np.testing.assert_allclose(maps[3].numpy(), expected.numpy(), atol=1e-6)
    # Two strides of transposed convolutions that touch: each position of the finest map sees one patch.
    changed = images.clone()
    changed[:, :, :16, :16] = 0
    weight = {key: value for key, value in model.pyramid.named_parameters() if "outputs.0.2" in key}
    center = np.zeros([8, 8, 3, 3], np.float32)
    center[:, :, 1, 1] = np.eye(8)
    next(value for key, value in weight.items() if value.ndim == 4).set_value(center)
    one = paddle.zeros([1, 32, 3, 5])
    other = one.clone()
    other[:, :, 1, 2] = 1.0
    apart = (model.pyramid(one)[0] != model.pyramid(other)[0]).any(axis=1)[0].numpy()
    rows, columns = np.nonzero(apart)
    assert rows.min() == 4 and rows.max() == 7 and columns.min() == 8 and columns.max() == 11


def test_a_patch_that_has_no_quarter_is_refused():
    with pytest.raises(UserError, match="option pyramid: .* not 14: take a backbone with patch16 in its name"):
        create_model("vit_small_patch14_dinov2", num_classes=0, **NARROW)


def test_every_parameter_of_a_detector_on_it_learns():
    from paddlevit_dist.core.engine import compute_loss
    from paddlevit_dist.images.detection.rtdetr.network import RtDetr

    paddle.seed(0)
    small = {"encoder_dim": 32, "encoder_heads": 4, "encoder_feedforward": 32, "blocks": 1, "embed_dim": 32}
    small |= {"num_heads": 4, "feedforward": 32, "decoder_layers": 2, "num_queries": 10, "denoising": 6}
    model = create_model(
        "rtdetr_dinov3_small", num_classes=CLASSES, backbone_options={**NARROW, "pyramid_maps": 3}, **small
    )
    criterion = RtDetr.criterion("rtdetr_dinov3_small", CLASSES, **small)
    targets = make_targets((2, 1))._replace(box_counts=np.array([2, 1]))
    model.train()
    terms = criterion.terms(model(make_images(2, "float32"), None, targets), targets)
    compute_loss(terms, dict.fromkeys(criterion.normalizer_names, 3), 1, 1).backward()
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert parameter.grad is not None, name


def test_mask_rcnn_reads_it():
    model = create_model(
        "mask_rcnn_resnet50_fpn",
        num_classes=CLASSES,
        backbone="vit_small_patch16_dinov3",
        backbone_options=NARROW,
        pyramid_channels=8,
    )
    model.eval()
    maps = model.backbone(paddle.randn([1, 3, 64, 96]))
    assert [tuple(one.shape[2:]) for one in maps] == [(16, 24), (8, 12), (4, 6), (2, 3), (1, 2)]
    fixed = [name for name, parameter in model.backbone.body.named_parameters() if parameter.stop_gradient]
    assert fixed == []


def normalized(x, norm):
    """(batch, channels, height, width) over the channels."""
    scale, shift = (part.numpy()[:, None, None] for part in (norm.weight, norm.bias))
    return scale * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) + shift


def enlarged(x, layer):
    """Each position becomes a square of 2 x 2."""
    batch, _, height, width = x.shape
    squares = np.einsum("nchw,cokl->nohkwl", x, layer.weight.numpy())
    return squares.reshape(batch, -1, 2 * height, 2 * width) + layer.bias.numpy()[:, None, None]


def put_out(x, layers):
    point, first, square, last = layers
    x = normalized(np.einsum("nchw,oc->nohw", x, point.weight.numpy()[:, :, 0, 0]), first)
    padded, (height, width), total = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), x.shape[2:], 0
    for row, column in np.ndindex(3, 3):
        part = padded[:, :, row : row + height, column : column + width]
        total = total + np.einsum("nchw,oc->nohw", part, square.weight.numpy()[:, :, row, column])
    return normalized(total, last)


@pytest.mark.parametrize("maps", [4, 2])
def test_every_map_is_that_of_plain_sums(maps):
    random = np.random.default_rng(2)
    pyramid = SimplePyramid(12, 5, maps, 8).to(dtype="float64")
    assert pyramid.strides == (2, 4, 8, 16)[-maps:]
    for parameter in pyramid.parameters():
        parameter.set_value(random.standard_normal(parameter.shape))
    x = random.standard_normal((2, 12, 3, 4))
    found = pyramid(paddle.to_tensor(x))
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), mode="edge")
    scaled = [x, padded.reshape(2, 12, 2, 2, 2, 2).max(axis=(3, 5))]
    if maps == 4:
        (first, norm, _, second), half, *_ = pyramid.scales
        quarter = normalized(enlarged(x, first), norm)
        quarter *= 0.5 * (1 + np.vectorize(math.erf)(quarter / math.sqrt(2)))
        scaled = [enlarged(quarter, second), enlarged(x, half), *scaled]
    for one, before, layers in zip(found, scaled, pyramid.outputs, strict=True):
        np.testing.assert_allclose(one.numpy(), put_out(before, layers), rtol=1e-9, atol=1e-9)
