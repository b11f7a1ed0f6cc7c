"""The whole recipe of a training image, SSD's transforms too, against plain steps on one image and lists of boxes."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from paddlevit_dist.images.detection.data.transforms import DetectionTrainingTransform, whole_view

SPREADS = {"Brightness": 0.125, "Color": 0.5, "Hue": 0.05, "Contrast": 0.5}


def distort(image, random):
    steps = ["Brightness", "Color", "Hue"]
    steps.insert(int(random.choice([1, 3])), "Contrast")
    for name in steps:
        if random.random() < 0.5:
            value = random.uniform(-SPREADS[name], SPREADS[name])
            if name == "Hue":
                pixels = np.array(image.convert("HSV"))
                pixels[:, :, 0] += np.uint8(round(256 * value) % 256)  # around the circle
                image = Image.fromarray(pixels, "HSV").convert("RGB")
            else:
                image = getattr(ImageEnhance, name)(image).enhance(1 + value)
    if random.random() < 0.5:
        image = Image.fromarray(np.asarray(image)[:, :, random.permutation(3)])
    return image


def zoom_out(image, boxes, random):
    larger, (width, height) = random.uniform(1, 4), image.size
    canvas = Image.new("RGB", (int(width * larger), int(height * larger)))
    top = random.integers(0, canvas.height - height, endpoint=True)
    left = random.integers(0, canvas.width - width, endpoint=True)
    canvas.paste(image, (int(left), int(top)))
    return canvas, {k: (x0 + left, y0 + top, x1 + left, y1 + top) for k, (x0, y0, x1, y1) in boxes.items()}


def cut(image, boxes, top, left, height, width):
    kept = {}
    for number, (x0, y0, x1, y1) in boxes.items():
        box = max(x0 - left, 0), max(y0 - top, 0), min(x1 - left, width), min(y1 - top, height)
        if box[0] < box[2] and box[1] < box[3]:
            kept[number] = box
    return image.crop((left, top, left + width, top + height)), kept


def overlap(box, top, left, height, width):
    across = max(0, min(box[2], left + width) - max(box[0], left))
    down = max(0, min(box[3], top + height) - max(box[1], top))
    area = (box[2] - box[0]) * (box[3] - box[1])
    return across * down / (area + height * width - across * down)


def draw_place(image, height, width, random):
    return [int(random.integers(0, room, endpoint=True)) for room in (image.height - height, image.width - width)]


def cut_by_overlap(image, boxes, random):
    while boxes:
        least = (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)[int(random.integers(7))]
        for _ in range(40 if least < 1 else 0):
            height, width = (int(side * random.uniform(0.3, 1)) for side in (image.height, image.width))
            top, left = draw_place(image, height, width, random)
            inside = {
                number: box
                for number, box in boxes.items()
                if left < (box[0] + box[2]) / 2 < left + width and top < (box[1] + box[3]) / 2 < top + height
            }
            shares = [overlap(box, top, left, height, width) for box in inside.values()]
            if 0.5 <= width / height <= 2 and shares and max(shares) >= least:
                return cut(image, inside, top, left, height, width)
        if least == 1:
            break
    return image, boxes


def scale(image, boxes, side, longest):
    """The shorter side becomes ``side``, or what the limit of the longer one leaves; the other one is cut off."""
    low, high = sorted(image.size)
    side = min(side, round(longest * low / high)) if high / low * side > longest else side
    sides = {low: side, high: int(side * high / low)}
    size = (sides[image.width], sides[image.height]) if low < high else (side, side)
    ratio = size[0] / image.width, size[1] / image.height
    boxes = {number: [value * ratio[k % 2] for k, value in enumerate(box)] for number, box in boxes.items()}
    return image.resize(size, Image.Resampling.BILINEAR), boxes


def train(image, boxes, random):
    image = distort(image, random)
    if random.random() < 0.5:
        image, boxes = zoom_out(image, boxes, random)
    if random.random() < 0.8:
        image, boxes = cut_by_overlap(image, boxes, random)
    if random.random() < 0.25:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        boxes = {k: (image.width - x1, y0, image.width - x0, y1) for k, (x0, y0, x1, y1) in boxes.items()}
    if random.random() < 0.75:
        image, boxes = scale(image, boxes, (31, 37, 44)[int(random.integers(3))], 10_000)
        width, height = (int(random.integers(min(17, n), min(29, n), endpoint=True)) for n in image.size)
        top, left = draw_place(image, height, width, random)
        image, boxes = cut(image, boxes, top, left, height, width)
    return scale(image, boxes, (24, 40)[int(random.integers(2))], 55)


@pytest.mark.parametrize("seed", range(16))
def test_the_recipe_is_its_steps_one_after_the_other(seed):
    transform = DetectionTrainingTransform((24, 40), 55, 0.25, 0.75, (31, 37, 44), (17, 29), ssd=True)
    drawn = np.random.default_rng(100 + seed)
    size = (36, 51) if seed % 2 else (63, 28)
    image = Image.fromarray(drawn.integers(0, 256, (*size, 3)).astype(np.uint8))
    corners = drawn.uniform(0, 0.7, (5, 2)) * size[::-1]
    boxes = np.concatenate([corners, drawn.uniform(0.1, 0.3, (5, 2)) * size[::-1]], axis=1)
    found = transform(whole_view(image, boxes, np.arange(5)), np.random.default_rng(seed))
    ends = np.concatenate([corners, corners + boxes[:, 2:]], axis=1).tolist()
    picture, expected = train(image, dict(enumerate(ends)), np.random.default_rng(seed))
    assert found.image.size == picture.size and found.objects.tolist() == list(expected)
    np.testing.assert_array_equal(np.asarray(found.image), np.asarray(picture))
    np.testing.assert_allclose(found.boxes, np.reshape([*expected.values()], (-1, 4)), rtol=1e-9, atol=1e-9)
