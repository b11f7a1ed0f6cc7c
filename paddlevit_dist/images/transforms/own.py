"""Users' own transforms of pictures with label maps."""

from collections.abc import Mapping

import numpy as np
from PIL import Image

from ...contracts.sample_checks import BadSample
from ...registry import resolve


def with_own(
    name: str, picture: Image.Image, labels: np.ndarray, generator: np.random.Generator
) -> tuple[Image.Image, np.ndarray]:
    """Picture and labels after a user's transform: an object of albumentations, or one that can be seeded as those are
    (``set_random_seed``), or a function that takes the generator as well.

    Raises:
        BadSample: it returns something else than a picture and labels of its size.
    """
    transform, given = resolve("transform", name), {"image": np.array(picture), "mask": labels}
    if hasattr(transform, "set_random_seed"):
        transform.set_random_seed(int(generator.integers(2**31)))
        made = transform(**given)
    else:
        made = transform(**given, generator=generator)
    if not isinstance(made, Mapping) or not {"image", "mask"} <= set(made):
        raise BadSample(f"transform {name} returns {type(made).__name__}: expected a dictionary with image and mask")
    pixels, labels = (np.asarray(made[part]) for part in ("image", "mask"))
    kinds = (pixels.dtype, pixels.ndim, pixels.shape[2:], labels.dtype, pixels.shape[:2])
    if kinds != (np.uint8, 3, (3,), np.uint8, labels.shape) or not labels.size:
        raise BadSample(
            f"transform {name} returns an image {pixels.dtype} {pixels.shape} and a mask {labels.dtype} "
            f"{labels.shape}: expected uint8 (height, width, 3) and uint8 (height, width)"
        )
    return Image.fromarray(pixels), labels
