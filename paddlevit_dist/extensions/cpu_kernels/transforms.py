"""Training transform of photographs with resize and augmentations in compiled loops, equal to Pillow's.

Pillow 13 changed the order of a resize's passes. If no known order gives its results, Pillow resizes.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from PIL import Image

from ...images.data.reading import crop_image
from ...images.image_size import ImageSize, as_pair
from ...images.transforms.crops import Box, TrainingTransform, as_mode
from ...images.transforms.policies import JITTERED, AutoAugment, ColorJitter, RandAugment, TransformChain
from .operations import ImagePlanes, has_equal_operation, trial_image

_TALL = 100  # height / width: some versions of Pillow scale taller crops in another order


class CompiledTrainingTransform(TrainingTransform):
    """``TrainingTransform`` in compiled loops, where they give the results of the installed Pillow."""

    def cut(self, image: Image.Image | np.ndarray, box: Box) -> Any:
        """Crop and resize an image; return planes if a loop resizes, else an image."""
        if not can_resize(box):
            return super().cut(image, box)
        if not isinstance(image, np.ndarray) or image.shape[2] > self.channels:
            whole = image if isinstance(image, Image.Image) else Image.fromarray(image)
            image = np.atleast_3d(np.array(crop_image(as_mode(whole, self.channels), box)))  # a writable copy
            box = (0, 0, *image.shape[1::-1])
        return resize_box(image, box, self.image_size)

    def augmented(self, image: Image.Image | np.ndarray, generator: np.random.Generator) -> Any:
        """Augment an image or planes; return planes."""
        planes = image if isinstance(image, np.ndarray) else ImagePlanes.from_image(image).pixels
        if len(planes) != self.channels:
            planes = np.repeat(planes, self.channels, axis=0)
        image = ImagePlanes(planes)
        if self.augment is not None:
            image = cast(ImagePlanes, self.augment(image, generator))  # each operation returns planes
        return image.pixels

    def prepare(self) -> None:
        """Compile or load the loops and compare them with Pillow, once for all processes forked from this one."""
        find_pass_order()
        for name in _list_operations(self.augment):
            has_equal_operation(name)


def _list_operations(augment: object) -> set[str]:
    match augment:
        case TransformChain():
            return set().union(*map(_list_operations, augment.steps))
        case RandAugment():
            return set(augment.names)
        case AutoAugment():
            return {step.name for row in augment.policy for step in row}
        case ColorJitter():
            return set(JITTERED)
    return set()


def can_resize(box: Box) -> bool:
    """Return whether ``resize_box`` gives the installed Pillow's result for this crop."""
    left, top, right, bottom = box
    return find_pass_order() is not None and bottom - top <= _TALL * (right - left)


def resize_box(pixels: np.ndarray, box: Box, size: ImageSize) -> np.ndarray:
    """Scale ``box``, left, top, right and bottom, bicubically: uint8 (channels, rows, columns), C-contiguous.

    ``pixels``: uint8 (rows, columns, channels), C-contiguous; numba compiles a second version for read-only arrays.
    """
    (left, top, right, bottom), sides = box, as_pair(size)
    width, height = right - left, bottom - top
    order = find_pass_order()
    columns_first = order is not None and order(width, height, sides)
    return np.ascontiguousarray(_resize_crop(pixels, (left, top, width, height), sides, columns_first))


def _resize_crop(*arguments: Any) -> np.ndarray:
    from .resize_kernels import resize_crop  # loads numba

    return resize_crop(*arguments)


def _columns_first_by_size(width: int, height: int, size: tuple[int, int]) -> bool:
    """Return whether columns are scaled first: if the height shrinks by more than twice as many pixels as the width."""
    rows, columns = size
    return height - rows > max(0, 2 * (width - columns))


_TRIAL_BOXES = (
    (0, 0, 90, 70),
    (3, 1, 20, 90),
    (5, 2, 45, 91),
    (0, 0, 8, 9),
    (1, 0, 33, 32),
    (0, 5, 88, 9),
    (2, 0, 34, 70),
)
_TRIAL_SIZES = ((32, 32), (24, 40), (40, 16))  # rows, columns


@functools.cache
def find_pass_order() -> Callable[[int, int, tuple[int, int]], bool] | None:
    """Find the rule by which the installed Pillow scales columns first; None if no known rule fits its results."""
    image = trial_image()
    for order in (_columns_first_by_size, lambda width, height, size: False):
        if all(_resizes_equally(view, box, order) for box in _TRIAL_BOXES for view in (image, image.getchannel(1))):
            return order
    return None


def _resizes_equally(image: Image.Image, box: Box, order: Callable[[int, int, tuple[int, int]], bool]) -> bool:
    crop = crop_image(image, box)
    pixels = np.array(crop).reshape(crop.height, crop.width, -1)
    for rows, columns in _TRIAL_SIZES:
        ours = _resize_crop(pixels, (0, 0, *crop.size), (rows, columns), order(*crop.size, (rows, columns)))
        theirs = ImagePlanes.from_image(crop.resize((columns, rows), Image.Resampling.BICUBIC)).pixels
        if not np.array_equal(ours, theirs):
            return False
    return True
