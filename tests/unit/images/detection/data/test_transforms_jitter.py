"""Images at random scales in a square, with their boxes and masks."""

import numpy as np
from PIL import Image

from paddlevit_dist.images.detection.data.transforms import jitter_scale, whole_view

RED = (255, 0, 0)


def _make_view():
    """A white image of 40 x 60 with a red object in its lower right quarter."""
    pixels = np.full((40, 60, 3), 255, np.uint8)
    pixels[24:36, 36:54] = RED
    mask = np.zeros((40, 60), np.uint8)
    mask[24:36, 36:54] = 1
    return whole_view(Image.fromarray(pixels), np.array([[36.0, 24.0, 18.0, 12.0]]), np.array([0])), mask


def test_parts_of_scaled_images_keep_their_object_and_are_black_outside():
    view, mask = _make_view()
    sides, is_padded = [], []
    for seed in range(40):
        seen, masks = jitter_scale(view, 48, (0.3, 2.0), np.random.default_rng(seed)).fit_to_masks([mask])
        pixels = np.asarray(seen.image)
        assert seen.size == pixels.shape[:2] == (48, 48) and len(seen.objects) == 1
        is_red = (pixels[..., 0] > 128) & (pixels[..., 1] < 128)
        assert (is_red != masks[0].astype(bool)).mean() < 0.04  # but for the border, which is resampled
        rows, columns = np.nonzero(masks[0])
        ends = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert np.abs(seen.boxes[0] - ends).max() <= 1.01
        sides.append(rows.max() - rows.min())
        is_padded.append((pixels[-1] == 0).all())
    assert max(sides) > 2 * min(sides) and 0 < sum(is_padded) < 40
