"""The class of each pixel of an image: views, sizes and windows, against formulas in numpy."""

import cv2
import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from paddlevit_dist.images.segmentation import protocols
from paddlevit_dist.images.segmentation.protocols import EvaluationProtocol, class_map

CLASSES = 5
KERNEL = np.random.default_rng(0).standard_normal((CLASSES, 3, 5, 5)).astype(np.float32)


def network(pixels):
    """A convolution that is not symmetric, at a quarter of the resolution, as SegFormer's."""
    return F.conv2d(pixels.astype("float32") / 255 - 0.5, paddle.to_tensor(KERNEL), stride=4, padding=2)


def drawn_image(height, width, seed=1):
    pixels = np.random.default_rng(seed).integers(0, 256, (1, 3, height, width), dtype=np.uint8)
    return paddle.to_tensor(cv2.blur(pixels[0].transpose(1, 2, 0), (3, 3)).transpose(2, 0, 1)[None].copy())


def as_numpy(logits):
    return network(logits).numpy()[0].transpose(1, 2, 0)


def resized(maps, size):
    """OpenCV's bilinear interpolation of (height, width, channels), between centers of pixels."""
    return cv2.resize(maps, size[::-1], interpolation=cv2.INTER_LINEAR)


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("size", "stored"), [((40, 56), (40, 56)), ((40, 56), (61, 83)), ((41, 30), (20, 17))])
def test_logits_go_by_the_input_s_size_or_straight_to_the_stored_one(size, stored):
    image, found = drawn_image(*size), {}
    for is_direct in (False, True):
        steps = [stored] if is_direct else [size, stored]
        logits = as_numpy(image)
        for step in steps:
            logits = resized(logits, step)
        found[is_direct] = class_map(network, image, stored, EvaluationProtocol(is_direct=is_direct)).numpy()
        assert found[is_direct].shape == stored and found[is_direct].dtype == np.uint8
        best = np.sort(logits, axis=-1)
        is_sure = best[..., -1] - best[..., -2] > 1e-4
        assert is_sure.mean() > 0.99 and np.array_equal(found[is_direct][is_sure], logits.argmax(axis=-1)[is_sure])
    assert np.array_equal(found[True], found[False]) == (size == stored)


@pytest.mark.parametrize(
    ("crop", "flips", "stored", "described"),
    [
        (None, True, (50, 70), "whole images; mean of scales 0.5, 1, 1.3; also mirrored; logits"),
        ((64, 88), False, (48, 64), "windows of 64x88, stride 1x1; mean of scales 0.5, 1, 1.3; logits"),
    ],
)
def test_several_scales_and_the_mirror_image_are_joined_as_the_mean_of_their_softmax(crop, flips, stored, described):
    image = drawn_image(48, 64)
    protocol = EvaluationProtocol(crop, scales=(0.5, 1.0, 1.3), flips=flips, divisor=8)
    pixels, total = image.numpy()[0].transpose(1, 2, 0).astype(np.float32), 0
    for size in [(24, 32), (48, 64), (64, 88)]:  # 62.4 x 83.2 rounds to 62 x 83, and up to multiples of 8
        seen = resized(pixels, size)
        for turn in (slice(None), slice(None, None, -1))[: 1 + flips]:
            logits = as_numpy(paddle.to_tensor(seen[:, turn].transpose(2, 0, 1)[None].copy()))
            total = total + softmax(resized(resized(logits, size), stored)[:, turn])
    best = np.sort(total, axis=-1)
    is_sure = best[..., -1] - best[..., -2] > 1e-4
    found = class_map(network, image, stored, protocol).numpy()
    assert is_sure.mean() > 0.99 and np.array_equal(found[is_sure], total.argmax(axis=-1)[is_sure])
    assert str(protocol).startswith(described)


def test_a_class_map_is_the_same_however_few_classes_are_large_at_once(monkeypatch):
    image = drawn_image(40, 56)
    expected = class_map(network, image, (90, 70), EvaluationProtocol()).numpy()
    for classes in (1, 2, 4):
        monkeypatch.setattr(protocols, "_LARGEST_BYTES", classes * 4 * 90 * 70)
        np.testing.assert_array_equal(
            class_map(network, image, (90, 70), EvaluationProtocol()).numpy(), expected, strict=True
        )


def test_windows_of_an_image_of_any_height_keep_the_logits_of_one_row_of_windows(monkeypatch):
    image, kept, seen = drawn_image(400, 48), [], []
    most_likely = protocols.most_likely
    monkeypatch.setattr(
        protocols, "most_likely", lambda views, *rest: kept.append(views[0][0].shape) or most_likely(views, *rest)
    )

    def counting(pixels):
        seen.append(len(kept))
        return network(pixels)

    sliding = EvaluationProtocol((32, 28), (24, 16))
    streamed = class_map(counting, image, (400, 48), sliding).numpy()
    assert max(shape[2] for shape in kept) <= 32 and sum(shape[2] for shape in kept) == 400
    assert seen == sorted(seen) and len(set(seen)) == len(kept)  # each band is made before the next windows are seen
    whole = protocols._resize(*next(protocols._views(network, image, sliding)), (400, 48), False)
    assert np.array_equal(streamed, whole.argmax(axis=1)[0].numpy())


def test_what_is_not_finite_is_no_class():
    image = drawn_image(16, 16)
    broken = class_map(lambda pixels: network(pixels) * float("nan"), image, (20, 20), EvaluationProtocol())
    assert (broken.numpy() == 255).all()
    one = class_map(
        lambda pixels: network(pixels) + paddle.to_tensor(np.inf, "float32"), image, (16, 16), EvaluationProtocol()
    )
    assert (one.numpy() == 255).all()


def test_windows_are_averaged_in_rows_of_more_than_are_predicted_at_once():
    """Against a slow sum, of a network whose logits depend on the place in the window."""
    crop, stride, (height, width) = (6, 8), (4, 3), (11, 21)
    mask = np.random.default_rng(0).normal(size=(1, 3, *crop)).astype(np.float32)
    image = np.random.default_rng(1).normal(size=(1, 3, height, width)).astype(np.float32)
    bands = protocols.slide_windows(lambda x: x * paddle.to_tensor(mask), paddle.to_tensor(image), crop, stride)
    found = np.concatenate([band.numpy() for band in bands], axis=2)
    total, counts = np.zeros(image.shape), np.zeros((height, width))
    for top in (0, 4, 5):
        for left in (0, 3, 6, 9, 12, 13):
            rows, columns = slice(top, top + 6), slice(left, left + 8)
            total[:, :, rows, columns] += image[:, :, rows, columns] * mask
            counts[rows, columns] += 1
    np.testing.assert_allclose(found, total / counts, rtol=1e-4, atol=1e-5)
