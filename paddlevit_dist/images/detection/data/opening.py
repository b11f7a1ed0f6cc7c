"""From the configuration to the samples of a split: all pictures of a dataset, or a part of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from ....contracts.dataset import dataset_class
from ....errors import UserError
from ...data.held_out import Part, choose_held_out, write_rows
from ...data.inspection import Inspection
from ...data.left_out import printable
from ...data.reading import Reading
from .detection_dataset import Annotations, DetectionDataset, count
from .indexed_pictures import check_files, check_sizes
from .samples import DetectionSamples
from .transforms import evaluation_transform, training_transform
from .views import Size


class PicturesPart(Part, DetectionDataset):  # type: ignore[misc] # what both have is the first one's
    """Pictures of another dataset: those held out for validation, the others, those with something to learn, or all in
    another order. Pickled as that dataset and the name of a memory-mapped file of rows."""

    dataset: Any
    labels = None  # type: ignore[assignment] # of a picture there are many

    def __init__(self, dataset: Any, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.labelled, self.category_ids, self.has_masks = dataset.labelled, dataset.category_ids, dataset.has_masks

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "notices": ()}

    @property
    def image_ids(self) -> np.ndarray:
        return self.dataset.image_ids[self.rows]

    def image_id(self, index: int) -> int:
        return self.dataset.image_id(int(self.rows[index]))

    @property
    def sizes(self) -> np.ndarray:
        return self.dataset.sizes[self.rows]

    def size(self, index: int) -> Size:
        return self.dataset.size(int(self.rows[index]))

    def annotations(self, index: int) -> Annotations:
        return self.dataset.annotations(int(self.rows[index]))

    def missing(self) -> Sequence[int]:
        return np.flatnonzero(np.isin(self.rows, self.dataset.missing())).tolist()

    def beside(self) -> Sequence[str]:
        return self.dataset.beside()

    def check_size(self, index: int) -> Optional[UserError]:
        return self.dataset.check_size(int(self.rows[index]))

    def learnable(self) -> np.ndarray:
        return self.dataset.learnable()[self.rows]

    def summary(self, chosen: Optional[np.ndarray] = None) -> str:
        return self.dataset.summary(self.rows if chosen is None else self.rows[chosen])


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
        kept = np.flatnonzero(dataset.learnable())
        left = len(dataset) - len(kept)
        if left:
            dataset = _part(dataset, kept, "learnable", cache_folder)
            notices.append(f"{count(left, 'training picture')} with nothing to learn left out (DATA.KEEP_EMPTY false)")
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
    held_out = choose_held_out(whole, np.zeros(len(whole), np.int64), fraction, data.VAL_SEED)
    rows = np.flatnonzero(held_out if split == "val" else ~held_out)
    dataset = _part(whole, rows, f"held-out-{split}", cache_folder, is_share=True)
    told = f"{split}: {count(len(dataset), 'picture')} of the {len(whole):,} for training, of which DATA.VAL_FRACTION "
    return dataset, [*whole.notices, f"{told}{fraction:g} holds out some for validation (VAL_SEED {data.VAL_SEED})"]


def ordered_by_shape(dataset: Any, resized: Callable[[Size], Size], cache_folder: Path) -> PicturesPart:
    """All pictures, those of equal size after ``resized`` together, so that batches of them need no padding."""
    sizes = np.array([resized((height, width)) for height, width in dataset.sizes.tolist()]).reshape(-1, 2)
    return _part(dataset, np.lexsort((sizes[:, 1], sizes[:, 0])), "by-shape", cache_folder)


def _part(dataset: Any, rows: np.ndarray, name: str, cache_folder: Path, is_share: bool = False) -> PicturesPart:
    return PicturesPart(dataset, write_rows(cache_folder, f"pictures-{name}", rows), is_share)
