"""RF-DETR's outputs, losses and gradients, computed by its authors' code from weights under their names."""

import functools

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden import arrays, description, recipe

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.rfdetr.network import RfDetr, apply_deltas

GOLDEN, STORED = description("rfdetr"), arrays("rfdetr")
OURS = {  # names of parameters whose gradients the file has
    "backbone.0.encoder.encoder.encoder.layer.0.mlp.fc1.weight": "backbone.blocks.0.mlp.fc1.weight",
    "backbone.0.projector.stages.0.0.cv1.conv.weight": "projector.0.cv1.conv.weight",
    "transformer.decoder.layers.0.linear1.weight": "layers.0.mlp.fc1.weight",
    "refpoint_embed.weight": "refpoint_embed.weight",
    "transformer.enc_out_bbox_embed.2.layers.0.weight": "enc_out_bbox_embed.2.layers.0.weight",
    "class_embed.bias": "class_embed.bias",
}


def _options(kind):
    chosen = GOLDEN["models"][kind]
    backbone = {
        "embed_dim": GOLDEN["width"],
        "depth": GOLDEN["depth"],
        "num_heads": GOLDEN["heads"],
        "image_size": chosen["positions"] * chosen["patch_size"],
        "patch_size": chosen["patch_size"],
        "windows": chosen["num_windows"],
        "feature_depths": chosen["out_feature_indexes"],
    }
    small = {"embed_dim": GOLDEN["dim"], "num_heads": 4, "sampling_heads": 8, "feedforward": 64, "decoder_layers": 2}
    return {**small, "backbone_options": backbone, "num_queries": GOLDEN["queries"], "groups": GOLDEN["groups"]}


@functools.cache
def _network(kind, dtype):
    weights, make = {}, recipe().golden_weight
    for key, shape in GOLDEN["models"][kind]["shapes"].items():
        gain = next((gain for ending, gain in GOLDEN["gain"].items() if key.endswith(ending)), 1)
        weight = make(GOLDEN["seed"], key, tuple(shape)) * np.float32(gain)
        weights[key] = weight + np.float32(key.endswith("lambda1"))
    paddle.set_default_dtype(dtype)
    try:
        with weights_of_zero():
            network = RfDetr(GOLDEN["classes"], **_options(kind))
        report = load_weights(network, weights, strict=True)
    finally:
        paddle.set_default_dtype("float32")
    assert report.unexpected == []
    network.eval()
    return network


def _images(kind, dtype):
    images = recipe().golden_image(GOLDEN["seed"], len(GOLDEN["objects"]), GOLDEN["models"][kind]["side"])
    return paddle.to_tensor(images.astype(dtype))


def _targets(kind):
    side, most = GOLDEN["models"][kind]["side"], max(GOLDEN["objects"])
    boxes, labels = np.zeros((len(GOLDEN["objects"]), most, 4)), np.full((len(GOLDEN["objects"]), most), -1)
    for image, number in enumerate(GOLDEN["objects"]):
        theirs = STORED[f"{kind}/boxes{image}"]
        ends = np.concatenate([theirs[:, :2] - theirs[:, 2:] / 2, theirs[:, :2] + theirs[:, 2:] / 2], axis=1)
        boxes[image, :number], labels[image, :number] = ends * side, STORED[f"{kind}/labels{image}"]
    return DetectionTargets(*map(paddle.to_tensor, (boxes, labels, np.full((len(labels), 2), side))))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", GOLDEN["models"])
def test_logits_and_boxes_are_the_authors(kind, dtype):
    outputs = _network(kind, dtype)(_images(kind, dtype))
    allowed = 1e-4 if dtype == "float32" else 1e-5  # positions are resampled in float32
    for name in ("logits", "boxes"):
        np.testing.assert_allclose(outputs[name].numpy(), STORED[f"{kind}/{name}"], rtol=0, atol=allowed)


@pytest.mark.parametrize("kind", GOLDEN["models"])
def test_losses_of_all_groups_and_gradients_are_the_authors(kind):
    network, targets = _network(kind, "float64"), _targets(kind)
    criterion = RfDetr.criterion("rfdetr_base", GOLDEN["classes"], {"normalizer": "reference"}, **_options(kind))
    outputs = network(_images(kind, "float64"), None, targets)
    terms = criterion.terms(outputs, targets)
    counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
    loss = compute_loss(terms, counts, accumulation_steps=1, processes=1)
    expected = GOLDEN["models"][kind]["total"]
    assert abs(loss.item() - expected) <= 1e-6 * expected
    loss.backward()
    parameters = dict(network.named_parameters())
    for theirs, ours in OURS.items():
        gradient = parameters[ours].grad.numpy()
        gradient = (gradient.T if gradient.ndim == 2 and "refpoint" not in ours else gradient).ravel()
        expected = STORED[f"{kind}/gradient/{theirs}"]
        found = gradient[:: max(1, len(gradient) // 64)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=ours)
    without = [name for name, parameter in parameters.items() if parameter.grad is None and not parameter.stop_gradient]
    assert without == []
    tripled = RfDetr.criterion("rfdetr_base", GOLDEN["classes"], {"class_weight": 3.0}, **_options(kind))
    weights = {name: 3.0 if name.startswith("class") else term.weight for name, term in terms.items()}
    assert {name: term.weight for name, term in tripled.terms(outputs, targets).items()} == weights


def test_a_batch_without_objects_has_the_loss_of_all_groups():
    """The authors divide by the objects of all groups, and by 1 without any: sigmoid^2 softplus of every score."""
    kind = next(iter(GOLDEN["models"]))
    network, targets = _network(kind, "float64"), _targets(kind)
    targets = targets._replace(boxes=targets.boxes * 0, labels=paddle.full_like(targets.labels, -1))
    criterion = RfDetr.criterion("rfdetr_base", GOLDEN["classes"], {"normalizer": "reference"}, **_options(kind))
    outputs = network(_images(kind, "float64"), None, targets)
    terms = criterion.terms(outputs, targets)
    counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
    loss = compute_loss(terms, {name: max(count, 1) for name, count in counts.items()}, 1, 1)
    logits = [outputs[name].numpy().ravel() for name in ("layer_logits", "encoder_logits")]
    expected = sum((np.log1p(np.exp(part)) / (1 + np.exp(-part)) ** 2).sum() for part in logits)
    np.testing.assert_allclose(loss.item(), terms["class"].weight * expected, rtol=1e-9)


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
    scores, boxes = (part.numpy() for part in network.select_queries(paddle.to_tensor(memory), (height, width), group))
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
