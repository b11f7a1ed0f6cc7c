"""Panoptic quality of files in COCO's panoptic format, of any program. Needs no Paddle."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ...core.tasks.class_labels import require_class_numbers
from ...core.tasks.sample_checks import BadSample
from ...core.tasks.sample_names import SampleNames
from ...core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from ..data.inspection import run_in_threads
from ..data.label_pixels import read_label_pixels, require_map_size
from ..data.panoptic_files import (
    ImageSegments,
    PanopticFile,
    find_repeated,
    join_listed,
    list_categories,
    make_segment_rows,
    read_panoptic_json,
)
from ..data.reading import read_file
from .data.panoptic_dataset import PanopticDataset, count_wrong_areas, describe_wrong_areas
from .data.segments import Segments, number_segments
from .quality import count_image

RESULTS = "panoptic.json"  # file of a prediction, whose maps are in the folder of its name
Id = int | str


class PanopticTruth(NamedTuple):
    """The true segments of the images to score."""

    names: Sequence[str]  # of the images, as in a run's table
    ids: Sequence[Id]  # of the images in files of results
    read: Callable[[int], Segments]  # returns the segments of an image
    class_names: Sequence[str]
    is_thing: Sequence[bool]
    category_ids: Sequence[int]
    source: str  # for messages
    origin: ResultSource = UNKNOWN  # its dataset


def read_truth(file: str) -> PanopticTruth:
    """Read the truth from a JSON file in COCO's panoptic format; a ``UserError`` if it is another file."""
    content = read_panoptic_json(file)
    categories = list_categories(content.categories, file)
    if categories.is_thing is None:
        raise UserError(f"{file} has no categories with isthing: 1 for a class with instances, 0 for stuff")
    name_of, label_of = {image.id: image.file_name for image in content.images}, categories.label_of()
    ids = [_get_id(entry, file) for entry in content.annotations]
    _require_unique(ids, file)
    names = [name_of.get(number) or entry.file_name for number, entry in zip(ids, content.annotations)]
    read = functools.partial(_read_entry, file, content.annotations, label_of)
    return PanopticTruth(names, ids, read, categories.names, categories.is_thing, categories.ids, file)


def open_truth(dataset: PanopticDataset, origin: ResultSource) -> PanopticTruth:
    """Return the truth of a dataset."""
    numbers = range(len(dataset))
    names, ids = list(map(dataset.identity, numbers)), list(map(dataset.image_id, numbers))
    categories = list(dataset.category_ids or range(1, dataset.num_classes + 1))
    classes = list(map(str, dataset.class_names or categories))
    return PanopticTruth(names, ids, dataset.read_segments, classes, dataset.is_thing, categories, str(origin), origin)


def score(truth: PanopticTruth, results: str) -> ScoreReport:
    """Compare the segments of a file of results with the truth.

    Raises:
        UserError: an image has no result, a map cannot be read or has another size, or categories differ.
    """
    content = read_panoptic_json(results)
    label_of = _match_categories(truth, content, results)
    places = _match_images(truth, content, results)

    def compare(
        own: PanopticTruth, index: int, label_of: Mapping[int, int] = label_of
    ) -> tuple[np.ndarray, np.ndarray, int]:
        true = own.read(index)
        found = _read_entry(results, entries, label_of, index, (truth.names[index], true.places.shape))
        if len(np.unique(found.places[found.places >= 0])) < len(found.labels):
            empty = found.ids[np.setdiff1d(np.arange(len(found.labels)), found.places)[0]]
            raise UserError(f"{results}: segment {empty} has no pixel in {_find_map(results, entries[index])}")
        return *count_image(true, found, len(truth.class_names)), count_wrong_areas(true)

    entries = [content.annotations[place] for place in places]
    compared = list(run_in_threads(compare, truth, range(len(entries)), "comparing", len(entries), np.inf))
    counts, ious, wrong = map(np.stack, zip(*compared))

    def count_right(off: int) -> int:
        if not off:
            return int(counts[:, 0].sum())
        labels = {number + off: label for number, label in label_of.items()}
        return sum(int(compare(truth, index, labels)[0][0].sum()) for index in range(len(entries)))

    if not content.categories:
        _require_same_ids(truth, content, results, count_right)
    segments = int((counts[:, 0] + counts[:, 2]).sum())
    others = len(content.annotations) - len(entries)
    notices = [f"{results}: {count(others, 'image')} without ground truth: skipped"] if others else []
    if wrong.any():
        notices.append(f"{truth.source}: {describe_wrong_areas(int(wrong.sum()))}")
    return ScoreReport(
        counted=f"{count(segments, 'segment')} in {count(len(entries), 'image')}, {int(counts[:, :2].sum()):,} "
        f"segments of results that count: {results}, ground truth: {truth.source}",
        names=truth.names,
        sample="image",
        shown=dict.fromkeys(("PQ", "SQ", "RQ", "PQ_things", "PQ_stuff"), 4),
        classes=list(truth.class_names),
        protocol=[
            "PQ: as panopticapi, over the segments of all images together; mean over the classes that occur",
            "a segment matches one of its class with an IoU above 0.5; void is not scored, crowds neither match nor "
            "are missed, and a result more than half on void or on the last crowd of its class is not an error",
        ],
        notices=notices,
        task="panoptic_segmentation",
        kind="panoptic",
        arrays={"segment_counts": counts, "segment_ious": ious, "is_thing": np.array(truth.is_thing, bool)},
        origin=truth.origin,
    )


def _match_categories(truth: PanopticTruth, content: PanopticFile, results: str) -> dict[int, int]:
    """Return the class of each category id of the results; a ``UserError`` if a name says that it is another one."""
    label_of = dict(zip(truth.category_ids, range(len(truth.class_names))))
    for category in content.categories:
        label = label_of.get(category.id)
        known = None if label is None else truth.class_names[label].removesuffix(f" (id {category.id})")
        if known is not None and known != category.name:
            raise UserError(
                f"{results}: category {category.id} is {shorten(category.name, 60)}, but {shorten(known, 60)} in "
                f"{truth.source}: segments are compared by the ids of their categories"
            )
    _require_same_ids(truth, content, results, lambda off: 0)
    return label_of


def _require_same_ids(
    truth: PanopticTruth, content: PanopticFile, results: str, count_right: Callable[[int], int]
) -> None:
    """Refuse results that number the categories in another way, see ``require_class_numbers``."""
    found = {each.category_id for entry in content.annotations for each in entry.segments_info}
    advice = f"write the ids of {truth.source}"
    require_class_numbers(results, found, truth.source, truth.category_ids, count_right, advice)


def _match_images(truth: PanopticTruth, content: PanopticFile, results: str) -> list[int]:
    """Return the place of each image's result: by the list of images if the results have one, else by id, else by name.

    A ``UserError`` if an image has none, or if ids and the names of the maps contradict each other.
    """
    entries = content.annotations
    ids = [_get_id(entry, results) for entry in entries]
    _require_unique(ids, results)
    by_id = {number: place for place, number in enumerate(ids)}
    matched = [by_id.get(number) for number in truth.ids]
    name_of = {image.id: image.file_name for image in content.images}
    is_complete, fullest = None not in matched, matched
    for names, is_list in (
        ([name_of.get(number, "") for number in ids], True),
        ([entry.file_name for entry in entries], False),
    ):
        if is_complete and not (_are_unique(truth.names) and _are_unique(names)):
            continue  # the ids are enough
        try:
            found = _match_names(truth, names, results)
        except UserError:
            if is_complete:
                continue
            raise
        places = [place for place in found if place is not None]
        if len(places) < len(found) or found == matched:
            fullest = min(fullest, found, key=lambda rows: rows.count(None))
            continue
        if not is_list and is_complete:
            row = next(row for row, place in enumerate(places) if place != matched[row])
            raise UserError(
                f"{results}: {shorten(entries[places[row]].file_name, 80)} has image_id {ids[places[row]]}, but "
                f"{shorten(truth.names[row], 80)} of {truth.source} has {truth.ids[row]}: correct one of them, or list "
                "id and file_name of the images under images"
            )
        return places
    known = [place for place in matched if place is not None]
    if is_complete:
        return known
    missing = [truth.names[row] for row, place in enumerate(fullest) if place is None]
    raise UserError(
        f"{results}: {len(missing):,} of {count(len(truth.names), 'image')} of {truth.source} have no result, such as "
        f"{missing[0]}; an image without a segment needs an entry with an empty list"
    )


def _match_names(truth: PanopticTruth, names: Sequence[str], results: str) -> list[int | None]:
    """Return the place of each image's name among these, where "" is unknown; None: it is not among them."""
    places = [place for place, name in enumerate(names) if name]
    finder, matches = SampleNames([names[place] for place in places], results), dict[int, str]()
    found: list[int | None] = []
    for name in truth.names:
        row = finder.find_row(name) if places else None
        if row is not None and row in matches:
            clash = f"{finder.names[row]} matches {matches[row]} and {name} of {truth.source}"
            raise UserError(f"{results}: {clash}: give the results the ids of the ground truth, or its folders")
        if row is not None:
            matches[row] = name
        found.append(None if row is None else places[row])
    return found


def _are_unique(names: Sequence[str]) -> bool:
    """Return whether names of files, with their folders, differ without suffixes."""
    return len({os.path.splitext(name)[0] for name in names}) == len(names)


def _get_id(entry: ImageSegments, file: str) -> Id:
    if entry.image_id is None:
        raise UserError(f"{file}: {shorten(entry.file_name, 80)} has no image_id")
    return entry.image_id


def _require_unique(ids: Sequence[Id], file: str) -> None:
    repeated = find_repeated(ids)
    if repeated is not None:
        raise UserError(f"{file} has two entries of image {repeated}: remove one of them")


def _find_map(file: str, entry: ImageSegments) -> str:
    """Return the map of an image: in the folder of the JSON file's name."""
    return join_listed(file, os.path.splitext(file)[0], entry.file_name, "folder of its maps")


def _read_entry(
    file: str,
    entries: Sequence[ImageSegments],
    label_of: Mapping[int, int],
    index: int,
    size: tuple[str, tuple[int, ...]] | None = None,
) -> Segments:
    """Read the segments of an image; a ``UserError`` if they and its map differ.

    ``size``: name of the true image, and the height and width that the map must have.
    """
    entry = entries[index]
    path, rows = _find_map(file, entry), entry.segments_info
    unknown = next((each.category_id for each in rows if each.category_id not in label_of), None)
    if unknown is not None:
        raise UserError(f"{file}: {shorten(entry.file_name, 80)} has a segment of category {unknown}, which is unknown")
    encoded = read_file(path)
    if size is not None:
        require_map_size(encoded, path, *size)
    ids, labels, crowds, areas = make_segment_rows(file, path, rows, label_of).T
    try:
        found = number_segments(read_label_pixels(encoded, path).values.astype(np.int64), ids, labels, crowds == 1)
    except BadSample as error:
        raise UserError(f"{path}: {error.reason}, by {file}") from None
    return found._replace(areas=np.where(areas < 0, found.areas, areas))
