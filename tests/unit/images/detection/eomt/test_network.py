"""EoMT as a detector: masks, boxes and scores of its queries, its losses and its input."""

import numpy as np
import paddle
import pytest
from support.networks.golden_eomt import GOLDEN, stored
from support.trainings.small_detections import SHAPES

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.eomt.network import InstanceEomt, find_boxes
from paddlevit_dist.images.mask_queries.segments import MaskView, rank_instances
from paddlevit_dist.images.run_lengths import decode

POST = GOLDEN["post"]
OPTIONS = {
    "image_size": 32,
    "backbone": "vit_small_patch14_reg4_dinov2",
    "backbone_options": {"patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2},
    "num_queries": 6,
    "num_blocks": 1,
    "loss_points": 64,
}


def _make_network(**options):
    paddle.seed(0)
    network = InstanceEomt(3, **{**OPTIONS, **options})
    network.eval()
    return network


@pytest.mark.parametrize("image", range(len(POST["target_sizes"])))
def test_golden_eomt_instances_have_masks_at_stored_pixels_and_their_boxes(image):
    network = _make_network()
    scale = network.backbone.patch_embed.patch_size // 2 ** len(network.upscale)
    assert scale == POST["size"] // POST["mask_shape"][2]  # as in the file
    outputs = {
        "classes": paddle.to_tensor(stored()["post/class_logits"][image : image + 1]),
        "masks": paddle.to_tensor(stored()["post/mask_logits"][image : image + 1]),
        "input_sizes": paddle.to_tensor([[POST["size"]] * 2]),
    }
    sizes, stored_sizes = (np.array([POST[name][image]]) for name in ("authors_crops", "target_sizes"))
    (found,) = network.decode(outputs, sizes, stored_sizes)
    areas = stored()[f"post/top/areas{image}"]
    number = int((areas > 0).sum())
    np.testing.assert_allclose(found.scores[:number], stored()[f"post/top/scores{image}"][:number], rtol=0, atol=1e-6)
    for box, mask, area in zip(found.boxes[:number], found.masks, areas):
        pixels = decode(mask, *POST["target_sizes"][image])
        rows, columns = np.nonzero(pixels)
        assert pixels.sum() == area
        assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_best_pairs_are_those_of_an_image_with_a_pixel_for_each_cell():
    network, random = _make_network(), np.random.default_rng(0)
    outputs = {
        "classes": paddle.to_tensor(random.standard_normal((2, 6, 4)).astype("float32")),
        "masks": paddle.to_tensor(3 * random.standard_normal((2, 6, 8, 8)).astype("float32")),
    }
    found = network.best(outputs).read(np.array([(8, 8), (8, 8)]))
    for ours, classes, masks in zip(found, outputs["classes"].numpy(), outputs["masks"].numpy()):
        exact = rank_instances(classes, masks, MaskView((8, 8), (8, 8), (8, 8)))
        np.testing.assert_allclose(ours.scores, exact.scores, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(ours.labels, exact.labels)
        corners = [(x, y, x + width, y + height) for x, y, width, height in (mask.box() for mask in exact.masks)]
        np.testing.assert_allclose(ours.boxes, corners, rtol=0, atol=1e-5)
        assert [decode(mask, 8, 8).sum() for mask in ours.masks] == [mask.area for mask in exact.masks]


@pytest.mark.parametrize("patch, side", [(8, 48), (7, 42), (7, 36), (2, 40), (8, 43)])
def test_a_mask_of_the_right_half_has_its_box_for_every_size_of_patches(patch, side):
    """Images that the network pads, too, and patches that are no power of 2."""
    network = _make_network(image_size=side, backbone_options={**OPTIONS["backbone_options"], "patch_size": patch})
    outputs = network(paddle.zeros([1, 3, side, side]))
    columns = outputs["masks"].shape[3]
    centers = (np.arange(columns) + 0.5) * side / columns
    masks = np.broadcast_to(centers - side / 2, outputs["masks"].shape).astype("float32")
    sizes = np.array([[side, side]])
    for found in (
        network.decode({**outputs, "masks": paddle.to_tensor(masks)}, sizes, sizes)[0],
        network.best({**outputs, "masks": paddle.to_tensor(masks)}).read(sizes)[0],  # to a cell's width
    ):
        assert np.abs(found.boxes[0] - [side / 2, 0, side, side]).max() <= side / columns


def test_boxes_are_around_the_cells_inside():
    masks = np.full((1, 3, 4, 5), -1.0)
    masks[0, 0, 1:3, 2:5], masks[0, 1, 3, 0] = 1, 2
    found = find_boxes(paddle.to_tensor(masks)).numpy()[0]
    np.testing.assert_allclose(found, [[2 / 5, 1 / 4, 1, 3 / 4], [0, 3 / 4, 1 / 5, 1], [0, 0, 0, 0]])


SMALL = "{backbone_options: {patch_size: 8, embed_dim: 16, depth: 2, num_heads: 2}, num_blocks: 1, loss_points: 64}"
EOMT = ["MODEL.NAME", "eomt_instance_shapes", "MODEL.TYPE", "eomt", "MODEL.OPTIONS", SMALL, "MODEL.NUM_QUERIES", "6"]
EOMT += ["MODEL.MASK_PADDING", "False", "DATA.EVAL_SHORTEST_SIDE", "64", "DATA.EVAL_LONGEST_SIDE", "64"]


def _make_task(*words):
    return make_task(settings.load([*SHAPES, *EOMT, *words]).values)


def test_training_on_scaled_squares_lowers_the_loss():
    words = ["DATA.SHORTEST_SIDES", "[48]", "DATA.SCALE_JITTER", "[0.5, 1.5]", "TRAIN.RANDOM_SAMPLING", "False"]
    task = _make_task(*words)
    samples = task.build_dataset("train", None)
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(3)])
    assert batch["images"].shape[2:] == batch["masks"].shape[2:] == (48, 48)
    normalizers = task.loss_normalizers(batch)
    model = task.build_model(task.num_classes)
    assert model.image_size == (48, 48)  # which it learns; evaluated images fill 64 x 64
    model.train()
    tensors = {name: paddle.to_tensor(each) if isinstance(each, np.ndarray) else each for name, each in batch.items()}
    optimizer, losses = paddle.optimizer.AdamW(2e-3, parameters=model.parameters()), []
    for update in range(25):
        terms = task.train_step(model, tensors, StepPosition(1, update, 50))
        assert {name: term.count for name, term in terms.items() if name in normalizers} == normalizers
        loss = compute_loss(terms, normalizers, 1, 1)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    assert losses[-1] < 0.8 * losses[0]


def test_evaluated_images_fill_a_black_square():
    task = _make_task()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 40, 64)).astype(np.uint8)
    prepared = task._prepare(paddle.to_tensor(pixels), np.array([(40, 64)])).numpy()
    expected = np.zeros((1, 3, 64, 64), np.float32)
    expected[:, :, :40] = pixels
    np.testing.assert_array_equal(prepared, task.normalizer(paddle.to_tensor(expected)).numpy())


@pytest.mark.parametrize("normalizer", ["global", "reference"])
def test_data_without_masks_are_refused_and_classes_may_be_divided_by_each_device(normalizer):
    criterion = InstanceEomt.criterion("eomt_instance", 3, {"normalizer": normalizer}, **OPTIONS)
    assert ("class" in criterion.normalizer_names) == (normalizer == "global") and "mask" in criterion.normalizer_names
    targets = DetectionTargets(paddle.zeros([1, 1, 4]), paddle.zeros([1, 1], "int64"), paddle.full([1, 2], 32))
    with pytest.raises(UserError, match="only boxes"):
        criterion.terms({}, targets)
