"""First weights of detectors' layers, as their authors have them, and images without their padding."""

import math

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.first_weights import is_constant, is_normal, is_uniform
from support.networks.small_detr import small_detr
from support.refusals import refusal_of

from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection import detector
from paddlevit_dist.images.detection.detr.transformer import GridPointInitializer, HeadMlp, grid_points, xavier
from paddlevit_dist.images.detection.mask_rcnn import network as mask_rcnn
from paddlevit_dist.images.detection.mask_rcnn import region_heads
from paddlevit_dist.images.detection.mask_rcnn.region_proposals import ProposalHead
from paddlevit_dist.images.detection.rfdetr.network import RfDetr
from paddlevit_dist.images.detection.rtdetr.decoder import (
    DeformableAttention,
    FusionGate,
    SamplingPoints,
    build_classifier,
    inverse_sigmoid,
)
from paddlevit_dist.images.detection.rtdetr.encoder import ConvNormSiLU


def test_linear_layers_begin_as_the_authors_have_them():
    paddle.seed(3)
    layer = detector.dense(64, 80)
    assert is_uniform(layer.weight, 1 / 8) and is_uniform(layer.bias, 1 / 8)
    layer = xavier(60, 90)
    assert is_uniform(layer.weight, math.sqrt(6 / 150)) and is_constant(layer.bias, 0)
    assert is_uniform(xavier(60, 90, 3).weight, math.sqrt(6 / 330))
    layer = build_classifier(64, 50)
    assert is_uniform(layer.weight, 1 / 8) and is_constant(layer.bias, -math.log(99))
    for starts_at_zero in (False, True):
        mlp = HeadMlp(40, 30, 20, 3, starts_at_zero)
        assert [each.weight.shape for each in mlp.layers] == [[40, 30], [30, 30], [30, 20]]
        assert is_uniform(mlp.layers[1].weight, 30**-0.5)
        assert starts_at_zero == is_constant(mlp.layers[2].weight, 0) == is_constant(mlp.layers[2].bias, 0)
    mlp.layers[2].weight.set_value(np.ones((30, 20), np.float32))
    x = paddle.randn([5, 40])
    hidden = paddle.nn.functional.relu(mlp.layers[1](paddle.nn.functional.relu(mlp.layers[0](x))))
    np.testing.assert_allclose(mlp(x).numpy(), mlp.layers[2](hidden).numpy(), rtol=1e-5)


def test_convolutions_begin_as_the_authors_have_them():
    paddle.seed(3)
    block = ConvNormSiLU(40, 60, 3, groups=2)
    assert is_normal(block.conv.weight, math.sqrt(2 / (9 * 20))) and block.conv.bias is None
    assert (block.norm._momentum, block.norm._epsilon) == (0.9, 1e-5)
    head = ProposalHead(80, 30)
    for layer in (head.conv[0][0], head.cls_logits, head.bbox_pred):
        assert is_normal(layer.weight, 0.01) and is_constant(layer.bias, 0)
    logits, changes = head(paddle.zeros([2, 80, 4, 5]))
    assert (logits.shape, changes.shape) == ([2, 600], [2, 600, 4])
    layer = mask_rcnn._convolution(20, 30, 3)
    assert is_uniform(layer.weight, math.sqrt(3 / 180)) and is_constant(layer.bias, 0)
    assert layer(paddle.zeros([1, 20, 5, 6])).shape == [1, 30, 5, 6]
    masks = region_heads.MaskPredictor(30, 20, 40)
    assert is_normal(masks.conv5_mask.weight, math.sqrt(2 / 120)) and is_constant(masks.conv5_mask.bias, 0)
    assert is_normal(masks.mask_fcn_logits.weight, math.sqrt(2 / 40)) and is_constant(masks.mask_fcn_logits.bias, 0)
    layer, _ = region_heads._convolution(20, 30)
    assert is_normal(layer.weight, math.sqrt(2 / 270)) and is_constant(layer.bias, 0)


def test_attention_to_points_begins_with_a_direction_of_each_head():
    layer = DeformableAttention(16, 4, SamplingPoints((1, 3)))
    assert is_constant(layer.sampling_offsets.weight, 0) and is_constant(layer.attention_weights.weight, 0)
    assert is_constant(layer.attention_weights.bias, 0) and is_constant(layer.value_proj.bias, 0)
    offsets = layer.sampling_offsets.bias.numpy().reshape(4, 4, 2)
    directions = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    np.testing.assert_allclose(offsets, directions[:, None] * np.array([1, 1, 2, 3])[None, :, None], atol=1e-6)
    eight = DeformableAttention(16, 8, SamplingPoints((1,))).sampling_offsets.bias.numpy().reshape(8, 2)
    np.testing.assert_allclose(eight[1], [1, 1], atol=1e-6)  # the longer side is one
    gate = FusionGate(6)
    assert is_constant(gate.gate.weight, 0) and is_constant(gate.gate.bias, 0) and gate.norm._epsilon == 1e-5
    x, other = paddle.randn([2, 6]), paddle.randn([2, 6])
    np.testing.assert_allclose(gate(x, other).numpy(), gate.norm((x + other) / 2).numpy(), rtol=1e-4, atol=1e-5)


def test_networks_begin_with_queries_as_the_authors_have_them():
    detr = small_detr(num_queries=60)
    assert is_normal(detr.query_embed.weight, 1) and is_uniform(detr.input_proj.weight, 8**-0.5)
    assert is_uniform(detr.class_embed.weight, 1 / 4) and not is_constant(detr.bbox_embed.layers[-1].weight, 0)
    with weights_of_zero():
        rtdetr = create_model("rtdetr_small", decoder_layers=1, blocks=1)
    for number in (7, 0):
        rtdetr.denoising = number
        rtdetr.reset_classifier(50)
        embedding = rtdetr.denoising_class_embed.weight
        assert embedding.shape == [51, rtdetr.embed_dim] and is_normal(embedding, 1)
        assert embedding.stop_gradient == (number == 0)
    small = {**RfDetr.variants["rfdetr_shapes"], "decoder_layers": 1, "groups": 2}
    small["backbone_options"] = {**small["backbone_options"], "depth": 1, "feature_depths": (1,)}
    rfdetr = RfDetr(5, **small)
    assert is_normal(rfdetr.query_feat.weight, 1) and is_constant(rfdetr.refpoint_embed.weight, 0)
    for head in (rfdetr.bbox_embed, *rfdetr.enc_out_bbox_embed):
        assert is_constant(head.layers[-1].weight, 0) and not is_constant(head.layers[0].weight, 0)
    resnet = create_model("resnet18", 30, depths=(1, 1), dims=(12, 64))
    assert is_normal(resnet.layer2[0].conv1.weight, math.sqrt(2 / (9 * 64))) and is_uniform(resnet.fc.weight, 1 / 8)


def test_points_of_queries_fill_the_image():
    assert grid_points(5).tolist() == [[0.25, 1 / 6], [0.25, 0.5], [0.25, 5 / 6], [0.75, 0.25], [0.75, 0.75]]
    assert grid_points(1).tolist() == [[0.5, 0.5]]
    layer = paddle.nn.Embedding(5, 8, weight_attr=paddle.ParamAttr(initializer=GridPointInitializer()))
    values = layer.weight.numpy()
    assert np.abs(values).max() <= 1 and len(np.unique(values.round(4), axis=0)) == 5
    np.testing.assert_allclose((values**2).sum(1), 4, rtol=1e-5)  # pairs of sine and cosine
    row, column = values[:, :4], values[:, 4:]
    np.testing.assert_allclose(row[0], row[2], atol=1e-6)
    assert abs(row[0] - row[3]).max() > 0.1 and abs(column[0] - column[1]).max() > 0.1


def test_fractions_are_inverted_up_to_a_small_distance_from_their_ends():
    found = inverse_sigmoid(paddle.to_tensor([-1.0, 0.0, 0.25, 0.5, 1.0, 3.0])).numpy()
    limit = math.log(1e5)
    np.testing.assert_allclose(found, [-limit, -limit, math.log(1 / 3), 0, limit, limit], rtol=1e-3, atol=1e-6)


def test_images_are_chosen_and_cleared_without_their_padding():
    images = paddle.to_tensor(np.arange(4 * 3 * 6 * 5, dtype=np.float32).reshape(4, 3, 6, 5) + 1)
    for rows in ([1, 2], [3, 0]):
        chosen = detector.choose_images(images, rows, np.array([[4, 2], [3, 5]]))
        np.testing.assert_array_equal(chosen.numpy(), images.numpy()[rows, :, :4, :5], strict=True)
    assert detector.choose_images(images, [0, 1, 2, 3], np.array([[6, 5]] * 4)) is images
    sizes = np.array([[6, 5], [4, 5], [6, 1], [2, 3]])
    for on_device in (None, paddle.to_tensor(sizes)):
        cleared = detector.zero_padding(images, sizes, on_device).numpy()
        for row, (height, width) in enumerate(sizes):
            inside = images.numpy()[row, :, :height, :width]
            np.testing.assert_array_equal(cleared[row, :, :height, :width], inside, strict=True)
            assert cleared[row].sum() == pytest.approx(inside.sum())
    assert detector.zero_padding(images, np.array([[6, 5]] * 4)) is images


def test_corners_of_chosen_boxes():
    boxes = paddle.to_tensor([[[5.0, 6, 2, 4], [1, 1, -2, 2]]], dtype="float64")
    found = detector.select_corners(boxes, paddle.to_tensor([[1, 0]]))
    assert found.dtype == paddle.float64
    assert found.numpy().tolist() == [[[2, 0, 0, 2], [4, 4, 6, 8]]]
    assert detector.select_corners(boxes.astype("float16"), paddle.to_tensor([[0]])).dtype == paddle.float32
    assert detector.single_or_double(boxes) is boxes
    assert detector.single_or_double(boxes.astype("float16")).dtype == paddle.float32


def test_names_of_voc_are_those_of_coco():
    """As Darknet's list of COCO's 80 names has six of them."""
    names = {"motorbike": "motorcycle", "aeroplane": "airplane", "sofa": "couch", "tvmonitor": "tv"}
    names |= {"pottedplant": "potted plant", "diningtable": "dining table"}
    network = small_detr()
    for given, expected in names.items():
        assert (
            network.plain_class(given) == network.plain_class(expected)
            and expected in detector.COCO_CATEGORIES.values()
        )
    assert network.plain_class("boat") != network.plain_class("ship")


FAMILIES = ["mask_rcnn_small", "detr_resnet50", "rtdetr_r18vd", "dfine_n", "rfdetr_nano", "rfdetr_seg_nano"]


@pytest.mark.parametrize("name", [*FAMILIES, "eomt_instance_large", "detrpose_hgnetv2_s"])
def test_a_loss_option_that_a_detector_lacks_is_refused_with_those_it_has(name):
    family, losses = resolve("model", name), {"normalizer": "reference", "class_weight": 0.5}
    if name.startswith("detrpose"):
        losses["sigmas"] = ((0.1, 0.1),)
    assert not family.criterion(name, 4, losses).is_global
    for wrong in ("queries", "contrast_weight"):  # what the network sets, and what no loss has
        refusal = refusal_of(family.criterion, name, 4, {**losses, wrong: 0.3})
        assert f"losses of {name} have no '{wrong}'" in refusal and "class_weight" in refusal
    if name != "dfine_n":
        assert "'fine_weight'" in refusal_of(family.criterion, name, 4, {**losses, "fine_weight": 0.3})
