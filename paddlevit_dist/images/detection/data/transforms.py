"""Transforms of images with boxes, which resize, crop and mirror image, boxes, masks and keypoints together.

The sample's generator is the only source of randomness. The recipe is from DETR's authors (N. Carion et al.,
"End-to-End Object Detection with Transformers", 2020, section 4 and facebookresearch/detr, datasets/coco.py): mirror
half of the images; resize to one of several sizes; half of the images are cropped before that, at a separate size.

Masks follow from the source of each row and column of the view: crops and nearest-neighbor resizing treat rows and
columns separately, so any number of steps is one choice of rows and one of columns, made once at the end. They then
decide which objects are visible, and the boxes of objects that were cut, see ``DetectionView.fit_to_masks``: thin
objects stay visible although shrinking skips their pixels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...data.reading import crop_image
from ...transforms.resizing import interpolate_axis
from ...transforms.visible_objects import count_least_pixels, find_visible_box
from ..settings import ONE_SIZE, PILLOW, TORCHVISION, DetectionDataSection, DetectionSettings
from ..windows import ImagePart, WindowPlan
from .object_points import ObjectPoints

Size = tuple[int, int]  # height, width
# Liu et al., SSD, ECCV 2016, section 2.2, with torchvision's ranges, which RT-DETR's authors use.
_MAX_ZOOM = 4.0
_OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_TRIALS = 40
_JITTERS = 10  # attempts to see an object
_ROUNDING_PX = 1e-6  # by which a box may leave a view without being cut
_NO_LINE = (-1, 2**31, -1)  # a row or column outside the stored image: without source, its first after its last
_COLOR_SPREADS = {"Brightness": 0.125, "Contrast": 0.5, "Color": 0.5, "Hue": 0.05}
_CROP_BY_OVERLAP_PROBABILITY = 0.8


class DetectionView(NamedTuple):
    """Part of an image with its n visible objects."""

    image: Any  # Pillow, "RGB"; after ``resize_as_torchvision`` float32 (height, width, 3), levels 0 to 255
    boxes: np.ndarray  # float64 (n, 4), x0, y0, x1, y1 in its pixels; none is empty
    objects: np.ndarray  # int64 (n,), index of each object in the stored image's annotations
    rows: np.ndarray  # int64 (height, 3), the stored row that a mask's row comes from, first and last row it shows
    columns: np.ndarray  # int64 (width, 3), likewise for columns; ``_NO_LINE`` outside the stored image
    is_cut: np.ndarray  # bool (n,), whether a transform cut off a part of the object's box
    points: ObjectPoints | None = None  # keypoints of the objects in the view's pixels; None: they have none

    @property
    def size(self) -> Size:
        """Height and width."""
        return len(self.rows), len(self.columns)

    def mask(self, stored: np.ndarray, least: float = 1) -> np.ndarray:
        """Return an object's mask from ``stored``; of ``least`` pixels, or of all that show a part of the object."""
        rows, columns = self.rows[:, 0], self.columns[:, 0]
        visible = stored.take(columns, axis=1).take(rows, axis=0)  # whole rows are copied at once
        if min(rows.min(), columns.min()) < 0:
            visible = visible * ((rows >= 0)[:, None] & (columns >= 0))
        if np.count_nonzero(visible) < least and stored.any():  # hidden, or so thin that they skip it
            visible = _count_below(self.columns, _count_below(self.rows, stored).T).T.astype(bool).view(np.uint8)
        return visible

    def fit_to_masks(self, stored: Iterable[np.ndarray]) -> tuple["DetectionView", list[np.ndarray]]:
        """Return the view with its objects that have a visible pixel, and their masks in it.

        A box that was cut becomes the box of the mask. An object whose stored mask has no pixel keeps its box.
        ``stored`` are the masks of the view's objects, uint8 (height, width) of the stored image.
        """
        boxes, masks, visible = self.boxes.copy(), [], []
        for row, whole in enumerate(stored):
            mask = self.mask(whole, count_least_pixels(boxes[row]))
            box = find_visible_box(boxes[row], whole, mask, bool(self.is_cut[row]))
            if box is None:
                continue
            boxes[row] = box
            masks.append(mask)
            visible.append(row)
        return self._replace(boxes=boxes).only(np.array(visible, np.int64)), masks

    def only(self, chosen: np.ndarray) -> "DetectionView":
        """Return the view with the chosen objects: bool (n,), or int64 positions."""
        points = None if self.points is None else self.points.only(chosen)
        return self._replace(
            boxes=self.boxes[chosen], objects=self.objects[chosen], is_cut=self.is_cut[chosen], points=points
        )


def whole_view(
    image: Image.Image, boxes: np.ndarray, objects: np.ndarray, points: ObjectPoints | None = None
) -> DetectionView:
    """Return a view of the whole stored image, with ``boxes`` clipped to it and without boxes and points outside.

    ``boxes`` are float64 (n, 4), x, y, width, height; ``objects`` int64 (n,), indices of the annotations.
    """
    corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)  # (n, 4)
    width, height = image.size
    is_cut = np.zeros(len(objects), bool)
    rows, columns = (np.repeat(np.arange(side)[:, None], 3, axis=1) for side in (height, width))
    view = _inside(DetectionView(image, corners, objects, rows, columns, is_cut, points))
    return view._replace(is_cut=is_cut[: len(view.objects)])  # a label that leaves its image is not cut by a transform


def flip(view: DetectionView) -> DetectionView:
    """Mirror a view left to right."""
    width = view.image.size[0]
    boxes = view.boxes[:, [2, 1, 0, 3]] * (-1, 1, -1, 1) + (width, 0, width, 0)
    image = view.image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    points = None if view.points is None else view.points.mirror(width)
    return view._replace(image=image, boxes=boxes, columns=view.columns[::-1], points=points)


def resize(view: DetectionView, size: Size) -> DetectionView:
    """Resize the image as torchvision with Pillow's bilinear filter, masks by nearest neighbor as torch."""
    if size == view.size:
        return view
    return _scale(view, size, view.image.resize(size[::-1], Image.Resampling.BILINEAR))


def resize_as_torchvision(view: DetectionView, size: Size) -> DetectionView:
    """Resize as torchvision's detectors: between the four nearest pixels at any scale, levels not rounded."""
    pixels = np.asarray(view.image, np.float32)
    for axis, side in enumerate(size):
        pixels = interpolate_axis(pixels, axis, side)
    return _scale(view, size, pixels)


def _scale(view: DetectionView, size: Size, image: Image.Image | np.ndarray) -> DetectionView:
    (height, width), (new_height, new_width) = view.size, size
    scale = np.array([new_width / width, new_height / height] * 2)
    return view._replace(
        image=image,
        boxes=view.boxes * scale,
        points=None if view.points is None else view.points.scale(*scale[:2].tolist()),
        rows=_resample(view.rows, new_height),
        columns=_resample(view.columns, new_width),
    )


def _resample(lines: np.ndarray, number: int) -> np.ndarray:
    """Return the rows or columns of a view, int64 (n, 3), after resizing to this ``number``."""
    edges = np.arange(number + 1) * len(lines)
    start, end = edges[:-1] // number, (edges[1:] - 1) // number
    first = np.minimum(np.minimum.reduceat(lines[:, 1], start), lines[end, 1])
    return np.stack(
        [lines[start, 0], first, np.maximum(np.maximum.reduceat(lines[:, 2], start), lines[end, 2])], axis=1
    )


def _count_below(lines: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Sum the rows of ``pixels``, integers (height, width), that each of n lines shows: int64 (n, width)."""
    sums = np.pad(pixels.cumsum(axis=0, dtype=np.int64), ((1, 0), (0, 0)))
    ends = lines[:, 2] + 1
    return sums[ends] - sums[np.minimum(lines[:, 1], ends)]


def crop(view: DetectionView, top: int, left: int, size: Size) -> DetectionView:
    """Cut out the part of ``size`` with this corner, which is inside; clip boxes and remove those outside."""
    height, width = size
    return _inside(
        view._replace(
            image=crop_image(view.image, (left, top, left + width, top + height)),
            boxes=view.boxes - (left, top, left, top),
            points=None if view.points is None else view.points.move(-left, -top),
            rows=view.rows[top : top + height],
            columns=view.columns[left : left + width],
        )
    )


def zoom_out(view: DetectionView, generator: np.random.Generator) -> DetectionView:
    """Place the image at a random position of a black one with sides up to four times as long."""
    (height, width), larger = view.size, generator.uniform(1.0, _MAX_ZOOM)
    size = int(height * larger), int(width * larger)
    top, left = (int(generator.integers(0, total - side, endpoint=True)) for total, side in zip(size, view.size))
    return _place(view, size, top, left)


def jitter_scale(
    view: DetectionView, side: int, scales: tuple[float, float], generator: np.random.Generator
) -> DetectionView:
    """Resize an image by a random scale of the largest that fits a square, and pad it, or crop a part of it.

    If a part has no object of the view, scale and part are drawn again, at most ten times.

    Source: Ghiasi et al., Simple Copy-Paste, CVPR 2021, arXiv 2012.07177, section 3 (large scale jittering).
    """
    largest = min(side / length for length in view.size)
    for _ in range(_JITTERS):
        scale = generator.uniform(*scales) * largest
        height, width = (max(1, int(length * scale)) for length in view.size)
        seen = resize(view, (height, width))
        if min(height, width) < side:
            seen = _place(seen, (max(height, side), max(width, side)), 0, 0)
        top, left = (int(generator.integers(0, length - side, endpoint=True)) for length in seen.size)
        seen = crop(seen, top, left, (side, side))
        if len(seen.objects) or not len(view.objects):
            break
    return seen


def _place(view: DetectionView, size: Size, top: int, left: int) -> DetectionView:
    """Place an image on a larger black one."""
    height, width = view.size
    image = Image.new("RGB", size[::-1])
    image.paste(view.image, (left, top))
    rows, columns = (np.full((total, 3), _NO_LINE) for total in size)
    rows[top : top + height], columns[left : left + width] = view.rows, view.columns
    points = None if view.points is None else view.points.move(left, top)
    boxes = view.boxes + (left, top, left, top)
    return view._replace(image=image, boxes=boxes, rows=rows, columns=columns, points=points)


def crop_by_overlap(view: DetectionView, generator: np.random.Generator) -> DetectionView:
    """Crop a random part with 0.3 to 1 times each side that contains the center of an object.

    At least one such object must overlap the part by an IoU that is drawn. Objects with their center outside are
    removed. Without a fitting part, or if the drawn IoU is 1, the whole view is returned.
    """
    height, width = view.size
    centers = (view.boxes[:, :2] + view.boxes[:, 2:]) / 2
    while len(view.boxes):
        least = _OVERLAPS[int(generator.integers(len(_OVERLAPS)))]
        if least >= 1.0:
            break
        for _ in range(_TRIALS):
            size = int(height * generator.uniform(0.3, 1.0)), int(width * generator.uniform(0.3, 1.0))
            top, left = (
                int(generator.integers(0, side - cropped, endpoint=True)) for side, cropped in zip(view.size, size)
            )
            if min(size) < 1 or not 0.5 <= size[1] / size[0] <= 2.0:
                continue
            low, high = np.array([left, top]), np.array([left + size[1], top + size[0]])
            is_inside = ((centers > low) & (centers < high)).all(axis=1)
            boxes = view.boxes[is_inside]
            intersections = (np.minimum(boxes[:, 2:], high) - np.maximum(boxes[:, :2], low)).prod(axis=1)
            unions = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + size[0] * size[1] - intersections
            if is_inside.any() and (intersections / unions).max() >= least:
                return crop(view.only(is_inside), top, left, size)
    return view


def distort_colors(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Change brightness, contrast (early or last), saturation, hue and channels' order with probability 0.5 each."""
    from ...transforms.operations import change

    order = ["Brightness", "Color", "Hue"]
    order.insert(int(generator.choice([1, 3])), "Contrast")
    for name in order:
        spread = _COLOR_SPREADS[name]
        if generator.random() < 0.5:
            value = generator.uniform(-spread, spread)
            image = _shift_hue(image, value) if name == "Hue" else change(name, image, 1.0 + value)
    if generator.random() < 0.5:
        bands = image.split()
        image = Image.merge("RGB", [bands[band] for band in generator.permutation(3)])
    return image


def _shift_hue(image: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    hue = hue.point([(level + round(turns * 256)) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def _inside(view: DetectionView) -> DetectionView:
    """Clip the boxes of a view to it, and remove objects outside; points outside are not labeled."""
    height, width = view.size
    boxes = np.clip(view.boxes, 0, (width, height, width, height))
    is_cut = view.is_cut | (np.abs(boxes - view.boxes) > _ROUNDING_PX).any(axis=1)
    is_visible = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    points = None if view.points is None else view.points.hide_outside(height, width)
    return view._replace(boxes=boxes, is_cut=is_cut, points=points).only(is_visible)


def fitted_size(size: Size, shortest: int, longest: int) -> Size:
    """Return the size at which the shorter side is ``shortest``, or less so that the longer side fits ``longest``.

    Sides are rounded as by DETR's authors (facebookresearch/detr, datasets/transforms.py), which may exceed ``longest``
    by a pixel. Narrow strips whose rounded side would be much too long are squeezed; sides are at least 1.
    """
    height, width = size
    low, high = min(size), max(size)
    if high / low * shortest > longest:
        shortest = max(round(longest * low / high), 1)
    long = int(shortest * high / low)
    if long > 1.01 * longest:
        long = longest
    return (long, shortest) if width < height else (shortest, long)


def torchvision_fitted_size(size: Size, shortest: int, longest: int) -> Size:
    """Return the size as torchvision's GeneralizedRCNNTransform: one scale, both sides rounded down."""
    scale = min(shortest / min(size), longest / max(size))
    return max(int(size[0] * scale), 1), max(int(size[1] * scale), 1)


@dataclass(frozen=True)
class DetectionEvaluationTransform:
    """Resizes the shorter side to ``shortest``, or less so that the longer side fits ``longest``."""

    shortest: int = 800  # the shorter side in pixels
    longest: int = 1333  # limit of the longer side in pixels
    how: str = PILLOW  # ``PILLOW``, or ``TORCHVISION`` for its rounding and interpolation
    size: Size | None = None  # height and width of all images instead; None: images keep their aspect ratio

    def __call__(self, view: DetectionView, generator: np.random.Generator) -> DetectionView:
        """Return the resized view; the generator is not used."""
        resized = resize_as_torchvision if self.how == TORCHVISION else resize
        return resized(view, self.resized(view.size))

    def resized(self, size: Size) -> Size:
        """Return the height and width of an image of ``size`` after resizing."""
        if self.size is not None:
            return self.size
        fitted = torchvision_fitted_size if self.how == TORCHVISION else fitted_size
        return fitted(size, self.shortest, self.longest)


@dataclass(frozen=True)
class DetectionTrainingTransform:
    """Mirrors, may crop, resizes and changes colors, optionally after SSD's transforms."""

    shortest: tuple[int, ...] = tuple(range(480, 801, 32))  # sizes of the shorter side; each image draws one
    longest: int = 1333  # limit of the longer side
    flip_probability: float = 0.5  # probability that an image is mirrored
    crop_probability: float = 0.5  # probability that an image is resized to one of ``shortest_to_crop`` and cropped
    shortest_to_crop: tuple[int, ...] = (400, 500, 600)  # sizes of the shorter side before a crop
    crop_sides: tuple[int, int] = (384, 600)  # smallest and largest height and width of the crop
    color_jitter: float = 0.0  # strength of the change of brightness, contrast and saturation, 0 for none
    square: bool = False  # resize both sides to the drawn size
    ssd: bool = False  # apply SSD's transforms first
    plain_epochs: int = 0  # number of last epochs without SSD's transforms
    scales: tuple[float, float] | None = None  # see ``jitter_scale``; None: other sizes

    def __call__(self, view: DetectionView, generator: np.random.Generator) -> DetectionView:
        """Return the transformed view."""
        if self.ssd and not is_plain(getattr(generator, "epochs_left", None), self.plain_epochs):
            view = view._replace(image=distort_colors(view.image, generator))
            if generator.random() < 0.5:
                view = zoom_out(view, generator)
            if generator.random() < _CROP_BY_OVERLAP_PROBABILITY:
                view = crop_by_overlap(view, generator)
        if generator.random() < self.flip_probability:
            view = flip(view)
        if self.scales is None and generator.random() < self.crop_probability:
            view = self._crop(view, generator)
        side = _choose_one(self.shortest, generator)
        if self.scales is not None:
            view = jitter_scale(view, side, self.scales, generator)
        else:
            view = resize(view, (side, side) if self.square else fitted_size(view.size, side, self.longest))
        if self.color_jitter:
            from ...transforms.policies import ColorJitter

            view = view._replace(image=ColorJitter(self.color_jitter)(view.image, generator))
        return view

    def _crop(self, view: DetectionView, generator: np.random.Generator) -> DetectionView:
        shortest = _choose_one(self.shortest_to_crop, generator)
        # The authors do not limit the longer side here, but a strip of 1 x 10,000 pixels needs a limit.
        view = resize(view, fitted_size(view.size, shortest, 10 * max(shortest, self.longest)))
        low, high = self.crop_sides
        width, height = (
            int(generator.integers(min(low, side), min(high, side), endpoint=True)) for side in view.image.size
        )
        top, left = (
            int(generator.integers(0, side - cropped, endpoint=True))
            for side, cropped in zip(view.size, (height, width))
        )
        return crop(view, top, left, (height, width))


def is_plain(epochs_left: int | None, plain_epochs: int) -> bool:
    """Return whether an epoch with ``epochs_left`` epochs after it is one of the last ``plain_epochs``."""
    return epochs_left is not None and epochs_left < plain_epochs


def batch_side(data: DetectionDataSection, seed: int, update: int, epochs_left: int | None) -> int | None:
    """Return the side of all images of an update, on all processes and micro-batches; None: sizes stay unchanged."""
    if not data.BATCH_SIDES or is_plain(epochs_left, data.NO_AUGMENT_EPOCHS):
        return None
    return _choose_one(tuple(data.BATCH_SIDES), np.random.default_rng([seed, update]))


def build_training_transform(config: DetectionSettings) -> DetectionTrainingTransform:
    """Return the transform that the keys below DATA and TRAIN describe."""
    data = config.DATA
    smallest, largest = data.CROP_SIDES
    return DetectionTrainingTransform(
        shortest=tuple(data.SHORTEST_SIDES),
        longest=data.LONGEST_SIDE,
        flip_probability=data.HORIZONTAL_FLIP,
        crop_probability=data.CROP_PROBABILITY,
        shortest_to_crop=tuple(data.CROP_SHORTEST_SIDES),
        crop_sides=(smallest, largest),
        color_jitter=config.TRAIN.COLOR_JITTER,
        square=data.RESIZE_TO_SQUARE,
        ssd=data.SSD_AUGMENT,
        plain_epochs=data.NO_AUGMENT_EPOCHS,
        scales=None if data.SCALE_JITTER is None else (data.SCALE_JITTER[0], data.SCALE_JITTER[1]),
    )


def build_evaluation_transform(config: DetectionSettings) -> DetectionEvaluationTransform:
    """Return the transform that the keys below DATA and DETECTION describe."""
    size = export_size(config) if config.DETECTION.EVAL_BATCHING == ONE_SIZE else None
    return DetectionEvaluationTransform(*_evaluation_sides(config.DATA), config.DATA.EVAL_RESIZE, size)


def build_window_plan(config: DetectionSettings) -> WindowPlan | None:
    """Return the plan of windows and mirrored passes that the keys below DETECTION describe; None: one pass."""
    keys = config.DETECTION
    if keys.WINDOW is None:
        return WindowPlan(None, keys.WINDOW_OVERLAP, True) if keys.FLIP else None
    height, width = keys.WINDOW
    return WindowPlan((height, width), keys.WINDOW_OVERLAP, keys.FLIP)


def see_parts(
    view: DetectionView, plan: WindowPlan, transform: DetectionEvaluationTransform, generator: np.random.Generator
) -> tuple[list[np.ndarray], list[ImagePart]]:
    """Return the network's inputs for a whole image, (3, height, width) for each of its parts, and these parts."""
    parts, inputs = plan.find_parts(view.size), []
    for part in parts:
        seen = crop(view, part.top, part.left, (part.height, part.width))
        seen = transform(flip(seen) if part.is_mirrored else seen, generator)
        inputs.append(np.ascontiguousarray(np.asarray(seen.image).transpose(2, 0, 1)))
    return inputs, parts


def export_size(config: DetectionSettings) -> Size:
    """Return the height and width of the images that an exported model takes."""
    if config.DETECTION.EXPORT_SIZE is None:
        side, _ = _evaluation_sides(config.DATA)
        return side, side
    height, width = config.DETECTION.EXPORT_SIZE
    return height, width


def _evaluation_sides(data: DetectionDataSection) -> tuple[int, int]:
    """Return DATA.EVAL_SHORTEST_SIDE and EVAL_LONGEST_SIDE, whose defaults are set when the configuration is read."""
    if data.EVAL_SHORTEST_SIDE is None or data.EVAL_LONGEST_SIDE is None:
        raise ValueError("DATA.EVAL_SHORTEST_SIDE and EVAL_LONGEST_SIDE are not resolved")
    return data.EVAL_SHORTEST_SIDE, data.EVAL_LONGEST_SIDE


def _choose_one(values: tuple[int, ...], generator: np.random.Generator) -> int:
    return values[int(generator.integers(len(values)))]
