"""A file of Albumentations moves images, labels, boxes and masks together, with the sample's own random numbers."""

import collections
import json
import pickle
import sys
import warnings

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.transforms.albumentations_file import AlbumentationsFile

albumentations = pytest.importorskip("albumentations")

FLIPS = "transform: {__class_fullname__: Compose, transforms: [%s]}"
FLIP, TURN = (f"{{__class_fullname__: {name}, p: 0.5}}" for name in ("HorizontalFlip", "VerticalFlip"))
CROP = "{__class_fullname__: RandomCrop, height: 100, width: 100, p: 1.0}"


def write(folder, text, name="file.yaml"):
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def drawn(height=30, width=40):
    """Noise, and labels that its first channel tells."""
    pixels = np.random.default_rng(0).integers(10, 200, (height, width, 3)).astype(np.uint8)
    return Image.fromarray(pixels), pixels[:, :, 0] % 7


@pytest.mark.parametrize("name", ["file.yaml", "file.json"])
def test_what_albumentations_saves_moves_image_labels_boxes_and_masks_together(tmp_path, name):
    boxes = albumentations.BboxParams("coco", label_fields=["whatever"], min_visibility=0.2)
    steps = [albumentations.Transpose(p=1.0), albumentations.RandomCrop(24, 20, p=1.0)]
    path = str(tmp_path / name)
    albumentations.save(albumentations.Compose(steps, bbox_params=boxes), path, data_format=name.split(".")[1])
    image, labels = drawn()
    pixels, moved = AlbumentationsFile(path).augment_label_map(image, labels, np.random.default_rng(3))
    assert pixels.size == (20, 24) and np.array_equal(np.asarray(pixels)[:, :, 0] % 7, moved)

    file = pickle.loads(pickle.dumps(AlbumentationsFile(path, has_boxes=True)))
    corners = np.array([[2.0, 3, 12, 9], [30, 20, 40, 30], [10, 10, 30, 25]])
    masks = [np.zeros((30, 40), np.uint8) for _ in corners]
    for (left, top, right, low), mask in zip(corners.astype(int), masks):
        mask[top:low, left:right] = 1
    seen = collections.Counter()
    for seed in range(20):
        result = file.augment_objects(image, corners, masks, np.random.default_rng(seed))
        assert len(result.boxes) == len(result.objects) == len(result.masks)
        for box, index, mask in zip(result.boxes, result.objects.tolist(), result.masks):
            rows, columns = np.nonzero(mask)
            expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(box, expected, atol=1e-3)
            assert mask.sum() >= 0.2 * masks[index].sum()
            seen[index] += 1
    assert len(seen) == 3 and 0 < min(seen.values()) < 20
    assert file.augment_objects(image, np.zeros((0, 4)), None, np.random.default_rng(0)).boxes.shape == (0, 4)


def test_transforms_draw_independently_of_each_other_and_only_from_the_generator(tmp_path):
    file = AlbumentationsFile(write(tmp_path, FLIPS % f"{FLIP}, {TURN}"))
    image = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    results = [np.asarray(file.augment_image(image, np.random.default_rng(seed))).tobytes() for seed in range(200)]
    counts = collections.Counter(results)
    assert len(counts) == 4 and min(counts.values()) > 30, counts.values()
    again = AlbumentationsFile(file.path)
    np.random.seed(9)
    assert results[5] == np.asarray(again.augment_image(image, np.random.default_rng(5))).tobytes()


def test_a_file_of_an_older_version_means_the_same(tmp_path):
    text = "transform: {__class_fullname__: albumentations.HorizontalFlip, always_apply: true, p: 0.0}"
    image, _ = drawn()
    flipped = AlbumentationsFile(write(tmp_path, text)).augment_image(image, np.random.default_rng(0))
    np.testing.assert_array_equal(np.asarray(flipped), np.asarray(image)[:, ::-1], strict=True)


BOXES = "transform: {__class_fullname__: Compose, transforms: [%s], bbox_params: %s}"
ROTATION = "{__class_fullname__: Rotate, limit: [30, 30], fill_mask: 255, border_mode: %d, p: 1.0}"


def require_fitting(boxes, masks, count):
    assert len(boxes) == len(masks) == count
    for box, mask in zip(boxes, masks):
        rows, columns = np.nonzero(mask)
        assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert set(np.unique(mask)) <= {0, 1}


def test_masks_decide_the_boxes_of_turned_objects(tmp_path):
    rows, columns = np.mgrid[:100, :100] + 0.5
    disk = ((rows - 50) ** 2 + (columns - 50) ** 2 <= 400).astype(np.uint8)
    bar = ((abs(rows - columns) < 4) & (rows > 2) & (rows < 20)).astype(np.uint8)  # leaves the image; not its box
    stored = np.array([[30.0, 30, 70, 70], [0.5, 2.5, 24.5, 20.5]])
    image = Image.new("RGB", (100, 100))
    file = AlbumentationsFile(write(tmp_path, BOXES % (ROTATION % 0, "{}")), has_boxes=True)
    result = file.augment_objects(image, stored, [disk, bar], np.random.default_rng(0))
    require_fitting(result.boxes, result.masks, len(result.boxes))
    assert result.objects[0] == 0 and np.abs(result.boxes[0] - stored[0]).max() <= 1  # a turned disk keeps its box

    plain = AlbumentationsFile(write(tmp_path, BOXES % ("{__class_fullname__: ToGray, p: 1.0}", "{}")), True)
    kept = plain.augment_objects(image, stored, [disk, bar], np.random.default_rng(0))
    np.testing.assert_allclose(kept.boxes, stored, atol=1e-5)  # where nothing moves, boxes stay as annotated


def test_a_border_that_mirrors_the_image_shows_objects_several_times(tmp_path):
    mask = np.zeros((100, 100), np.uint8)
    mask[10:20, 5:15] = 1
    step = "{__class_fullname__: PadIfNeeded, min_height: 160, min_width: 160, border_mode: 2, p: 1.0}"
    file = AlbumentationsFile(write(tmp_path, BOXES % (step, "{}")), has_boxes=True)
    boxes = np.array([[5.0, 10, 15, 20]])
    result = file.augment_objects(Image.new("RGB", (100, 100)), boxes, [mask], np.random.default_rng(0))
    require_fitting(result.boxes, result.masks, 4)
    assert [mask.sum() for mask in result.masks] == [100] * 4


@pytest.mark.parametrize(
    "step, limits",
    [(FLIP, "{min_area: 10000000}"), (FLIP, "{min_width: 1, min_height: 9000}"), (CROP, "{min_height: 9000}")],
)
def test_a_file_that_removes_every_box_is_refused(tmp_path, step, limits):
    path = write(tmp_path, BOXES % (step, limits))
    with pytest.raises(UserError, match="removes every box .* bbox_params"):
        AlbumentationsFile(path, has_boxes=True)
    AlbumentationsFile(path)  # images without boxes have none to lose


@pytest.mark.parametrize("limits", ["{min_area: 400000}", "{min_visibility: 0.9, min_height: 7, min_width: 9}"])
def test_limits_for_larger_images_and_crops_for_smaller_ones_are_taken(tmp_path, limits):
    crop = "{__class_fullname__: RandomCrop, height: 28, width: 28, p: 1.0}"
    AlbumentationsFile(write(tmp_path, BOXES % (crop if "visibility" in limits else FLIP, limits)), has_boxes=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transform: {__class_fullname__: Normalize, p: 1.0}", "float32 (480, 640, 3): expected uint8"),
        ("transform: {__class_fullname__: Nothing, p: 1.0}", "cannot build it: KeyError: 'Nothing'"),
        ("transform: {__class_fullname__: HorizontalFlip, q: 1, p: 1.0}", "HorizontalFlip has no argument q"),
        ("transform: {__class_fullname__: HorizontalFlip}", "HorizontalFlip has no 'p'"),
        ("transform: {__class_fullname__: RandomCrop, height: 700, width: 9, p: 1.0}", "exceeds image dimensions"),
        ("transform: {__class_fullname__: Compose, transforms: 3}", "cannot build it"),
        ("a: 1", "expected a mapping with 'transform'"),
        (BOXES % (FLIP, "3"), "bbox_params is not a mapping"),
        ("[", "expected YAML or JSON"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, text, message):
    path = str(tmp_path / "none.yaml") if text is None else write(tmp_path, text)
    line = refusal_of(AlbumentationsFile, path)
    assert message in line and path in line


def test_an_image_that_is_too_small_for_the_file_is_a_bad_sample(tmp_path):
    crop = {"__class_fullname__": "RandomCrop", "height": 64, "width": 64, "p": 1.0}
    file = AlbumentationsFile(write(tmp_path, json.dumps({"transform": crop})))
    with pytest.raises(BadSample, match="cannot be applied: CropSizeError"):
        file.augment_image(drawn()[0], np.random.default_rng(0))


def test_albumentations_has_to_be_installed(tmp_path, monkeypatch):
    path = write(tmp_path, "transform: {__class_fullname__: HorizontalFlip, p: 1.0}")
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with pytest.raises(
        UserError, match=r"^DATA.ALBUMENTATIONS needs Albumentations: pip install '\.\[albumentations\]'"
    ):
        AlbumentationsFile(path)


def test_a_decoder_that_reads_only_crops_is_refused(tmp_path):
    with pytest.raises(UserError, match="DATA.DECODER exact"):
        load(["DATA.ALBUMENTATIONS", "file.yaml", "DATA.DECODER", "fast"])


def test_what_the_library_warns_of_in_its_own_files_is_taken(tmp_path):
    padded = albumentations.PadIfNeeded(64, 80, border_mode=0, p=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library advises against it
        turned = albumentations.ShiftScaleRotate(p=1.0)
    steps = [albumentations.OneOf([padded], p=1.0), turned, albumentations.SafeRotate(p=1.0), albumentations.RGBShift()]
    path = str(tmp_path / "file.yaml")
    albumentations.save(albumentations.Compose(steps), path, data_format="yaml")
    for has_boxes in (False, True):
        file = AlbumentationsFile(path, has_boxes)
    assert file.augment_objects(drawn()[0], np.zeros((0, 4)), None, np.random.default_rng(0)).image.size == (80, 64)


def test_holes_that_stay_in_the_masks_do_not_shrink_boxes(tmp_path):
    hole = "num_holes_range: [1, 1], hole_height_range: [0.9, 0.9], hole_width_range: [0.5, 0.5]"
    step = f"{{__class_fullname__: CoarseDropout, {hole}, p: 1.0}}"
    file = AlbumentationsFile(write(tmp_path, BOXES % (step, "{}")), has_boxes=True)
    mask = np.zeros((32, 64), np.uint8)  # whose shares are exact, so that one side shrinks without another
    mask[2:30, 8:56] = 1
    boxes, shrunk = np.array([[8.0, 2, 56, 30]]), np.zeros(4, bool)
    for seed in range(12):
        kept, plain = (
            file.augment_objects(Image.new("RGB", (64, 32)), boxes, masks, np.random.default_rng(seed)).boxes
            for masks in ([mask], None)
        )
        np.testing.assert_allclose(kept, boxes, atol=1e-4)
        shrunk |= abs(plain[0] - boxes[0]) > 1
    assert shrunk.tolist() == [True, False, False, False]


SHRINKING = {
    "Resize": "height: 64, width: 64",
    "LongestMaxSize": "max_size: 64",
    "RandomScale": "scale_limit: [-0.75, -0.75]",
    "Affine": "scale: [0.25, 0.25]",
    "RandomResizedCrop": "size: [64, 64], scale: [0.9, 1.0]",
}


@pytest.mark.parametrize("name", SHRINKING)
def test_shrinking_removes_no_thin_object(tmp_path, name):
    step = f"{{__class_fullname__: {name}, {SHRINKING[name]}, p: 1.0}}"
    file = AlbumentationsFile(write(tmp_path, BOXES % (step, "{}")), has_boxes=True)
    image = Image.new("RGB", (256, 256))
    for left in range(100, 108):
        upright, level = np.zeros((2, 256, 256), np.uint8)
        upright[40:220, left : left + 1] = level[left : left + 1, 40:200] = 1
        boxes = np.array([[left, 40, left + 1, 220], [40, left, 200, left + 1]], float)
        generator = np.random.default_rng(left)
        result = file.augment_objects(image, boxes, [upright, level], generator)
        assert result.objects.tolist() == [0, 1]
        require_fitting(result.boxes, result.masks, 2)
        plain = file.augment_objects(image, boxes, None, again := np.random.default_rng(left))
        assert np.abs(result.boxes - plain.boxes).max() <= 1.5  # as the boxes move, whose transform knows no pixels
        assert generator.random() == again.random()  # following the pixels draws nothing


def test_a_cut_removes_a_thin_object_whose_box_is_visible(tmp_path):
    steps = "{__class_fullname__: Crop, x_min: 128, y_min: 0, x_max: 256, y_max: 128, p: 1.0}, "
    steps += "{__class_fullname__: Resize, height: 32, width: 32, p: 1.0}"
    file = AlbumentationsFile(write(tmp_path, BOXES % (steps, "{}")), has_boxes=True)
    corner, line = np.zeros((2, 256, 256), np.uint8)
    corner[20:201, 101] = corner[200, 101:221] = line[30, 141:200] = 1  # an L around what is visible; a line in it
    boxes = np.array([[101.0, 20, 221, 201], [141, 30, 200, 31]])
    result = file.augment_objects(Image.new("RGB", (256, 256)), boxes, [corner, line], np.random.default_rng(0))
    assert result.objects.tolist() == [1] and np.flatnonzero(result.masks[0].any(axis=1)).tolist() == [7]
    alone = file.augment_objects(Image.new("RGB", (256, 256)), boxes[:1], [corner], np.random.default_rng(0))
    assert alone.objects.tolist() == [] and alone.masks == []


@pytest.mark.parametrize("seed", range(5))
def test_the_box_of_a_turned_and_shrunk_line_does_not_depend_on_the_pixels_that_are_skipped(tmp_path, seed):
    steps = "{__class_fullname__: Rotate, limit: [20, 40], p: 1.0}, "
    steps += "{__class_fullname__: Resize, height: 32, width: 32, p: 1.0}"
    file = AlbumentationsFile(write(tmp_path, BOXES % (steps, "{}")), has_boxes=True)
    mask = np.zeros((800, 800), np.uint8)
    mask[200:600, 401] = 1
    boxes, image = np.array([[401.0, 200, 402, 600]]), Image.new("RGB", (800, 800))
    exact = file.augment_objects(image, boxes, None, np.random.default_rng(seed)).boxes
    result = file.augment_objects(image, boxes, [mask], np.random.default_rng(seed))
    assert np.abs(result.boxes - exact).max() <= 1
