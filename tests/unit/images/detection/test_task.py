"""Detection's task: batches, parameters, and what is refused."""

import numpy as np
import paddle
import pytest
from PIL import Image
from support.thread_ranks import acting_as
from support.trainings import small_detections

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.engine.optimizer import OptimizerState, build_optimizer, complete_groups
from paddlevit_dist.core.runtime import paddle_versions
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import (
    Exportable,
    ParameterGrouping,
    Predictable,
    predict_again,
)
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.data.samples import DetectionSample, host_facts, largest_side, passes
from paddlevit_dist.images.detection.data.transforms import build_evaluation_transform
from paddlevit_dist.images.detection.detector import zero_padding
from paddlevit_dist.images.detection.prediction import DetectionInput
from paddlevit_dist.images.detection.windows import ImagePart, merge_parts


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    return small_detections.build(str(tmp_path_factory.mktemp("task")), "-batch_size=2")


def settings(*words: str):
    return config.load([*small_detections.SHAPES, *words]).values


def test_a_key_of_another_family_has_no_effect_and_a_line(tmp_path):
    line = "TRAIN.RANDOM_SAMPLING False: no effect: it is for networks with masks, not for detr_of_tests"
    for value, expected in (("false", [line]), ("true", [])):
        task = make_task(settings("TRAIN.RANDOM_SAMPLING", value))
        notices = task.build_dataset("train", tmp_path).notices
        assert [notice for notice in notices if "RANDOM_SAMPLING" in notice] == expected


# ---- batches -------------------------------------------------------------------------------------------------------


def test_each_image_goes_through_the_network_once_and_without_padding_unless_asked_for():
    sizes = np.array([[4, 6], [6, 4], [4, 6], [8, 8]])
    assert passes(sizes, "single") == [[0], [1], [2], [3]]
    assert passes(sizes, "equal_shapes") == [[0, 2], [1], [3]]
    assert passes(sizes, "padded") == [[0, 1, 2, 3]]


def test_padding_is_zero_after_normalization_and_images_are_not():
    images = paddle.ones([2, 3, 5, 7])
    padded = zero_padding(images, np.array([[5, 7], [2, 3]])).numpy()
    assert padded[0].all() and padded[1, :, :2, :3].all() and padded[1].sum() == 3 * 2 * 3


def sample(height: int, width: int, boxes: int = 0, index: int = 0, is_training: bool = True) -> DetectionSample:
    generator = np.random.default_rng(height)
    corners = np.sort(generator.uniform(0, 1, (boxes, 2, 2)), axis=1).reshape(boxes, 4) * ([width, height] * 2)
    image = generator.integers(1, 255, (3, height, width)).astype(np.uint8)
    labels = generator.integers(0, 3, boxes)
    return DetectionSample(index, is_training, image, (height, width), corners.astype(np.float32), labels)


def as_tensors(batch):
    return {name: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def test_an_image_of_one_pixel_trains_and_is_evaluated(trainer):
    task, model = trainer.task, trainer.model
    batch = task.collate([sample(1, 1), sample(32, 24, 0)])
    counts = task.loss_normalizers(batch)
    assert counts["box"] == 0 and set(counts) == set(task.traits.normalizer_names)
    terms = task.train_step(model, as_tensors(batch), StepPosition(1, 0, 1))
    total = sum(term.sum * term.weight for term in terms.values())
    total.backward()
    assert np.isfinite(total.item())
    assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in model.parameters() if p.trainable)
    model.clear_gradients()
    model.eval()
    found = get_aspect(task, Predictable).predict_step(
        model, as_tensors(task.collate([sample(1, 1, is_training=False)]))
    )[0]
    model.train()
    assert len(found.boxes) == 10 and (np.abs(found.boxes) <= 2).all()


def test_counts_of_the_host_are_those_of_the_device(trainer):
    batch = trainer.task.collate([sample(16, 20, 3), sample(8, 8, 1)])
    facts = host_facts(batch)
    np.testing.assert_array_equal(facts["sizes"], batch["sizes"], strict=True)
    assert facts["box_counts"].tolist() == [3, 1] == (batch["labels"] >= 0).sum(axis=1).tolist()


def test_padding_to_a_square_depends_on_no_batch(tmp_path):
    task = make_task(settings("DETECTION.PAD_TO_BATCH_MAX", "False", "DATA.LONGEST_SIDE", "40"))
    samples = task.build_dataset("train", tmp_path)  # of 24 to 32 pixels, the shorter side becomes 32
    side = task.collate([sample(16, 20, 3)])["images"].shape[2]
    assert 32 < side <= 40
    taken = [samples.sample(index, np.random.default_rng(0)) for index in range(len(samples))]
    assert {task.collate([one])["images"].shape for one in taken} == {(1, 3, side, side)}
    batch = task.collate([sample(16, 20, 3), sample(8, 50, 1)])
    assert batch["images"].shape == (2, 3, side, 50) and not batch["images"][0, :, 16:].any()
    assert batch["sizes"].tolist() == [[16, 20], [8, 50]]
    cropped = settings("DATA.CROP_PROBABILITY", "0.5", "DATA.LONGEST_SIDE", "77").DATA
    assert largest_side(cropped, np.array([[10, 10]])) == 77
    assert task.collate([sample(16, 20, is_training=False)])["images"].shape == (1, 3, 16, 20)


def test_a_label_that_is_no_category_is_refused(trainer):
    with pytest.raises(BadSample, match="category"):
        trainer.task.check_sample(sample(8, 8, 1)._replace(labels=np.array([3])))


def test_windows_are_seen_like_images_of_their_own_and_merged(trainer, tmp_path):
    words = ["DETECTION.WINDOW", "[16, 20]", "DETECTION.FLIP", "True", "DETECTION.EVAL_BATCHING", "equal_shapes"]
    task = make_task(settings(*words))
    samples = task.build_dataset("val", tmp_path)
    assert samples.eval_protocol.startswith("images whole and in windows of 16 x 20 pixels that overlap by 0.2")
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in range(3)])
    facts, plain = host_facts(batch), make_task(settings())
    assert len(batch["images"]) == len(facts["parts"]) > 3 * 2 and len(facts["indices"]) == 3
    trainer.model.eval()
    merged = get_aspect(task, Predictable).predict_step(trainer.model, as_tensors(batch))
    for index in range(3):
        stored, results, parts = samples.dataset.read(index)[0], [], []
        for _, top, left, height, width, is_mirrored in facts["parts"][facts["parts"][:, 0] == index].tolist():
            pixels = np.asarray(stored)[top : top + height, left : left + width]
            pixels = Image.fromarray(np.ascontiguousarray(pixels[:, ::-1] if is_mirrored else pixels))
            own = DetectionInput(build_evaluation_transform(plain.config))(pixels, np.random.default_rng(0))
            assert own.boxes.dtype == np.float32 and not own.is_training
            results += get_aspect(plain, Predictable).predict_step(
                trainer.model, as_tensors(plain.collate([own._replace(index=0)]))
            )
            parts.append(ImagePart(top, left, height, width, bool(is_mirrored)))
        expected = merge_parts(results, parts, (stored.height, stored.width), 0.5)
        assert len(merged[index].scores) == len(expected.scores) > 10
        np.testing.assert_allclose(merged[index].scores, expected.scores, atol=1e-4)
        assert np.abs(merged[index].boxes - expected.boxes).max() < 0.01
    samples.dataset.read(1)[0].save(tmp_path / "1.png")
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path / "1.png")], tmp_path)
    given, own = (each.sample(index, np.random.default_rng(0)) for each, index in ((inputs, 0), (samples, 1)))
    assert given.parts == own.parts and len(own.parts) > 2 and given.original_size == own.original_size
    for left, right in zip((given.image, *given.more_images), (own.image, *own.more_images), strict=True):
        np.testing.assert_array_equal(left, right)
    trainer.model.train()
    again = predict_again(task, samples, 1, trainer.model)
    assert len(again.scores) > 10
    windows = get_aspect(task, Exportable).export_parts().about["windows"]
    assert (windows["window"], windows["overlap"], windows["mirrored"], windows["iou"]) == ([16, 20], 0.2, True, 0.5)


class SeenError(Exception):
    """What a network was given."""


def tell(*given):
    raise SeenError(*given)


@pytest.mark.parametrize("side", [24, 96, None])
def test_images_and_boxes_get_the_side_of_the_update(side):
    sides = [] if side is None else ["DATA.BATCH_SIDES", f"[{side}]"]
    task = make_task(settings("DATA.RESIZE_TO_SQUARE", "True", "DATA.SHORTEST_SIDES", "[48]", *sides, "-num_classes=3"))
    task.build_dataset("train", None)
    samples = [sample(48, 48, 2), sample(48, 48)._replace(image=np.full((3, 48, 48), 7, np.uint8))]
    batch = task.collate(samples)
    with pytest.raises(SeenError) as seen:
        task.train_step(tell, as_tensors(batch), StepPosition(1, 0, 1))
    images, sizes, targets = seen.value.args
    expected = zero_padding(task.normalizer(paddle.to_tensor(batch["images"])), batch["sizes"]).numpy()
    scale = 1.0 if side is None else side / 48
    if side is not None:
        expected = expected[:, :, ::2, ::2] if side == 24 else expected.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_array_equal(images.numpy(), expected)
    assert sizes.tolist() == targets.sizes.tolist() == [[int(48 * scale)] * 2] * 2
    np.testing.assert_allclose(targets.boxes.numpy(), batch["boxes"] * scale, rtol=1e-6)
    assert targets.labels.tolist() == batch["labels"].tolist() and targets.box_counts.tolist() == [2, 0]


def test_all_ranks_have_the_side_of_an_update():
    words = ["DATA.RESIZE_TO_SQUARE", "True", "DATA.SHORTEST_SIDES", "[48]", "DATA.BATCH_SIDES", "[24,96]"]
    task = make_task(settings(*words, "-num_classes=3"))
    task.build_dataset("train", None)

    def side(rank, update):
        with acting_as(rank, 2), pytest.raises(SeenError) as seen:
            task.train_step(tell, as_tensors(task.collate([sample(48, 48, 1)])), StepPosition(1, update, 9))
        return seen.value.args[0].shape[-1]

    sides = [[side(rank, update) for update in range(8)] for rank in (0, 1)]
    assert sides[0] == sides[1] and set(sides[0]) == {24, 96}


# ---- parameters ----------------------------------------------------------------------------------------------------


def list_groups(values, model):
    groups = get_aspect(small_detections.Watched(values), ParameterGrouping).parameter_groups(model)
    return complete_groups(groups, model, values.TRAIN.WEIGHT_DECAY, set(), None, print)[0]


def test_the_backbone_learns_at_its_rate_and_all_parameters_decay(trainer):
    values = settings("TRAIN.BACKBONE_LR_FACTOR", "0.1", "TRAIN.WEIGHT_DECAY", "0.02")
    groups = list_groups(values, trainer.model)
    rates = {name: (group["learning_rate"], group["weight_decay"]) for group in groups for name in group["names"]}
    assert set(rates) == {name for name, p in trainer.model.named_parameters() if not p.stop_gradient}
    for name, (rate, decay) in rates.items():
        assert (rate, decay) == (0.1 if name.startswith("backbone.") else 1.0, 0.02)
    some = settings("TRAIN.DECAY_ALL_PARAMETERS", "False", "TRAIN.WEIGHT_DECAY", "0.02")
    still = {name for g in list_groups(some, trainer.model) if g["weight_decay"] == 0 for name in g["names"]}
    assert {name for name, p in trainer.model.named_parameters() if len(p.shape) == 1 and p.trainable} <= still


def test_frozen_layers_have_no_state_in_the_optimizer(trainer):
    frozen = trainer.model.backbone.conv1.weight
    frozen.stop_gradient = True
    try:
        values = settings("TRAIN.OPTIMIZER.NAME", "AdamW")
        groups = list_groups(values, trainer.model)
        optimizer = build_optimizer(values.TRAIN.OPTIMIZER, trainer.model, groups, 0.1)
        paddle_versions.create_accumulators(optimizer)
        state = OptimizerState(optimizer, trainer.model).tensors()
        assert not [name for name in state if name.endswith("backbone.conv1.weight")]
        assert [name for name in state if name.endswith("backbone.layer1.0.conv1.weight")]
    finally:
        frozen.stop_gradient = False


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (["DETECTION.EVAL_BATCHING", "padded", "MODEL.MASK_PADDING", "False"], "MODEL.MASK_PADDING true"),
        (["MODEL.NAME", "resnet50"], "is not a detector"),
        (
            ["MODEL.NAME", "mask_rcnn_resnet50_fpn", "MODEL.NUM_QUERIES", "9"],
            "MODEL.NUM_QUERIES 9: mask_rcnn_resnet50_fpn",
        ),
        (["-dataset=digits"], "TASK detection reads images with boxes"),
        (["-num_classes=2"], "has 3 categories"),
        (["DATA.IMAGE_SIZE", "64"], "DATA.IMAGE_SIZE"),
    ],
)
def test_what_does_not_fit_is_one_line(words, said, tmp_path):
    with pytest.raises(UserError, match=said) as refusal:
        make_task(settings(*words)).build_dataset("train", tmp_path)
    assert "\n" not in str(refusal.value)


def test_categories_of_the_splits_have_the_same_ids_and_evaluated_data_are_those_of_the_configuration(tmp_path):
    task = make_task(settings())
    with pytest.raises(UserError, match="can only be evaluated on the data of its configuration"):
        task.eval_step(None, {}, EvaluationStep(task.build_metrics(), keeps_records=False))
    task.build_dataset("train", tmp_path)
    assert task.category_ids == [1, 2, 3]
    task.build_dataset("val", tmp_path)
    task.category_ids = [1, 2, 4]
    with pytest.raises(UserError, match="ids of categories differ between training and validation"):
        task.build_dataset("val", tmp_path)
