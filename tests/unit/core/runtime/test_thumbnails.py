"""Images in pages: small ones exact, larger ones reduced."""

import io

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.core.runtime.thumbnails import encode


def noise(*shape):
    return np.random.default_rng(3).integers(0, 256, shape, "uint8")


@pytest.mark.parametrize("shape", [(64, 20, 3), (20, 64), (30, 41, 1)])
def test_a_small_image_is_stored_without_loss(shape):
    pixels = noise(*shape)
    suffix, content, size = encode(pixels, 100)
    assert (suffix, size) == ("png", (shape[1], shape[0]))
    assert np.array_equal(
        np.asarray(Image.open(io.BytesIO(content))),
        pixels.reshape(pixels.shape[:2] + (3,) * (pixels.shape[2:] == (3,))),
    )


@pytest.mark.parametrize("shape, size", [((65, 20, 3), (20, 65)), ((300, 150), (50, 100)), ((80, 400, 3), (100, 20))])
def test_a_larger_image_is_reduced_to_the_largest_side(shape, size):
    pixels = np.full(shape, 200, "uint8")
    suffix, content, found = encode(pixels, 100)
    stored = Image.open(io.BytesIO(content))
    assert (suffix, found, stored.size, stored.format) == ("jpg", size, size, "JPEG")
    assert np.abs(np.asarray(stored).astype(int) - 200).max() <= 2
    assert stored.quantization == Image.open(jpeg_of_quality(85, stored.mode)).quantization


@pytest.mark.parametrize("side, options", [(64, {"format": "PNG"}), (200, {"format": "JPEG", "quality": 85})])
def test_a_file_is_as_small_as_it_can_be(side, options):
    pixels = np.tile(np.arange(side, dtype="uint8")[:, None, None], (1, side, 3))
    expected = io.BytesIO()
    Image.fromarray(pixels).save(expected, **options, optimize=True)
    assert encode(pixels, 300)[1] == expected.getvalue()


def jpeg_of_quality(quality, mode):
    file = io.BytesIO()
    Image.new(mode, (8, 8)).save(file, "JPEG", quality=quality)
    return file


@pytest.mark.parametrize("pixels", [noise(4, 4, 3) / 255, noise(4), noise(4, 4, 2), noise(4, 4, 4), noise(2, 4, 4, 3)])
def test_what_is_no_image_is_refused(pixels):
    with pytest.raises(ValueError, match=r"^expected an image uint8 \(height, width\[, 3\]\), got "):
        encode(pixels, 100)
