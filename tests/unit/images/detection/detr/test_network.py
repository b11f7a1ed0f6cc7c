"""DETR as a network: padding, shapes, decoding, backbones, names of weights."""

import numpy as np
import paddle
import pytest
from support.networks.small_detr import CLASSES, OPTIONS, QUERIES, default_dtype, make_images, small_detr

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import count_classes, load_weights
from paddlevit_dist.core.checkpoint.weights import weights_from_mapping
from paddlevit_dist.core.distributed import recompute_layers
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.detector import COCO_CATEGORIES
from paddlevit_dist.images.detection.detr.transformer import find_valid_cells, grid_points, sine_embedding

SIZES = [(40, 32), (24, 41), (61, 40), (9, 30)]


def make_outputs(model, images, sizes):
    with paddle.no_grad():
        outputs = {name: value.numpy() for name, value in model(images, sizes).items()}
    for name in ("logits", "boxes"):
        np.testing.assert_array_equal(outputs[name], outputs[f"layer_{name}"][-1])
    return outputs["layer_logits"], outputs["layer_boxes"]


def alone(images, sizes, number):
    height, width = sizes.numpy()[number]
    return images[number : number + 1, :, :height, :width], sizes[number : number + 1]


@pytest.mark.parametrize("dilation", [False, True])
def test_masked_padding_makes_a_batch_equal_to_its_images(dilation):
    model = small_detr("float64", mask_padding=True, dilation=dilation)
    model.eval()
    images, sizes = make_images(SIZES, "float64")
    with default_dtype("float64"):
        batch = make_outputs(model, images, sizes)
        for number in range(len(SIZES)):
            image, size = alone(images, sizes, number)
            for together, one in zip(batch, make_outputs(model, image, size)):
                np.testing.assert_allclose(together[:, number], one[:, 0], atol=1e-12)
            for told, untold in zip(make_outputs(model, image, size), make_outputs(model, image, None)):
                np.testing.assert_allclose(told, untold, atol=1e-12)


def test_without_it_padding_changes_an_image():
    model = small_detr("float64")
    model.eval()
    images, sizes = make_images(SIZES, "float64")
    logits, _ = make_outputs(model, images, sizes)
    assert np.abs(logits[:, 1] - make_outputs(model, *alone(images, sizes, 1))[0][:, 0]).max() > 1e-6


def test_a_padded_batch_of_equal_sizes_is_no_other_than_one_without_sizes():
    model = small_detr()
    model.eval()
    images, sizes = make_images([(32, 40)] * 2)
    for told, untold in zip(make_outputs(model, images, sizes), make_outputs(model, images, None)):
        np.testing.assert_allclose(told, untold, atol=1e-6)


@pytest.mark.parametrize("sizes", [[(1, 1)], [(1, 1), (33, 1)], [(1, 90), (2, 2)]])
@pytest.mark.parametrize("mask_padding", [False, True])
def test_images_of_a_pixel(sizes, mask_padding):
    model = small_detr(mask_padding=mask_padding)
    model.eval()
    for array in make_outputs(model, *make_images(sizes)):
        assert np.isfinite(array).all() and array.shape[:3] == (2, len(sizes), QUERIES)


def test_cells_are_those_that_nearest_resizing_finds():
    height, width, grid = 37, 50, (5, 7)
    sizes = np.array([[37, 50], [12, 50], [1, 23], [30, 1]])
    cells = find_valid_cells(paddle.to_tensor(sizes), (height, width), grid)
    for number, (own_height, own_width) in enumerate(sizes):
        mask = np.ones((height, width), bool)
        mask[:own_height, :own_width] = False
        rows, columns = (np.arange(n) * pixels // n for n, pixels in zip(grid, (height, width)))
        np.testing.assert_array_equal(cells.padding().numpy()[number], mask[rows][:, columns], strict=True)


def test_the_embedding_of_a_cell_is_that_of_its_share_of_the_image():
    channels, sizes = 8, np.array([[40, 64], [24, 33]])
    found = sine_embedding(find_valid_cells(paddle.to_tensor(sizes), (40, 64), (5, 8), 8), channels, "float64").numpy()
    for number, (rows, columns) in enumerate([(5, 8), (3, 5)]):
        for row, column in [(0, 0), (rows - 1, columns - 1), (1, 3)]:
            expected = []
            for place, cells in ((row, rows), (column, columns)):
                angle = (place + 1) / (cells + 1e-6) * 2 * np.pi
                for pair in range(channels // 4):
                    frequency = 10000 ** (2 * pair / (channels // 2))
                    expected += [np.sin(angle / frequency), np.cos(angle / frequency)]
            np.testing.assert_allclose(found[number, row * 8 + column], expected, atol=1e-12)


def test_decoding_gives_boxes_of_the_stored_image_best_first():
    model = small_detr()
    logits = np.full((1, 3, CLASSES + 1), -20.0, np.float32)
    logits[0, [0, 1, 2], [1, 3, CLASSES]] = 0.0, 3.0, 9.0  # the last prefers no object
    logits[0, 0, CLASSES] = 0.0
    boxes = np.array([[[0.5, 0.5, 0.2, 0.4], [0.25, 0.75, 0.5, 0.5], [0.9, 0.1, 0.4, 0.4]]], np.float32)
    outputs = {"logits": paddle.to_tensor(logits), "boxes": paddle.to_tensor(boxes)}
    (found,) = model.decode(outputs, np.array([[30, 60]]), np.array([[100, 200]]))
    np.testing.assert_array_equal(found.labels[:2], [3, 1], strict=True)
    np.testing.assert_allclose(found.scores[:2], [1.0, 0.5], atol=1e-5)
    np.testing.assert_allclose(found.boxes[:2], [[0, 50, 100, 100], [80, 30, 120, 70]], atol=1e-4)
    assert found.scores[2] < 1e-6 and found.boxes.dtype == found.scores.dtype == np.float32
    assert found.labels.dtype == np.int64 and found.masks is None


@pytest.mark.parametrize("name", ["detr_resnet18", "detr_resnet50_dc5", "detr_small"])
def test_a_model_and_its_criterion_agree(name):
    with paddle.LazyGuard():  # shapes only
        model = create_model(name, 3)
    criterion = model.criterion(name, 3)
    assert criterion.queries == model.query_embed.weight.shape[0]
    assert model.class_embed.weight.shape[1] == criterion.num_classes + 1 == 4
    assert (len(criterion.suffixes) == 2) == (len(model.transformer.decoder.layers) > 1)
    frozen = {p.split(".")[1] for p, value in model.named_parameters() if value.stop_gradient and "._" not in p}
    assert frozen == (set() if name == "detr_small" else {"conv1", "layer1"})
    assert model.stride == {"detr_small": 8}.get(name, 16 if name.endswith("dc5") else 32)


@pytest.mark.parametrize(
    ("backbone", "options"),
    [
        ("swin_tiny_patch4_window7_224", {"image_size": 64, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}),
        ("pvt_v2_b0", {"embed_dims": (8, 16, 16, 16), "num_heads": (1, 1, 1, 1), "depths": (1, 1, 1, 1)}),
        ("convnext_tiny", {"depths": (1, 1), "dims": (8, 16)}),
    ],
)
def test_other_backbones_have_no_options_of_a_resnet(backbone, options):
    model = small_detr(backbone=backbone, backbone_options=options, frozen_stages=2)
    model.eval()
    logits, boxes = make_outputs(model, *make_images([(64, 64), (40, 64)]))
    assert np.isfinite(logits).all() and np.isfinite(boxes).all()
    with pytest.raises(UserError, match="MODEL.MASK_PADDING: backbone"):
        small_detr(backbone=backbone, backbone_options=options, mask_padding=True)
    with pytest.raises(UserError, match="has no dilation"):
        small_detr(backbone=backbone, backbone_options=options, dilation=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_dim": 18}, "EMBED_DIM 18: expected a multiple of 4"),
        ({"num_heads": 3}, "EMBED_DIM 16 is not divisible by its number of heads 3"),
        ({"num_queries": 0}, "DETR needs at least one decoder layer and query"),
        ({"feature_level": 2}, "has 2 feature maps: feature_level 2 is out of range"),
        ({"querys": 3}, "has no option 'querys'"),
    ],
)
def test_impossible_options_are_one_line(options, message):
    with pytest.raises(UserError, match=message):
        small_detr(**options)


def test_points_of_queries_fill_the_image():
    for number in (1, 2, 7, 25, 100):
        points = grid_points(number)
        assert points.shape == (number, 2) and (points > 0).all() and (points < 1).all()
        assert len(np.unique(points, axis=0)) == number
        np.testing.assert_allclose(points.mean(axis=0), 0.5, atol=0.1)


def test_boxes_are_told_from_the_points_of_their_queries():
    model = small_detr(anchors=True, num_queries=9)
    model.eval()
    last = model.bbox_embed.layers[-1]
    last.weight.set_value(paddle.zeros_like(last.weight))
    last.bias.set_value(paddle.zeros_like(last.bias))
    _, boxes = make_outputs(model, *make_images([(32, 32)]))
    np.testing.assert_allclose(boxes[0, 0, :, [1, 0]].T, grid_points(9), atol=1e-6)


def test_the_authors_classifier_is_reduced_to_the_categories_of_coco():
    theirs, ours = small_detr(num_classes=91), small_detr(num_classes=80)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    assert count_classes(ours, weights_from_mapping(state)) == 80
    report = load_weights(ours, state, strict=True)
    assert sorted(report.resized) == ["class_embed.bias", "class_embed.weight"]
    assert "92 outputs" in report.summary() and "80 categories" in report.summary()
    columns = [*COCO_CATEGORIES, 91]
    np.testing.assert_array_equal(ours.class_embed.weight.numpy(), state["class_embed.weight"][:, columns], strict=True)
    np.testing.assert_array_equal(ours.class_embed.bias.numpy(), state["class_embed.bias"][columns], strict=True)


def test_the_authors_names_and_joint_projections_are_found():
    model, random = small_detr(), np.random.default_rng(0)
    state = {}
    for name, value in model.state_dict().items():
        array = random.standard_normal(value.shape).astype("float32")
        is_linear = array.ndim == 2 and name != "query_embed.weight"
        array = array.T if is_linear else array  # as PyTorch has it
        name = name.replace("backbone.", "backbone.0.body.").replace("._mean", ".running_mean")
        state[name.replace("._variance", ".running_var")] = array
    for name in [name for name in state if ".q_proj." in name]:
        parts = [state.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        state[name.replace("q_proj.", "in_proj_")] = np.concatenate(parts)
    attention = model.transformer.decoder.layers[1].multihead_attn
    joint = state["transformer.decoder.layers.1.multihead_attn.in_proj_weight"]
    report = load_weights(model, state, strict=True)
    assert report.origin.startswith("the authors'") and not report.unexpected
    np.testing.assert_array_equal(attention.k_proj.weight.numpy(), joint[16:32].T, strict=True)
    np.testing.assert_array_equal(
        model.backbone.bn1._mean.numpy(), state["backbone.0.body.bn1.running_mean"], strict=True
    )


def test_a_classifier_of_other_classes_begins_anew():
    theirs, ours = small_detr(num_classes=91), small_detr(num_classes=3)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    report = load_weights(ours, state)
    assert sorted(report.reinitialized) == ["class_embed.bias", "class_embed.weight"] and not report.missing
    assert count_classes(ours, weights_from_mapping(ours.state_dict())) == 3
    with pytest.raises(UserError, match="it has 80 classes and the model 3: set MODEL.NUM_CLASSES to 80"):
        load_weights(ours, state, strict=True)
    report = load_weights(small_detr(num_classes=91, num_queries=7), state)
    assert report.missing == ["query_embed.weight"] and not report.resized


def test_the_backbone_takes_the_weights_of_a_classifier():
    ours = small_detr()
    paddle.seed(1)
    classifier = create_model("resnet18", 10, **OPTIONS["backbone_options"])
    report = load_weights(ours.pretrained_part, classifier.state_dict())
    assert not report.missing
    for name, value in ours.backbone.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), classifier.state_dict()[name].numpy(), err_msg=name)


def test_the_ids_of_coco():
    assert len(COCO_CATEGORIES) == 80 and min(COCO_CATEGORIES) == 1 and max(COCO_CATEGORIES) == 90
    assert set(range(1, 91)) - set(COCO_CATEGORIES) == {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
    assert (COCO_CATEGORIES[1], COCO_CATEGORIES[62], COCO_CATEGORIES[90]) == ("person", "chair", "toothbrush")


@pytest.mark.parametrize(("name", "classes", "first"), [("detr_small", 91, 0), ("mask_rcnn_resnet50_fpn", 90, 1)])
def test_published_classifiers_have_cocos_names_at_their_ids(name, classes, first):
    with paddle.LazyGuard():
        network = create_model(name, 3)
    assert network.published_classes(classes) == [COCO_CATEGORIES.get(id_, "") for id_ in range(first, 91)]
    assert network.published_classes(classes - 1) is network.published_classes(classes + 1) is None


@pytest.mark.parametrize("mask_padding", [False, True])
def test_recomputed_layers_change_no_gradient(mask_padding):
    found = []
    for recomputes in (False, True):
        model = small_detr(dropout=0.3, mask_padding=mask_padding)
        model.train()
        layers = model.recomputed_layers()
        assert len(layers) == 2 + 1  # blocks of the backbone, whose batch norms are fixed, and the encoder's layer
        if recomputes:
            recompute_layers(layers)
        images, sizes = make_images(SIZES)
        paddle.seed(3)
        outputs = model(images, sizes)
        (outputs["layer_logits"] ** 2).sum().backward()
        found.append({name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys() and "backbone.conv1.weight" in found[0]
    for name, gradient in found[0].items():
        np.testing.assert_allclose(found[1][name], gradient, atol=1e-5 * np.abs(gradient).max(), err_msg=name)
