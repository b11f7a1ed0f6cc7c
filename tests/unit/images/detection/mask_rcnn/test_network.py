"""Mask R-CNN as a whole: images of any kind, repeatable training, detections, other owners' weights."""

import pickle

import numpy as np
import paddle
import pytest
from support.networks import mask_rcnn_peers as peers
from support.samples import mask_rcnn_batches as batches

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection import key_names
from paddlevit_dist.images.detection.detector import COCO_CATEGORIES
from paddlevit_dist.images.detection.mask_rcnn.network import FasterRCNN, MaskRCNN
from paddlevit_dist.images.models.resnet import FrozenBatchNorm
from paddlevit_dist.images.run_lengths import decode


@pytest.fixture(scope="module")
def model():
    return batches.model("float32")


def test_each_map_is_half_as_large_as_the_one_before(model):
    assert model.backbone.strides == (4, 8, 16, 32, 64)
    sides = paddle.to_tensor([[0, 0, side, side] for side in (1.0, 1e4)])
    assert model.roi_heads.regions(sides, np.zeros(2, int)).levels.tolist() == [0, 3]  # none from the fifth map


def learn(model, images, targets):
    """The terms of the loss and the gradients of a training step."""
    model.train()
    model.clear_gradients()
    terms = MaskRCNN.criterion(batches.NAME, batches.CLASSES).terms(model(images, targets.sizes, targets), targets)
    sum(term.sum for term in terms.values()).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if not p.stop_gradient}
    return {name: term.sum.item() for name, term in terms.items()}, gradients


IMAGES = {
    "one without objects": ([2, 0], 64),
    "none has any": ([0, 0], 64),
    "more objects than samples": ([40], 64),
    "a single pixel": ([0], 1),
    "narrower than a map's position": ([0], 3),
    "not a multiple of 32": ([1, 2], 45),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_all_parameters_learn_from_any_images(model, kind):
    counts, height = IMAGES[kind]
    images, targets = batches.batch(batches.images(counts, max(height, 45)), dtype="float32")
    images = images[:, :, :height, :height]
    targets = targets._replace(sizes=paddle.to_tensor([images.shape[2:]] * len(counts)))
    terms, gradients = learn(model, images, targets)
    assert all(np.isfinite(value) for value in terms.values())
    for name, gradient in gradients.items():  # a rank without a gradient would leave the others waiting
        assert gradient is not None and np.isfinite(gradient.numpy()).all(), name
    has_objects = sum(counts) > 0
    assert [(terms[name] > 0) for name in ("anchor_boxes", "boxes", "masks")] == [has_objects] * 3
    assert terms["objectness"] > 0 and terms["classes"] > 0


BACKBONES = {
    "swin_tiny_patch4_window7_224": {
        "any_size": True,
        "embed_dim": 16,
        "depths": (1, 1, 1, 1),
        "num_heads": (1, 1, 2, 2),
    },
    "pvtv2_b0": {"depths": (1, 1, 1, 1)},
    "convnext_tiny": {"depths": (1, 1, 1, 1), "dims": (8, 16, 16, 16)},
}


@pytest.mark.parametrize("backbone", BACKBONES)
def test_other_backbones_learn_too_and_nothing_of_them_waits_in_vain(backbone):
    paddle.seed(0)
    other = create_model(
        batches.NAME, 3, backbone=backbone, backbone_options=BACKBONES[backbone], feature_norm=True, drop_path=0.1
    )
    images, targets = batches.batch(batches.images([2, 1], 45), dtype="float32")
    terms, gradients = learn(other, images, targets)
    assert np.isfinite(list(terms.values())).all()
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    other.eval()
    assert len(other(images)["numbers"]) == 2


def test_a_single_pixel_as_an_object_is_learned(model):
    images, targets = batches.batch(batches.images([1], 45), dtype="float32")
    images = images[:, :, :1, :1]
    targets = targets._replace(
        sizes=paddle.ones([1, 2], "int64"),
        boxes=paddle.to_tensor([[[0.0, 0, 1, 1]]]),
        masks=paddle.ones([1, 1, 1, 1], "uint8"),
    )
    terms, _ = learn(model, images, targets)
    assert all(0 < value < 100 for value in terms.values())


def test_a_collapsed_object_teaches_no_box(model):
    images, targets = batches.batch(batches.images([1], 64), dtype="float32")
    for box in ([9.0, 9, 9, 30], [9.0, 9, 9, 9]):
        terms, _ = learn(model, images, targets._replace(boxes=paddle.to_tensor([[box]])))
        assert (
            np.isfinite(list(terms.values())).all() and terms["anchor_boxes"] == terms["boxes"] == terms["masks"] == 0
        )


def test_a_network_that_has_diverged_proposes_nothing_and_says_so_in_its_loss():
    broken = batches.model("float32")
    broken.rpn.head.cls_logits.bias.set_value(paddle.full([3], float("nan")))
    images, targets = batches.batch(batches.images([2, 0]), dtype="float32")
    terms, _ = learn(broken, images, targets)
    assert np.isnan(terms["objectness"]) and np.isfinite(terms["masks"])
    broken.eval()
    assert broken(images)["numbers"].tolist() == [0, 0]


def test_the_same_seed_draws_the_same_samples_and_another_one_others(model):
    images, targets = batches.batch(batches.images([3, 2]), dtype="float32")
    losses = []
    for seed in (1, 1, 2):
        paddle.seed(seed)
        model.train()
        outputs = model(images, targets.sizes, targets)
        losses.append(outputs["anchor_logits"].numpy())
    np.testing.assert_array_equal(losses[0], losses[1], strict=True)
    assert (losses[0] != losses[2]).any()


def test_counts_that_nobody_has_on_the_host_are_found_in_the_labels(model):
    images, targets = batches.batch(batches.images([1, 3]), dtype="float32")
    names = ("anchor_logits", "region_labels", "mask_targets")
    found = []
    for given in (targets, targets._replace(box_counts=None)):
        paddle.seed(4)
        outputs = model(images, targets.sizes, given)
        found.append([outputs[name].numpy() for name in names])
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other, strict=True)


def test_masks_are_asked_for_where_the_data_have_none(model):
    images, targets = batches.batch(batches.images([1]), dtype="float32")
    with pytest.raises(UserError, match="faster_rcnn_resnet50_fpn"):
        model(images, targets.sizes, targets._replace(masks=None))


def make_finder(**rules):
    """Finds something in any image: classes and boxes vary more than at the start of a training."""
    found = batches.model("float64", seed=1, **rules)
    rng = np.random.default_rng(1)
    for layer in (found.roi_heads.box_predictor.cls_score, found.roi_heads.box_predictor.bbox_pred):
        layer.weight.set_value(rng.normal(size=layer.weight.shape) * 0.3)
    found.eval()
    return found


@pytest.fixture(scope="module")
def finder():
    return make_finder()


def test_an_image_with_a_single_proposal_has_its_detections():
    images, sizes = paddle.to_tensor(batches.images([0, 0], 50)[0]), paddle.to_tensor([[50, 37], [31, 36]])
    single = make_finder(evaluated_after=1, least_score=0.0, detection_overlap=1.0)
    found = {name: value.numpy() for name, value in single(images, sizes).items()}
    assert found["numbers"].tolist() == [batches.CLASSES] * 2  # each class of the one region
    assert [sorted(labels) for labels in found["labels"].reshape(2, -1).tolist()] == [[*range(batches.CLASSES)]] * 2
    alone = {name: value.numpy() for name, value in single(images[:1], sizes[:1]).items()}
    np.testing.assert_allclose(found["boxes"][: batches.CLASSES], alone["boxes"], rtol=1e-6)


def test_an_image_has_the_same_detections_alone_and_beside_others_of_its_shape(finder):
    images = paddle.to_tensor(batches.images([0, 0, 0], 45)[0])
    outputs, sizes = finder(images), np.tile(images.shape[2:], (3, 1))
    together, told = {name: value.numpy() for name, value in outputs.items()}, finder.decode(outputs, sizes, sizes)
    assert (together["numbers"] > 3).all()
    starts = np.cumsum(together["numbers"]) - together["numbers"]
    for row, (start, number) in enumerate(zip(starts, together["numbers"])):
        alone = {name: value.numpy() for name, value in finder(images[row : row + 1]).items()}
        assert alone["numbers"].tolist() == [number] == [len(told[row].boxes)]
        np.testing.assert_allclose(told[row].boxes, alone["boxes"], rtol=1e-6)
        for name in ("boxes", "scores", "labels", "masks"):
            np.testing.assert_allclose(together[name][start : start + number], alone[name], atol=1e-9, err_msg=name)


def test_detections_keep_the_rules(finder):
    outputs = finder(paddle.to_tensor(batches.images([0, 0], 50)[0]))
    rules = finder.rules
    numbers = outputs["numbers"].numpy()
    for start, number in zip(np.cumsum(numbers) - numbers, numbers):
        boxes, scores, labels = (
            outputs[name].numpy()[start : start + number] for name in ("boxes", "scores", "labels")
        )
        assert 0 < number <= rules.detections and set(labels.tolist()) <= set(range(batches.CLASSES))
        assert (np.diff(scores) <= 0).all() and (scores > rules.least_score).all() and (scores <= 1).all()
        assert (boxes >= 0).all() and (boxes <= [37, 50, 37, 50]).all() and (boxes[:, 2:] > boxes[:, :2]).all()
        for one, other in zip(*np.triu_indices(number, 1)):
            if labels[one] == labels[other]:
                assert peers.overlap(boxes[one], boxes[other]) <= rules.detection_overlap + 1e-7


def test_detections_are_those_of_a_loop_over_regions_and_classes(finder):
    images = paddle.to_tensor(batches.images([0, 0], 50)[0])
    sizes = paddle.to_tensor([[50, 37], [31, 36]])
    outputs = {name: value.numpy() for name, value in finder(images, sizes).items()}
    maps = finder.backbone(paddle.nn.functional.pad(images, [0, -37 % 32, 0, -50 % 32]))
    proposals = finder.rpn(maps, sizes)[0]
    start, rules = 0, finder.rules
    for image, regions in enumerate(proposals):
        chosen = finder.roi_heads.regions(regions, np.full(len(regions), image))
        logits, changes = (each.numpy() for each in finder.roi_heads.classify(maps, chosen))
        boxes, scores, labels = [], [], []
        for row, (x0, y0, x1, y1) in enumerate(regions.numpy()):
            powers = np.exp(logits[row] - logits[row].max())
            for label in range(1, batches.CLASSES + 1):  # 0 is the background
                x, y, w, h = changes[row, label] / [10, 10, 5, 5]
                center = np.array([(x0 + x1) / 2 + x * (x1 - x0), (y0 + y1) / 2 + y * (y1 - y0)])
                half = np.array([x1 - x0, y1 - y0]) / 2 * np.exp(np.minimum([w, h], np.log(1000 / 16)))
                height, width = sizes[image].tolist()
                boxes.append(np.clip([*(center - half), *(center + half)], 0, [width, height] * 2))
                scores.append(powers[label] / powers.sum())
                labels.append(label - 1)
        boxes, scores, labels = map(np.array, (boxes, scores, labels))
        is_kept = (scores > rules.least_score) & (boxes[:, 2:] - boxes[:, :2] >= 0.01).all(axis=1)
        boxes, scores, labels = boxes[is_kept], scores[is_kept], labels[is_kept]
        kept = peers.suppressed(boxes, scores, labels, rules.detection_overlap)[: rules.detections]
        end = start + outputs["numbers"][image]
        assert end - start == len(kept) > 3
        np.testing.assert_allclose(outputs["boxes"][start:end], boxes[kept], atol=1e-9)
        np.testing.assert_allclose(outputs["scores"][start:end], scores[kept], rtol=1e-9)
        assert outputs["labels"][start:end].tolist() == labels[kept].tolist()
        start = end


def test_boxes_alone_are_learned_and_detected_without_masks():
    options = {**MaskRCNN.variants[batches.NAME], "drop_path": 0.0}
    plain = create_model("faster_rcnn_resnet50_fpn", batches.CLASSES, **options)
    images, targets = batches.batch(batches.images([2, 1], 45), dtype="float32")
    outputs = plain(images, targets.sizes, targets._replace(masks=None))
    assert not any("mask" in name for name in outputs) and "region_logits" in outputs
    plain.eval()
    outputs = plain(images)
    assert "masks" not in outputs
    found = plain.decode(outputs, np.array([[45, 45]] * 2), np.array([[45, 45]] * 2))
    assert [each.masks for each in found] == [None, None]
    with pytest.raises(ValueError, match="no masks"):
        plain.roi_heads.masks([], None, None)


def test_another_number_of_classes_changes_the_last_layers_alone():
    changed = batches.model("float32")
    before = {name: tuple(value.shape) for name, value in changed.state_dict().items()}
    changed.reset_classifier(5)
    after = {name: tuple(value.shape) for name, value in changed.state_dict().items()}
    differing = {name: shape for name, shape in after.items() if shape != before[name]}
    heads = "roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"
    assert {name: shape[-1] for name, shape in differing.items() if name.startswith(heads)} == {
        f"{head}.{part}": 6 * number for head, number in zip(heads, (1, 4)) for part in ("weight", "bias")
    }
    masks = {name: shape for name, shape in differing.items() if not name.startswith(heads)}
    assert {shape[0] for shape in masks.values()} == {6} and len(masks) == 2 and changed.num_classes == 5


def test_the_backbone_is_asked_what_is_not_decayed_and_what_can_be_recomputed():
    options = BACKBONES["swin_tiny_patch4_window7_224"]
    swin = create_model(batches.NAME, 3, backbone="swin_tiny_patch4_window7_224", backbone_options=options)
    body = swin.backbone.body
    assert swin.no_weight_decay() == tuple(f"backbone.body.{name}" for name in body.no_weight_decay())
    assert set(swin.no_weight_decay()) < {name for name, _ in swin.named_parameters()}
    assert swin.recomputed_layers() == body.recomputed_layers() != []
    name = next(name for name, _ in body.named_parameters() if name.endswith("relative_position_bias_table"))
    table = np.random.default_rng(0).standard_normal((49, dict(body.named_parameters())[name].shape[1]))  # of 4 x 4
    resized = swin.resize_parameter(f"backbone.body.{name}", table.astype("float32"))
    np.testing.assert_array_equal(resized, body.resize_parameter(name, table.astype("float32")))
    assert resized.shape == tuple(dict(body.named_parameters())[name].shape)
    assert swin.resize_parameter(f"backbone.{name}", table) is None
    assert MaskRCNN.most_objects(rules={"detections": 7}) == ("-max_detections", 7)
    assert MaskRCNN.most_objects(rules=None) == ("-max_detections", 100)


def test_detections_are_told_in_the_pixels_of_the_image_as_stored(finder):
    images = paddle.to_tensor(batches.images([0], 48)[0])
    outputs = finder(images)
    (found,) = finder.decode(outputs, np.array([[48, 36]]), np.array([[96, 108]]))
    number = outputs["numbers"].item()
    assert len(found.boxes) == len(found.masks) == number > 0
    assert (found.boxes.dtype, found.scores.dtype, found.labels.dtype) == (np.float32, np.float32, np.int64)
    np.testing.assert_allclose(found.boxes, outputs["boxes"].numpy() * [3, 2, 3, 2], rtol=1e-6)
    inside = 0
    for box, mask in zip(found.boxes, found.masks):
        assert mask["size"] == [96, 108]
        rows, columns = np.nonzero(decode(mask))
        grown = (box[2:] - box[:2]) / 28 + 1  # a mask's border, and whole pixels
        assert (rows >= box[1] - grown[1] - 1).all() and (rows <= box[3] + grown[1]).all()
        assert (columns >= box[0] - grown[0] - 1).all() and (columns <= box[2] + grown[0]).all()
        inside += len(rows)
    assert inside > 0


def test_an_image_in_which_nothing_is_found_has_empty_lists(model):
    model.eval()
    quiet = batches.model("float32", least_score=0.999)
    quiet.eval()
    outputs = quiet(paddle.zeros([2, 3, 1, 1]))
    for found in quiet.decode(outputs, np.ones((2, 2), int), np.array([[1, 1], [7, 5]])):
        assert found.boxes.shape == (0, 4) and found.masks == [] and len(found.scores) == len(found.labels) == 0


def torchvision_names(layers=(3, 4, 6, 3)):
    """The names in torchvision's published file maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth."""
    norm = ("weight", "bias", "running_mean", "running_var")
    names = ["conv1.weight", *(f"bn1.{part}" for part in norm)]
    for stage, depth in enumerate(layers, start=1):
        for block in range(depth):
            before = f"layer{stage}.{block}."
            for number in (1, 2, 3):
                names += [f"{before}conv{number}.weight", *(f"{before}bn{number}.{part}" for part in norm)]
            if block == 0:
                names += [f"{before}downsample.0.weight", *(f"{before}downsample.1.{part}" for part in norm)]
    layers = [f"backbone.fpn.{kind}_blocks.{level}" for kind in ("inner", "layer") for level in range(4)]
    layers += [f"rpn.head.{name}" for name in ("conv", "cls_logits", "bbox_pred")]
    layers += ["roi_heads.box_head.fc6", "roi_heads.box_head.fc7"]
    layers += ["roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"]
    layers += [f"roi_heads.mask_head.mask_fcn{number}" for number in (1, 2, 3, 4)]
    layers += ["roi_heads.mask_predictor.conv5_mask", "roi_heads.mask_predictor.mask_fcn_logits"]
    heads = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    return [f"backbone.body.{name}" for name in names] + heads


def test_published_weights_have_a_place_for_each_name():
    with paddle.LazyGuard():
        outline = create_model("mask_rcnn_resnet50_fpn", 90)
    ours = key_names.MASK_RCNN["torchvision"](dict.fromkeys(torchvision_names(), np.zeros(1)))
    assert set(ours) == set(outline.state_dict())
    shapes = {name: tuple(value.shape) for name, value in outline.state_dict().items()}
    assert shapes["rpn.head.conv.0.0.weight"] == (256, 256, 3, 3)
    assert shapes["rpn.head.bbox_pred.weight"] == (12, 256, 1, 1)
    assert shapes["roi_heads.box_head.fc6.weight"] == (12544, 1024)
    assert shapes["roi_heads.box_predictor.bbox_pred.weight"] == (1024, 364)
    assert shapes["roi_heads.mask_predictor.conv5_mask.weight"] == (256, 256, 2, 2)
    assert shapes["roi_heads.mask_predictor.mask_fcn_logits.weight"] == (91, 256, 1, 1)
    learned = sum(int(np.prod(p.shape)) for p in outline.parameters())
    assert learned == 44401393  # as torchvision's description of these weights says
    with paddle.LazyGuard():
        plain = set(create_model("faster_rcnn_resnet50_fpn", 90).state_dict())
    assert plain == {name for name in ours if ".mask_" not in name}


@pytest.mark.parametrize("outputs, epsilon", [(91, 0.0), (4, 1e-5), (None, 1e-5)])
def test_fixed_batch_norms_of_published_weights_compute_without_epsilon(outputs, epsilon):
    rng = np.random.default_rng(0)
    mean, variance, weight, bias = (rng.uniform(low, 2.0, 64).astype("float32") for low in (-2, 1e-6, -2, -2))
    variance[0] = 3e-6
    state = {"running_mean": mean, "running_var": variance, "weight": weight, "bias": bias}
    state = {f"backbone.body.bn1.{name}": value for name, value in state.items()}
    if outputs:
        state["roi_heads.box_predictor.cls_score.bias"] = np.zeros(outputs, "float32")
    ours = key_names.MASK_RCNN["torchvision"](state)
    norm = FrozenBatchNorm(64)
    for name, value in norm.state_dict().items():
        value.set_value(ours[f"backbone.body.bn1.{name}"])
    x = rng.standard_normal((2, 64, 3, 3)).astype("float32")
    columns = [values.astype(float).reshape(1, -1, 1, 1) for values in (mean, variance, weight, bias)]
    expected = (x - columns[0]) / np.sqrt(columns[1] + epsilon) * columns[2] + columns[3]
    np.testing.assert_allclose(norm(paddle.to_tensor(x)).numpy(), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("outputs", [91, 4])
def test_a_guessed_epsilon_is_in_the_load_report(model, outputs):
    state = {"backbone.body.bn1.running_var": np.ones(64, "float32"), "rpn.head.conv.bias": np.zeros(256, "float32")}
    state["roi_heads.box_predictor.cls_score.bias"] = np.zeros(outputs, "float32")
    report = load_weights(model, state, minimum_loaded=0.0)
    assert report.origin.startswith("torchvision names")
    assert sum("compute without an epsilon" in line for line in report.notices) == (outputs == 91)


def test_heads_for_cocos_ids_become_heads_for_its_80_categories():
    paddle.seed(0)
    of_ids, of_categories = (create_model(batches.NAME, number, drop_path=0.0) for number in (90, 80))
    state = {name: value.numpy() for name, value in of_ids.state_dict().items()}
    report = load_weights(of_categories, state, strict=True)
    assert len(report.resized) == 6
    x = paddle.randn([3, 128])
    rows = [0, *COCO_CATEGORIES]
    for ours, theirs in zip(of_categories.roi_heads.box_predictor(x), of_ids.roi_heads.box_predictor(x)):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy()[:, rows], atol=1e-5)
    maps = paddle.randn([2, 48, 5, 5])
    ours, theirs = (each.roi_heads.mask_predictor(maps).numpy() for each in (of_categories, of_ids))
    np.testing.assert_allclose(ours, theirs[:, rows], atol=1e-5)


def test_weights_for_other_classes_are_refused_with_their_number(model):
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    with pytest.raises(
        UserError, match="it has 3 classes and the model 5: use data of at most 3 classes; MODEL.NUM_CLASSES, if it"
    ):
        load_weights(create_model(batches.NAME, 5), state, strict=True)
    assert [model.outputs_to_classes(outputs) for outputs in (4, 91, 2)] == [3, 80, 1]


def test_a_classifiers_weights_are_the_backbones():
    paddle.seed(0)
    options = MaskRCNN.variants[batches.NAME]["backbone_options"]
    classifier, detector = create_model("resnet18", 10, **options), batches.model("float32", seed=1)
    state = {name.replace("._mean", ".running_mean"): value.numpy() for name, value in classifier.state_dict().items()}
    load_weights(detector, state, minimum_loaded=0.2)
    for name, value in detector.pretrained_part.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), classifier.state_dict()[name].numpy(), err_msg=name, strict=True)


def test_the_criterion_goes_to_the_loader_and_counts_images():
    labels = np.array([[0, 1], [-1, -1], [2, -1]])
    for normalizer, names in (
        ("global", {"objectness", "anchor_boxes", "classes", "boxes", "masks"}),
        ("reference", {"images"}),
    ):
        criterion = pickle.loads(pickle.dumps(MaskRCNN.criterion(batches.NAME, 3, {"normalizer": normalizer})))
        assert criterion.loss_normalizers({"labels": labels}) == dict.fromkeys(names, 3)
    assert "masks" not in FasterRCNN.criterion("faster_rcnn_resnet50_fpn", 2).normalizer_names


def test_a_backbone_without_four_maps_is_refused_in_one_line():
    with pytest.raises(UserError, match="strides 4, 8, 16 and 32"):
        create_model(batches.NAME, 3, backbone="resnet18", backbone_options={"depths": (1, 1), "dims": (8, 8)})
