"""Samples of a split, built from the configuration in a loader process, and the arrays of a batch."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, one_line
from ....core.tasks.dataset import format_place
from ....core.tasks.sample_checks import BadSample
from ...data.held_out import write_rows
from ...data.image_samples import ImageSamples, open_dataset
from ...data.inspection import SplitInspection
from ...data.seen_images import SeenImages, see_sides, see_whole
from ...run_lengths import decode
from ..settings import EQUAL_SHAPES, ONE_SIZE, PADDED, SINGLE, DetectionDataSection, DetectionSettings
from ..windows import ImagePart, WindowPlan
from .composition import ImageComposition, ImageObjects, build_composition
from .detection_dataset import DetectionDataset
from .image_annotations import ImageAnnotations
from .images_part import ImagesPart, ordered_by_shape
from .object_points import ObjectPoints
from .split_checks import check_files, explain_nothing_learned, note_first_objects, select_usable
from .transforms import (
    DetectionView,
    Size,
    build_evaluation_transform,
    build_training_transform,
    build_window_plan,
    see_parts,
    whole_view,
)

SECONDS = "seconds"  # key of an evaluation batch: time spent reading its images
HOST = "__host__"  # key of a batch; lists, which loaders do not turn into tensors
PARTS = "parts"  # key of an evaluation batch whose images are parts of the stored ones
_HOST_KEYS = ("sizes", "box_counts", "indices", "original_sizes", PARTS)
# Description of each batching in the log of an evaluation.
EVALUATED_AS = {
    SINGLE: "one image per forward pass, so that scores do not depend on batches",
    ONE_SIZE: "images resized to one size, changing their aspect ratio, as for an exported model",
    EQUAL_SHAPES: "images of equal shape together, without padding, so that scores do not depend on batches",
    PADDED: "padded batches, with padding kept zero in the backbone (MODEL.MASK_PADDING)",
}


def _see(config: DetectionSettings, is_training: bool) -> SeenImages:
    """Return what the network sees of an image."""
    data = config.DATA
    if is_training:
        if data.SCALE_JITTER is not None:
            smallest, largest = data.SCALE_JITTER
            sides = ", ".join(map(str, data.SHORTEST_SIDES))
            return SeenImages(
                f"at {smallest:g} to {largest:g} times the size that fits a square of {sides}, such squares"
            )
        return see_sides(data.SHORTEST_SIDES, data.LONGEST_SIDE, data.RESIZE_TO_SQUARE)
    evaluation = build_evaluation_transform(config)
    if evaluation.size is not None:
        return see_whole(evaluation.size)
    return see_sides([evaluation.shortest], evaluation.longest)


def open_samples(
    config: DetectionSettings,
    split: str,
    cache_folder: Path,
    is_training: bool,
    with_masks: bool = False,
    inspection: SplitInspection | None = None,
    base: type[DetectionDataset] = DetectionDataset,
    part: type[ImagesPart] = ImagesPart,
) -> "DetectionSamples":
    """Open the images of ``split`` with their transform; ``notices`` of the result describe them.

    Args:
        is_training: whether samples contain annotations; else they contain indices and sizes, see ``collate``.
        with_masks: whether training samples contain masks.
        inspection: checks some images before a run relies on them; the same one for all splits of the run.
        base: class of the dataset, and ``part`` of a part of it.

    Raises:
        UserError: the data are missing or damaged, or contain no images with boxes, or no masks if these are needed.
    """
    data = config.DATA
    dataset, notices = open_dataset(config, base, part, split, cache_folder)
    if is_training and (data.DATA_PATH or not data.KEEP_EMPTY_IMAGES):
        learnable = np.flatnonzero(dataset.object_counts()[:, 0])
        num_skipped = len(dataset) - len(learnable)
        if not len(learnable):
            images = f"{count(len(dataset), f'{split} image')}{format_place(data.DATA_PATH)}"
            raise UserError(
                f"dataset {data.DATASET} has no object to learn in its {images}: {explain_nothing_learned(dataset)}"
            )
        if num_skipped and not data.KEEP_EMPTY_IMAGES:
            dataset = part(dataset, write_rows(cache_folder, "images-learnable", learnable))
            number = count(num_skipped, "training image")
            notices.append(f"{number} without objects to learn excluded (DATA.KEEP_EMPTY_IMAGES false)")
    if with_masks:
        is_skipped = is_training and data.ON_INVALID_SAMPLE == "skip"
        dataset, more = select_usable(dataset, split, is_skipped, part, cache_folder)
        notices += more
    if inspection is not None:
        notices += check_files(dataset, split, inspection.replaces_bad and is_training)
        notices += note_first_objects(dataset, split, data.DATASET)
        notices += inspection.inspect(dataset, split, dataset.num_classes or 0, _see(config, is_training))
    transform: Any = build_training_transform(config) if is_training else build_evaluation_transform(config)
    if is_training and data.HORIZONTAL_FLIP and not dataset.can_mirror:
        transform = dataclasses.replace(transform, flip_probability=0.0)
        notices.append("images are not mirrored in training, since not all points have mirrored pairs")
    if not is_training and config.DETECTION.EVAL_BATCHING == EQUAL_SHAPES:
        dataset = ordered_by_shape(dataset, transform.resized, cache_folder, part)
    samples = DetectionSamples(dataset, transform, is_training, with_masks, data.GROUP_BY_SHAPE if is_training else 0)
    if not is_training:
        samples.window_plan = build_window_plan(config)
        if samples.window_plan is not None:
            samples.eval_protocol = samples.window_plan.describe(config.DETECTION.MERGE_IOU)
    else:
        samples.composition = build_composition(data, dataset.has_masks, dataset.can_mirror)
    samples.notices = [one_line(line) for line in notices]
    return samples


_POOL = 64  # groups formed together: more make shapes more similar, fewer make groups more random
_POOLS = 4  # at least, so that groups of a small dataset differ between epochs


class DetectionSample(NamedTuple):
    """An image as the network receives it, with n objects; in an evaluation n is 0."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    is_training: bool  # whether the sample contains annotations
    image: np.ndarray  # uint8 (3, height, width); float32 for ``DATA.EVAL_RESIZE torchvision``
    original_size: tuple[int, int]  # height and width of the stored image
    boxes: np.ndarray  # float32 (n, 4), x0, y0, x1, y1 in pixels of ``image``
    labels: np.ndarray  # int64 (n,)
    masks: np.ndarray | None = None  # uint8 (n, height, width), 1 inside; None without masks
    noise: Any = None  # denoising queries of the objects; None without denoising
    seconds: float = 0.0  # time to read and transform it
    more_images: Sequence[np.ndarray] = ()  # further inputs for this image in an evaluation, like ``image``
    parts: list[ImagePart] | None = None  # what all inputs show; None: the only one is whole
    points: np.ndarray | None = None  # float32 (n, K, 3), keypoints in pixels of ``image``; None without keypoints
    areas: np.ndarray | None = None  # float32 (n,), square pixels of the objects; None without keypoints


class DetectionSamples(ImageSamples):
    """A dataset of images with boxes and its transform.

    Args:
        is_training: whether samples contain annotations, except crowds and boxes without an area.
        with_masks: whether training samples contain masks; raises UserError if the dataset has none.
        group: number of consecutive images of an epoch with similar shapes; 0: the order is random.

    Attributes:
        noise: generator of denoising queries, a ``ContrastiveNoise`` or one like it, set once the number of classes is
            known; None: no denoising.
        composition: composes training images of several stored ones, or augments them; None: neither.
    """

    def __init__(
        self,
        dataset: DetectionDataset,
        transform: Callable[[DetectionView, np.random.Generator], DetectionView],
        is_training: bool,
        with_masks: bool = False,
        group: int = 0,
    ) -> None:
        if is_training and with_masks and not dataset.has_masks:
            raise UserError(
                f"the training data have boxes but no masks{dataset.masks_note}, which this model needs: use a "
                "model that needs only boxes, such as detr_resnet50"
            )
        super().__init__(dataset)
        self.transform = transform
        self.is_training = is_training
        self.with_masks = with_masks and is_training
        self.group = group
        self.noise: Any = None
        self.composition: ImageComposition | None = None
        self.window_plan: WindowPlan | None = None  # of an evaluation

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        """Draw an epoch's order, of samples with similar shapes together if they are grouped."""
        return (
            draw_grouped_order(self.dataset.sizes, self.group, generator)
            if self.group
            else super().draw_order(generator)
        )

    def read_sample(self, index: int, generator: np.random.Generator) -> DetectionSample:
        """Read, transform and return sample ``index``."""
        started = time.perf_counter()
        if self.window_plan is not None:
            sample = see_stored(self.dataset.read(index)[0], self.window_plan, self.transform, generator)
            return sample._replace(index=index, seconds=time.perf_counter() - started)
        drawn, original_size = self._draw(index, generator)
        pixels = np.ascontiguousarray(np.asarray(drawn.image).transpose(2, 0, 1))
        points = areas = None
        if drawn.points is not None:
            places = drawn.points.places
            is_labeled = (places[:, :, 2] > 0).any(axis=1)  # not objects whose points were all cut off
            drawn, points = drawn.only(is_labeled), places[is_labeled].astype(np.float32)
            areas = drawn.areas.astype(np.float32)
        return DetectionSample(
            index,
            self.is_training,
            pixels,
            original_size,
            drawn.boxes.astype(np.float32),
            drawn.labels,
            np.array(drawn.masks or np.zeros((0, *pixels.shape[1:]), np.uint8)) if self.with_masks else None,
            None if self.noise is None else self.noise.draw_objects(drawn, pixels.shape[1:], generator),
            time.perf_counter() - started,
            points=points,
            areas=areas,
        )

    def _draw(self, index: int, generator: np.random.Generator) -> tuple[ImageObjects, Size]:
        """Return the transformed image with its visible objects, and the size before the transform."""
        if self.composition is not None:
            composed = self.composition.compose(self._read_objects, index, len(self.dataset), generator)
            view = self.transform(composed.view(), generator)
            return composed.seen(view), (composed.image.size[1], composed.image.size[0])
        image, annotations = self.dataset.read(index)
        learnable = np.empty(0, np.int64)
        if self.is_training:
            learnable = np.flatnonzero(self.dataset.find_learnable(annotations))
        size, masks = (image.size[1], image.size[0]), None
        points = self._choose_points(annotations, learnable)
        view = self.transform(whole_view(image, annotations.boxes[learnable], learnable, points), generator)
        if self.with_masks:
            numbers = view.objects.tolist()
            view, masks = view.fit_to_masks(_decode_mask(annotations, number, size) for number in numbers)
        return ImageObjects(view.image, view.boxes, annotations.labels[view.objects], masks, view.points), size

    def _read_objects(self, index: int) -> ImageObjects:
        """Read a stored image with its learnable objects, or a replacement of an unreadable image."""
        if self.replacements is None:
            image, annotations = self.dataset.read(index)
        else:
            image, annotations = self.replacements.read(self.dataset.read, index, self.dataset)
        chosen, size = np.flatnonzero(self.dataset.find_learnable(annotations)), (image.size[1], image.size[0])
        masks = None
        is_used = self.with_masks or (self.composition is not None and self.composition.uses_masks)
        if is_used and self.dataset.has_masks:
            masks = [_decode_mask(annotations, number, size) for number in chosen.tolist()]
        boxes = annotations.boxes[chosen]
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        points = self._choose_points(annotations, chosen)
        return ImageObjects(image, corners, annotations.labels[chosen], masks, points)

    def _choose_points(self, annotations: ImageAnnotations, chosen: np.ndarray) -> ObjectPoints | None:
        """Return the points of chosen objects; None if objects have none."""
        if annotations.points is None or self.dataset.mirrors is None:
            return None
        box_areas, areas = annotations.boxes[chosen, 2:].prod(axis=1), annotations.areas[chosen]
        fills = np.where(areas > 0, areas, box_areas) / np.maximum(box_areas, 1e-9)
        return ObjectPoints(annotations.points[chosen], self.dataset.mirrors[annotations.labels[chosen]], fills)


def _decode_mask(annotations: ImageAnnotations, number: int, size: Size) -> np.ndarray:
    """Return an object's mask, uint8 (*size), zeros if there is none; raise BadSample if it is damaged."""
    if annotations.masks is None:
        return np.zeros(size, np.uint8)
    try:
        return decode(annotations.masks[number], *size)
    except ValueError as error:
        raise BadSample(f"its object {annotations.ids[number]} cannot be used: its segmentation {error}") from error


def see_stored(
    stored: Image.Image, plan: WindowPlan, transform: Any, generator: np.random.Generator
) -> DetectionSample:
    """Return the sample of a stored image that an evaluation sees in several parts, without index and time."""
    nothing = np.zeros(0, np.int64)
    inputs, parts = see_parts(whole_view(stored, np.zeros((0, 4)), nothing), plan, transform, generator)
    size, boxes = (stored.size[1], stored.size[0]), np.zeros((0, 4), np.float32)
    return DetectionSample(-1, False, inputs[0], size, boxes, nothing, more_images=inputs[1:], parts=parts)


def collate(samples: Sequence[DetectionSample], side: int = 0, noise: Any = None) -> dict[str, Any]:
    """Collate N images, all for training or all for an evaluation, into a batch, padded at the right and at the bottom.

    A batch for training has at most M objects per image. Integers are also kept in host memory, see ``host_facts``.
    ``side`` is the smallest padded height and width in pixels.

    Returns:
        ``images`` uint8 (N, 3, H, W), zeros where padded; ``sizes`` int64 (N, 2), height and width without padding. For
        training ``boxes`` float32 (N, M, 4), x0, y0, x1, y1, padded with zeros, M at least 1; ``labels`` int64 (N, M),
        padded with -1; ``box_counts`` int64 (N,); with masks ``masks`` uint8 (N, M, H, W); with keypoints ``points``
        float32 (N, M, K, 3) and ``areas`` float32 (N, M), padded with zeros; with noise the arrays of
        ``ContrastiveNoise.collate``. For an evaluation ``indices`` int64 (N,) of the samples; ``original_sizes`` int64
        (N, 2), height and width of the stored images; ``seconds`` spent reading them; if samples have parts, ``images``
        and ``sizes`` have a row for each part, and ``parts`` int64 (rows, 6) has the position of its sample in the
        batch, and the fields of ``ImagePart``.
    """
    first = samples[0]
    images = [picture for each in samples for picture in (each.image, *each.more_images)]
    sizes = np.array([picture.shape[1:] for picture in images], dtype=np.int64)
    padded = np.maximum(sizes.max(axis=0), side)
    batch = {"images": np.zeros((len(images), 3, *padded), first.image.dtype), "sizes": sizes}
    for row, (image, (height, width)) in enumerate(zip(images, sizes.tolist())):
        batch["images"][row, :, :height, :width] = image
    batch.update(_collate_objects(samples, sizes, padded, noise) if first.is_training else _collate_origins(samples))
    return {**batch, HOST: {name: batch[name].tolist() for name in _HOST_KEYS if name in batch}}


def _collate_objects(
    samples: Sequence[DetectionSample], sizes: np.ndarray, padded: np.ndarray, noise: Any
) -> dict[str, Any]:
    """Return the arrays of a batch for training that pad the samples' objects."""
    number, counts = len(samples), np.array([len(each.labels) for each in samples], dtype=np.int64)
    most = max(1, int(counts.max()))
    boxes, labels = np.zeros((number, most, 4), np.float32), np.full((number, most), -1, np.int64)
    batch: dict[str, Any] = {"box_counts": counts, "boxes": boxes, "labels": labels}
    if samples[0].points is not None:
        batch["points"] = np.zeros((number, most, *samples[0].points.shape[1:]), np.float32)
        batch["areas"] = np.zeros((number, most), np.float32)
    if samples[0].masks is not None:
        batch["masks"] = np.zeros((number, most, *padded), np.uint8)
    for row, (sample, (height, width)) in enumerate(zip(samples, sizes.tolist())):
        boxes[row, : len(sample.boxes)] = sample.boxes
        labels[row, : len(sample.labels)] = sample.labels
        if "points" in batch:
            batch["points"][row, : len(sample.labels)] = sample.points
            batch["areas"][row, : len(sample.labels)] = sample.areas
        if "masks" in batch:
            batch["masks"][row, : len(sample.labels), :height, :width] = sample.masks
    if noise is not None:
        noises = filter(None, (each.noise for each in samples))
        batch.update(noise.collate(list(noises), counts.tolist(), most))
    return batch


def _collate_origins(samples: Sequence[DetectionSample]) -> dict[str, Any]:
    """Return the arrays of a batch for an evaluation that say where its images are from."""
    batch: dict[str, Any] = {
        "indices": np.array([sample.index for sample in samples], dtype=np.int64),
        "original_sizes": np.array([sample.original_size for sample in samples], dtype=np.int64),
        SECONDS: sum(sample.seconds for sample in samples),
    }
    if samples[0].parts is not None:
        rows = [(place, *part) for place, sample in enumerate(samples) for part in sample.parts or ()]
        batch[PARTS] = np.array(rows, dtype=np.int64)
    return batch


def host_facts(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the integers of a batch, see ``collate``, that are known without asking the device."""
    return {name: np.array(value, dtype=np.int64) for name, value in batch[HOST].items()}


def largest_side(data: DetectionDataSection, sizes: np.ndarray) -> int:
    """Return an upper bound of training images' longer side in pixels, from stored sizes, int64 (samples, 2)."""
    if data.RESIZE_TO_SQUARE or data.SCALE_JITTER:
        return max(data.SHORTEST_SIDES)
    if data.CROP_PROBABILITY or not len(sizes):  # a crop may have any proportions
        return int(data.LONGEST_SIDE)
    widest = float((sizes.max(axis=1) / np.maximum(sizes.min(axis=1), 1)).max())
    return min(int(data.LONGEST_SIDE), int(np.ceil(max(data.SHORTEST_SIDES) * widest)))


def passes(sizes: np.ndarray, batching: str, most: int | None = None) -> list[list[int]]:
    """Return the groups of images of a batch that share a forward pass, as positions in the batch, each once.

    Args:
        sizes: int64 (N, 2), height and width without padding.
        batching: one of DETECTION.EVAL_BATCHING.
        most: largest number of images in a group, unless they are padded; None: any number.
    """
    if batching == PADDED:
        return [list(range(len(sizes)))]
    if batching == SINGLE:
        return [[i] for i in range(len(sizes))]
    groups: dict[Any, list[int]] = {}
    for row, size in enumerate(sizes.tolist()):
        groups.setdefault(tuple(size), []).append(row)
    return [
        rows[first : first + (most or len(rows))]
        for rows in groups.values()
        for first in range(0, len(rows), most or len(rows))
    ]


def draw_grouped_order(sizes: np.ndarray, group: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a permutation, int64 (images,), in which each ``group`` of consecutive images has similar proportions.

    Batches then need less padding; on COCO without groups, a third of a detector's computation is padding. Images that
    do not fill a group come last. The order depends only on the generator and on ``group``, not on batches and
    processes, so that an epoch continued with another number of processes contains every image once.
    """
    order = generator.permutation(len(sizes))
    proportions = np.log(np.maximum(sizes[:, 1], 1) / np.maximum(sizes[:, 0], 1))
    grouped = len(order) // group * group
    pool_size = group * min(_POOL, max(2, grouped // group // _POOLS))
    groups = [order[:0].reshape(0, group)]
    for first in range(0, grouped, pool_size):
        pool = order[first : min(first + pool_size, grouped)]
        groups.append(pool[np.argsort(proportions[pool], kind="stable")].reshape(-1, group))
    joined = np.concatenate(groups)
    return np.concatenate([joined[generator.permutation(len(joined))].reshape(-1), order[grouped:]])
