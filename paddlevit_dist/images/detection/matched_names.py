"""Images and categories of two files that number them differently, matched by their names."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ...runtime.errors import UserError
from ...runtime.printing import one_line, shorten
from ..data.data_warnings import count
from .coco_files import Id, short

Offset = tuple[bool, tuple[str, ...]]  # whether the known path is the longer one, and what it has in front
_SAME: Offset = (False, ())


def match_files(names: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """Find images by their paths, of which one may begin in another folder than the other.

    Two paths mean the same image if one of them is the end of the other. Where a path could mean several images, all
    paths are taken to begin in the one folder that fits them all, if there is one.

    Args:
        names: different paths.
        known: the path of each image; "" where it has none.
    Returns:
        Positions in ``known`` of each name. None: no image has this path. Several: it cannot be decided which.
    """
    by_last: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for position, path in enumerate(known):
        parts = _parts(path)
        if parts:
            by_last.setdefault(parts[-1], []).append((parts, position))
    found = [_fitting(_parts(name), by_last) for name in names]
    counts = Counter(offset for places in found for offset in places)
    common = [offset for offset, number in counts.items() if number == len(names)]
    common = [_SAME] if _SAME in common else common
    return [
        [position for offset in (common or places) for position in places[offset]] if places else [] for places in found
    ]


def _parts(path: str) -> tuple[str, ...]:
    """Folders and file of a path, without what leads out of the folder where it begins."""
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def _fitting(name: tuple[str, ...], by_last: dict[str, list[tuple[tuple[str, ...], int]]]) -> dict[Offset, list[int]]:
    """The images that a path can mean, by what one of the two paths has in front of the other."""
    found: dict[Offset, list[int]] = {}
    for parts, position in by_last.get(name[-1], ()) if name else ():
        is_longer, shorter = len(parts) > len(name), min(len(parts), len(name))
        if parts[-shorter:] == name[-shorter:]:
            longer = parts if is_longer else name
            found.setdefault((is_longer, longer[:-shorter]), []).append(position)
    return found


def match_categories(names: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """Find categories by their names: those of an equal name, else those whose name differs in capitals and in the
    spaces around it, unless another name is equal to theirs.

    Args:
        names: different names, of which none is empty.
        known: the name of each category; "" where it has none.
    Returns:
        Positions in ``known`` of each name. None: there is no such category. Several: it cannot be decided which.
    """
    equal, similar = _positions(known), _positions(map(_folded, known))
    taken = {position for name in names for position in equal.get(name, ())}
    return [equal.get(name) or [one for one in similar.get(_folded(name), ()) if one not in taken] for name in names]


def _positions(names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return found


def _folded(name: str) -> str:
    return name.strip().casefold()


def require_images(names: Sequence[str], found: Sequence[list[int]], ids: Sequence[Id], file: str, before: str) -> None:
    """Refuse paths that stand for no image, for several, or for the same image as another path.

    Args:
        found: what ``match_files`` has returned for ``names``.
        ids: of the images in ``file``.
        before: beginning of each message.
    Raises:
        UserError: names the first path.
    """
    missing = [name for name, positions in zip(names, found) if not positions]
    if missing:
        said = (
            f"{len(missing):,} of {count(len(names), 'image')} are not in {file} by their file names, as {missing[0]}"
        )
        raise UserError(one_line(f"{before}{said}: give images that it lists, in the same folders"))
    several = next(((name, positions) for name, positions in zip(names, found) if len(positions) > 1), None)
    if several:
        shown = " and ".join(short(ids[position]) for position in several[1][:2])
        said = f"{several[0]} can be several images of {file}, with the ids {shown}: name images with their folders"
        raise UserError(one_line(f"{before}{said}"))
    first: dict[int, str] = {}
    for name, positions in zip(names, found):
        other = first.setdefault(positions[0], name)
        if other != name:
            said = f"{other} and {name} would both be the image with id {short(ids[positions[0]])} of {file}"
            raise UserError(one_line(f"{before}{said}: give the images of one folder"))


def require_categories(
    names: Sequence[str], found: Sequence[list[int]], known: Sequence[str], file: str, before: str
) -> dict[int, str]:
    """Refuse names of categories that stand for several categories, or for the same one as another name, or of which
    none stands for any.

    Args:
        found: what ``match_categories`` has returned for ``names``.
        known: the names of all categories in ``file``.
        before: beginning of each message.
    Returns:
        The name that stands for a category, by its position in ``known``.
    Raises:
        UserError: says which names.
    """
    if names and not any(found):
        theirs, ours = (shorten(", ".join(list(some)[:3])) for some in (names, filter(None, known)))
        raise UserError(f"{before}no category is in {file} by its name, as {theirs}; there are, as {ours}")
    first: dict[int, str] = {}
    for name, positions in zip(names, found):
        if len(positions) > 1:
            raise UserError(f"{before}{shorten(name)} can be several categories of {file}: give each its own name")
        for position in positions:
            other = first.setdefault(position, name)
            if other != name:
                both = f"{shorten(other)} and {shorten(name)}"
                raise UserError(f"{before}{both} would both be {shorten(known[position])} of {file}: rename one")
    return first
