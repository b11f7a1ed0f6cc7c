"""Training images composed of several stored images: mosaics and pasted objects, then a user's augmentation.

Mosaic (A. Bochkovskiy et al., "YOLOv4: Optimal Speed and Accuracy of Object Detection", 2020, section 3.4): four
images around a point of a square. The range of that point is that of the authors' code (min_offset 0.2), and the range
of scales and the smallest visible objects are YOLOv5's.

Copy-paste (G. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation", CVPR
2021): a random subset of another image's objects, without blending; covered objects lose these pixels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from ....core.runtime.errors import UserError
from ...transforms.albumentations_file import AlbumentationsFile
from ...transforms.visible_objects import box_of_mask
from ..settings import DetectionDataSection
from .object_points import ObjectPoints, join_points
from .transforms import DetectionView, crop, flip, is_plain, resize, whole_view

_POINT = (0.2, 0.8)  # range of the point where four images meet, relative to the side
_SCALES = (0.5, 1.5)  # range of an image's longer side, relative to the mosaic's side
_GRAY = (114, 114, 114)  # where no image is
_VISIBLE_SHARE = 0.1  # of an object's box in a mosaic, or of its mask below pasted objects
_VISIBLE_PIXELS = 2  # of the stored image, of each side of it that is cut
_PASTED_SCALES = (0.5, 1.0)  # range of a pasted image's size, relative to the largest that fits


class ImageObjects(NamedTuple):
    """An image with its n learnable objects."""

    image: Image.Image  # Pillow image in mode "RGB"
    boxes: np.ndarray  # float64 (n, 4), x0, y0, x1, y1 in its pixels
    labels: np.ndarray  # int64 (n,)
    masks: list[np.ndarray] | None  # n masks, uint8 (height, width); None: they are not needed
    points: ObjectPoints | None = None  # keypoints; None: the objects have none

    @property
    def areas(self) -> np.ndarray:
        """Square pixels of each object with keypoints, float64 (n,): as much of its box as in the annotations."""
        if self.points is None:
            raise ValueError("objects without keypoints have no areas")
        return (self.boxes[:, 2:] - self.boxes[:, :2]).prod(axis=1) * self.points.fills

    def view(self) -> DetectionView:
        """Return the whole image with the objects that are visible."""
        boxes = np.concatenate([self.boxes[:, :2], self.boxes[:, 2:] - self.boxes[:, :2]], axis=1)
        return whole_view(self.image, boxes, np.arange(len(boxes)), self.points)

    def seen(self, view: DetectionView) -> "ImageObjects":
        """Return image, boxes, labels, masks and points of a view of this image; masks decide what is visible."""
        masks = None
        if self.masks is not None:
            view, masks = view.fit_to_masks(self.masks[index] for index in view.objects)
        return ImageObjects(view.image, view.boxes, self.labels[view.objects], masks, view.points)

    def only(self, chosen: np.ndarray) -> "ImageObjects":
        """Return the image with the chosen objects, bool (n,)."""
        masks = None if self.masks is None else [mask for mask, is_chosen in zip(self.masks, chosen) if is_chosen]
        points = None if self.points is None else self.points.only(chosen)
        return ImageObjects(self.image, self.boxes[chosen], self.labels[chosen], masks, points)


@dataclass(frozen=True)
class ImageComposition:
    """Composes a training image; every random number is from the sample's generator."""

    mosaic: float  # probability of a mosaic
    copy_paste: float  # probability that objects of another image are pasted
    side: int  # height and width of a mosaic
    plain_epochs: int  # number of last epochs without both
    augmentation: AlbumentationsFile | None = None  # a user's augmentation, applied last in every epoch
    can_mirror: bool = True  # whether pasted objects may be mirrored

    @property
    def uses_masks(self) -> bool:
        """Whether it reads the masks that the data have, also for a network that learns boxes only."""
        return bool(self.copy_paste) or self.augmentation is not None

    def compose(
        self, read: Callable[[int], ImageObjects], index: int, number: int, generator: np.random.Generator
    ) -> ImageObjects:
        """Compose a training image from image ``index`` and others that are drawn from all ``number`` images."""
        image = read(index)
        if not is_plain(getattr(generator, "epochs_left", None), self.plain_epochs):
            if generator.random() < self.mosaic:
                others = [read(int(other)) for other in generator.integers(number, size=3)]
                image = join_images([image, *others], self.side, generator)
            if generator.random() < self.copy_paste:
                image = paste_objects(image, read(int(generator.integers(number))), generator, self.can_mirror)
        if self.augmentation is None:
            return image
        image = image.seen(image.view())  # without boxes outside
        keypoints = None if image.points is None else image.points.encode()
        result = self.augmentation.augment_objects(image.image, image.boxes, image.masks, generator, keypoints)
        points = None
        if image.points is not None and result.keypoints is not None:
            points = image.points.follow(result.keypoints, result.objects, result.boxes)
            points = points.hide_outside(result.image.height, result.image.width)
        return ImageObjects(result.image, result.boxes, image.labels[result.objects], result.masks, points)


def build_composition(data: DetectionDataSection, has_masks: bool, can_mirror: bool = True) -> ImageComposition | None:
    """Return the composition that keys below DATA describe, or None; raise UserError if masks to paste are missing."""
    if data.COPY_PASTE and not has_masks:
        raise UserError(
            f"DATA.COPY_PASTE {data.COPY_PASTE:g}: the training data have boxes but no masks, so that no object can be "
            "cut out: remove DATA.COPY_PASTE, or use data with masks"
        )
    if not (data.MOSAIC or data.COPY_PASTE or data.ALBUMENTATIONS):
        return None
    augmentation = None if data.ALBUMENTATIONS is None else AlbumentationsFile(data.ALBUMENTATIONS, has_boxes=True)
    side = max(data.SHORTEST_SIDES)
    return ImageComposition(data.MOSAIC, data.COPY_PASTE, side, data.NO_AUGMENT_EPOCHS, augmentation, can_mirror)


def join_images(images: Sequence[ImageObjects], side: int, generator: np.random.Generator) -> ImageObjects:
    """Join four images around a random point of a square of ``side`` pixels.

    The longer side of each image becomes 0.5 to 1.5 times ``side``. Objects are kept if a tenth of their box, more than
    two stored pixels of each side that is cut and, with masks, a pixel of theirs are visible.
    """
    column, row = (int(side * value) for value in generator.uniform(*_POINT, size=2))
    canvas = Image.new("RGB", (side, side), _GRAY)
    parts = []
    for position, stored in enumerate(images):
        is_right, is_low = position % 2 == 1, position >= 2
        scale = side * generator.uniform(*_SCALES) / max(stored.image.size)
        width, height = (max(round(length * scale), 1) for length in stored.image.size)
        view = resize(stored.view(), (height, width))
        shares = np.zeros((len(stored.boxes), 2))  # of each side that is visible
        shares[view.objects] = 1 / _sides(view.boxes)
        room = (side - row if is_low else row), (side - column if is_right else column)
        size = min(height, room[0]), min(width, room[1])
        corner = (0 if is_low else height - size[0]), (0 if is_right else width - size[1])
        view = crop(view, *corner, size)
        visible = np.zeros_like(shares)
        visible[view.objects] = _sides(view.boxes)
        shares *= visible
        view = view.only(shares[view.objects].prod(axis=1) > _VISIBLE_SHARE)
        part = stored._replace(labels=np.arange(len(shares))).seen(view)
        # The box of a mask has whole pixels, which may be several stored ones.
        sides = np.minimum(visible[part.labels], _sides(part.boxes))
        is_sliver = (shares[part.labels] < 1 - 1e-6) & (sides <= _VISIBLE_PIXELS * scale)
        part = part._replace(labels=stored.labels[part.labels]).only(~is_sliver.any(axis=1))
        top, left = (row if is_low else row - size[0]), (column if is_right else column - size[1])
        canvas.paste(view.image, (left, top))
        parts.append(_move(part, top, left, (side, side)))
    masks = None if images[0].masks is None else [mask for piece in parts for mask in piece.masks or ()]
    boxes, labels = (np.concatenate(arrays) for arrays in ([p.boxes for p in parts], [p.labels for p in parts]))
    return ImageObjects(canvas, boxes, labels, masks, join_points([piece.points for piece in parts]))


def paste_objects(
    image: ImageObjects, other: ImageObjects, generator: np.random.Generator, can_mirror: bool = True
) -> ImageObjects:
    """Paste a random subset of another image's objects, mirrored in half of the cases, at a random position.

    Both images have masks. Objects that are covered in part get the box of the visible pixels. If only a tenth or less
    is visible, they are removed.
    """
    scale = min(own / length for own, length in zip(image.image.size, other.image.size))
    scale *= generator.uniform(*_PASTED_SCALES)
    size = tuple(max(int(length * scale), 1) for length in reversed(other.image.size))  # height, width
    view = resize(other.view(), (size[0], size[1]))
    if generator.random() < 0.5 and can_mirror:
        view = flip(view)
    whole = image.image.size[::-1]
    top, left = (int(generator.integers(0, total - length, endpoint=True)) for total, length in zip(whole, size))
    is_chosen = generator.random(len(view.objects)) < 0.5
    pasted = _move(other.seen(view.only(is_chosen)), top, left, (whole[0], whole[1]))
    pasted = pasted.only(np.array([area.any() for area in pasted.masks or ()], bool))
    if not pasted.masks or image.masks is None:
        return image
    covered = np.maximum.reduce(pasted.masks)
    pixels = image.image.copy()
    part = Image.fromarray(255 * covered[top : top + size[0], left : left + size[1]])
    pixels.paste(view.image, (left, top), part)
    boxes, masks = image.boxes.copy(), [area * (1 - covered) for area in image.masks]
    is_visible = np.ones(len(masks), bool)
    for index, (before, mask) in enumerate(zip(image.masks, masks)):
        if not (before & covered).any():
            continue  # also an object with an empty mask
        is_visible[index] = mask.sum() > _VISIBLE_SHARE * before.sum()
        if is_visible[index]:
            boxes[index] = box_of_mask(mask)
    points = None if image.points is None else image.points.cover(covered)
    rest = image._replace(boxes=boxes, masks=masks, points=points).only(is_visible)
    boxes, labels = np.concatenate([rest.boxes, pasted.boxes]), np.concatenate([rest.labels, pasted.labels])
    points = join_points([rest.points, pasted.points])
    return ImageObjects(pixels, boxes, labels, [*(rest.masks or ()), *pasted.masks], points)


def _move(part: ImageObjects, top: int, left: int, size: tuple[int, int]) -> ImageObjects:
    """Return the objects of a part at its place in an image of ``size``; its image is unchanged."""
    masks = None
    if part.masks is not None:
        masks = [np.zeros(size, np.uint8) for _ in part.masks]
        for mask, placed in zip(part.masks, masks):
            placed[top : top + mask.shape[0], left : left + mask.shape[1]] = mask
    points = None if part.points is None else part.points.move(left, top)
    return part._replace(boxes=part.boxes + (left, top, left, top), masks=masks, points=points)


def _sides(boxes: np.ndarray) -> np.ndarray:
    return boxes[:, 2:] - boxes[:, :2]
