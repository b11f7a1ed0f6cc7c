"""From the configuration to the samples of a split, as a loader process reads them, and the arrays of a batch."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....runtime.errors import UserError
from ....runtime.printing import one_line
from ....tasks.sample_checks import BadSample
from ...data.data_warnings import count
from ...data.held_out import DatasetPart, make_row_method, write_rows
from ...data.image_samples import ImageSamples, open_dataset
from ...data.inspection import SplitInspection
from ...run_lengths import decode
from ..rtdetr.denoising import ContrastiveNoise, DrawnNoise
from ..settings import EQUAL_SHAPES, ONE_SIZE, PADDED, SINGLE, DetectionDataSection, DetectionSettings
from .detection_dataset import DetectionDataset, ImageAnnotations
from .transforms import DetectionView, Size, evaluation_transform, training_transform, whole_view

SECONDS = "seconds"  # key of a batch of an evaluation: that reading its images took
HOST = "__host__"  # key of a batch; lists, which no loader turns into tensors
_OF_THE_HOST = ("sizes", "box_counts", "indices", "original_sizes")
# How an evaluation's log names its scores.
EVALUATED_AS = {
    SINGLE: "one image per forward pass: no score depends on the batches",
    ONE_SIZE: "images of one size, without their proportions, as an exported model takes them",
    EQUAL_SHAPES: "images of equal shapes together, without padding: no score depends on the batches",
    PADDED: "padded batches, whose padding stays zero in the backbone (MODEL.MASK_PADDING)",
}


class ImagesPart(DatasetPart, DetectionDataset):  # type: ignore[misc] # what both have is the first one's
    """Images of another dataset: those held out for validation, the others, those with something to learn, or all in
    another order. Pickled as that dataset and the name of a memory-mapped file of rows."""

    dataset: Any
    labels = None  # type: ignore[assignment] # of an image there are many
    image_id, size, annotations = map(make_row_method, ("image_id", "size", "annotations"))

    def __init__(self, dataset: Any, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.labeled, self.category_ids, self.has_masks = dataset.labeled, dataset.category_ids, dataset.has_masks

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "notices": ()}

    @property
    def image_ids(self) -> np.ndarray:
        return self.dataset.image_ids[self.rows]

    @property
    def sizes(self) -> np.ndarray:
        return self.dataset.sizes[self.rows]

    def missing(self) -> Sequence[int]:
        return np.flatnonzero(np.isin(self.rows, self.dataset.missing())).tolist()

    def beside(self) -> Sequence[str]:
        return self.dataset.beside()

    def object_counts(self) -> np.ndarray:
        return self.dataset.object_counts()[self.rows]

    def class_counts(self, chosen: np.ndarray | None = None) -> np.ndarray:
        return self.dataset.class_counts(self.rows if chosen is None else self.rows[chosen])

    def summary(self, chosen: np.ndarray | None = None) -> str:
        return self.dataset.summary(self.rows if chosen is None else self.rows[chosen])


def open_samples(
    config: DetectionSettings,
    split: str,
    cache_folder: Path,
    is_training: bool,
    with_masks: bool = False,
    inspection: SplitInspection | None = None,
    by_shape: bool = False,
) -> "DetectionSamples":
    """The images of ``split``, with the transform for training or for an evaluation, and lines about them in their
    ``notices``.

    Args:
        is_training: samples carry what is annotated; otherwise their indices and sizes, see ``samples``.
        with_masks: those for training carry masks.
        inspection: looks at some images before a run relies on them; one for all its splits.
        by_shape: those for an evaluation come ordered by their size after the transform.
    Raises:
        UserError: the data are missing or damaged, or hold no images with boxes, or no masks where these are asked
            for.
    """
    data = config.DATA
    dataset, notices = open_dataset(config, DetectionDataset, ImagesPart, split, cache_folder)
    if is_training and (data.DATA_PATH or not data.KEEP_EMPTY_IMAGES):
        learnable = np.flatnonzero(dataset.object_counts()[:, 0])
        left = len(dataset) - len(learnable)
        if data.DATA_PATH and left and not len(learnable):  # drawn images may be without objects
            raise UserError(
                f"dataset {data.DATASET} has no object to learn among its {count(len(dataset), f'{split} image')} at "
                f"{data.DATA_PATH}: expected boxes with an area; are these the files that were annotated?"
            )
        if left and not data.KEEP_EMPTY_IMAGES:
            dataset = _part(dataset, learnable, "learnable", cache_folder)
            notices.append(
                f"{count(left, 'training image')} with nothing to learn left out (DATA.KEEP_EMPTY_IMAGES false)"
            )
    if not len(dataset):
        raise UserError(f"dataset {data.DATASET} has no {split} images at {data.DATA_PATH}")
    if inspection is not None:
        notices += check_files(dataset, split, inspection.replaces_bad and is_training)
        notices += inspection.inspect(dataset, split, dataset.num_classes or 0)
    transform: Any = training_transform(data) if is_training else evaluation_transform(config)
    if by_shape and not is_training:
        dataset = ordered_by_shape(dataset, transform.resized, cache_folder)
    samples = DetectionSamples(dataset, transform, is_training, with_masks, data.GROUP_BY_SHAPE if is_training else 0)
    samples.notices = [one_line(line) for line in notices]
    return samples


def note_crowded(
    dataset: DetectionDataset, split: str, found: tuple[str, int] | None, counted: int | None
) -> list[str]:
    """Say how many images have more objects than a model finds, or more of a category than an evaluation counts.

    Args:
        found: see ``Detector.most_objects``; counted: detections of an image and category, None for a training.
    """
    objects, lines = dataset.object_counts(), []
    limits = [(0, "objects", found[1], f"that the model finds in one ({found[0]})")] if found else []
    if counted is not None:
        limits.append((1, "objects of a category", counted, "detections that count (-max_detections)"))
    for column, what, most, reason in limits:
        crowded = objects[:, column][objects[:, column] > most]
        if len(crowded):
            lines.append(
                f"{len(crowded):,} of {count(len(objects), f'{split} image')} with more {what} than the {most:,} "
                f"{reason}, up to {crowded.max():,}: {(crowded - most).sum():,} objects are too many"
            )
    return lines


def ordered_by_shape(dataset: Any, resized: Callable[[Size], Size], cache_folder: Path) -> ImagesPart:
    """All images, those of equal size after ``resized`` together, so that batches of them need no padding."""
    sizes = np.array([resized((height, width)) for height, width in dataset.sizes.tolist()]).reshape(-1, 2)
    return _part(dataset, np.lexsort((sizes[:, 1], sizes[:, 0])), "by-shape", cache_folder)


def _part(dataset: Any, rows: np.ndarray, name: str, cache_folder: Path) -> ImagesPart:
    return ImagesPart(dataset, write_rows(cache_folder, f"images-{name}", rows))


_POOL = 64  # groups that are formed together: more make shapes more similar, fewer keep company more random
_POOLS = 4  # at least, or every epoch of a small dataset would have the same groups


class DetectionSample(NamedTuple):
    """An image as the network sees it, with n objects; in an evaluation n is 0, whatever is annotated.

    Attributes:
        index: of the sample.
        is_training: what is annotated comes with it.
        image: uint8 (3, height, width); float32 where levels are not whole (``DATA.EVAL_RESIZE torchvision``).
        original_size: height and width of the stored image.
        boxes: float32 (n, 4), x0, y0, x1, y1 in pixels of ``image``.
        labels: int64 (n,).
        masks: uint8 (n, height, width), 1 inside; None: not asked for.
        noise: denoising queries of the objects; None: not asked for.
        seconds: that it took to read and prepare it.
    """

    index: int
    is_training: bool
    image: np.ndarray
    original_size: tuple[int, int]
    boxes: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None = None
    noise: DrawnNoise | None = None
    seconds: float = 0.0


class DetectionSamples(ImageSamples):
    """A dataset of images with boxes with its transform.

    Args:
        is_training: samples carry what is annotated, except crowds and boxes without an area.
        with_masks: they carry masks too.
        group: so many images that follow one another in an epoch have similar shapes; 0: the order is free.

    Attributes:
        noise: how denoising queries are drawn, once it is known of how many classes; None: there are none.

    Raises:
        UserError: masks are asked for, and the dataset has none.
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
                "the training data have boxes but no masks, which this model learns from: take one that finds boxes "
                "only, such as detr_resnet50"
            )
        super().__init__(dataset)
        self.transform = transform
        self.is_training = is_training
        self.with_masks = with_masks and is_training
        self.group = group
        self.noise: ContrastiveNoise | None = None

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        return draw_grouped_order(self.dataset.sizes, self.group, generator) if self.group else None

    def read_sample(self, index: int, generator: np.random.Generator) -> DetectionSample:
        started = time.perf_counter()
        image, annotations = self.dataset.read(index)
        kept = np.flatnonzero(annotations.is_learnable) if self.is_training else np.empty(0, np.int64)
        view = self.transform(whole_view(image, annotations.boxes[kept], kept), generator)
        masks = self._masks(view, annotations, (image.size[1], image.size[0])) if self.with_masks else None
        labels = annotations.labels[view.objects]
        return DetectionSample(
            index,
            self.is_training,
            np.ascontiguousarray(np.asarray(view.image).transpose(2, 0, 1)),
            (image.size[1], image.size[0]),
            view.boxes.astype(np.float32),
            labels,
            masks,
            None if self.noise is None else self.noise.draw(view.boxes, labels, view.size, generator),
            time.perf_counter() - started,
        )

    def _masks(self, view: DetectionView, annotations: ImageAnnotations, stored_size: tuple[int, int]) -> np.ndarray:
        masks = np.zeros((len(view.objects), *view.size), np.uint8)
        if annotations.masks is not None:
            for row, which in enumerate(view.objects.tolist()):
                try:
                    masks[row] = view.mask(decode(annotations.masks[which], *stored_size))
                except ValueError as error:
                    raise BadSample(
                        f"its object {annotations.ids[which]} cannot be used: its segmentation {error}"
                    ) from error
        return masks


def collate(samples: Sequence[DetectionSample], side: int = 0, noise: ContrastiveNoise | None = None) -> dict[str, Any]:
    """A batch of N images, padded at the right and at the bottom, for training or for an evaluation, whichever its
    samples are for; in training with at most M objects each.

    Args:
        side: least height and width that they are padded to, in pixels.
        noise: by which their denoising queries were drawn.
    Returns:
        ``images`` uint8 (N, 3, H, W), zeros where padded; ``sizes`` int64 (N, 2), height and width of each without
        padding. In training ``boxes`` float32 (N, M, 4), x0, y0, x1, y1, zeros where there are fewer, M at least 1;
        ``labels`` int64 (N, M), -1 where there are fewer; ``box_counts`` int64 (N,); with masks ``masks`` uint8 (N, M,
        H, W); with noise what ``ContrastiveNoise.collate`` returns. In an evaluation ``indices`` int64 (N,) of the
        samples; ``original_sizes`` int64 (N, 2), height and width of the stored images; ``seconds`` that reading them
        took. Whole numbers are in the host's memory as well, see ``host_facts``.
    """
    number, first = len(samples), samples[0]
    sizes = np.array([sample.image.shape[1:] for sample in samples], dtype=np.int64)
    padded = np.maximum(sizes.max(axis=0), side)
    batch = {"images": np.zeros((number, 3, *padded), first.image.dtype), "sizes": sizes}
    if first.is_training:
        counts = batch["box_counts"] = np.array([len(sample.labels) for sample in samples], dtype=np.int64)
        most = max(1, int(counts.max()))
        batch["boxes"], batch["labels"] = np.zeros((number, most, 4), np.float32), np.full((number, most), -1, np.int64)
        if first.masks is not None:
            batch["masks"] = np.zeros((number, most, *padded), np.uint8)
    else:
        batch["indices"] = np.array([sample.index for sample in samples], dtype=np.int64)
        batch["original_sizes"] = np.array([sample.original_size for sample in samples], dtype=np.int64)
        batch[SECONDS] = sum(sample.seconds for sample in samples)
    for row, (sample, (height, width)) in enumerate(zip(samples, sizes.tolist())):
        batch["images"][row, :, :height, :width] = sample.image
        if first.is_training:
            batch["boxes"][row, : len(sample.boxes)] = sample.boxes
            batch["labels"][row, : len(sample.labels)] = sample.labels
        if "masks" in batch:
            batch["masks"][row, : len(sample.labels), :height, :width] = sample.masks
    if first.is_training and noise is not None:
        drawn = [sample.noise for sample in samples if sample.noise is not None]
        batch.update(noise.collate(drawn, batch["box_counts"].tolist(), batch["labels"].shape[1]))
    return {**batch, HOST: {name: batch[name].tolist() for name in _OF_THE_HOST if name in batch}}


def host_facts(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what a step knows without asking the device: ``sizes``, in training ``box_counts``, else ``indices`` and
    ``original_sizes``, as ``collate`` has them."""
    return {name: np.array(value, dtype=np.int64) for name, value in batch[HOST].items()}


def largest_side(data: DetectionDataSection, sizes: np.ndarray) -> int:
    """No training image has a longer side in pixels.

    Args:
        data: the configuration's DATA.
        sizes: int64 (samples, 2), of the stored images.
    """
    if data.RESIZE_TO_SQUARE:
        return max(data.SHORTEST_SIDES)
    if data.CROP_PROBABILITY or not len(sizes):  # a crop may have any proportions
        return int(data.LONGEST_SIDE)
    widest = float((sizes.max(axis=1) / np.maximum(sizes.min(axis=1), 1)).max())
    return min(int(data.LONGEST_SIDE), int(np.ceil(max(data.SHORTEST_SIDES) * widest)))


def passes(sizes: np.ndarray, how: str) -> list[list[int]]:
    """Which images of a batch go through the network together: positions in the batch, each once.

    Args:
        sizes: int64 (N, 2), of the images without padding.
        how: one of DETECTION.EVAL_BATCHING.
    """
    if how == PADDED:
        return [list(range(len(sizes)))]
    if how == SINGLE:
        return [[row] for row in range(len(sizes))]
    groups: dict[Any, list[int]] = {}
    for row, size in enumerate(sizes.tolist()):
        groups.setdefault(tuple(size), []).append(row)
    return list(groups.values())


def draw_grouped_order(sizes: np.ndarray, group: int, generator: np.random.Generator) -> np.ndarray:
    """A permutation of all images, int64 (images,), in which every ``group`` that follow one another, from the
    first on, are of similar proportions, so that a batch needs less padding; those that fill no group come last. Where
    nothing is grouped, a third of what a detector computes on COCO is padding.

    It depends on the generator and on ``group`` alone, not on batches and processes: an epoch that another number of
    processes continues sees every image once.

    Args:
        sizes: int64 (images, 2), height and width.
    """
    order = generator.permutation(len(sizes))
    proportions = np.log(np.maximum(sizes[:, 1], 1) / np.maximum(sizes[:, 0], 1))
    grouped = len(order) // group * group
    together = group * min(_POOL, max(2, grouped // group // _POOLS))
    groups = [order[:0].reshape(0, group)]
    for first in range(0, grouped, together):
        pool = order[first : min(first + together, grouped)]
        groups.append(pool[np.argsort(proportions[pool], kind="stable")].reshape(-1, group))
    joined = np.concatenate(groups)
    return np.concatenate([joined[generator.permutation(len(joined))].reshape(-1), order[grouped:]])


def check_files(dataset: Any, split: str, is_replaced: bool) -> list[str]:
    """Look for the files of all images; lines about those that are missing and replaced, and about images that
    nothing is said of.

    Raises:
        UserError: some are missing, and are not replaced.
    """
    beside = dataset.beside()
    lines = []
    if beside:
        are = "image is" if len(beside) == 1 else "images are"
        lines = [f"{len(beside):,} {are} beside those of {split} without annotations, and not read, as {beside[0]}"]
    missing = dataset.missing()
    if not len(missing):
        return lines
    scope = f"{len(missing):,} of {len(dataset):,} images of {split} are not there, as {dataset.describe(missing[0])}"
    if is_replaced and len(missing) < len(dataset):
        return [*lines, f"{scope}: the next ones take their place (DATA.ON_INVALID_SAMPLE skip)"]
    skip = ", or let DATA.ON_INVALID_SAMPLE skip take the next ones" if split == "train" else ""
    raise UserError(f"{scope}: put them there, or leave them out of the annotations{skip}")
