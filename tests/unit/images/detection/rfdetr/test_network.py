"""What RF-DETR does with images, beside the numbers of the golden file."""

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.rfdetr.network import RfDetr, apply_deltas


def test_boxes_move_in_sizes_of_the_box():
    boxes = paddle.to_tensor([[0.5, 0.5, 0.2, 0.4]])
    moved = apply_deltas(boxes, paddle.to_tensor([[1.0, -0.5, 0.0, np.log(2.0)]], dtype="float32"))
    np.testing.assert_allclose(moved.numpy(), [[0.7, 0.3, 0.2, 0.8]], atol=1e-6)


def test_of_outputs_for_each_id_those_of_cocos_categories_are_taken():
    with paddle.LazyGuard():
        network = RfDetr(80, **RfDetr.variants["rfdetr_shapes"])
    for name in ("class_embed.weight", "enc_out_class_embed.2.bias"):
        taken = network.resize_parameter(name, np.arange(91))
        assert len(taken) == 80 and list(taken[[0, 11, 12, 79]]) == [1, 13, 14, 90]
    assert network.resize_parameter("bbox_embed.layers.0.bias", np.arange(91)) is None
    told = "of the classifier's 91 outputs, the outputs of COCO's 80 categories were used"
    assert network.list_resize_notices(["backbone.x", "class_embed.bias"]) == [told]
    assert network.list_resize_notices(["enc_out_class_embed.0.bias", "backbone.x"]) == []
    names = network.published_classes(91)
    assert (names[:2], names[90], len(names)) == (["", "person"], "toothbrush", 91)
    assert network.published_classes(4) is None


def test_queries_start_at_the_cells_of_the_best_scores_and_not_at_the_border():
    with weights_of_zero():
        network = RfDetr(3, **RfDetr.variants["rfdetr_shapes"])
    random, (height, width), group = np.random.default_rng(0), (40, 60), 1  # rows begin at 0.0125, columns at 0.0083
    for layer in (network.enc_output[group], network.enc_out_class_embed[group]):
        layer.weight.set_value(random.standard_normal(layer.weight.shape).astype("float32"))
    norm = network.enc_output_norm[group]
    norm.weight.set_value(paddle.ones_like(norm.weight))
    network.num_queries = height * width
    memory = random.standard_normal((2, height * width, network.embed_dim)).astype("float32")
    selected = network.select_queries(paddle.to_tensor(memory), [(height, width)], group)
    scores, boxes, _ = (part.numpy() for part in selected)
    anchors = [[(x + 0.5) / width, (y + 0.5) / height, 0.05, 0.05] for y in range(height) for x in range(width)]
    anchors = np.array(anchors) * [[0.01 < x < 0.99] for x, *_ in anchors]
    assert (anchors == 0).all(axis=1).sum() == 2 * height  # the first and the last column, and no row
    cells = network.enc_output_norm[group](network.enc_output[group](paddle.to_tensor(memory * (anchors[:, 2:3] > 0))))
    logits = network.enc_out_class_embed[group](cells.astype("float32")).numpy()
    order = np.argsort(-logits.max(-1), axis=1, kind="stable")[..., None]
    is_unused = (np.take_along_axis(anchors[None], order, 1) == 0).all(-1)  # equal scores, so in any order
    np.testing.assert_allclose(boxes[~is_unused], np.take_along_axis(anchors[None], order, 1)[~is_unused], rtol=1e-5)
    assert (boxes[is_unused] == 0).all()
    np.testing.assert_allclose(scores, np.take_along_axis(logits, order, 1), rtol=1e-4, atol=1e-5)


def test_sizes_and_backbones_that_do_not_fit_are_refused():
    with weights_of_zero():
        network = RfDetr(3, **RfDetr.variants["rfdetr_shapes"])
        with pytest.raises(UserError, match="plain ViT"):
            RfDetr(3, backbone="resnet18")
    with pytest.raises(UserError, match="multiples of 16, not 64 x 72 pixels"):
        network(paddle.zeros([1, 3, 64, 72]))
    with pytest.raises(UserError, match="16 cells, fewer than MODEL.NUM_QUERIES 25"):
        network(paddle.zeros([1, 3, 32, 32]))
    with pytest.raises(UserError, match="cannot be divided into 2 x 2 windows"):
        network.backbone.feature_maps(paddle.zeros([1, 3, 64, 72]))


def test_layers_of_the_backbone_learn_the_slower_the_deeper_they_are():
    with paddle.LazyGuard():
        network = RfDetr(3, **RfDetr.variants["rfdetr_shapes"])
    names = network.backbone.no_weight_decay()
    assert network.no_weight_decay() == tuple(f"backbone.{name}" for name in names) and "pos_embed" in names
    layers = network.recomputed_layers()
    assert [id(each) for each in layers] == [id(each) for each in (*network.backbone.blocks, *network.layers)]
    first, *blocks, rest = network.layer_groups()
    assert "backbone.pos_embed" in first and len(blocks) == 4
    assert all(name.startswith(f"backbone.blocks.{number}.") for number, names in enumerate(blocks) for name in names)
    assert {"backbone.norm.weight", "projector.1.weight", "class_embed.bias", "layers.0.mlp.fc1.weight"} <= set(rest)
