"""Detection's task: batches, parameters, predictions, files, figures, and what is refused."""

import json

import numpy as np
import paddle
import pytest
from PIL import Image
from support.filled_cells import to_dense
from support.networks import coco_peer
from support.samples.drawn_detections import CATEGORY_IDS, NAMES, drawn
from support.thread_ranks import acting_as
from support.trainings import small_detections

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.engine.optimizer import OptimizerState, build_optimizer
from paddlevit_dist.core.runtime import paddle_versions
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, PredictionRecord
from paddlevit_dist.core.tasks.protocols import (
    Checkable,
    CheckpointMatching,
    Exportable,
    LogContributor,
    ParameterGrouping,
    Predictable,
    Reportable,
    describe_samples,
    predict_again,
)
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.formats import stems
from paddlevit_dist.images.detection.data.indexed_images import number_images
from paddlevit_dist.images.detection.data.samples import DetectionSample, host_facts, largest_side, passes
from paddlevit_dist.images.detection.data.transforms import build_evaluation_transform
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.detector import zero_padding
from paddlevit_dist.images.detection.drawing import draw_boxes, enlargement_factor
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.operating_points import split_by_class
from paddlevit_dist.images.detection.figures import detection_figures, join_tables
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.detection.prediction import DetectionInput, DetectionWriter, build_rows
from paddlevit_dist.images.detection.records import DetectionRecord
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


def test_the_backbone_learns_at_its_rate_and_all_parameters_decay(trainer):
    values = settings("TRAIN.BACKBONE_LR_FACTOR", "0.1", "TRAIN.WEIGHT_DECAY", "0.02")
    groups = get_aspect(small_detections.Watched(values), ParameterGrouping).parameter_groups(trainer.model)
    rates = {name: (group["learning_rate"], group["weight_decay"]) for group in groups for name in group["names"]}
    assert set(rates) == {name for name, p in trainer.model.named_parameters() if not p.stop_gradient}
    for name, (rate, decay) in rates.items():
        assert (rate, decay) == (0.1 if name.startswith("backbone.") else 1.0, 0.02)
    some = small_detections.Watched(settings("TRAIN.DECAY_ALL_PARAMETERS", "False", "TRAIN.WEIGHT_DECAY", "0.02"))
    still = {
        name
        for g in get_aspect(some, ParameterGrouping).parameter_groups(trainer.model)
        if g["weight_decay"] == 0
        for name in g["names"]
    }
    assert {name for name, p in trainer.model.named_parameters() if len(p.shape) == 1 and p.trainable} <= still


def test_frozen_layers_have_no_state_in_the_optimizer(trainer):
    frozen = trainer.model.backbone.conv1.weight
    frozen.stop_gradient = True
    try:
        values = settings("TRAIN.OPTIMIZER.NAME", "AdamW")
        groups = get_aspect(small_detections.Watched(values), ParameterGrouping).parameter_groups(trainer.model)
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
        (["MODEL.NAME", "resnet50"], "is not a detector"),
        (
            ["MODEL.NAME", "mask_rcnn_resnet50_fpn", "MODEL.NUM_QUERIES", "9"],
            "MODEL.NUM_QUERIES 9: mask_rcnn_resnet50_fpn",
        ),
        (["-num_classes=2"], "has 3 categories"),
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


# ---- predictions ---------------------------------------------------------------------------------------------------

FOUND = DetectedObjects(
    np.array([[1, 2, 5, 9], [0, 0, 3, 3], [4, 4, 6, 8]], np.float32),
    np.array([0.9, 0.6, 0.2], np.float32),
    np.array([2, 0, 1]),
)


def test_a_row_for_each_box_from_the_least_score_on_and_one_without_values():
    assert build_rows(FOUND, NAMES, 0.5) == [
        {"category": "dog", "score": 0.9, "x": 1.0, "y": 2.0, "width": 4.0, "height": 7.0},
        {"category": "owl", "score": 0.6, "x": 0.0, "y": 0.0, "width": 3.0, "height": 3.0},
    ]
    assert build_rows(FOUND, NAMES, 0.95) == [dict.fromkeys(("category", "score", "x", "y", "width", "height"))]
    with pytest.raises(BadSample, match="not finite"):
        build_rows(FOUND._replace(scores=np.array([0.9, np.nan, 0.1])), NAMES, 0.5)


@pytest.mark.parametrize(
    "names, ids",
    [
        (["a/000000000139.jpg", "7.png"], [139, 7]),
        (["a/9.jpg", "cat.jpg"], [1, 2]),
        (["2008_000008.jpg"], [2008000008]),
    ],
)
def test_images_have_the_numbers_of_their_files(names, ids):
    assert number_images(stems(names)).tolist() == ids


def test_category_ids_come_from_the_checkpoint():
    task = make_task(settings("-eval", "-pretrained=x"))
    task.load_meta(
        CheckpointMeta(3, ("cat", "dog", "owl"), {}, {"classes": ["cat", "dog", "owl"], "category ids": [3, 7, 8]})
    )
    assert task.category_ids == [3, 7, 8] and task.class_names == ["cat", "dog", "owl"]
    with pytest.raises(
        UserError, match=r"^about.yaml: Expected `int`, got `str` - at `\$.category ids\[1\]`; remove the"
    ):
        task.load_meta(CheckpointMeta(3, None, {}, {"category ids": [3, "x"]}))
    task.load_meta(CheckpointMeta(3, None))
    assert task.category_ids == [1, 2, 3] and task.class_names == ["0", "1", "2"]


@pytest.mark.parametrize(
    "names, ids, message",
    [
        (["5", "6"], [5, 6], "ids are the numbers in the names of their files"),
        (["b", "a"], [1, 2], "ids are 1, 2, 3 in the order of the inputs"),
    ],
)
def test_images_and_results_of_a_prediction(tmp_path, names, ids, message):
    for name in names:
        Image.new("RGB", (12, 10)).save(tmp_path / f"{name}.png")
    task = make_task(settings("-eval", "-pretrained=x"))
    samples = get_aspect(task, Predictable).open_inputs([str(tmp_path / f"{name}.png") for name in names], tmp_path)
    writer = DetectionWriter(tmp_path, samples, NAMES, CATEGORY_IDS, 0.5)
    rows = [writer.write(index, FOUND) for index in (0, 1)]
    assert rows == [{"picture": f"pictures/{name}.jpg"} for name in names]
    lines = writer.finish(
        [PredictionRecord(index, [{"category": None}], summary=writer.summarize(index, FOUND)) for index in (0, 1)]
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert [entry["image_id"] for entry in results] == [ids[0]] * 3 + [ids[1]] * 3
    assert [entry["category_id"] for entry in results[:3]] == [8, 3, 7] and results[0]["bbox"] == [1, 2, 4, 7]
    assert message in lines[1] and "there are no boxes" in lines[0]


# ---- drawing and figures -------------------------------------------------------------------------------------------


def test_boxes_outside_or_not_finite_or_empty_are_drawn_without_harm():
    image = np.zeros((20, 30, 3), np.uint8)
    boxes = np.array([[-50, -50, 5, 5], [28, 18, 300, 200], [np.nan, 0, 1, 1], [7, 7, 7, 7], [9, 9, 2, 2]], np.float32)
    drawn_on = draw_boxes(image, boxes, np.array([0, 1, 2, -1, 9]), ["a", "猫", "c"], np.linspace(0, 1, 5))
    factor = enlargement_factor(image.shape[:2])
    assert drawn_on.shape == (20 * factor, 30 * factor, 3) and drawn_on.any() and not image.any()


def test_a_box_encloses_its_object():
    image = np.full((400, 600, 3), 255, np.uint8)
    drawn_on = draw_boxes(image, np.array([[100.0, 200.0, 300.0, 350.0]]), np.array([0]), ["x"])
    changed = np.argwhere((drawn_on != 255).any(axis=2))
    inside = (drawn_on[210:340, 110:290] == 255).all()
    assert inside and changed[:, 1].min() >= 97 and changed[:, 1].max() <= 303 and changed[:, 0].max() <= 353


@pytest.fixture(scope="module")
def records():
    metrics, found = DetectionMetrics(NAMES), []
    tables = []
    for number in range(40):
        truth, detections = drawn(number)
        tables.append(metrics.update(number, truth, detections))
        found.append((3 * number, DetectionRecord.from_table(tables[-1], truth, detections, 0.5)))
    return tables, found


def test_records_give_the_curves_of_the_whole_tables_and_are_small(records):
    tables, found = records
    whole, part = MatchTable.joined(tables), join_tables([record for _, record in found], len(NAMES))
    for ours, expected in zip(split_by_class(part), split_by_class(whole)):
        assert not expected.annotated.any() or (ours.sample_precision() == expected.sample_precision()).all()
    np.testing.assert_array_equal(coco_peer.score(part)[1], coco_peer.score(whole)[1], strict=True)
    np.testing.assert_array_equal(
        coco_peer.score(part)[0][[0, 1, 2, 6, 7, 8]], coco_peer.score(whole)[0][[0, 1, 2, 6, 7, 8]], strict=True
    )
    number = sum(len(table.scores) for table in tables) + sum(len(drawn(n)[0].labels) for n in range(40))
    assert sum(part.nbytes for _, record in found for part in record[:6]) <= 14 * number
    assert all(record.suspects.nbytes <= 800 for _, record in found)


class Shown:
    """The part of samples, and of the dataset behind them, that figures read."""

    def __init__(self):
        self.dataset = self

    def read(self, index):
        return Image.new("RGB", (100, 100)), drawn(index // 3)[0]

    def describe(self, index):
        return f"image {index}"


def test_figures_count_what_is_annotated_and_show_the_worst_images(records):
    _, found = records
    figures = {
        figure.title: figure
        for figure in detection_figures(Shown(), found, NAMES, 0.5, lambda index: drawn(index // 3)[1])
    }
    assert {"Hardest images", "Precision and recall", "Categories", "Confusion"} <= set(figures)
    annotated = np.zeros(4, int)
    for number in range(40):
        truth = drawn(number)[0]
        annotated += np.bincount(truth.labels[~truth.is_crowd], minlength=4)
    rows = {row[0]: row for row in figures["Categories"].rows}
    assert [rows[name][4] for name in NAMES] == annotated.tolist() and rows["yak"][1] is None
    matrix = to_dense(figures["Confusion"].values, 5)
    assert matrix[:4].sum(axis=1).tolist() == annotated.tolist()
    assert len(figures["Hardest images"].images) == 12 and "lowest F1" in figures["Hardest images"].note


def test_an_evaluation_without_a_single_annotation_has_figures_too():
    truth, found = drawn(0)
    table = DetectionMetrics(NAMES).update(1, truth, found)
    record = DetectionRecord.from_table(table, truth, found, 0.0)
    figures = detection_figures(Shown(), [(0, record)], NAMES, 0.0, lambda index: found)
    assert "Categories" in [figure.title for figure in figures]


def test_what_was_exported_is_evaluated_as_the_network_itself_on_images_of_one_size(trainer):
    task, model = trainer.task, trainer.model
    with pytest.raises(UserError, match="DETECTION.EVAL_BATCHING single keeps their aspect ratio: set it to one_size"):
        get_aspect(task, Exportable).evaluated_model(get_aspect(task, Exportable).exported_model(model))
    model.eval()
    again = get_aspect(make_task(settings("DETECTION.EVAL_BATCHING", "one_size")), Exportable).evaluated_model(
        get_aspect(task, Exportable).exported_model(model)
    )
    images, sizes = (
        paddle.to_tensor(get_aspect(task, Exportable).export_parts().example["input"]),
        np.array([[100, 200]]),
    )
    (expected,), (found,) = (one.decode(one(images), np.array([[32, 32]]), sizes) for one in (model, again))
    model.train()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    np.testing.assert_allclose(found.boxes, expected.boxes, rtol=1e-5)
    np.testing.assert_array_equal(found.labels, expected.labels, strict=True)


@pytest.mark.parametrize("how, words", [("pillow", "PIL"), ("torchvision", "four nearest pixels")])
def test_an_export_resizes_as_the_evaluation_did(how, words):
    pixels_alone = ["DATA.IMAGENET_MEAN", "[0,0,0]", "DATA.IMAGENET_STD", "[1,1,1]"]
    values = settings("DATA.EVAL_RESIZE", how, *pixels_alone, "DETECTION.EXPORT_SIZE", "[60,80]")
    parts = get_aspect(make_task(values), Exportable).export_parts()
    assert words in parts.about["preprocessing"]["interpolation"]
    scored = np.zeros((1, 2), np.int64), np.zeros((1, 2, 4)), np.array([[0.75, 0.5]])
    assert parts.difference(scored, (*scored[:2], scored[2] - 0.25))[0] == pytest.approx(0.25)
    pixels = parts.example["picture"].astype(float)
    if how == "pillow":
        expected = np.asarray(Image.fromarray(parts.example["picture"]).resize((80, 60), Image.Resampling.BILINEAR))
    else:  # two thirds: each is between a pixel and the next, at a quarter or three quarters of the way
        rows = pixels[0::3], pixels[1::3], pixels[2::3]
        expected = np.stack([rows[0] * 0.75 + rows[1] * 0.25, rows[1] * 0.25 + rows[2] * 0.75], 1).reshape(60, 120, 3)
        columns = expected[:, 0::3], expected[:, 1::3], expected[:, 2::3]
        expected = np.stack([columns[0] * 0.75 + columns[1] * 0.25, columns[1] * 0.25 + columns[2] * 0.75], 2)
        expected = expected.reshape(60, 80, 3)
    np.testing.assert_allclose(parts.example["input"][0].transpose(1, 2, 0) * 255, expected, atol=1e-3)


def test_an_evaluation_step_keeps_a_record_of_each_image(trainer):
    task, samples = trainer.task, trainer.datasets["val"]
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in range(3)])
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    with paddle.no_grad():
        records = task.eval_step(trainer.model, as_tensors(batch), step)()
    assert len(records) == 3 and step.metrics.state["images"] == 3
    figures = get_aspect(task, Reportable).figures(samples, list(enumerate(records)), trainer.model)
    shown = {figure.title: figure for figure in figures}["Hardest images"].images
    described = {samples.describe(index) for index in range(3)}
    assert shown and {caption.splitlines()[1] for _, caption in shown} <= described
    assert get_aspect(task, Reportable).figures(samples, [], trainer.model) == []
    # samples of a user's task have no boxes to draw
    assert get_aspect(task, Reportable).figures(TransformedDataset(), list(enumerate(records)), trainer.model) == []


def test_what_the_log_and_checks_of_labels_take_from_samples(trainer):
    task, samples = trainer.task, trainer.datasets["train"]
    assert describe_samples(task, samples) == samples.dataset.summary()
    assert describe_samples(task, range(1234)) == "1,234 images"  # of a user
    log = get_aspect(task, LogContributor)
    assert log.count_classes(samples) is log.count_classes(range(1234)) is None  # drawn: counting draws every image
    taken = samples.sample(0, np.random.default_rng(0))
    np.testing.assert_array_equal(get_aspect(task, Checkable).labels_in(taken), taken.labels)
    matching = get_aspect(task, CheckpointMatching)
    assert matching.mismatch_hint("train turned by EXIF", False) == (
        "set DATA.EXIF_ROTATE false to read images as in training"
    )
    assert matching.mismatch_hint("DATA.IMAGENET_MEAN", [0, 0, 0]) == "use the same settings"
    regions = make_task(settings("MODEL.NAME", "mask_rcnn_small", "MODEL.MASK_PADDING", "False"))
    regions.build_dataset("train", None)
    log = get_aspect(regions, LogContributor)
    assert log.finish_epoch() == []  # it has a region for any number of objects
    assert log.evaluation_lines() == []
    for _ in range(2):  # the first compiles
        regions.speed.add(1, 0.5, 0.25, 0.125)
    assert log.evaluation_lines() == [regions.speed.line()] != [""]
