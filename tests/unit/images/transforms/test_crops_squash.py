"""Images as an evaluation makes them."""

import numpy as np
from PIL import Image

from paddlevit_dist.images.transforms.crops import EvaluationTransform


def test_squash_resizes_to_a_square_and_crops_its_center():
    noise = np.random.default_rng(0).integers(0, 256, (40, 100, 3)).astype(np.uint8)
    found = EvaluationTransform(28, 0.875, crop_mode="squash")(Image.fromarray(noise), np.random.default_rng(0))
    expected = Image.fromarray(noise).resize((32, 32), Image.Resampling.BICUBIC).crop((2, 2, 30, 30))
    np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1))
