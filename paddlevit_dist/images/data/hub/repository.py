"""Repositories of data sets at Hugging Face: ``hf:OWNER/NAME``, fetched once to the cache of its library.

A repository is judged as the folder that it is, by the names of its files, its lists and a few images, before the
rest is fetched. Only data, cards and lists are fetched: a script is neither copied nor executed.
"""

import contextlib
import functools
import glob
import os
import re
import tempfile
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ....core.checkpoint.download import in_one_line
from ....core.runtime.errors import UserError
from ..box_layouts import DatasetGuess
from ..formats import PACKED_TARS, is_image_name
from .layout import ARROW, CARD, OLD_INFOS, PARQUET, find_files, is_metadata

HUB_DATASETS = ("hub", "hub_boxes", "hub_label_maps")  # they open an address themselves
_SPELLING = re.compile(r"hf:([\w.-]+(?:/[\w.-]+)?)(?:@([\w./-]+))?")
_PAGE = re.compile(  # of a repository, as pasted; files of tars are read at .../resolve/...
    r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com)/|hf://)datasets/([\w.-]+(?:/[\w.-]+)?)"
    r"(?:@([\w.-]+)|/tree/([^/?#]+)[^?#]*|/viewer[^?#]*)?/?(?:[?#].*)?"
)
_LISTS = tuple(f".{word}" for word in "md json jsonl txt csv tsv yaml yml xml names".split())
_IMAGES = tuple(f".{word}" for word in "png jpg jpeg webp bmp tif tiff gif".split())
_ARCHIVES = (".zip", ".rar", ".7z", *PACKED_TARS)
_FEW_LISTS, _FEW_IMAGES, _MOST_IMAGES = 20, 3, 60  # of a kind in a folder, and images in all, to judge by


def parse_address(path: str) -> tuple[str, str | None]:
    """Return OWNER/NAME and the revision of a repository, None for its main branch; a UserError for other words."""
    match = _SPELLING.fullmatch(path) or _PAGE.fullmatch(path)
    if match is None:
        raise UserError(f"data path {path}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    revision = next(filter(None, match.groups()[1:]), None)
    return match[1], revision and urllib.parse.unquote(revision)


def is_repository(path: str) -> bool:
    """Return whether a data path names a repository at Hugging Face, or is the address of its page."""
    return os.fspath(path).startswith("hf:") or _PAGE.fullmatch(os.fspath(path)) is not None


def guess_repository(path: str, find: Callable[[str], Sequence[DatasetGuess]]) -> list[DatasetGuess]:
    """Return the datasets that ``find`` finds in the folder of a repository, with the paths that they open.

    Raises:
        UserError: ``find`` refuses the folder, before all images are fetched; or the repository cannot be fetched.
    """
    address, folder = _spell(path), ""
    names = _list_names(address)
    if names is not None:
        with _sketch(address, names) as folder:
            found = list(find(folder))
            archive = next((name for name in names if name.lower().endswith(_ARCHIVES)), None)
            if archive and not found:
                raise UserError(f"data path {folder} has {archive}: unpack it where you {_advise(address)}")
    if names is None or any(each.dataset not in HUB_DATASETS for each in found):
        folder = fetch_repository(address)
        found = list(find(folder))
    kept = "" if path == address else address
    paths = [kept if each.dataset in HUB_DATASETS else each.path or folder for each in found]
    return [each._replace(reason=each.reason.replace(folder, address), path=at) for each, at in zip(found, paths)]


def fetch_repository(path: str, configuration: str | None = None) -> str:
    """Return the folder with the data of a repository, of one configuration if it has Parquet or Arrow files.

    Raises:
        UserError: it cannot be fetched, and is not in the cache; with what to copy where.
    """
    return _fetch(_spell(path), configuration)


@functools.cache
def _fetch(address: str, configuration: str | None) -> str:
    names = _list_names(address)
    if names is None:
        return _copy(address, [f"*{suffix}" for suffix in (*_LISTS, *_IMAGES, *PARQUET, *ARROW, ".tar")])
    chosen = [name for name in names if name.lower().endswith((*_LISTS, ".tar")) or _is_picture(name)]
    if any(name.lower().endswith((*PARQUET, *ARROW)) for name in names):
        with _sketch(address, names) as folder:
            found = find_files(folder, configuration)
            files = [] if found is None else [file for files in found.splits.values() for file in files]
            if files and not is_metadata(files[0]):  # images are in their rows
                chosen = [name for name in chosen if name.lower().endswith(_LISTS)]
            chosen += [os.path.relpath(file, folder) for file in files]
    return _copy(address, map(glob.escape, chosen))


@contextlib.contextmanager
def _sketch(address: str, names: Sequence[str]) -> Iterator[str]:
    """Make a folder that looks like a repository: some lists and images are fetched, the other files are empty.

    In a ``UserError`` about the folder, the address stands for it.
    """
    counts, chosen = Counter[tuple[str, str]](), list[str]()
    for name in names:
        kind = os.path.dirname(name), os.path.splitext(name)[1].lower()
        counts[kind] += 1
        is_few = counts[kind] <= _FEW_LISTS or name in (CARD, OLD_INFOS)
        if _is_picture(name):
            counts["", "images"] += counts[kind] <= _FEW_IMAGES
            if counts[kind] <= _FEW_IMAGES and counts["", "images"] <= _MOST_IMAGES:
                chosen.append(name)
        elif kind[1] in _LISTS and is_few:
            chosen.append(name)
    with tempfile.TemporaryDirectory() as top:
        root = os.path.join(top, parse_address(address)[0].rpartition("/")[2])

        def place(fetched: str, name: str) -> None:
            target = Path(root, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.exists(os.path.join(fetched, name)):
                target.unlink(missing_ok=True)
                target.symlink_to(os.path.realpath(os.path.join(fetched, name)))
            else:
                target.touch()

        try:
            os.mkdir(root)
            fetched = _copy(address, map(glob.escape, chosen))
            for name in names:
                place(fetched, name)
            data = find_files(root, takes_first=True)
            if data is not None:  # its columns decide
                first = os.path.relpath(next(iter(data.splits.values()))[0], root)
                place(_copy(address, [glob.escape(first)]), first)
            yield root
        except UserError as error:
            raise UserError(str(error).replace(root, address)) from None


def _is_picture(name: str) -> bool:
    return name.lower().endswith(_IMAGES) or is_image_name(os.fsencode(name))


def _spell(path: str) -> str:
    name, revision = parse_address(path)
    return f"hf:{name}@{revision}" if revision else f"hf:{name}"


@functools.cache
def _list_names(address: str) -> list[str] | None:
    """Return the names of the files of a repository; None if they cannot be asked for: the cache may have them."""
    import huggingface_hub  # not at the top: few runs fetch data

    name, revision = parse_address(address)
    if _is_offline():
        return None
    try:
        with in_one_line(address):
            names = huggingface_hub.list_repo_files(name, repo_type="dataset", revision=revision)
    except UserError:  # reported if the cache has no copy, either
        return None
    return sorted(each for each in names if os.path.normpath(each) == each and not each.startswith(("/", "..")))


def _advise(address: str) -> str:
    copy = f"hf download {parse_address(address)[0]} --repo-type dataset --local-dir FOLDER"
    return f"copy it with '{copy}' where there is a network, and give -data_path=FOLDER"


def _copy(address: str, patterns: Iterable[str]) -> str:
    """Return the folder of the library's cache with the files of a repository that fit patterns."""
    from huggingface_hub import snapshot_download

    name, revision = parse_address(address)
    with in_one_line(f"data path {address}", _advise(address)):
        kept: dict[str, Any] = {
            "revision": revision,
            "allow_patterns": list(patterns),
            "local_files_only": _is_offline(),
        }
        return str(snapshot_download(name, repo_type="dataset", **kept))


def _is_offline() -> bool:
    """Return whether the variable of the library ``datasets`` says that there is no network; the hub's has its own."""
    return os.environ.get("HF_DATASETS_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
