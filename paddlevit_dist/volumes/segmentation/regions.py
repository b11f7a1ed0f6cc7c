"""Regions: unions of labels, such as all parts of a tumor, each predicted by a separate output."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten

_LARGEST = (1 << 16) - 1  # label number


class LabelRegion(NamedTuple):
    """A union of labels."""

    labels: tuple[int, ...]  # places of these labels in the dataset's ``numbers``
    painted: int  # label that the voxels of the region get in a predicted label map, unless a later region covers them


class RegionDescription(NamedTuple):
    """Labels of a ``dataset.json`` with regions."""

    numbers: list[int]  # numbers of the labels in files, 0 for the background first
    regions: dict[str, LabelRegion]  # by name, in the order of the network's outputs
    ignored: int | None  # number of voxels without a label, or None


def group_labels(class_names: Sequence[str], regions: Sequence[LabelRegion]) -> dict[str, tuple[int, ...]]:
    """Return the labels of each class that has a score, by name, after the background.

    ``class_names`` are the network's outputs: the background and the classes, or the regions, without which each class
    is a label.
    """
    if not regions:
        return {name: (label,) for label, name in enumerate(class_names)}
    return {"background": (0,), **{name: region.labels for name, region in zip(class_names, regions)}}


def name_labels(class_names: Sequence[str], regions: Sequence[LabelRegion], numbers: Sequence[int]) -> list[str]:
    """Return the name of each label in a predicted label map: with regions, of the region that paints it."""
    if not regions:
        return list(class_names)
    painted = {region.painted: name for name, region in zip(class_names, regions)}
    return ["background", *(painted.get(label, str(numbers[label])) for label in range(1, len(numbers)))]


def describe_regions(
    class_names: Sequence[str], regions: Sequence[LabelRegion], numbers: Sequence[int]
) -> dict[str, Any]:
    """Return the regions as plain values with the numbers in files, as in ``dataset.json``; empty without regions."""
    if not regions:
        return {}
    members = {name: [numbers[label] for label in region.labels] for name, region in zip(class_names, regions)}
    return {"regions": members, "regions_class_order": [numbers[region.painted] for region in regions]}


def load_regions(described: Mapping[str, Any], numbers: Sequence[int]) -> list[LabelRegion]:
    """Return the regions of the plain values of ``describe_regions``."""
    pairs = zip((described.get("regions") or {}).values(), described.get("regions_class_order") or ())
    return [LabelRegion(tuple(map(numbers.index, members)), numbers.index(painted)) for members, painted in pairs]


def has_regions(labels: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether an entry of "labels" lists several numbers; nnU-Net reads a list of one as that number."""
    values = labels.values() if isinstance(labels, Mapping) else ()
    return any(isinstance(value, (list, tuple)) and len(value) != 1 for value in values)


def read_regions(file: str, labels: Mapping[str, Any], order: object) -> RegionDescription:
    """Read "labels" with regions and "regions_class_order" of a ``dataset.json``; UserError if they are invalid.

    Every entry but the background and the label to ignore is a region with a separate output, as in nnU-Net.
    """
    if labels.get("background") != 0 or isinstance(labels["background"], bool):
        raise UserError(
            f'{file}: "labels" has regions, so it also needs "background": 0, without a list; found '
            f"{labels.get('background')!r}"
        )
    ignored = labels.get("ignore")
    if ignored is not None and not _is_number(ignored):
        raise UserError(f"{file}: label 'ignore' has {ignored!r}, expected one number that no region has")
    members = {
        str(label_name): _read_members(file, label_name, value, ignored)
        for label_name, value in labels.items()
        if label_name not in ("background", "ignore")
    }
    for name, numbers in members.items():
        same = next((other for other in members if other != name and set(members[other]) == set(numbers)), None)
        if same is not None:
            raise UserError(f"{file}: regions '{name}' and '{same}' have the same numbers {numbers}: remove one")
    numbers = sorted({0, *(number for region in members.values() for number in region)})
    painted = _read_order(file, list(members), order, numbers)
    regions = {
        region_name: LabelRegion(tuple(map(numbers.index, members[region_name])), numbers.index(number))
        for region_name, number in zip(members, painted)
    }
    _check_painted(file, numbers, regions)
    return RegionDescription(numbers, regions, ignored)


def _check_painted(file: str, numbers: Sequence[int], regions: Mapping[str, LabelRegion]) -> None:
    """Check that a voxel painted with all regions of its true label is in these regions, and in no others.

    If not, UserError: even a perfect network's label maps would have wrong regions.
    """
    for label, number in enumerate(numbers):
        own = [name for name, region in regions.items() if label in region.labels]
        painted = regions[own[-1]].painted if own else 0
        found = [name for name, region in regions.items() if painted in region.labels]
        if found != own:
            order = [numbers[region.painted] for region in regions.values()]
            raise UserError(
                f"{file}: regions_class_order {order} would paint voxels of label {number} ({', '.join(own)}) as "
                f"{numbers[painted]}, which is in {', '.join(found)}: expected a number of each region that is in no "
                'later one, and in "labels" each region after those that contain it (regions that overlap only in part '
                "cannot be painted)"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST


def _read_members(file: str, name: str, value: Any, ignored: int | None) -> list[int]:
    problem = _find_problem(value, ignored)
    if problem:
        raise UserError(
            f"{file}: region '{name}' is {value!r}: {problem}; expected different whole numbers from 1 to {_LARGEST:,}"
        )
    return sorted(value) if isinstance(value, (list, tuple)) else [value]


def _find_problem(value: object, ignored: int | None) -> str | None:
    members = value if isinstance(value, (list, tuple)) else [value]
    wrong = [member for member in members if not _is_number(member)]
    if not members:
        return "it has no number"
    if wrong and wrong[0] == 0 and not isinstance(wrong[0], bool):
        return "0 is the background, which belongs to no region"
    if wrong:
        return f"{wrong[0]!r} is not a label's number"
    if len(set(members)) < len(members):
        return "a number occurs twice"
    if ignored in members:
        return f"{ignored} is the number of the label 'ignore'"
    return None


def _read_order(file: str, names: Sequence[str], order: object, numbers: Sequence[int]) -> list[int]:
    example = shorten(", ".join(names), 200)
    expected = f'expected "regions_class_order" with a number for each region ({example}): what its voxels become in '
    expected += "a prediction, later regions over earlier ones"
    if not isinstance(order, (list, tuple)):
        raise UserError(f'{file}: "labels" has regions, but there is no "regions_class_order": {expected}')
    if len(order) != len(names):
        raise UserError(f"{file}: regions_class_order has {len(order)} numbers for {len(names)} regions: {expected}")
    unknown = [value for value in order if not _is_number(value) or value not in numbers]
    if unknown:
        known = shorten(", ".join(map(str, numbers[1:])), 200)
        raise UserError(f"{file}: regions_class_order has {unknown[0]!r}, which is not a number of a region ({known})")
    if len(set(order)) < len(order):
        raise UserError(f"{file}: regions_class_order {list(order)} has a number twice: two regions would look alike")
    return list(order)
