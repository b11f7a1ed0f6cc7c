"""``paddlevit-dist prepare images`` and ``prepare index``: check images, pack them, and list tar files."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from ...core.commands.parser import CommandParser, at_least, path
from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line


def run_images(words: list[str]) -> None:
    """Run ``prepare images IN [OUT]``; exit with code 1 if a check finds unreadable images, with 130 on Ctrl-C."""
    from ...core.launch.stale_resources import working_folder
    from .source import open_input

    options = _image_options(words)
    try:
        with working_folder("prepare") as cache:
            root = os.path.abspath(options.input)
            datasets = open_input(root, options.dataset, options.max_pixels, cache)
            code = _check_images(options, datasets) if options.output is None else _prepare_images(options, datasets)
    except KeyboardInterrupt as error:
        more = "; finished tar files are kept: run the same command to continue" if options.output else ""
        print(f"interrupted{more}", file=sys.stderr)
        code = signals.exit_code(error)
    if code:
        sys.exit(code)


def run_index(words: list[str]) -> None:
    """Run ``prepare index FOLDER``."""
    from .published_index import publish_index

    parser = CommandParser(
        "prepare index",
        "Write the index of the tar files in FOLDER next to them: tar-index.json and two files for each split. Upload "
        "all to a bucket or web server, then train with -dataset=tar -data_path=s3://... or https://... Without it, a "
        "run reads the headers of all tar files once, and a web server has to list them.",
        ("small",),
    )
    parser.add_argument(
        "folder", metavar="FOLDER", type=path, help="folder of uncompressed tar files, as for -dataset=tar"
    )
    folder = Path(os.path.abspath(parser.parse_args(words).folder))
    for split, number, tars in publish_index(folder):
        print(one_line(f"indexed {number:,} {split} images in {tars:,} tar files of {folder}"))


def _image_options(words: list[str]) -> Namespace:
    from ..data.quarantine import QUARANTINE_FILE
    from ..data.reading import ReadConfig
    from .source import READABLE

    parser = CommandParser(
        "prepare images",
        "With OUT: write the dataset IN as tar files of smaller images, for -dataset=tar -data_path=OUT. "
        "Without OUT: decode every image and list unreadable ones; the exit code is 1 if there are any, or if IN "
        "contains images in formats that cannot be opened here.",
        ("my_data", "my_data small -shorter_side=320"),
    )
    parser.add_argument("input", metavar="IN", type=path, help="class folders, PaddleViT's lists, or tar files")
    parser.add_argument(
        "output", metavar="OUT", type=path, nargs="?", help="folder for the tar files; a second run resumes in it"
    )
    whole = at_least(1)
    smaller = "shrink larger images to this shorter side, in pixels; smaller JPEGs are copied byte for byte"
    listed = "without OUT: write the list of unreadable images to this file (default: print it)"
    parser.option("dataset", None, "layout of IN (default: detected)", choices=READABLE)
    parser.option("shorter_side", 320, smaller, whole)
    parser.option("quality", 90, "JPEG quality, 1 to 100", at_least(1, 100))
    parser.option(
        "store",
        "jpeg",
        "pages: uncompressed pixels, without decoding in training, for eight to ten times the disk space",
        choices=("jpeg", "pages"),
    )
    parser.option("shard_size", 1000, "images per tar file", whole)
    parser.option("workers", len(os.sched_getaffinity(0)), "number of processes", whole, "one per core")
    parser.option("on_bad_sample", "stop", "skip: omit unreadable images and list them", choices=("stop", "skip"))
    parser.option("quarantine", None, listed, path)
    parser.option("max_pixels", ReadConfig().max_pixels, "images with more pixels count as unreadable", whole)
    options = parser.parse_args(words)
    if options.output is not None and options.quarantine is not None:
        raise UserError(
            f"--quarantine is for a check without OUT: remove it; with OUT the list is {QUARANTINE_FILE} in OUT"
        )
    return options


def _find_skipped_files(datasets: dict[str, Any]) -> list[Any]:
    return [dataset.skipped_files for dataset in datasets.values() if dataset.skipped_files is not None]


def _print_summary(skipped: list[Any]) -> None:
    for group in skipped:
        for line in group.lines():
            print(one_line(line))


def _note_pixels(datasets: dict[str, Any]) -> None:
    from ..data.inspection import note_pixels

    for dataset in datasets.values():
        for line in note_pixels(len(dataset), dataset.encoded, dataset.describe):
            print(one_line(f"note: {line}"))


def _check_images(options: Namespace, datasets: dict[str, Any]) -> int:
    from ..data.quarantine import write_quarantine
    from .source import check_images

    skipped = _find_skipped_files(datasets)
    _note_pixels(datasets)
    unreadable = check_images(datasets, options.workers)
    if options.quarantine:
        write_quarantine(Path(options.quarantine), unreadable)
    total = sum(map(len, datasets.values()))
    _print_summary(skipped)
    if not unreadable:
        number = sum(each.num_images for each in skipped)
        others = f", but {number:,} skipped cannot" if number else ""
        print(one_line(f"all {total:,} images of {options.input} can be read{others}"))
        return 1 if number else 0
    message = f"{len(unreadable):,} of {total:,} images of {options.input} cannot be read"
    if options.quarantine:
        print(one_line(f"{message}; they are listed in {options.quarantine}"))
    else:
        print(one_line(f"{message}:"))
        for path, reason in unreadable:
            print(f"{one_line(path)}\t{one_line(reason)}")
    return 1


def _prepare_images(options: Namespace, datasets: dict[str, Any]) -> int:
    from ..data.quarantine import QUARANTINE_FILE
    from .shards import ShardSettings, prepare_shards

    output = Path(os.path.abspath(options.output))
    skipped = _find_skipped_files(datasets)
    skip_bad = options.on_bad_sample == "skip"
    for group in skipped:
        if group.num_images and not skip_bad:
            raise UserError(
                f"{group.summary()}, such as {group.example}: convert or remove them, "
                "or add --on_bad_sample=skip to omit them"
            )
    _note_pixels(datasets)
    settings = ShardSettings(options.shorter_side, options.quality, options.shard_size, skip_bad, options.store)
    preparation = prepare_shards(datasets, os.path.abspath(options.input), output, settings, options.workers)
    size = sum(file.stat().st_size for file in output.glob("*.tar"))
    not_opened = sum(each.num_images for each in skipped)
    bad = preparation.left_out - not_opened
    _print_summary(skipped)
    are = "unreadable ones are" if bad > 1 else "unreadable one is"
    missing = f"; {bad} {are} omitted, listed in {output / QUARANTINE_FILE}" if bad else ""
    written = sum(map(len, datasets.values())) - bad
    message = f"prepared {written:,} images in {output} ({size / 1e6:,.1f} MB){missing}"
    print(one_line(f"{message}; to train on them: -dataset=tar -data_path={output}"))
    return 0
