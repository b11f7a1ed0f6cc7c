"""Lists of images with label maps: lines with both paths, or with a name that both have.

Names and paths may contain spaces: the files that exist tell where a line is divided.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...core.runtime.errors import UserError
from ...core.runtime.spelling import compose, find_spelling
from .listed_names import find_foreign_prefix, find_listed_name, has_image_suffix, read_name_lines, remove_image_suffix

_MOST_SPACES = 100  # at which a line of a list is divided, from its end


def read_pairs(file: str, top: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Read the image and the label map that each line of a list names; also return log lines."""
    lines = [line.strip().replace("\\", "/") for line in read_name_lines(file)]
    paths = [path for line in lines for path in _split_pair(line, top)]
    prefix = find_foreign_prefix(paths, lambda path: os.path.isfile(_find_path(path, top)))
    if prefix:
        lines = ["\t".join(path[len(prefix) :] for path in _split_pair(line, top)) for line in lines]
    rows = parse_pairs(lines, top)
    missing = [path for row in rows for path in row if not os.path.isfile(path)]
    if missing or not rows:
        text = f"{', '.join(missing[:3])}, which {'do' if len(missing) > 1 else 'does'} not exist"
        raise UserError(f"{file} names {text if rows else 'no images, or lines without an image and its label map'}")
    return rows, [f"{file}: all paths begin with {prefix}, which is removed"] if prefix else []


def parse_pairs(lines: list[str], top: str) -> list[tuple[str, str]]:
    """Parse the images and label maps on the lines of a list, relative to ``top``; none if it is not such a list."""
    rows = [_split_pair(line.strip().replace("\\", "/"), top) for line in lines if line.strip()]
    if any(len(row) != 2 or not has_image_suffix(row[1]) for row in rows):
        return []
    return [(_find_path(image, top), _find_path(label_map, top)) for image, label_map in rows]


def _split_pair(line: str, top: str) -> Sequence[str]:
    """Divide a line into image and label map: at its tabs, or at the last space for which both files exist."""
    if "\t" in line:
        return [part.strip() for part in line.split("\t")]
    pairs = [*_split_line(line)]
    exist = (pair for pair in pairs if all(os.path.isfile(_find_path(path, top)) for path in pair))
    return pairs[0] if len(pairs) == 1 else next(exist, pairs[0] if pairs else (line,))


def _find_path(path: str, top: str) -> str:
    return find_spelling(os.path.join(top, path))


def read_list(file: str, images: Mapping[str, str], labels: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    """Read the names in a list, in its order.

    A line is a name, perhaps with the suffix of an image, and perhaps with the name of the label map after it.
    """
    stems = list(dict.fromkeys(_find_stem(line, images, labels) for line in read_name_lines(file)))
    for names, folder, kind in zip((images, labels), folders, ("image", "label map")):
        missing = [stem for stem in stems if stem not in names]
        if missing:
            more = f" ({len(missing):,} of {len(stems):,} are missing)" if len(missing) > 1 else ""
            raise UserError(f"{file} names {', '.join(missing[:3])}, but {folder} has no {kind} of that name{more}")
    if not stems:
        raise UserError(f"{file} is empty; expected an image name on each line")
    return stems


def _find_stem(line: str, images: Collection[str], labels: Collection[str]) -> str:
    """Return the image that a line of a list names; the line itself, without suffix, if there is no such image."""
    stem = find_listed_name(line, images) or find_listed_name(line.strip().lstrip("/"), images)
    if stem is not None:
        return stem
    for head, tail in _split_line(line.strip()):
        stem = find_listed_name(head.lstrip("/"), images)
        if stem is not None and find_listed_name(tail.lstrip("/"), labels) == stem:
            return stem
    return compose(remove_image_suffix(line.strip().lstrip("/")))


def _split_line(line: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to divide a line at spaces into two texts, the one with the shortest second text first."""
    for space in [*re.finditer(r"\s+", line)][: -_MOST_SPACES - 1 : -1]:
        yield line[: space.start()], line[space.end() :]
