"""RF-DETR Seg as it starts, its options one by one, and images and maps that are not square."""

import inspect

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.first_weights import is_constant, is_uniform

from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.detr.criterion import SetCriterion
from paddlevit_dist.images.detection.rfdetr.mask_criterion import MaskGroupCriterion
from paddlevit_dist.images.detection.rfdetr.masks import MaskHead, MaskVectors
from paddlevit_dist.images.detection.rfdetr.network import RfDetr
from paddlevit_dist.images.detection.rfdetr.seg_network import RfDetrSeg
from paddlevit_dist.images.mask_queries.matching import QueryMatches, list_query_pairs
from paddlevit_dist.images.mask_queries.points import MaskStack, sample_between, sample_truth

SHAPES = "rfdetr_seg_shapes"


def test_mask_heads_begin_as_the_authors_have_them():
    """With PyTorch's defaults: within 1 / sqrt(inputs)."""
    paddle.seed(2)
    head = MaskHead(64, 2)
    bounds = {"spatial_features_proj": 1 / 8, "query_features_proj": 1 / 8}
    bounds |= {"query_features_block.layers.0": 1 / 8, "query_features_block.layers.2": 1 / 16}
    for number in range(2):
        bounds |= {f"blocks.{number}.dwconv": 1 / 3, f"blocks.{number}.pwconv1": 1 / 8}
    norms = {"blocks.0.norm": 1e-6, "blocks.1.norm": 1e-6, "query_features_block.norm_in": 1e-5}
    layers = dict(head.named_sublayers())
    for name, bound in bounds.items():
        assert is_uniform(layers[name].weight, bound)
        assert layers[name].bias.abs().max() <= bound and layers[name].bias.std() > 0.4 * bound
    for name, epsilon in norms.items():
        assert is_constant(layers[name].weight, 1) and is_constant(layers[name].bias, 0)
        assert layers[name]._epsilon == epsilon
    names = {f"{name}.{part}" for name in (*bounds, *norms) for part in ("weight", "bias")}
    assert {name for name, _ in head.named_parameters()} == {*names, "bias"} and is_constant(head.bias, 0)


SMALL = RfDetr.variants["rfdetr_shapes"]


def build(family=RfDetrSeg, **options):
    with weights_of_zero():
        return family(**{"num_classes": 3, **SMALL, **options})


def weight_of_points(model):
    return model.layers[1].encoder_attn.attention_weights.weight.shape  # of 8 heads with 2 points


OPTIONS = {  # option -> another value, what is looked at, and what that is then
    "num_classes": (7, lambda model: model.class_embed.weight.shape, [64, 7]),
    "backbone": ("vit_tiny_patch16_224", lambda model: type(model.backbone).__name__, "VisionTransformer"),
    "backbone_options": ({**SMALL["backbone_options"], "windows": 4}, lambda model: model.side_multiple, 32),
    "embed_dim": (32, lambda model: model.query_feat.weight.shape, [75, 32]),
    "num_heads": (2, lambda model: {layer.self_attn.num_heads for layer in model.layers}, {2}),
    "sampling_heads": (4, weight_of_points, [64, 8]),
    "points": (3, weight_of_points, [64, 24]),
    "feedforward": (96, lambda model: model.layers[1].mlp.fc1.weight.shape, [64, 96]),
    "decoder_layers": (3, lambda model: len(model.layers), 3),
    "num_queries": (10, lambda model: (model.query_feat.weight.shape, model.layers[0].size), ([30, 64], 10)),
    "groups": (2, lambda model: (len(model.enc_output), len(model.enc_out_class_embed)), (2, 2)),
    "levels": ((3, 4), lambda model: (len(model.other_projectors), model.count_cells(64, 64)), (1, 256 + 64)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_alone_changes_the_network(name):
    assert set(OPTIONS) == set(inspect.signature(RfDetr.__init__).parameters) - {"self"}
    value, look, expected = OPTIONS[name]
    assert look(build(RfDetr, **{name: value})) == expected
    if name not in ("backbone", "levels"):
        assert look(build(RfDetrSeg, **{name: value})) == expected


def make_targets(counts, height, width):
    """Rectangles in the upper left part of images."""
    most = max(1, *counts)
    boxes, labels = np.zeros((len(counts), most, 4), np.float32), np.full((len(counts), most), -1)
    masks = np.zeros((len(counts), most, height, width), np.uint8)
    for image, count in enumerate(counts):
        for number in range(count):
            right, low = 24 + 8 * number, 16 + 8 * image
            boxes[image, number], labels[image, number] = [8, 0, right, low], number
            masks[image, number, :low, 8:right] = 1
    sizes = np.full((len(counts), 2), (height, width))
    return DetectionTargets(*map(paddle.to_tensor, (boxes, labels, sizes)), np.array(counts), paddle.to_tensor(masks))


@pytest.mark.parametrize(("options", "ratio"), [({}, 4), ({"mask_ratio": 2}, 2)])
def test_masks_have_the_shape_of_the_image_divided_by_the_ratio(options, ratio):
    network, images = build(**options), paddle.zeros([2, 3, 64, 96])
    rows, columns = 64 // ratio, 96 // ratio
    network.eval()
    assert network(images)["masks"].shape == [2, 25, rows, columns]
    outputs = network(images, targets=make_targets((1, 0), 64, 96))
    assert {key for key in outputs if key.startswith("mask")} == {
        f"mask_{name}_{head}" for name in MaskVectors._fields for head in range(3)
    }
    for head in range(3):
        assert outputs[f"mask_cells_{head}"].shape == [2, rows, columns, 64]
        assert (outputs[f"mask_queries_{head}"].shape, outputs[f"mask_bias_{head}"].shape) == ([2, 75, 64], [2, 75, 1])


@pytest.mark.parametrize("counts", [(2, 0), (0, 0), (0, 3)])
def test_first_losses_of_wide_images_are_finite_also_without_objects(counts):
    paddle.seed(3)
    network, targets = RfDetrSeg(3, **SMALL), make_targets(counts, 64, 96)
    random = np.random.default_rng(1)
    images = paddle.to_tensor(random.standard_normal((2, 3, 64, 96)).astype("float32"))
    criterion = RfDetrSeg.criterion("rfdetr_seg_shapes", 3)
    terms = criterion.terms(network(images, targets=targets), targets)
    found = {name: float(term.sum) for name, term in terms.items()}
    assert np.isfinite(list(found.values())).all()
    objects = 3 * sum(counts)  # of three groups
    # A mask that knows nothing has a cross-entropy of about ln 2 and a Dice of at most a half or so.
    assert 0.7 * objects * np.log(2) <= found["mask"] <= 3 * objects * np.log(2)
    assert 0.3 * objects <= found["dice"] <= objects


LOSSES = {  # argument -> where its value is
    "class_weight": lambda criterion: criterion.weights["class"],
    "box_weight": lambda criterion: criterion.weights["box"],
    "giou_weight": lambda criterion: criterion.weights["giou"],
    "mask_weight": lambda criterion: criterion.weights["mask"],
    "dice_weight": lambda criterion: criterion.weights["dice"],
    "cost_class": lambda criterion: criterion.cost[0],
    "cost_box": lambda criterion: criterion.cost[1],
    "cost_giou": lambda criterion: criterion.cost[2],
    "cost_mask": lambda criterion: criterion.mask_costs[0],
    "cost_dice": lambda criterion: criterion.mask_costs[1],
    "random_samples": lambda criterion: criterion.random_samples,
}
DEFAULTS = {"class_weight": 1, "box_weight": 5, "giou_weight": 2, "mask_weight": 5, "dice_weight": 5, "cost_box": 5}
DEFAULTS |= {"cost_giou": 2, "cost_mask": 5, "cost_dice": 5, "random_samples": True}  # the authors'


@pytest.mark.parametrize("name", LOSSES)
def test_each_argument_of_the_losses_is_handed_through_alone(name):
    value = False if name == "random_samples" else 0.375
    plain = RfDetrSeg.criterion("rfdetr_seg_shapes", 3)
    changed = RfDetrSeg.criterion("rfdetr_seg_shapes", 3, {name: value})
    for other, look in LOSSES.items():
        expected = DEFAULTS.get(other, look(plain))
        assert look(plain) == expected
        if other != "cost_class" or name != "class_weight":  # it is that of the class without a value of its own
            assert look(changed) == (value if other == name else expected)


def test_sizes_and_points_of_the_network_reach_its_losses_one_by_one():
    plain = RfDetrSeg.criterion("rfdetr_seg_shapes", 3)
    assert isinstance(plain, MaskGroupCriterion) and isinstance(plain, SetCriterion)
    assert (plain.num_classes, plain.queries, plain.groups, plain.random_samples) == (3, 25, 3, True)
    assert RfDetrSeg.criterion("rfdetr_seg_shapes", 3, random_samples=False).random_samples is False
    losses = {"random_samples": True}
    assert RfDetrSeg.criterion("rfdetr_seg_shapes", 3, losses, random_samples=False).random_samples is True
    assert RfDetrSeg.criterion("rfdetr_seg_shapes", 3, num_queries=9).queries == 9
    assert RfDetrSeg.criterion("rfdetr_seg_shapes", 3, groups=5).groups == 5


@pytest.mark.parametrize(
    ("height", "width", "compared", "learned"), [(4, 40, 10, 10), (40, 4, 10, 40), (3, 2, 1, 3), (32, 32, 64, 64)]
)
def test_the_number_of_points_follows_the_cells_and_the_rows(height, width, compared, learned, monkeypatch):
    """A point for 16 cells, in a loss at least one for each row; three quarters of them of three times as many."""
    criterion, drawn = MaskGroupCriterion(3, 5, 2, 1), []
    draw = criterion.draw
    criterion.draw = lambda *shape: drawn.append(shape) or draw(*shape)
    masks = paddle.ones([1, 2, 16, 16], dtype="uint8")
    head = MaskVectors(paddle.ones([1, 5, 6]), paddle.ones([1, height, width, 6]), paddle.zeros([1, 5, 1]))
    assert criterion.compare_masks(head, masks).shape == [1, 1, 5, 2]
    maps = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 1, height, width)).astype("float32"))
    criterion.point_sums(maps, paddle.to_tensor([[0], [1]]), masks)
    uncertain = learned * 3 // 4
    assert drawn == [(1, compared), (2, 3 * learned), (2, learned - uncertain)]


def test_points_between_and_within_cells_that_are_not_square():
    height, width, random = 5, 9, np.random.default_rng(2)
    y, x = np.mgrid[:height, :width] + 0.5
    maps = paddle.to_tensor(np.stack([x / width, y / height])[None].repeat(2, 0).astype("float32"))  # linear
    points = random.uniform(0.15, 0.85, (2, 7, 2)).astype("float32")
    np.testing.assert_allclose(
        sample_between(maps, paddle.to_tensor(points)).numpy(), points.transpose(0, 2, 1), rtol=0, atol=1e-5
    )
    corners = np.array([[[0.0, 0.0], [1.0, 1.0]]] * 2, np.float32)
    ends = [[0.5 / width, 1 - 0.5 / width], [0.5 / height, 1 - 0.5 / height]]  # cells at the border are repeated
    np.testing.assert_allclose(sample_between(maps, paddle.to_tensor(corners)).numpy(), [ends] * 2, rtol=0, atol=1e-5)
    masks = random.integers(0, 9, (2, 3, height, width)).astype("uint8")
    places = np.array([[4], [1]])
    points = np.concatenate([points, corners], axis=1)
    expected = [
        [masks.reshape(6, height, width)[place, min(int(v * height), height - 1), min(int(u * width), width - 1)]]
        for place, row in zip(places[:, 0], points)
        for u, v in row
    ]
    found = sample_truth(MaskStack(paddle.to_tensor(masks)), paddle.to_tensor(places), paddle.to_tensor(points), False)
    assert found.numpy().ravel().tolist() == np.ravel(expected).tolist()


def test_pairs_are_listed_by_image_and_group_and_keep_those_that_are_not_finite():
    """Two heads with two groups of 5 queries each, two images of at most 3 objects."""
    random = np.random.default_rng(6)
    query_of = np.stack([np.stack([random.permutation(5)[:3] for _ in range(2)]) for _ in range(4)])
    weight_of = np.array([[[1, 0, 1], [np.nan, np.nan, 0]], [[0, 0, 0], [1, 1, 1]]] * 2, np.float32)
    heads = list_query_pairs(QueryMatches(query_of, weight_of, np.zeros((4, 2, 5)), np.array([3, 3])), 2, 5)
    assert len(heads) == 2
    for head, pairs in enumerate(heads):
        expected = []
        for image in range(2):
            for group in range(2):
                queries = query_of[2 * head + group, image]
                chosen = np.flatnonzero(weight_of[2 * head + group, image] != 0)
                expected += sorted((image, (2 * image + group) * 5 + queries[k], 3 * image + k) for k in chosen)
        assert list(zip(*(part.tolist() for part in pairs))) == expected
