"""Mosaics and pasted objects keep pixels, boxes, labels and masks together, and end before the last epochs."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.samples.drawn_views import edges

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.dataset import reading_generator
from paddlevit_dist.images.detection.data import samples as data_samples
from paddlevit_dist.images.detection.data.composition import (
    ImageComposition,
    ImageObjects,
    join_images,
    paste_objects,
)
from paddlevit_dist.images.detection.data.samples import DetectionSamples, collate
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.detection.data.transforms import DetectionTrainingTransform
from paddlevit_dist.images.run_lengths import encode

KEEP = DetectionTrainingTransform(shortest=(64,), longest=64, flip_probability=0, crop_probability=0)
SHAPES = SyntheticShapes(None, "train", None, num_train=20, sides=(40, 80), per_image=(1, 3))


def painted(number: int, size=(60, 80)) -> ImageObjects:
    """A gray image with two rectangles whose colors tell the image and the object, which are their labels, too."""
    random = np.random.default_rng(number)
    pixels, boxes, labels, masks = np.full((*size, 3), 128, np.uint8), [], [], []
    for index in range(2):
        top, left = int(random.integers(0, size[0] - 20)), 40 * index + int(random.integers(0, 10))
        height, width = (int(side) for side in random.integers(12, 20, 2))
        mask = np.zeros(size, np.uint8)
        mask[top : top + height, left : left + width] = 1
        label = 2 * number + index
        pixels[mask == 1] = color_of(label)
        boxes.append([left, top, left + width, top + height])
        labels.append(label)
        masks.append(mask)
    return ImageObjects(Image.fromarray(pixels), np.array(boxes, float), np.array(labels), masks)


def color_of(label: int) -> tuple[int, int, int]:
    return 20 * label, 250 - 20 * label, 255 * (label % 2)


def require_together(image: ImageObjects) -> None:
    """Each object has the color of its label where its mask is, and its box is that of the mask."""
    pixels = np.asarray(image.image).astype(int)
    for box, label, mask in zip(image.boxes, image.labels.tolist(), image.masks):
        rows, columns = np.nonzero(mask)
        middle = np.median(pixels[rows, columns], axis=0)
        is_sliver = (box[2:] - box[:2]).min() <= 2  # which has the colors between two pixels
        np.testing.assert_allclose(middle, color_of(label), atol=20 if is_sliver else 3)
        np.testing.assert_allclose(box, edges(mask), atol=2.0)
        assert mask.shape == pixels.shape[:2]
    assert len(image.boxes) == len(image.labels) == len(image.masks)


def test_a_mosaic_has_the_visible_objects_of_four_images_at_their_places():
    images, labels = [painted(number) for number in range(4)], set()
    for seed in range(12):
        mosaic = join_images(images, 100, np.random.default_rng(seed))
        assert mosaic.image.size == (100, 100)
        require_together(mosaic)
        assert (mosaic.boxes >= 0).all() and (mosaic.boxes <= 100).all()
        assert ((mosaic.boxes[:, 2:] - mosaic.boxes[:, :2]) > 2 * 50 / 80).all()  # at the smallest scale
        colored = np.abs(np.asarray(mosaic.image).astype(int) - 120).max(axis=2) > 60  # neither ground nor padding
        assert (colored & ~np.maximum.reduce(mosaic.masks).astype(bool)).mean() < 0.02  # slivers that are cut off
        labels |= set(mosaic.labels.tolist())
    assert labels == set(range(8))
    without = join_images([image._replace(masks=None) for image in images], 100, np.random.default_rng(11))
    assert without.masks is None
    np.testing.assert_allclose(without.boxes, mosaic.boxes, atol=1.0)  # boxes that are cut end where pixels do


def noise(number: int, with_masks: bool = False) -> ImageObjects:
    """Random pixels with a few random boxes, which masks would fill; each image has its own size."""
    random = np.random.default_rng(number)
    width, height = random.integers(20, 60, 2).tolist()
    low = random.integers(0, (width - 2, height - 2), (5, 2))
    boxes = np.concatenate([low, random.integers(low + 1, (width + 1, height + 1))], axis=1)
    masks = [np.zeros((height, width), np.uint8) for _ in boxes]
    for (left, top, right, bottom), mask in zip(boxes, masks):
        mask[top:bottom, left:right] = 1
    pixels = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
    return ImageObjects(Image.fromarray(pixels), boxes.astype(float), np.arange(5) + 10 * number, masks * with_masks)


def test_a_mosaic_is_four_scaled_images_that_end_at_one_point():
    number = 0
    for seed in range(40):
        images = [noise(4 * seed + place)._replace(masks=None) for place in range(4)]
        random = np.random.default_rng(seed)
        point = (random.uniform(0.2, 0.8, 2) * 90).astype(int)  # x, y
        canvas, boxes, labels = np.full((90, 90, 3), 114, np.uint8), [], []
        for place, each in enumerate(images):
            stored = np.array(each.image.size)
            scale = 90 * random.uniform(0.5, 1.5) / stored.max()
            size = np.round(stored * scale).astype(int)
            is_after = np.array([place in (1, 3), place in (2, 3)])  # to the right, below
            start = np.where(is_after, point, point - size)
            low, high = np.maximum(start, is_after * point), np.minimum(start + size, np.where(is_after, 90, point))
            pixels = np.asarray(each.image.resize(tuple(size), Image.Resampling.BILINEAR))
            cut = tuple(slice(low[axis] - start[axis], high[axis] - start[axis]) for axis in (1, 0))
            canvas[low[1] : high[1], low[0] : high[0]] = pixels[cut]
            for box, label in zip(each.boxes.reshape(-1, 2, 2) * size / stored + start, each.labels):
                sides, shown = box[1] - box[0], np.clip(box, low, high)
                visible = shown[1] - shown[0]
                is_cut = visible < sides - 1e-6
                if visible.prod() > 0.1 * sides.prod() and not (is_cut & (visible <= 2 * scale)).any():
                    boxes.append(shown.ravel())
                    labels.append(label)
        mosaic = join_images(images, 90, np.random.default_rng(seed))
        np.testing.assert_array_equal(np.asarray(mosaic.image), canvas)
        np.testing.assert_array_equal(mosaic.labels, labels)
        np.testing.assert_allclose(mosaic.boxes, np.reshape(boxes, (-1, 4)), atol=1e-9)
        number += len(labels)
    assert 200 < number < 600


def test_pasted_pixels_are_those_of_a_scaled_image_at_a_random_place():
    number = 0
    for seed in range(40):
        image, other = noise(2 * seed, True), noise(2 * seed + 1, True)
        random, whole = np.random.default_rng(seed), np.array(image.image.size)
        scale = (whole / other.image.size).min() * random.uniform(0.5, 1.0)
        size = (np.array(other.image.size) * scale).astype(int)
        part = other.image.resize(tuple(size), Image.Resampling.BILINEAR)
        is_mirrored = random.random() < 0.5
        part = np.asarray(part)[:, ::-1] if is_mirrored else np.asarray(part)
        top, left = (int(random.integers(0, room + 1)) for room in (whole - size)[::-1])
        is_chosen = random.random(5) < 0.5
        found = paste_objects(image, other, np.random.default_rng(seed))
        pasted = np.isin(found.labels, other.labels)
        assert found.labels[pasted].tolist() == other.labels[is_chosen].tolist()
        boxes = other.boxes.reshape(-1, 2, 2) * size / other.image.size
        boxes = (np.abs(boxes[:, ::-1] - [size[0], 0]) * [1, 1] if is_mirrored else boxes) + [left, top]
        if is_mirrored:
            boxes[:, :, 1] = np.sort(boxes[:, :, 1], axis=1)
        np.testing.assert_allclose(found.boxes[pasted], boxes.reshape(-1, 4)[is_chosen], atol=1e-9)
        expected = np.array(image.image)
        covered = np.zeros(whole[::-1], bool)
        for mask, is_pasted in zip(found.masks, pasted):
            covered |= (mask == 1) & is_pasted
        inside = covered[top : top + size[1], left : left + size[0]]
        expected[top : top + size[1], left : left + size[0]][inside] = part[inside]
        assert inside.sum() == covered.sum()
        np.testing.assert_array_equal(np.asarray(found.image), expected)
        number += pasted.sum()
    assert 60 < number < 140


def wires(left: int, with_masks: bool) -> ImageObjects:
    """An image of 400 x 320 pixels (height x width) with an upright and a level object of 3 pixels in its middle."""
    masks = [np.zeros((400, 320), np.uint8) for _ in range(2)]
    masks[0][150:250, left - 40 : left - 37] = masks[1][left : left + 3, 110:210] = 1
    boxes = np.array([[left - 40, 150, left - 37, 250], [110, left, 210, left + 3]], float)
    return ImageObjects(Image.new("RGB", (320, 400)), boxes, np.array([0, 1]), masks if with_masks else None)


@pytest.mark.parametrize("with_masks", [False, True])
def test_a_mosaic_removes_what_it_cuts_and_not_what_it_shrinks(with_masks):
    number = 0
    for seed in range(16):
        mosaic = join_images([wires(196 + seed % 8, with_masks)] * 4, 100, np.random.default_rng(seed))
        alone = [join_images([wires(196 + seed % 8, False)] * 4, 100, np.random.default_rng(seed))]
        number += len(mosaic.boxes)
        assert len(mosaic.boxes) == len(alone[0].boxes)  # such masks fill their boxes
        assert all(mask.any() for mask in mosaic.masks or ())
    assert number > 48


@pytest.mark.parametrize(("left", "number"), [(5, 0), (6, 1)])
def test_a_tenth_of_a_box_is_too_little_in_a_mosaic(left, number):
    """The lower right quarter of the first image is seen: of a box that is 50 or 49 pixels wide, five."""
    empty = ImageObjects(Image.new("RGB", (100, 100)), np.zeros((0, 4)), np.zeros(0, int), None)
    image = empty._replace(boxes=np.array([[left, 60.0, 55, 80]]), labels=np.array([0]))
    middle = SimpleNamespace(uniform=lambda low, high, size=None: np.full(size, 0.5) if size else 1.0)
    assert len(join_images([image, empty, empty, empty], 100, middle).boxes) == number


def test_thin_objects_are_pasted():
    empty = ImageObjects(Image.new("RGB", (100, 80)), np.zeros((0, 4)), np.zeros(0, int), [])
    numbers = [
        len(paste_objects(empty, wires(196 + seed % 8, True), np.random.default_rng(seed)).boxes) for seed in range(60)
    ]
    assert np.mean(numbers) > 0.75  # each of two in half of the cases


def bent(size=(100, 120)) -> ImageObjects:
    """A gray image with an object in the shape of an L, of which a part of the box may show nothing."""
    mask = np.zeros(size, np.uint8)
    mask[10:90, 10:14] = mask[86:90, 10:90] = 1
    return ImageObjects(Image.new("RGB", size[::-1]), np.array([[10.0, 10, 90, 90]]), np.array([0]), [mask])


def test_masks_decide_which_objects_of_a_mosaic_are_visible_and_the_boxes_of_cut_ones():
    number = fewer = 0
    for seed in range(24):
        mosaic = join_images([bent()] * 4, 100, np.random.default_rng(seed))
        without = join_images([bent()._replace(masks=None)] * 4, 100, np.random.default_rng(seed))
        for box, mask in zip(mosaic.boxes, mosaic.masks):
            assert mask.any() and np.abs(box - edges(mask)).max() <= 2  # two: an uncut box at half of the size
        number, fewer = number + len(mosaic.boxes), fewer + len(without.boxes) - len(mosaic.boxes)
    assert number > 24 and fewer > 4


def test_masks_decide_in_crops(monkeypatch):
    samples = DetectionSamples(SHAPES, DetectionTrainingTransform(), is_training=True, with_masks=True)
    samples.transform = DetectionTrainingTransform((64,), 640, 0.5, 1.0, (100,), (20, 60), ssd=True)
    _, annotations = SHAPES.read(0)
    parts = bent()
    annotations = annotations._replace(
        boxes=np.array([[10.0, 10, 80, 80]]),
        labels=np.zeros(1, int),
        is_crowd=np.zeros(1, bool),
        masks=[encode(parts.masks[0])],
    )
    monkeypatch.setattr(SHAPES, "read", lambda index: (parts.image, annotations))
    objects = 0
    for seed in range(60):
        sample = samples.sample(0, reading_generator(1, seed, 0, 0, epochs=99))
        assert sample.masks.shape == (len(sample.boxes), *sample.image.shape[1:])
        scale = max(sample.image.shape[1:]) / 20  # of a pixel of the smallest crop
        for box, mask in zip(sample.boxes, sample.masks):
            assert mask.any() and np.abs(box - edges(mask)).max() <= scale
        objects += len(sample.boxes)
    assert 12 < objects < 60


def test_a_network_for_boxes_gets_those_of_masks_after_a_rotation(tmp_path):
    pytest.importorskip("albumentations")
    step = "{__class_fullname__: Rotate, limit: [45, 45], p: 1.0}"
    (tmp_path / "turn.yaml").write_text(f"transform: {step}", encoding="utf-8")
    words = ["TASK", "detection", "MODEL.NAME", "detr_resnet50", "DATA.ALBUMENTATIONS", str(tmp_path / "turn.yaml")]
    composition = data_samples.build_composition(load(words).values.DATA, has_masks=True)
    found = []
    for with_masks in (False, True):
        samples = DetectionSamples(SHAPES, KEEP, is_training=True, with_masks=with_masks)
        samples.composition = composition
        found.append(samples.sample(1, reading_generator(1, 0, 1, 0, epochs=5)))
    assert found[0].masks is None and len(found[0].boxes)
    np.testing.assert_array_equal(found[0].boxes, found[1].boxes, strict=True)
    for box, mask in zip(found[1].boxes, found[1].masks):
        assert np.abs(box - edges(mask)).max() <= 1.5


def test_boxes_outside_of_an_image_end_before_a_users_augmentation(tmp_path):
    pytest.importorskip("albumentations")
    (tmp_path / "same.yaml").write_text("transform: {__class_fullname__: NoOp, p: 1.0}", encoding="utf-8")
    words = ["TASK", "detection", "MODEL.NAME", "detr_resnet50", "DATA.ALBUMENTATIONS", str(tmp_path / "same.yaml")]
    composition = data_samples.build_composition(load(words).values.DATA, has_masks=False)
    boxes = np.array([[-5.0, 10, 20, 30], [90, 10, 99, 20], [30, 50, 70, 95]])  # the second lies outside
    image = ImageObjects(Image.new("RGB", (80, 60)), boxes, np.array([4, 2, 3]), None)
    found = composition.compose(lambda index: image, 0, 1, np.random.default_rng(0))
    np.testing.assert_allclose(found.boxes, [[0, 10, 20, 30], [30, 50, 70, 60]], atol=1e-4)
    assert found.labels.tolist() == [4, 3]
    masks = [np.zeros((60, 80), np.uint8) for _ in boxes]
    masks[0][12:28, 2:18] = masks[2][50:60, 40:60] = 1
    found = composition.compose(lambda index: image._replace(masks=masks), 0, 1, np.random.default_rng(0))
    np.testing.assert_allclose(found.boxes, [[0, 10, 20, 30], [30, 50, 70, 60]], atol=1e-4)  # not those of masks
    assert found.labels.tolist() == [4, 3] and len(found.masks) == 2


def test_pasted_objects_cover_others_which_keep_what_is_visible():
    pasted_number = covered_number = 0
    for seed in range(25):
        image, other = painted(0), painted(3, (50, 40))
        result = paste_objects(image, other, np.random.default_rng(seed))
        require_together(result)
        pasted = result.labels >= 6
        pasted_number += pasted.sum()
        sums = {label: mask.sum() for label, mask in zip(result.labels.tolist(), result.masks)}
        assert np.add.reduce(result.masks).max() == 1  # no pixel belongs to two
        covered_number += sum(sums.get(label, 0) < image.masks[label].sum() for label in (0, 1))
        np.testing.assert_array_equal(
            np.asarray(image.image), np.asarray(painted(0).image), strict=True
        )  # the stored one is unchanged
    assert pasted_number > 12 and covered_number > 3


def test_a_box_that_is_covered_in_part_is_the_one_of_the_visible_pixels():
    changed = 0
    for seed in range(30):
        before = painted(0)
        found = paste_objects(before, painted(1), np.random.default_rng(seed))
        for box, label, mask in zip(found.boxes, found.labels.tolist(), found.masks):
            if label in before.labels:
                own = before.masks[before.labels.tolist().index(label)]
                changed += not np.array_equal(mask, own)
                assert box.tolist() == list(edges(mask))
    assert changed > 5


def test_an_object_that_is_covered_whole_is_removed():
    small = painted(0)
    whole = ImageObjects(Image.new("RGB", (80, 60), color_of(6)), np.array([[0.0, 0, 80, 60]]), np.array([6]), None)
    whole = whole._replace(masks=[np.ones((60, 80), np.uint8)])
    labels = {tuple(paste_objects(small, whole, np.random.default_rng(seed)).labels.tolist()) for seed in range(60)}
    assert (0, 1) in labels and (0, 1, 6) in labels
    assert any(6 in names and not {0, 1} <= set(names) for names in labels)


@pytest.mark.parametrize("with_masks", [False, True])
def test_samples_are_composed_from_their_own_generator_until_the_last_epochs(with_masks):
    def read(epoch, index, composition):
        samples = DetectionSamples(SHAPES, KEEP, is_training=True, with_masks=with_masks)
        samples.composition = composition
        return samples.sample(index, reading_generator(1, epoch, index, 0, epochs=5))

    composition = ImageComposition(0.9, 0.5, 64, 2)
    differing = 0
    for index in range(6):
        first, again = (read(3, index, composition) for _ in range(2))
        for one, two in zip(first[2:7], again[2:7]):
            np.testing.assert_array_equal(one, two, strict=True)
        plain = read(3, index, None)
        differing += not np.array_equal(plain.image, first.image)
        for epoch in (4, 5):  # the last two
            last, expected = read(epoch, index, composition), read(epoch, index, None)
            assert np.array_equal(last.image, expected.image) and np.array_equal(last.boxes, expected.boxes)
            assert not with_masks or np.array_equal(last.masks, expected.masks)
    assert differing > 2
    batch = collate([read(1, index, composition) for index in range(4)])
    assert ("masks" in batch) == with_masks and batch["images"].shape == (4, 3, 64, 64)


class BoxesAlone(SyntheticShapes):
    has_masks = False

    def read(self, index):
        image, annotations = super().read(index)
        return image, annotations._replace(masks=None)


def test_objects_without_masks_are_those_that_are_seen():
    plain, composed = (
        DetectionSamples(BoxesAlone(None, "train", None, num_train=20, sides=(40, 80)), KEEP, is_training=True)
        for _ in range(2)
    )

    def augment(image, boxes, masks, generator, keypoints):
        assert masks is keypoints is None
        return SimpleNamespace(image=image, boxes=boxes, masks=None, objects=np.arange(len(boxes)), keypoints=None)

    composed.composition = ImageComposition(0.0, 1.0, 64, 0, SimpleNamespace(augment_objects=augment))
    assert composed.composition.uses_masks  # where there are some
    for index in range(3):
        one, two = (each.sample(index, reading_generator(1, 1, index, 0, epochs=5)) for each in (plain, composed))
        np.testing.assert_array_equal(one.boxes, two.boxes)
        assert one.labels.tolist() == two.labels.tolist() and len(one.labels)
        np.testing.assert_array_equal(one.image, two.image)


def test_keys_build_it_and_data_without_masks_are_refused():
    words = ["TASK", "detection", "MODEL.NAME", "detr_resnet50", "DATA.SHORTEST_SIDES", "[48, 96]"]
    assert data_samples.build_composition(load(words).values.DATA, has_masks=True) is None
    for shares in ((0.25, 0.0), (0.0, 0.75)):  # one of both alone
        more = ["DATA.MOSAIC", str(shares[0]), "DATA.COPY_PASTE", str(shares[1])]
        composition = data_samples.build_composition(load([*words, *more]).values.DATA, has_masks=True)
        assert (composition.mosaic, composition.copy_paste) == shares
    data = load([*words, "DATA.MOSAIC", "0.5", "DATA.COPY_PASTE", "0.3", "DATA.NO_AUGMENT_EPOCHS", "2"]).values.DATA
    assert data_samples.build_composition(data, has_masks=True) == ImageComposition(0.5, 0.3, 96, 2)
    with pytest.raises(UserError, match="DATA.COPY_PASTE 0.3: the training data have boxes but no masks"):
        data_samples.build_composition(data, has_masks=False)


def test_the_other_images_are_drawn_one_by_one_from_all():
    composition, parts = ImageComposition(1.0, 1.0, 64, 0), [painted(number) for number in range(6)]
    others, pasted = [], []
    for seed in range(40):
        read = []
        composition.compose(lambda index: read.append(index) or parts[index], 2, 6, np.random.default_rng(seed))  # noqa: B023
        assert read[0] == 2 and len(read) == 5
        others.append(read[1:4])
        pasted.append(read[4])
    assert {len(set(each)) for each in others} >= {2, 3} and len(set(map(tuple, others))) > 30
    assert set(np.ravel(others).tolist()) == set(pasted) == set(range(6))
