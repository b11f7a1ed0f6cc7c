"""From the configuration to the samples of a split."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional, Tuple

from ....contracts.dataset import dataset_class
from ....errors import UserError
from ...data.inspection import Inspection
from ...data.left_out import printable
from ...data.reading import Reading
from .detection_dataset import DetectionDataset, count
from .indexed_pictures import check_files, check_sizes
from .picture_parts import held_out_part, learnable_part, ordered_by_shape
from .samples import DetectionSamples
from .transforms import evaluation_transform, training_transform


def open_samples(
    config: Any,
    split: str,
    cache_folder: Path,
    is_training: bool,
    with_masks: bool = False,
    inspection: Optional[Inspection] = None,
    by_shape: bool = False,
) -> DetectionSamples:
    """The pictures of ``split``, with the transform for training or for an evaluation, and lines about them in their
    ``notices``.

    Args:
        is_training: samples carry what is annotated; otherwise their indices and sizes, see ``samples``.
        with_masks: those for training carry masks.
        inspection: looks at some pictures before a run relies on them; one for all its splits.
        by_shape: those for an evaluation come ordered by their size after the transform.
    Raises:
        UserError: the data are missing or damaged, or hold no pictures with boxes, or no masks where these are asked
            for.
    """
    data = config.DATA
    dataset, notices = _open(config, split, cache_folder)
    if is_training and not data.KEEP_EMPTY:
        dataset, more = _without_empty(dataset, cache_folder)
        notices += more
    if not len(dataset):
        raise UserError(f"dataset {data.DATASET} has no {split} pictures at {data.DATA_PATH}")
    if inspection is not None:
        notices += check_files(dataset, split, inspection.replaces_bad and is_training)
        notices += inspection.look(dataset, split, dataset.num_classes or 0)
        notices += check_sizes(dataset, split, inspection.replaces_bad and is_training)
    transform: Any = training_transform(data) if is_training else evaluation_transform(data)
    if by_shape and not is_training:
        dataset = ordered_by_shape(dataset, transform.resized, cache_folder)
    samples = DetectionSamples(dataset, transform, is_training, with_masks, data.GROUP_BY_SHAPE if is_training else 0)
    samples.notices = [printable(line) for line in notices]
    return samples


def _open(config: Any, split: str, cache_folder: Path) -> Tuple[Any, List[str]]:
    data = config.DATA
    kind = dataset_class(config, DetectionDataset)
    fraction = data.VAL_FRACTION
    whole = kind.open(config, split if fraction is None else "train", cache_folder)
    of_boxes = whole.reading is not None and whole.reading.exif_rotate
    whole.read_with(Reading(of_boxes if data.EXIF_ROTATE is None else data.EXIF_ROTATE, data.MAX_PIXELS))
    if fraction is None:
        return whole, list(whole.notices)
    dataset = held_out_part(whole, split, fraction, data.VAL_SEED, cache_folder)
    told = f"{split}: {count(len(dataset), 'picture')} of the {len(whole):,} for training, of which DATA.VAL_FRACTION "
    return dataset, [*whole.notices, f"{told}{fraction:g} holds out some for validation (VAL_SEED {data.VAL_SEED})"]


def _without_empty(dataset: Any, cache_folder: Path) -> Tuple[Any, List[str]]:
    part = learnable_part(dataset, cache_folder)
    left = len(dataset) - len(part)
    if not left:
        return dataset, []
    return part, [f"{count(left, 'training picture')} with nothing to learn left out (DATA.KEEP_EMPTY false)"]
