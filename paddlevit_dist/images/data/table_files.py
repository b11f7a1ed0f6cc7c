"""Where the tables of labels are, and the image files that they name, found by listing folders."""

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Sequence

from ...core.runtime.errors import UserError
from ...core.runtime.spelling import compose
from .class_lists import FILES as CLASS_LISTS
from .data_warnings import first_names
from .formats import (
    SPLIT_FOLDERS,
    SPLIT_WORDS,
    get_suffix,
    is_hidden,
    list_folders,
    list_names,
    readable_suffixes,
    split_in_name,
    walk_files,
)
from .label_layouts import holds_labels
from .listed_names import find_foreign_prefix
from .table_columns import SPLIT_OF_CUB, SUFFIXES

_LABEL_TABLES = ("labels.csv", "_classes.csv")  # names that lists of classes have, too
_FOLDERS_OF_LISTS = ("meta", "labels", "lists", "splits", "split", "annotations")
_SPLIT_OF_LIST = re.compile("training|train|validation|valid|val|testing|test", re.IGNORECASE)
_PADDLECLAS = "multilabel_*_list.txt"  # its lists of several labels


def find_tables(
    data_path: str, is_wanted: Callable[[str], bool] = holds_labels, needs_wanted: bool = False
) -> dict[str, str]:
    """Return the tables of a data path: split -> file, or "" -> the one file of all splits; empty: there are none.

    That is the file itself; of a folder a table for each split, such as train.csv, in it or alone in a folder such as
    train; or its only table. Other tables in a folder with tables of splits are not used, nor are samples of
    submissions to a competition.

    Args:
        data_path: a table or a folder.
        is_wanted: tells tables that have what is read.
        needs_wanted: others never count; else they do if none has it, so that reading them says why.

    Raises:
        UserError: there are several that may be meant.
    """
    if os.path.isfile(data_path):
        lists = [group for group in _find_lists(os.path.dirname(data_path)) if data_path in group.values()]
        return lists[0] if lists and is_wanted(data_path) else {"": data_path}
    names = list_names(data_path)
    names = [name for name in names if _is_table(name) and "submission" not in name.lower()] or fnmatch.filter(
        names, _PADDLECLAS
    )
    tables = [os.path.join(data_path, name) for name in names]
    by_split: dict[str, list[str]] = {}
    for path in tables:
        split = split_in_name(os.path.splitext(os.path.basename(path))[0], is_whole=False)
        if split is not None:
            by_split.setdefault(split, []).append(path)
    for folder in list_folders(data_path):
        split = split_in_name(os.path.basename(folder))
        if os.path.basename(folder).lower() in SPLIT_FOLDERS and split is not None and split not in by_split:
            inner = [os.path.join(folder, name) for name in list_names(folder) if _is_table(name)]
            by_split.update({split: inner} if inner and not tables else {})
    wanted = {split: paths for split, each in by_split.items() if (paths := list(filter(is_wanted, each)))}
    unsplit = list(filter(is_wanted, tables)) if not wanted else []
    found = wanted or ({"": unsplit} if unsplit else {})
    if not found and (lists := [group for group in _find_lists(data_path) if all(map(is_wanted, group.values()))]):
        alike = {re.sub(r"\d+", "", next(iter(group.values()))) for group in lists}
        found = {split: [path] for split, path in lists[0].items()}
        if len(alike) > 1:  # several kinds of labels, not several partitions
            found = {"": [group.get("train") or group[""] for group in lists]}
    if not found and not needs_wanted:
        found = by_split or ({"": tables} if tables else {})
    for paths in found.values():
        if len(paths) > 1:
            shown = ", ".join(os.path.basename(path) for path in paths)
            raise UserError(f"{data_path} has several tables, {shown}: name one with -data_path=FILE, or move others")
    return {split: paths[0] for split, paths in found.items()}


def _find_lists(root: str) -> list[dict[str, str]]:
    """Return groups of lists of images, in a folder and its folders of lists; only the split in their names differs."""
    groups: dict[str, dict[str, str]] = {}
    for folder in (root, *(os.path.join(root, name) for name in _FOLDERS_OF_LISTS)):
        names = list_names(folder, may_be_absent=True)
        if SPLIT_OF_CUB in names and "images.txt" in names:
            groups[folder] = {"": os.path.join(folder, "images.txt")}
        for name in sorted(names, key=lambda name: (len(name), name)):  # train2.txt before train10.txt
            words = _SPLIT_OF_LIST.findall(name)
            if len(words) == 1 and name.lower().endswith(".txt") and name != SPLIT_OF_CUB:
                split = next(split for split in SPLIT_WORDS if words[0].lower() in SPLIT_WORDS[split])
                kind = os.path.join(folder, name.replace(words[0], ""))
                groups.setdefault(kind, {}).setdefault(split, os.path.join(folder, name))
    return [group for group in groups.values() if "" in group or ("train" in group and len(group) > 1)]


def _is_table(name: str) -> bool:
    lowered = name.lower()
    is_list = lowered in CLASS_LISTS and lowered not in _LABEL_TABLES
    return lowered.endswith(SUFFIXES) and not is_list and not lowered.startswith("class-descriptions")


class ImageFinder:
    """Finds the images that tables name, below ``root``; each folder is listed once.

    Attributes:
        prefix: folders of another machine with which all names begin, which are removed; "": there are none.
    """

    def __init__(self, root: str) -> None:
        self._root, self.prefix = root.rstrip("/"), ""
        self._folders: dict[str, dict[str, str]] = {}  # folder below the root -> composed name -> name
        self._stems: dict[str, dict[str, list[str]]] = {}  # folder -> name of an image without ending -> names

    def find_folder(self, table: str) -> str:
        """Return the folder of a table below the root; "" if it is the root, or not below it."""
        folder = os.path.relpath(os.path.dirname(table), self._root)
        return "" if folder.startswith("..") or folder == "." else folder

    def find(self, names: Sequence[str], folder: str, split: str) -> list[str]:
        """Return the path of each image below the root; "" if it is missing.

        Args:
            names: paths relative to ``folder``, the root or the folder above it, or the end of a path; the ending of
                the name may be missing. If none is found, folders of another machine are removed from all.
            folder: of the table, below the root; "" if it is the root.
            split: of the images; among several of one name, the one in a folder of this name is found. "": not known.

        Raises:
            UserError: a name is the end of several paths, or a folder cannot be listed.
        """
        found, missing = list[str](), dict[str, list[int]]()
        prefix = f"{folder}/" if folder else ""
        for index, name in enumerate(names):
            path = prefix + name
            head, _, tail = path.rpartition("/")
            entries = self._folders.get(head)
            if entries is None:
                entries = self._list(head)
            if "." not in tail and len(images := self._without_endings(head).get(tail, [])) == 1:
                tail = images[0]
                path = f"{head}/{tail}" if head else tail
            is_plain = entries.get(tail) == tail and "." in tail and "./" not in path and "//" not in path
            if is_plain and path[0] != "/":
                found.append(path)
                continue
            found.append(self._search(name, folder))
            if not found[-1]:
                missing.setdefault(compose(os.path.normpath(name.replace("\\", "/"))), []).append(index)
        for end, path in self._find_ends(missing, split).items():
            for index in missing[end]:
                found[index] = path
        if any(found):
            return found
        spelled = [name.replace("\\", "/") for name in names]
        self.prefix = self.prefix or find_foreign_prefix(spelled, lambda name: bool(self._search(name, folder)))
        if not self.prefix or not all(name.startswith(self.prefix) for name in spelled):
            return found
        return self.find([name[len(self.prefix) :] for name in spelled], folder, split)

    def count_others(self, named: set[str]) -> tuple[int, list[str]]:
        """Return number and first paths of the images that are not ``named``, in folders with images that are."""
        others, suffixes = list[str](), readable_suffixes()
        for folder in {path.rpartition("/")[0] for path in named}:
            before = f"{folder}/" if folder else ""
            unnamed = [name for name in self._list(folder).values() if before + name not in named]
            images = (name for name in unnamed if get_suffix(os.fsencode(name)) in suffixes)
            others += [before + name for name in images if not is_hidden(os.fsencode(name))]
        return len(others), sorted(others)[:4]

    def _list(self, folder: str) -> dict[str, str]:
        """Return the names in a folder below the root, by their composed form; none if there is no such folder."""
        names = self._folders.get(folder)
        if names is None:
            path = os.path.join(self._root, folder)
            try:
                listed = os.listdir(path)
            except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte
                listed = []
            except OSError as error:
                raise UserError(f"folder {path} cannot be listed: {error.strerror}") from error
            names = self._folders[folder] = {name if name.isascii() else compose(name): name for name in listed}
        return names

    def _search(self, name: str, folder: str) -> str:
        """Find an image that is not where its name says at once; "" if it is not near."""
        above = f"{os.path.basename(self._root)}/"
        for spelled in dict.fromkeys((name, name.replace("\\", "/"))):
            places = [os.path.join(folder, spelled), spelled]
            places += [spelled.removeprefix(above)] if spelled.startswith(above) else []
            for place in dict.fromkeys(map(os.path.normpath, places)):
                path = self._look_up(place)
                if path:
                    return path
        return ""

    def _look_up(self, path: str) -> str:
        """Return the path of an image as the file system spells it, with its ending; "" if there is none."""
        head, tail = os.path.split(path.removeprefix(f"{self._root}/"))
        name = self._list(head).get(compose(tail))
        if name is None or get_suffix(os.fsencode(tail)) not in readable_suffixes():
            images = self._without_endings(head).get(compose(tail), [])
            if len(images) > 1:
                raise UserError(
                    f"{path} may be each of {first_names(sorted(images))} in {os.path.join(self._root, head)}: write "
                    "the ending in the table"
                )
            name = images[0] if images else name
        return "" if name is None else os.path.join(head, name)

    def _without_endings(self, folder: str) -> dict[str, list[str]]:
        stems = self._stems.get(folder)
        if stems is None:
            stems = self._stems[folder] = {}
            for composed, name in self._list(folder).items():
                if get_suffix(os.fsencode(name)) in readable_suffixes():
                    stems.setdefault(os.path.splitext(composed)[0], []).append(name)
        return stems

    def _find_ends(self, ends: Collection[str], split: str) -> dict[str, str]:
        """Return the images whose paths end in one of ``ends``, with or without the ending of the name, by this end."""
        if not ends:
            return {}
        by_name: dict[str, list[str]] = {}
        for end in ends:
            by_name.setdefault(os.path.basename(end), []).append(end)
        paths, folders = dict[str, list[str]](), set[bytes]()
        top, suffixes = os.fsencode(self._root), readable_suffixes()
        for entry in walk_files(top, _refuse):
            if split:
                folders.add(entry.path[: -len(entry.name)])
            name = os.fsdecode(entry.name)
            name = name if name.isascii() else compose(name)
            stem = name.rpartition(".")[0]
            if not (name in by_name or stem in by_name) or get_suffix(entry.name) not in suffixes:
                continue
            path = os.fsdecode(entry.path[len(top) + 1 :])
            whole = f"/{compose(path)}"
            for known, place in ((name, whole), (stem, whole.rpartition(".")[0])):
                for end in by_name.get(known, ()):
                    if place.endswith(f"/{end}") and not is_hidden(entry.name):
                        paths.setdefault(end, []).append(path)
        has_folder = any(_split_of(os.fsdecode(folder[len(top) + 1 :])) == split for folder in folders)
        return {end: self._choose(end, found, split if has_folder else "") for end, found in paths.items()}

    def _choose(self, end: str, paths: list[str], split: str) -> str:
        """Return the one of ``paths`` that a name means; "" if all are in folders of other splits than ``split``."""
        if split:
            paths = [path for path in paths if _split_of(path) in ("", split)]
            paths = [path for path in paths if _split_of(path) == split] or paths
        if len(paths) > 1:
            raise UserError(
                f"{end} may be each of {first_names(sorted(paths))} in {self._root}: name its folder in the table"
            )
        return paths[0] if paths else ""


def _split_of(path: str) -> str:
    """Return the split that a folder of a path names; "" if none does."""
    return next((split for part in path.split("/")[:-1] if (split := split_in_name(part))), "")


def _refuse(folder: bytes, reason: str) -> None:
    raise UserError(f"folder {os.fsdecode(folder)}: {reason}")
