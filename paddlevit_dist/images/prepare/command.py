"""``python -m paddlevit_dist prepare images``: check a data set, or rewrite it as tar files of smaller JPEGs."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional

from ...errors import UserError
from ...registry import resolve
from ..data.class_folders import ClassFolders
from ..data.imagenet import FIRST_OF_KIT, LISTS
from ..data.left_out import LeftOut, printable
from ..data.quarantine import QUARANTINE_FILE, write_quarantine
from ..data.reading import Reading
from ..data.tar_scan import find_shards
from .check import check_pictures
from .shards import Settings, prepare_shards

_READABLE = ("folder", "imagenet2012", "tar")


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"prepare images: {message}; see python -m paddlevit_dist prepare images -h")


def run(words: List[str]) -> None:
    """Carry out the command. Ends the process with code 1 when a check finds unreadable pictures, 130 on Ctrl-C."""
    options = _parse(words)
    try:
        with tempfile.TemporaryDirectory(prefix="paddlevit_dist_") as cache:
            datasets = _open(options, Path(cache))
            code = _check(options, datasets) if options.output is None else _prepare(options, datasets)
    except KeyboardInterrupt:
        more = "; finished tar files are kept, the same command goes on" if options.output else ""
        print(f"interrupted{more}", file=sys.stderr)
        code = 130
    if code:
        sys.exit(code)


def _parse(words: List[str]) -> argparse.Namespace:
    parser = _Options(
        prog="python -m paddlevit_dist prepare images",
        description="With OUT: write the data set IN as tar files of smaller JPEGs, for -dataset=tar -data_path=OUT. "
        "Without: decode every picture and list those that cannot be read; exit code 1 if there are any, or if IN "
        "holds pictures in formats that cannot be opened here.",
        allow_abbrev=False,
    )
    parser.add_argument("input", metavar="IN", help="data path: class folders, PaddleViT's lists, or tar files")
    parser.add_argument("output", metavar="OUT", nargs="?", help="folder of the tar files; a second run resumes in it")

    def add(name: str, default: Any, meaning: str, kind: Any = int, **more: Any) -> None:
        shown = f"{meaning} (default: {default})" if default is not None else meaning
        parser.add_argument(f"--{name}", f"-{name}", default=default, type=kind, help=shown, **more)

    add("dataset", None, "how IN is laid out; found out if not given", str, choices=_READABLE)
    add("shorter_side", 320, "pixels of the shorter side of larger pictures; smaller JPEGs are copied byte for byte")
    add("quality", 90, "of the JPEGs that are written, 1 to 100")
    add("shard_size", 1000, "pictures in a tar file")
    add("workers", len(os.sched_getaffinity(0)), "processes")
    add("on_bad_sample", "stop", "skip: leave unreadable pictures out and list them", str, choices=("stop", "skip"))
    add(
        "quarantine", None, "without OUT: write the list of unreadable pictures to this file; else it is printed", _path
    )
    add("max_pixels", Reading().max_pixels, "a larger picture counts as unreadable")
    options = parser.parse_args(words)
    for name, high in (
        ("shorter_side", None),
        ("quality", 100),
        ("shard_size", None),
        ("workers", None),
        ("max_pixels", None),
    ):
        value = getattr(options, name)
        if value < 1 or (high and value > high):
            raise UserError(f"--{name}={value}: expected {f'1 to {high}' if high else 'a whole number from 1 up'}")
    if options.output is not None and options.quarantine is not None:
        raise UserError(f"--quarantine is for a check without OUT; with it the list is {QUARANTINE_FILE} in OUT")
    return options


def _open(options: argparse.Namespace, cache: Path) -> Dict[str, Any]:
    """The data sets of IN by split."""
    root = os.path.abspath(os.path.expanduser(options.input))
    if not os.path.isdir(root):
        raise UserError(
            f"data path {root} is not a folder; expected one of pictures in class folders, lists or tar files"
        )
    name = options.dataset or layout_of(root)
    if name == "folder" and not os.path.isdir(os.path.join(root, "train")):
        datasets = {"train": ClassFolders.whole(root, cache)}
    else:
        datasets = {split: resolve("dataset", name)(root, split, cache) for split in splits_of(root, name)}
    for dataset in datasets.values():
        dataset.reading = Reading(max_pixels=options.max_pixels)
    return datasets


def layout_of(root: str) -> str:
    """Which data set reads ``root``: a list of training pictures decides, then tar files, then validation's form."""
    lists = {split for split, name in LISTS.items() if os.path.exists(os.path.join(root, name))}
    if "train" not in lists and any(find_shards(root, split) for split in LISTS):
        return "tar"
    return "imagenet2012" if lists or os.path.exists(os.path.join(root, "val", FIRST_OF_KIT)) else "folder"


def splits_of(root: str, name: str) -> List[str]:
    if name == "tar":
        found = [split for split in LISTS if find_shards(root, split)]
    elif name == "folder":
        found = ["train", *(["val"] if ClassFolders.has_validation(root) else [])]
    else:
        found = [split for split, file in LISTS.items() if os.path.exists(os.path.join(root, file))]
        found = found or [split for split in LISTS if os.path.isdir(os.path.join(root, split))]
    return found or ["train"]  # whose absence the data set explains


def _left_out(datasets: Dict[str, Any]) -> List[LeftOut]:
    found: List[Optional[LeftOut]] = [getattr(dataset, "left_out", None) for dataset in datasets.values()]
    return [left_out for left_out in found if left_out is not None]


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _check(options: argparse.Namespace, datasets: Dict[str, Any]) -> int:
    left_out = _left_out(datasets)
    found = check_pictures(datasets, options.workers)
    if options.quarantine:
        write_quarantine(options.quarantine, found)
    total = sum(map(len, datasets.values()))
    for line in (line for place in left_out for line in place.lines()):
        print(printable(line))
    if not found:
        number = sum(place.num_pictures for place in left_out)
        others = f", but {number:,} left out cannot" if number else ""
        print(printable(f"all {total:,} pictures of {options.input} can be read{others}"))
        return 1 if number else 0
    said = f"{len(found):,} of {total:,} pictures of {options.input} cannot be read"
    if options.quarantine:
        print(printable(f"{said}; they are listed in {options.quarantine}"))
    else:
        print(printable("\n".join([f"{said}:", *(f"{path}\t{reason}" for path, reason in found)])))
    return 1


def _prepare(options: argparse.Namespace, datasets: Dict[str, Any]) -> int:
    output = Path(os.path.abspath(os.path.expanduser(options.output)))
    left_out = _left_out(datasets)
    skip_bad = options.on_bad_sample == "skip"
    for place in left_out:
        if place.num_pictures and not skip_bad:
            raise UserError(
                f"{place.summary()}; make them readable here or move them away, as {place.example}, or leave such "
                "pictures out with --on_bad_sample=skip"
            )
    settings = Settings(options.shorter_side, options.quality, options.shard_size, skip_bad)
    preparation = prepare_shards(datasets, os.path.abspath(options.input), output, settings, options.workers)
    size = sum(file.stat().st_size for file in output.glob("*.tar"))
    not_opened = sum(place.num_pictures for place in left_out)
    bad = preparation.left_out - not_opened
    for line in (line for place in left_out for line in place.lines()):
        print(printable(line))
    are = "unreadable ones are" if bad > 1 else "unreadable one is"
    missing = f"; {bad} {are} left out, listed in {output / QUARANTINE_FILE}" if bad else ""
    written = sum(map(len, datasets.values())) - bad
    said = f"prepared {written:,} pictures in {output} ({size / 1e6:,.1f} MB){missing}"
    print(printable(f"{said}; train on them with -dataset=tar -data_path={output}"))
    return 0
