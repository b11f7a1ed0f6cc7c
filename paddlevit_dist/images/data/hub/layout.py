"""Where the data files of each split are: as a card names them, as ``save_to_disk`` writes them, or by their names."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....core.runtime.errors import UserError
from ....core.runtime.files import readable
from ....core.runtime.printing import shorten
from ....core.runtime.text_files import parse_yaml, read_json, read_text
from ....core.tasks.dataset import refuse_split
from ..formats import is_hidden, is_image_name, list_folders, list_names, walk_files
from .features import Feature, parse_features

PARQUET, ARROW = (".parquet", ".pq"), (".arrow",)
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # next to images, which they name
CARD = "README.md"
OLD_INFOS = "dataset_infos.json"
#: words for splits of the library ``datasets``, and what it calls them
WORDS = {
    "train": ("train", "training"),
    "val": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_SHARD = re.compile(r"(.+?)-(\d{5})-of-(\d{5}).*", re.DOTALL)  # train-00000-of-00002.parquet
_HEADER = re.compile(r"\A---[^\S\n]*\n(.*?)\n---[^\S\n]*(?:\n|\Z)", re.DOTALL)
_LARGEST_CARD = 1 << 24
_MOST_FOLDERS = 20_000  # names read from a folder
_NO_CONFIGURATION = ("data", "dataset", "default")  # folders of files, not of configurations
_PATTERN = re.compile(r"[*?\[]")


class HubFiles(NamedTuple):
    """The data files of a configuration.

    Attributes:
        root: folder that names of files are relative to.
        splits: published name of a split -> its files.
        features: of the columns, as files next to the data say; empty: only the data files do.
        configuration: its name; empty if the files are of none.
    """

    root: str
    splits: dict[str, list[str]]
    features: Mapping[str, Feature] = {}
    configuration: str = ""

    def find_split(self, split: str) -> tuple[str, str]:
        """Return the published name of a split, and a log line if another one serves for it, or an empty text.

        A split of test images serves for a missing one of validation images, and a single one for training images.

        Raises:
            UserError: there is no such split.
        """
        if split in self.splits:
            return split, ""
        for word in WORDS.get(split, ()):
            if word in self.splits:
                return word, ""
        if split == "val" and any(word in self.splits for word in WORDS["train"]):
            other = next((word for word in WORDS["test"] if word in self.splits), None)
            if other is not None:
                return other, f"note: the val images are split {other} of {self.root}"
        only = next(iter(self.splits))
        if split == "train" and len(self.splits) == 1 and not any(only in words for words in WORDS.values()):
            return only, f"note: the training images are split {only} of {self.root}"
        remark = "; set DATA.VAL_FRACTION 0.2 to divide the training images" if split == "val" else ""
        refuse_split(split, list(self.splits), f"hub ({self.root})", remark)


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern of several files, and no file or folder of this name exists."""
    return _PATTERN.search(path) is not None and not os.path.exists(path)


def find_files(path: str, configuration: str | None = None, takes_first: bool = False) -> HubFiles | None:
    """Find the data files of a folder, file or pattern; None if there are none.

    Args:
        path: absolute.
        configuration: name of one of several; None: the only one, or the default one.
        takes_first: take the first of several, instead of an error.

    Raises:
        UserError: there are several configurations and none is named, no such one, or files that are named are missing.
    """
    if os.path.isfile(path):
        named = os.path.basename(path)
        if not named.lower().endswith((*PARQUET, *ARROW)):
            return None
        return HubFiles(os.path.dirname(path), {_split_of(named) or "train": [path]})
    if not os.path.isdir(path):
        found = glob.glob(path, recursive=True) if _PATTERN.search(path) else []
        names = [name for name in found if name.lower().endswith((*PARQUET, *ARROW)) and os.path.isfile(name)]
        root = path[: _PATTERN.search(path).start()].rpartition("/")[0] if names else ""  # type: ignore[union-attr]
        return HubFiles(root, _by_split(names, root)) if names else None
    saved = _find_saved(path)
    if saved is not None:
        return saved
    card = read_card(path)
    configurations = _find_configurations(path, card)
    if not configurations:
        described = find_metadata(path)
        return HubFiles(path, described) if described else None
    name = _choose_configuration(path, configurations, configuration, takes_first, card)
    return HubFiles(path, configurations[name], _read_types(path, card, name), name)


def refuse_scripts(root: str) -> None:
    """Raise a UserError if a folder without data files has a script that would load them: none is ever executed."""
    script = f"{os.path.basename(root.rstrip('/'))}.py"
    names = sorted(name for name in os.listdir(root) if name.endswith(".py"))
    if names:
        raise UserError(
            f"data path {root} has the script {script if script in names else names[0]} and no data files: scripts are "
            "never executed; take the branch refs/convert/parquet (hf:OWNER/NAME@refs/convert/parquet), or write the "
            "data with save_to_disk of an older version of the library datasets"
        )


def list_data_files(root: str) -> list[str]:
    """Return the Parquet and Arrow files below a folder, sorted, without hidden ones and metadata of images."""

    def refuse(folder: bytes, reason: str) -> None:
        raise UserError(f"folder {os.fsdecode(folder)}: {reason}")

    found = []
    for entry in walk_files(os.fsencode(root), refuse):
        name = os.fsdecode(entry.name)
        if name.lower().endswith((*PARQUET, *ARROW)) and not is_hidden(entry.name) and name not in METADATA:
            found.append(os.fsdecode(entry.path))
    return sorted(found)


def _find_saved(root: str) -> HubFiles | None:
    """Find what ``save_to_disk`` has written: a folder for each split, or the files of one."""
    if os.path.isfile(os.path.join(root, _DICT)):
        content = _read_object(os.path.join(root, _DICT))
        names = content.get("splits")
        if not isinstance(names, list) or not names or not all(map(_is_plain, names)):
            raise UserError(f"{os.path.join(root, _DICT)}: expected a list of the folders of splits, splits")
        found = [_read_saved(os.path.join(root, name)) for name in names]
        return HubFiles(root, {name: files for name, (files, _) in zip(names, found)}, found[0][1])
    if os.path.isfile(os.path.join(root, _STATE)) and os.path.isfile(os.path.join(root, _INFO)):
        files, features = _read_saved(root)
        split = _read_object(os.path.join(root, _STATE)).get("_split")
        return HubFiles(root, {split if isinstance(split, str) and split else "train": files}, features)
    return None


def _read_saved(folder: str) -> tuple[list[str], dict[str, Feature]]:
    state, info = (os.path.join(folder, name) for name in (_STATE, _INFO))
    content = _read_object(state)
    rows = content.get("_data_files")
    names = [row.get("filename", "") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if not names or not all(map(_is_plain, names)):
        raise UserError(f"{state}: expected the names of its Arrow files, _data_files")
    if content.get("_indices_data_files") or content.get("_indices_files"):
        raise UserError(f"{state}: its rows are chosen by a list of indices: call flatten_indices before save_to_disk")
    files = [os.path.join(folder, name) for name in names]
    missing = next((file for file in files if not os.path.isfile(file)), None)
    if missing is not None:
        raise UserError(f"{state} names {missing}, which does not exist: copy the whole folder")
    features = _read_object(info).get("features") if os.path.isfile(info) else None
    return files, {} if features is None else parse_features(features, info)


def _is_plain(name: Any) -> bool:
    return isinstance(name, str) and bool(name) and "/" not in name and name not in (".", "..")


def _read_object(file: str) -> dict[str, Any]:
    with readable(file):
        content = read_json(file)
    if not isinstance(content, dict):
        raise UserError(f"{file}: expected a JSON object")
    return content


def read_card(root: str) -> dict[str, Any]:
    """Read the YAML at the beginning of a card; empty if there is none."""
    file = os.path.join(root, CARD)
    if not os.path.isfile(file):
        return {}
    with readable(file):
        header = _HEADER.match(read_text(file, _LARGEST_CARD).replace("\r\n", "\n"))
        content = parse_yaml(header[1], ("names",)) if header else {}
    return content if isinstance(content, dict) else {}


def _read_types(root: str, card: Mapping[str, Any], configuration: str) -> dict[str, Feature]:
    """Return the types of columns that a card, or the JSON that came before cards, gives for a configuration."""
    infos, source = card.get("dataset_info"), os.path.join(root, CARD)
    listed = [info for info in (infos if isinstance(infos, list) else [infos]) if isinstance(info, dict)]
    by_name = {str(info.get("config_name", "default")): info for info in listed}
    if not by_name and os.path.isfile(os.path.join(root, OLD_INFOS)):
        source = os.path.join(root, OLD_INFOS)
        by_name = {name: info for name, info in _read_object(source).items() if isinstance(info, dict)}
    chosen = next(iter(by_name.values())) if len(by_name) == 1 else by_name.get(configuration, {})
    return parse_features(chosen["features"], source) if chosen.get("features") else {}


def _find_configurations(root: str, card: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return the splits with their files of each configuration: of the card, else by folders and names."""
    listed = [entry for entry in card.get("configs") or () if isinstance(entry, dict)]
    found = {str(entry.get("config_name", "default")): _named_files(root, entry) for entry in listed}
    found = {name: splits for name, splits in found.items() if splits}
    if found:
        return found
    files = list_data_files(root)
    heads = {os.path.relpath(file, root).partition("/")[0] for file in files}
    are_configurations = len(heads) > 1 and all(os.path.isdir(os.path.join(root, head)) for head in heads)
    if are_configurations and not any(_split_of(head) or head.lower() in _NO_CONFIGURATION for head in heads):
        groups = {head: [file for file in files if file.startswith(f"{root}/{head}/")] for head in sorted(heads)}
        _require_all(files)
        return {head: _by_split(group, os.path.join(root, head)) for head, group in groups.items()}
    splits = _by_split(_require_all(files), root)
    return {"default": splits} if splits else {}


def _named_files(root: str, entry: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the Parquet and Arrow files of each split that an entry of a card names."""
    base = os.path.join(root, str(entry.get("data_dir") or ""))
    data = entry.get("data_files")
    if data is None:
        _require_inside(root, base)
        return (
            _by_split(_require_all(list_data_files(base)), base)
            if entry.get("data_dir") and os.path.isdir(base)
            else {}
        )
    if isinstance(data, Mapping):
        pairs = list(data.items())
    elif isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        pairs = [(row.get("split", "train"), row.get("path")) for row in data]
    else:
        pairs = [("train", data)]
    splits: dict[str, list[str]] = {}
    for split, patterns in pairs:
        for pattern in patterns if isinstance(patterns, list) else [patterns]:
            splits.setdefault(str(split), []).extend(_match(root, base, str(pattern)))
    return {split: list(dict.fromkeys(files)) for split, files in splits.items() if files}


def _match(root: str, base: str, pattern: str) -> list[str]:
    place = os.path.normpath(os.path.join(base, pattern))
    _require_inside(root, place)
    inside = os.path.relpath(place, root) + ("/*" if pattern.endswith("/**") else "")
    found = [os.path.join(root, name) for name in sorted(glob.glob(inside, root_dir=root, recursive=True))]
    files = [name for name in found if name.lower().endswith((*PARQUET, *ARROW)) and os.path.isfile(name)]
    return _require_all(files) if _PATTERN.search(os.path.basename(place)) else files


def _require_all(files: list[str]) -> list[str]:
    """Return files of a folder; a UserError unless all parts are there of what is divided, by their names."""
    there: dict[tuple[str, str, str], set[str]] = {}
    for file in files:
        part = _SHARD.fullmatch(os.path.basename(file))
        if part is not None:
            there.setdefault((os.path.dirname(file), part[1], part[3]), set()).add(part[2])
    for (folder, head, total), numbers in there.items():
        missing = [number for number in range(int(total)) if f"{number:05}" not in numbers]
        if missing and len(numbers) < int(total):
            raise UserError(
                f"{os.path.join(folder, head)}-{missing[0]:05}-of-{total} is missing ({len(numbers):,} of "
                f"{int(total):,} files are there): copy all of them, or give a pattern of those that are to be "
                f"read, such as -data_path='{os.path.join(folder, '*')}'"
            )
    return files


def _require_inside(root: str, place: str) -> None:
    if not f"{os.path.normpath(place)}/".startswith(f"{os.path.normpath(root)}/"):
        raise UserError(
            f"{os.path.join(root, CARD)}: its configs name {shorten(place, 80)}, which is outside of {root}"
        )


def _choose_configuration(
    root: str, found: Mapping[str, Any], wanted: str | None, takes_first: bool, card: Mapping[str, Any]
) -> str:
    if wanted is not None:
        if wanted not in found:
            raise UserError(
                f"{root} has no configuration {shorten(wanted, 60)} (DATA.TABLE.CONFIGURATION): it has "
                f"{shorten(', '.join(found), 120)}"
            )
        return wanted
    marked = [
        str(entry.get("config_name"))
        for entry in card.get("configs") or ()
        if isinstance(entry, dict) and entry.get("default") is True
    ]
    chosen = next((name for name in (*marked, "default") if name in found), None)
    if chosen is not None or len(found) == 1 or takes_first:
        return chosen or next(iter(found))
    raise UserError(
        f"{root} has several configurations, {shorten(', '.join(found), 120)}: choose one with "
        "DATA.TABLE.CONFIGURATION NAME"
    )


def _by_split(files: Sequence[str], root: str) -> dict[str, list[str]]:
    """Divide files by the split in their names or folders; all are training files if none has one."""
    splits: dict[str, list[str]] = {}
    for file in sorted(files):
        splits.setdefault(_find_split(os.path.relpath(file, root or "/")), []).append(file)
    rest = splits.pop("", [])
    return splits or ({"train": rest} if rest else {})


def _find_split(path: str) -> str:
    """Return the split of a file by its name, else by the nearest of its folders; "" if no one tells."""
    return next((split for part in reversed(path.split("/")) if (split := _split_of(part))), "")


def _split_of(name: str) -> str:
    """Return the word for a split in a name; "" if there is none."""
    stem = name
    for suffix in (*PARQUET, *ARROW):
        stem = stem.removesuffix(suffix)
    shard = _SHARD.fullmatch(stem)
    if shard is not None:
        stem = shard[1]
    parts = re.split(r"[^A-Za-z0-9]+", stem)
    found = [part for part in parts for words in WORDS.values() if part.lower() in words]
    if found:
        return found[-1].lower()
    return stem if shard is not None and stem != "data" else ""


def find_metadata(root: str) -> dict[str, list[str]]:
    """Return the file of metadata of images of each split: in a folder, its folders, or those in ``data``."""
    folders = [root, *list_folders(root, may_be_absent=True, most=_MOST_FOLDERS)]
    folders += list_folders(os.path.join(root, "data"), may_be_absent=True, most=_MOST_FOLDERS)
    splits: dict[str, list[str]] = {}
    for folder in folders:
        names = [name for name in METADATA if os.path.isfile(os.path.join(folder, name))]
        if len(names) > 1:
            raise UserError(f"{folder} has {' and '.join(names)}: move all but one away")
        if names and (folder == root or _split_of(os.path.basename(folder))):
            split = _split_of(os.path.basename(folder)) if folder != root else ""
            splits.setdefault(split or "train", []).append(os.path.join(folder, names[0]))
    return splits


def is_metadata(file: str) -> bool:
    """Return whether a file has metadata of images, and not the images themselves."""
    return os.path.basename(file) in METADATA


def has_images_beside_metadata(root: str) -> bool:
    """Return whether images are directly in a folder with metadata, where no class folder holds them."""
    folders = {os.path.dirname(files[0]) for files in find_metadata(root).values()}
    return any(
        is_image_name(os.fsencode(name)) for folder in folders for name in list_names(folder, most=_MOST_FOLDERS)
    )
