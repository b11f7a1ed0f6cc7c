"""Samples and batches of images with boxes, as networks and evaluation get them."""

import pickle
import time

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.register import register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.held_out import write_rows
from paddlevit_dist.images.data.inspection import SplitInspection
from paddlevit_dist.images.detection.data.composition import ImageComposition
from paddlevit_dist.images.detection.data.detection_dataset import DetectionDataset, format_counts
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.data.images_part import ImagesPart
from paddlevit_dist.images.detection.data.samples import (
    HOST,
    DetectionSamples,
    collate,
    host_facts,
    open_samples,
)
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.detection.data.transforms import DetectionEvaluationTransform, DetectionTrainingTransform
from paddlevit_dist.images.detection.windows import WindowPlan
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointDataset
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

KEEP = DetectionTrainingTransform(shortest=(64,), flip_probability=0, crop_probability=0)
SHAPES = SyntheticShapes(None, "train", None, num_train=40, sides=(40, 80), per_image=(0, 3))


def drawn(samples, indices):
    return [samples.sample(index, np.random.default_rng(index)) for index in indices]


def test_a_training_batch_is_padded_at_the_right_and_bottom_and_nothing_else_changes():
    samples = DetectionSamples(SHAPES, KEEP, is_training=True, with_masks=True)
    chosen = drawn(samples, range(12))
    batch = collate(chosen)
    facts = host_facts(batch)
    assert sorted(facts) == ["box_counts", "sizes"]
    assert all(type(values) is list for values in batch.pop(HOST).values())  # which no loader turns into tensors
    assert all(np.array_equal(value, batch[name]) for name, value in facts.items())
    number, most = batch["labels"].shape
    assert number == 12 and most == batch["box_counts"].max() == 3
    assert {name: (array.dtype.str[1:], array.shape[:1]) for name, array in batch.items()} == {
        "images": ("u1", (12,)),
        "sizes": ("i8", (12,)),
        "boxes": ("f4", (12,)),
        "labels": ("i8", (12,)),
        "box_counts": ("i8", (12,)),
        "masks": ("u1", (12,)),
    }
    assert batch["masks"].shape == (12, 3, *batch["images"].shape[2:])
    for row, sample in enumerate(chosen):
        height, width = batch["sizes"][row]
        image = batch["images"][row]
        np.testing.assert_array_equal(image[:, :height, :width], sample.image, strict=True)
        assert not image[:, height:].any() and not image[:, :, width:].any()
        count = batch["box_counts"][row]
        assert np.array_equal(batch["boxes"][row, :count], sample.boxes) and not batch["boxes"][row, count:].any()
        assert (
            np.array_equal(batch["labels"][row, :count], sample.labels) and (batch["labels"][row, count:] == -1).all()
        )
        np.testing.assert_array_equal(batch["masks"][row, :count, :height, :width], sample.masks, strict=True)
        assert batch["masks"][row].sum() == sample.masks.sum()
    assert batch["box_counts"].min() == 0  # images without boxes are among them


def test_a_batch_without_any_box_has_room_for_one():
    nothing = SyntheticShapes(None, "train", None, num_train=2, per_image=(0, 0))
    batch = collate(drawn(DetectionSamples(nothing, KEEP, is_training=True, with_masks=True), range(2)))
    assert batch["boxes"].shape == (2, 1, 4) and batch["labels"].tolist() == [[-1], [-1]]
    assert batch["box_counts"].tolist() == [0, 0] and batch["masks"].shape == (2, 1, 64, 64)
    assert not batch["masks"].any()


def test_an_evaluation_sees_images_and_no_boxes():
    samples = DetectionSamples(SHAPES, DetectionEvaluationTransform(48, 60), is_training=False, with_masks=True)
    batch = collate(drawn(samples, (7, 3)))
    assert sorted(host_facts(batch)) == ["indices", "original_sizes", "sizes"]
    assert sorted(batch) == [HOST, "images", "indices", "original_sizes", "seconds", "sizes"]
    assert batch["indices"].tolist() == [7, 3]
    assert batch["original_sizes"].tolist() == [list(SHAPES.size(7)), list(SHAPES.size(3))]
    assert all(max(size) <= 60 for size in batch["sizes"].tolist())


@pytest.mark.parametrize("plan", [None, WindowPlan((40, 40), 0.25, True)])
def test_an_evaluation_knows_how_long_reading_an_image_took(plan):
    samples = DetectionSamples(SHAPES, DetectionEvaluationTransform(48, 60), is_training=False)
    samples.window_plan = plan
    started = time.perf_counter()
    sample = samples.read_sample(5, np.random.default_rng(0))
    assert 0 < sample.seconds <= time.perf_counter() - started
    assert (sample.index, sample.is_training, sample.original_size) == (5, False, SHAPES.size(5))
    assert sample.boxes.shape == (0, 4) and sample.boxes.dtype == np.float32 and sample.labels.dtype == np.int64


@pytest.mark.parametrize("composition", [None, ImageComposition(0.0, 0.0, 48, 0)])
def test_a_training_sample_knows_the_size_of_its_image(composition):
    samples = DetectionSamples(SHAPES, KEEP, is_training=True)
    samples.composition = composition
    sizes = [samples.read_sample(index, np.random.default_rng(0)).original_size for index in range(4)]
    assert sizes == [SHAPES.size(index) for index in range(4)] and any(height != width for height, width in sizes)


def test_samples_are_small_to_pickle_and_say_what_they_are():
    samples = DetectionSamples(SHAPES, KEEP, is_training=True)
    assert len(pickle.dumps(samples)) <= 1500
    assert len(samples) == 40 and samples.labeled and "synthetic image train_00004" in samples.describe(4)
    assert samples.class_names == ["circle", "square", "triangle"]


def test_masks_are_asked_of_data_that_have_them():
    class Boxes(SyntheticShapes):
        has_masks = False

    with pytest.raises(UserError, match="boxes but no masks"):
        DetectionSamples(Boxes(None, "train", None), KEEP, is_training=True, with_masks=True)
    DetectionSamples(Boxes(None, "val", None), KEEP, is_training=False, with_masks=True)


def test_the_keys_lead_to_samples_of_both_kinds(tmp_path):
    words = ["TASK", "detection", "-dataset=synthetic_shapes", "DATA.SHAPES.TRAIN", "6", "DATA.SHAPES.SIDES", "[40,50]"]
    words += ["DATA.SHORTEST_SIDES", "[32]", "DATA.EVAL_SHORTEST_SIDE", "48", "DATA.SHAPES.CATEGORIES", "[ring,cross]"]
    config = load(words).values
    train = open_samples(config, "train", tmp_path, is_training=True)
    val = open_samples(config, "val", tmp_path, is_training=False)
    assert len(train) == 6 and len(val) == 200 and train.class_names == ["ring", "cross"]
    batch = collate(drawn(train, range(6)))
    assert set(batch["sizes"].min(axis=1).tolist()) == {32} and batch["box_counts"].min() >= 1
    assert collate(drawn(val, range(3)))["sizes"].min(axis=1).tolist() == [48] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["DATA.SHAPES.SIDES", "[60,50]"], "DATA.SHAPES.SIDES [60, 50] (command line): expected the smaller"),
        (["DATA.SHAPES.CATEGORIES", "[ring,ring]"], "expected at least one category, each only once"),
        (["DATA.SHAPES.CATEGORIES", "[hexagon]"], "expected one of circle"),
        (["DATA.SHORTEST_SIDES", "[]"], "expected at least one"),
        (["DATA.GROUP_BY_SHAPE", "6", "-batch_size=4"], "expected a multiple of DATA.BATCH_SIZE 4"),
    ],
)
def test_keys_that_contradict_one_another_are_named(words, message):
    assert message in refusal_of(load, ["TASK", "detection", "-dataset=synthetic_shapes", *words])


class Plain(DetectionDataset):
    """The least that a user may write."""

    class_names = ("left", "right")
    category_ids = (1, 2)

    def __init__(self, data_path, split, cache_folder):
        self.number = 4 if split == "train" else 2

    def __len__(self):
        return self.number

    def read(self, index):
        box = np.array([[1.0, 2.0, 3.0, 4.0]])
        one = np.ones(1)
        found = ImageAnnotations(box, np.array([index % 2]), 12 * one, np.zeros(1, bool), np.array([index + 1]))
        return Image.fromarray(np.full((10, 12 + index, 3), index, np.uint8)), found


def test_a_users_own_class_needs_to_read_and_to_name_its_categories(tmp_path):
    register_dataset("my_boxes", Plain)
    config = load(["TASK", "detection", "-dataset=my_boxes", "DATA.GROUP_BY_SHAPE", "4", "-batch_size=2"]).values
    samples = open_samples(config, "train", tmp_path, is_training=True, inspection=SplitInspection(False, False))
    assert samples.sample(3, np.random.default_rng(0)).labels.tolist() in ([], [1])
    assert samples.dataset.summary() == "4 images, 4 boxes: left 2, right 2"
    assert samples.dataset.image_ids.tolist() == [1, 2, 3, 4] and samples.dataset.size(2) == (10, 14)
    assert sorted(samples.draw_order(np.random.default_rng(0)).tolist()) == [0, 1, 2, 3]
    rows = np.array([3, 0, 1])  # labels 1, 0, 1
    part = ImagesPart(samples.dataset, write_rows(tmp_path, "some", rows))
    assert part.class_counts().tolist() == [[1, 1], [2, 2]] and part.class_counts(np.array([0, 2])).tolist()[1] == [
        2,
        2,
    ]
    assert part.count_categories() is None  # counting reads every image
    assert part.summary(np.array([1])) == "1 image, 1 box: left 1, right 0"


class NoBoxes(DetectionDataset):
    """Without images; the base class of what a user may write for keypoints, too."""

    class_names, category_ids, read = ("left",), (1,), None

    def __init__(self, data_path, split, cache_folder):
        pass

    def __len__(self):
        return 0


class NoKeypoints(NoBoxes, KeypointDataset):
    keypoint_sets = (KeypointSet(("tip",), (), (0.1,), ()),)


@pytest.mark.parametrize(("recipe", "kind"), [("detr_shapes", NoBoxes), ("heatmap_figures", NoKeypoints)])
def test_a_user_s_split_without_images_is_refused(tmp_path, recipe, kind):
    register_dataset(f"my_{kind.__name__}", kind)
    for words, place in (([], ""), ([f"-data_path={tmp_path}"], f" at {tmp_path}")):
        task = make_task(load([f"-cfg={recipe}", f"-dataset=my_{kind.__name__}", *words]).values)
        assert refusal_of(task.build_dataset, "val", tmp_path) == f"dataset my_{kind.__name__} has no val images{place}"


def test_drawn_images_without_objects_are_refused_where_such_are_left_out(tmp_path):
    words = ["-cfg=detr_shapes", "DATA.SHAPES.OBJECTS_PER_IMAGE", "[0,0]", "DATA.SHAPES.TRAIN", "2"]
    assert len(open_samples(load(words).values, "train", tmp_path, is_training=True)) == 2
    message = refusal_of(
        open_samples, load([*words, "DATA.KEEP_EMPTY_IMAGES", "false"]).values, "train", tmp_path, is_training=True
    )
    assert message == (
        "dataset synthetic_shapes has no object to learn in its 2 train images: its annotations have none; is this the "
        "annotated folder, or was it exported before labeling?"
    )


def test_objects_of_a_user_s_images_may_have_points_and_be_without_masks():
    class Posed(Plain):
        has_masks = True

        def read(self, index):
            image, found = super().read(index)
            return image, found._replace(points=np.array([[[2.0, 3.0, 2]]]))

    samples = DetectionSamples(Posed(None, "train", None), KEEP, is_training=True, with_masks=True)
    found = samples.sample(1, np.random.default_rng(0))
    assert found.masks.shape == (1, 64, 83) and not found.masks.any()
    assert found.labels.tolist() == [1] and found.points is None  # it has no mirrored points


def test_of_many_categories_the_most_and_the_least_frequent_are_listed():
    labels = np.repeat(np.arange(21), np.arange(30, 9, -1))
    listed = format_counts([f"c{k}" for k in range(21)], np.array([len(labels), 0]), labels, labels == 3)
    first = ", ".join(f"c{k} {30 - k}" for k in range(10))
    assert listed == (
        f"2 images, 420 boxes: {first}, …, c18 12, c19 11, c20 10; 27 of them crowds, not learned; "
        "1 image without boxes"
    )
    assert "…" not in format_counts([f"c{k}" for k in range(20)], np.zeros(1), np.zeros(0), np.zeros(0, bool))


class Next:
    """Reads the next image in place of each."""

    def read(self, read, index, dataset):
        return read(index + 1)


def test_parts_of_a_mosaic_are_replacements_of_unreadable_images():
    joined = ImageComposition(1.0, 0.0, 48, 0)
    samples, moved = (DetectionSamples(SHAPES, KEEP, is_training=True) for _ in range(2))
    samples.composition = moved.composition = joined
    samples.replacements = Next()
    moved.dataset = Moved(None, "train", None, num_train=40, sides=(40, 80), per_image=(0, 3))
    found, expected = (each.read_sample(2, np.random.default_rng(5)) for each in (samples, moved))
    np.testing.assert_array_equal(found.image, expected.image)
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    assert len(found.boxes) and (found.image != moved.sample(1, np.random.default_rng(5)).image).any()


def test_a_mosaic_for_a_network_of_boxes_cuts_boxes_and_not_masks():
    class Boxes(SyntheticShapes):
        has_masks = False

    bare = Boxes(None, "train", None, num_train=40, sides=(40, 80), per_image=(0, 3))
    found, expected = [], []
    for dataset, boxes in ((SHAPES, found), (bare, expected)):
        samples = DetectionSamples(dataset, KEEP, is_training=True)
        samples.composition = ImageComposition(1.0, 0.0, 48, 0)
        boxes += [samples.read_sample(number, np.random.default_rng(number)).boxes.tolist() for number in range(4)]
    assert found == expected and any(value % 1 for boxes in found for box in boxes for value in box)


class Moved(SyntheticShapes):
    """Has the next image in place of each."""

    def read(self, index):
        return super().read(index + 1)
