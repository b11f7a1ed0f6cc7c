"""Matches images and categories of two files with different ids by their names."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, one_line, shorten
from ..data.box_layouts import SPLIT_FOLDERS, VOC_IMAGES
from .coco_files import Id, short

Offset = tuple[bool, tuple[str, ...]]  # whether the known path is longer, and its additional folders
_NO_OFFSET: Offset = (False, ())
_LAYOUT = re.compile(rf"^((.*?/)?({'|'.join(VOC_IMAGES)}|obj_\w+_data)/)?(({'|'.join(SPLIT_FOLDERS)})\d*/)?", re.I)


def match_files(names: Sequence[str], known_names: Sequence[str], root: str = "") -> list[list[int]]:
    """Match images by unique paths, which may be relative to different folders; return positions in ``known_names``.

    Two paths match if one of them is the end of the other. If a path matches several images, all paths are assumed to
    be relative to the one folder for which all match, if there is one. A name has no position if no image has this
    path, several if the match is ambiguous; a known name is "" where an image has none. ``root``: see ``_match_saved``.
    """
    by_last: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for position, path in enumerate(known_names):
        parts = _parts(path)
        if parts:
            by_last.setdefault(parts[-1], []).append((parts, position))
    matches = [_fitting(_parts(name), by_last) for name in names]
    counts = Counter(offset for candidates in matches for offset in candidates)
    common = [offset for offset, number in counts.items() if number == len(names)]
    common = [_NO_OFFSET] if _NO_OFFSET in common else common
    found = [
        [candidate for offset in (common or candidates) for candidate in candidates[offset]] if candidates else []
        for candidates in matches
    ]
    if not root or all(found):
        return found
    return [own or saved for own, saved in zip(found, _match_saved(names, known_names, root))]


def _match_saved(names: Sequence[str], known_names: Sequence[str], root: str) -> list[list[int]]:
    """Match images with a data set in ``root`` that ``predict -save_as`` wrote of them: other folders and suffixes.

    A second image of a name ends with "_2": both match if no other name does. Its other images match nothing.
    """
    stems = [_LAYOUT.sub("", os.path.splitext(name)[0]) for name in known_names]
    position_of = {stem.lower(): position for position, stem in enumerate(stems)}
    short = [os.path.splitext(name)[0] for name in names]
    given, matches = {os.path.basename(name).lower() for name in short}, match_files(short, stems)
    for name, places in zip(names, matches):
        places[:] = [k for k in places if known_names[k].endswith(os.path.splitext(name)[1])] or places
        twins = [f"{stems[position]}_2".lower() for position in places]
        places += [position_of[twin] for twin in twins if twin in position_of and os.path.basename(twin) not in given]
        parts = _parts(name)
        if any(os.path.isfile(os.path.join(root, *parts[first:])) for first in range(len(parts) - 1)):
            places.clear()
    return matches


def _parts(path: str) -> tuple[str, ...]:
    """Split a path into folders and file, without parts that leave the folder that it starts in."""
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def _fitting(name: tuple[str, ...], by_last: dict[str, list[tuple[tuple[str, ...], int]]]) -> dict[Offset, list[int]]:
    """Return the positions of images that a path can mean, by the additional folders of one of the two paths."""
    matches: dict[Offset, list[int]] = {}
    for parts, position in by_last.get(name[-1], ()) if name else ():
        is_longer, shorter = len(parts) > len(name), min(len(parts), len(name))
        if parts[-shorter:] == name[-shorter:]:
            longer = parts if is_longer else name
            matches.setdefault((is_longer, longer[:-shorter]), []).append(position)
    return matches


def match_categories(
    names: Sequence[str], known_names: Sequence[str], unique_names: Sequence[str] = ()
) -> list[list[int]]:
    """Match categories by unique names, exactly or else ignoring case and surrounding spaces.

    Returns positions in ``known_names`` for each name: several if the match is ambiguous. A category that another name
    matches exactly is not matched inexactly; a known name is "" where a category has none. ``unique_names`` are the
    known names with the ids of those that several categories have, see ``make_unique``.
    """
    equal, similar = _positions(known_names), _positions(map(_folded, known_names))
    equal = {**_positions(unique_names), **equal}
    matched = {position for name in names for position in equal.get(name, ())}
    return [
        equal.get(name) or [position for position in similar.get(_folded(name), ()) if position not in matched]
        for name in names
    ]


def _positions(names: Iterable[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    return positions


def _folded(name: str) -> str:
    """Return a name without case and surrounding spaces."""
    return name.strip().casefold()


def require_images(
    names: Sequence[str], matches: Sequence[list[int]], ids: Sequence[Id], file: str, before: str
) -> None:
    """Check that each path matches one image, and that no two paths match the same image.

    Args:
        matches: result of ``match_files`` for ``names``.
        ids: ids of the images in ``file``.
        before: start of each message.

    Raises:
        UserError: names the first invalid path.
    """
    missing = [file_name for file_name, places in zip(names, matches) if not places]
    if missing:
        message = f"{len(missing):,} of {count(len(names), 'image')} are not listed in {file}, such as {missing[0]}"
        raise UserError(one_line(f"{before}{message}: use the images that it lists, in the same folders"))
    several = next(((file_name, places) for file_name, places in zip(names, matches) if len(places) > 1), None)
    if several:
        example_ids = " and ".join(short(ids[position]) for position in several[1][:2])
        message = f"{several[0]} matches several images of {file}, with ids {example_ids}"
        raise UserError(one_line(f"{before}{message}: use paths with folders, or names that differ without suffix"))
    first: dict[int, str] = {}
    for name, positions in zip(names, matches):
        other = first.setdefault(positions[0], name)
        if other != name:
            message = f"{other} and {name} both match the image with id {short(ids[positions[0]])} of {file}"
            raise UserError(one_line(f"{before}{message}: use the images of one folder"))


def require_categories(
    names: Sequence[str], matches: Sequence[list[int]], known_names: Sequence[str], file: str, before: str
) -> dict[int, str]:
    """Check that names match at most one category each, no two the same, and at least one matches.

    Returns the position in ``known_names`` of each matched category -> its name in ``names``.

    Args:
        matches: result of ``match_categories`` for ``names``.
        known_names: names of all categories in ``file``.
        before: start of each message.

    Raises:
        UserError: names the categories.
    """
    if names and not any(matches):
        theirs, ours = (shorten(", ".join(list(values)[:3])) for values in (names, filter(None, known_names)))
        raise UserError(f"{before}no category name is in {file}: got {theirs}, but it has {ours}")
    first: dict[int, str] = {}
    for name, positions in zip(names, matches):
        if len(positions) > 1:
            raise UserError(f"{before}{shorten(name)} matches several categories of {file}: give each a unique name")
        for position in positions:
            other = first.setdefault(position, name)
            if other != name:
                both = f"{shorten(other)} and {shorten(name)}"
                raise UserError(f"{before}{both} both match {shorten(known_names[position])} of {file}: rename one")
    return first
