"""Training as real-time detectors' authors do: sizes that change with updates, SSD's transforms, plain last epochs."""

import numpy as np
import paddle
import pytest
from PIL import Image
from support.samples.drawn_views import edges, make_view
from support.trainings import small_detections

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import TrainingSampler
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.data import transforms
from paddlevit_dist.images.detection.data.samples import DetectionSamples, collate
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.detection.data.transforms import DetectionTrainingTransform, batch_side

SHAPES = SyntheticShapes(None, "train", None, num_train=40, sides=(40, 80), per_image=(0, 3))
SIDES = [64, 96, 128]
SQUARES = ["DATA.RESIZE_TO_SQUARE", "True", "DATA.SHORTEST_SIDES", "[96]", "DATA.BATCH_SIDES", str(SIDES)]
WORDS = [*small_detections.SHAPES, "-num_classes=3", "MODEL.MASK_PADDING", "False", *SQUARES]


def configured(*words):
    return settings.load([*WORDS, *words]).values


def test_a_side_follows_from_seed_and_update_alone():
    data = configured("DATA.NO_AUGMENT_EPOCHS", "2").DATA
    drawn = [batch_side(data, 5, update, 9) for update in range(60)]
    assert set(drawn) == set(SIDES) and drawn == [batch_side(data, 5, update, None) for update in range(60)]
    assert drawn != [batch_side(data, 6, update, 9) for update in range(60)]
    assert [batch_side(data, 5, 0, left) for left in (3, 2, 1, 0)] == [drawn[0], drawn[0], None, None]


def test_a_run_that_is_all_plain_epochs_says_that_its_sides_are_not_read():
    plain = settings.load([*WORDS, "DATA.NO_AUGMENT_EPOCHS", "3", "TRAIN.NUM_EPOCHS", "3"])
    lines = [
        line for line in plain.notices if line.endswith("every epoch is plain: DATA.NO_AUGMENT_EPOCHS 3 (command line)")
    ]
    assert lines and lines[-1].startswith(f"DATA.BATCH_SIDES {SIDES} (command line): no effect: ")
    one_is_not = settings.load([*WORDS, "DATA.NO_AUGMENT_EPOCHS", "3", "TRAIN.NUM_EPOCHS", "4"])
    assert not [line for line in one_is_not.notices if "every epoch is plain" in line]


class Seen(Exception):
    """What a network is given."""


def test_images_are_the_nearest_pixels_and_boxes_the_same_shares():
    def network(*given):
        raise Seen(*given)

    task = make_task(configured("MODEL.NAME", "rtdetr_small", "DATA.IMAGENET_STD", "[1,1,1]"))
    samples = DetectionSamples(SHAPES, DetectionTrainingTransform(shortest=(96,), square=True), is_training=True)
    samples.noise = task.criterion.noise
    read = [samples.sample(index, np.random.default_rng(index)) for index in range(2)]
    collated = collate(read, noise=samples.noise)
    batch = {name: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in collated.items()}
    sides = set()
    for update in range(20):
        with pytest.raises(Seen) as seen:
            task.train_step(network, dict(batch), StepPosition(1, update, 8))
        images, sizes, targets = seen.value.args
        side = images.shape[-1]
        sides.add(side)
        nearest = np.arange(side) * 96 // side
        expected = task.normalizer(batch["images"]).numpy()[:, :, nearest][..., nearest]
        np.testing.assert_array_equal(images.numpy(), expected, strict=True)
        assert (sizes.numpy() == side).all() and sizes is targets.sizes
        np.testing.assert_allclose(targets.boxes.numpy() / side, collated["boxes"] / 96, atol=1e-6)
    assert sides == set(SIDES)


def test_what_has_no_one_side_is_refused():
    with pytest.raises(UserError, match="DATA.BATCH_SIDES.*set DATA.RESIZE_TO_SQUARE true and DATA.SHORTEST_SIDES"):
        configured("DATA.RESIZE_TO_SQUARE", "False")
    with pytest.raises(UserError, match="mask_rcnn_small needs masks"):
        make_task(configured("MODEL.NAME", "mask_rcnn_small")).build_dataset("train", None)


def test_images_that_are_padded_are_refused_where_boxes_would_be_shares_of_the_padded_ones():
    words = "DATA.RESIZE_TO_SQUARE False DATA.BATCH_SIDES [] MODEL.NAME rtdetr_small".split()
    task = make_task(configured(*words))
    samples = DetectionSamples(SHAPES, DetectionTrainingTransform(shortest=(96,), square=True), is_training=True)
    samples.noise = task.criterion.noise
    wide, high = (samples.sample(index, np.random.default_rng(index)) for index in range(2))
    batch = task.collate([wide._replace(image=wide.image[:, :64]), high._replace(image=high.image[:, :, :64])])
    with pytest.raises(
        UserError, match="rtdetr_small takes unpadded images of one size, .*: set DATA.RESIZE_TO_SQUARE true"
    ):
        task.train_step(None, batch, StepPosition(1, 0, 8))


def test_a_reading_knows_how_many_epochs_are_left():
    seen = []

    class Transform:
        def __call__(self, view, generator):
            seen.append(generator.epochs_left)
            return view

    samples = DetectionSamples(SHAPES, Transform(), is_training=True)
    loader = DeviceLoader(samples, TrainingSampler(samples, 40), collate, num_workers=0, seed=0, epochs=3)
    assert len(list(loader.epochs(1, 3))) == 3
    assert seen == [2] * 40 + [1] * 40 + [0] * 40


def test_the_last_epochs_are_without_the_strong_transforms():
    class Reading(np.random.Generator):
        epochs_left = 0

    plain, strong = (
        DetectionTrainingTransform(square=True),
        DetectionTrainingTransform(square=True, ssd=True, plain_epochs=2),
    )
    made = []
    for left, transform in ((0, plain), (0, strong), (1, strong), (2, strong)):
        generator = Reading(np.random.Philox(3))
        generator.epochs_left = left
        made.append(transform(make_view(3)[0], generator).image.tobytes())
    assert made[0] == made[1] == made[2] != made[3]


@pytest.mark.parametrize("seed", range(20))
def test_boxes_follow_their_masks_onto_a_larger_image_and_into_a_crop(seed):
    generator, (view, masks) = np.random.default_rng(seed), make_view(seed)
    for mask in masks:
        x0, y0, x1, y1 = edges(mask)
        mask[y0:y1, x0:x1] = 1
    larger = transforms.zoom_out(view, generator)
    height, width = larger.size
    assert view.size[0] <= height <= 4 * view.size[0] and view.size[1] <= width <= 4 * view.size[1]
    assert larger.image.size == (width, height) and np.asarray(larger.image).sum() == np.asarray(view.image).sum()
    for which, box in zip(larger.objects, larger.boxes):
        assert np.array_equal(edges(larger.mask(masks[which])), box)
    part = transforms.crop_by_overlap(larger, generator)
    if part.size != larger.size:
        assert 0.29 * height < part.size[0] and 0.29 * width < part.size[1] and 0.45 < part.size[1] / part.size[0] < 2.1
        assert len(part.objects)
    assert set(part.objects.tolist()) <= set(larger.objects.tolist())
    for which, box in zip(part.objects, part.boxes):
        inside = part.mask(masks[which])
        assert np.array_equal(edges(inside), box)
        assert inside.sum() * 4 >= masks[which].sum()  # its middle is inside


def test_an_object_whose_middle_is_outside_is_left_out_and_crops_overlap_as_much_as_is_drawn(monkeypatch):
    monkeypatch.setattr(transforms, "_OVERLAPS", (0.5,))
    boxes = np.array([[10.0, 10.0, 60.0, 60.0], [90.0, 90.0, 8.0, 8.0]])
    parts = []
    for seed in range(30):
        whole = transforms.whole_view(Image.new("RGB", (100, 100)), boxes, np.arange(2))
        part = transforms.crop_by_overlap(whole, np.random.default_rng(seed))
        parts.append(part)
        assert 0 in part.objects
        common = (part.boxes[0, 2:] - part.boxes[0, :2]).prod()
        assert common / (3600 + np.prod(part.size) - common) >= 0.5
    sizes = np.array([part.size for part in parts])
    assert (sizes[:, 0] != sizes[:, 1]).mean() > 0.8 and (sizes.max(axis=0) > 85).all() and (sizes < 100).all()
    nothing = transforms.whole_view(Image.new("RGB", (9, 9)), np.zeros((0, 4)), np.arange(0))
    assert transforms.crop_by_overlap(nothing, np.random.default_rng(0)) is nothing


def test_colors_are_distorted_within_their_ranges():
    assert transforms._shift_hue(Image.new("RGB", (1, 1), (255, 0, 0)), 1 / 3).getpixel((0, 0)) == (0, 255, 0)
    image = Image.new("RGB", (2, 2), (100, 100, 100))  # gray: contrast, saturation, hue and order of channels keep it
    levels = {transforms.distort_colors(image, np.random.default_rng(seed)).getpixel((0, 0)) for seed in range(200)}
    assert all(len(set(level)) == 1 and 87 <= level[0] <= 113 for level in levels) and len(levels) > 10


def test_sides_that_the_network_cannot_take_are_refused_before_it_trains():
    for words, said in (
        (["DATA.SHORTEST_SIDES", "[100]"], "DATA.SHORTEST_SIDES 100"),
        (["DETECTION.EVAL_BATCHING", "one_size", "DATA.EVAL_SHORTEST_SIDE", "100"], "DATA.EVAL_SHORTEST_SIDE 100"),
    ):
        with pytest.raises(
            UserError, match=f"{said}: rtdetr_small takes images whose sides are multiples of 16: use 96 or 112"
        ):
            make_task(configured("MODEL.NAME", "rtdetr_small", *words)).build_model(3)
        make_task(configured(*words)).build_model(3)  # a DETR takes any


@pytest.mark.parametrize(
    "sides, words, seen",
    [
        ("[48, 48]", [], None),
        ("[32, 64]", ["DETECTION.EVAL_BATCHING", "one_size"], None),
        ("[32, 64]", [], r"an image of (\d+) x (\d+) pixels would be evaluated with"),
        ("[48, 48]", ["DETECTION.WINDOW", "[32, 40]"], "an image of 48 x 48 pixels would be evaluated with 48 x 60"),
    ],
)
def test_proportions_that_the_network_cannot_take_are_refused_before_it_trains(tmp_path, sides, words, seen):
    words = [
        "DETECTION.EVAL_BATCHING",
        "equal_shapes",
        "DATA.SHAPES.SIDES",
        sides,
        "DATA.EVAL_SHORTEST_SIDE",
        "48",
        *words,
    ]
    for name in ("detr_small", "rtdetr_small"):
        task = make_task(configured("MODEL.NAME", name, "DATA.SHORTEST_SIDES", "[96]", *words))
        task.build_dataset("val", tmp_path)
        if seen is None or name == "detr_small":
            task.build_model(3)
            continue
        with pytest.raises(UserError, match=f"rtdetr_small takes .* multiples of 16, .*{seen}.*; set it to one_size"):
            task.build_model(3)


@pytest.mark.parametrize("name", ["rtdetr_small", "dfine_small"])
def test_sides_with_fewer_cells_than_queries_are_refused_before_it_trains(name):
    words = ["MODEL.NAME", name, "DATA.SHORTEST_SIDES", "[64]", "MODEL.NUM_QUERIES"]
    network = make_task(configured(*words, "10", "DATA.BATCH_SIDES", "[64]")).build_model(3)
    network.eval()
    cells = {side: network.encode(paddle.zeros([1, 3, side, side]))[0].shape[1] for side in (16, 32, 48, 64)}
    assert all(network.count_cells(side, side) == number for side, number in cells.items())
    assert network.count_cells(32, 64) == network.encode(paddle.zeros([1, 3, 32, 64]))[0].shape[1]

    queries = str(cells[48])
    make_task(configured(*words, queries, "DATA.BATCH_SIDES", "[64, 48]")).build_model(3)
    message = (
        f"DATA.BATCH_SIDES 32: the maps of {name} have {cells[32]} cells at this size, fewer than its {queries} "
        "queries: use 48 or more, or lower MODEL.NUM_QUERIES"
    )
    with pytest.raises(UserError, match=message):
        make_task(configured(*words, queries, "DATA.BATCH_SIDES", "[64, 48, 32]")).build_model(3)
    evaluated = ["DETECTION.EVAL_BATCHING", "one_size", "DETECTION.EXPORT_SIZE", "[16, 48]"]
    with pytest.raises(UserError, match=r"DETECTION.EXPORT_SIZE \[16, 48\]: the maps of .* or lower MODEL.NUM_QUERIES"):
        make_task(configured(*words, queries, "DATA.BATCH_SIDES", "[64]", *evaluated)).build_model(3)
