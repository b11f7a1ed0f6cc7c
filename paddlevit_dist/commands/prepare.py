"""``python -m paddlevit_dist prepare ...``: one-time processing of data before training."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from .parser import CommandParser, at_least, path

_MOST_REMARKS = 5


def run_images(words: list[str]) -> None:
    """Run ``prepare images IN [OUT]``; exit with code 1 if a check finds unreadable images, with 130 on Ctrl-C."""
    from ..images.prepare.source import open_input
    from ..launch.stale_resources import working_folder

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
    from ..images.prepare.published_index import publish_index

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


def run_plan(words: list[str]) -> None:
    """Run ``prepare plan DATA FILE``."""
    parser = CommandParser(
        "prepare plan",
        "Choose spacing, patch, levels, kernels, strides, batch and normalization for volumes with label maps by "
        "nnU-Net's rules, and write them to FILE, for -cfg=FILE.",
        ("nnUNet_raw/Dataset005_X plan.yaml -memory_gb=12",),
    )
    parser.add_argument("data", metavar="DATA", type=path, help="folder with dataset.json, imagesTr and labelsTr")
    parser.add_argument("file", metavar="FILE", type=path, help="YAML file to write")
    parser.option("memory_gb", 8, "memory of a device in GB, by nnU-Net's estimate", at_least(1))
    options = parser.parse_args(words)

    from ..launch.stale_resources import working_folder
    from ..volumes.segmentation.plan_file import write_plan

    with working_folder("prepare") as cache:
        for line in write_plan(options.data, Path(options.file), options.memory_gb, cache):
            print(one_line(line))
    print(one_line(f"written to {options.file}: train with -cfg={options.file}"))


def _image_options(words: list[str]) -> Namespace:
    from ..images.data.quarantine import QUARANTINE_FILE
    from ..images.data.reading import ReadConfig
    from ..images.prepare.source import READABLE

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
    from ..images.data.inspection import note_pixels

    for dataset in datasets.values():
        for line in note_pixels(len(dataset), dataset.encoded, dataset.describe):
            print(one_line(f"note: {line}"))


def _check_images(options: Namespace, datasets: dict[str, Any]) -> int:
    from ..images.data.quarantine import write_quarantine
    from ..images.prepare.source import check_images

    skipped = _find_skipped_files(datasets)
    _note_pixels(datasets)
    unreadable = check_images(datasets, options.workers)
    if options.quarantine:
        write_quarantine(Path(options.quarantine), unreadable)
    total = sum(map(len, datasets.values()))
    _print_summary(skipped)
    if not unreadable:
        number = sum(group.num_images for group in skipped)
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
    from ..images.data.quarantine import QUARANTINE_FILE
    from ..images.prepare.shards import ShardSettings, prepare_shards

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
    not_opened = sum(group.num_images for group in skipped)
    bad = preparation.left_out - not_opened
    _print_summary(skipped)
    are = "unreadable ones are" if bad > 1 else "unreadable one is"
    missing = f"; {bad} {are} omitted, listed in {output / QUARANTINE_FILE}" if bad else ""
    written = sum(map(len, datasets.values())) - bad
    message = f"prepared {written:,} images in {output} ({size / 1e6:,.1f} MB){missing}"
    print(one_line(f"{message}; to train on them: -dataset=tar -data_path={output}"))
    return 0


def run_scannet(words: list[str]) -> None:
    """Run ``prepare scannet RAW OUT``."""
    from ..points.prepare.scannet import LIST_NAME, TABLE

    parser = _scene_parser(
        "scannet",
        "RAW",
        "Write ScanNet v2 as scenes for -dataset=scannet -data_path=OUT. RAW contains the downloaded scenes at any "
        f"depth (_vh_clean_2.ply, labels, segments, aggregation) and the lists {LIST_NAME.format('train')}, "
        f"{LIST_NAME.format('val')} and optionally {LIST_NAME.format('test')}; or scenes are in train, val and test.",
    )
    parser.option(
        "classes",
        "20",
        f"20: ScanNet's benchmark classes; 200: ScanNet200, which needs {TABLE} in RAW",
        choices=("20", "200"),
    )
    options = parser.parse_args(words)
    _prepare_scenes(options, "scannet", two_hundred=options.classes == "200")


def run_scenes(words: list[str]) -> None:
    """Run ``prepare scenes IN OUT``."""
    from ..points.prepare.formats import FORMATS, detect_format
    from ..points.prepare.listing import SceneChoices
    from ..points.prepare.s3dis import NUM_AREAS

    parser = _scene_parser(
        "scenes",
        "IN",
        "Write scenes in any of these formats for -dataset=scenes -data_path=OUT: "
        f"{'; '.join(f'{kind}: {each.meaning}' for kind, each in FORMATS.items())}. The format is detected. "
        "The splits come from the dataset, else from the folders train, val and test in IN, or lists train.txt, "
        "val.txt and test.txt there; else every fifth scene is for validation.",
    )
    meaning = "one of the formats above (default: detected)"
    parser.option("format", None, meaning, choices=tuple(FORMATS), metavar="FORMAT")
    _add_choices(parser)
    parser.option(
        "columns", None, "columns of text and unnamed arrays, such as x,y,z,intensity,-; a dash skips a column"
    )
    parser.option(
        "val_area",
        SceneChoices.val_area,
        "S3DIS: area for validation; the others are for training",
        at_least(1, NUM_AREAS),
    )
    options = parser.parse_args(words)
    root = _folder(options)
    kind = options.format or detect_format(root)
    if options.format is None:
        print(one_line(f"{root} contains scenes of format {kind}: {FORMATS[kind].meaning}"))
    _prepare_scenes(options, kind, **_choose(options), columns=_split_names(options.columns), val_area=options.val_area)


def run_ply(words: list[str]) -> None:
    """Run ``prepare ply IN OUT``."""
    parser = _scene_parser(
        "ply",
        "IN",
        "Write PLY files as scenes for -dataset=scenes -data_path=OUT. The scenes are in IN/train, IN/val and "
        "optionally IN/test, or IN has the lists train.txt and val.txt; otherwise every fifth scene is for validation.",
    )
    _add_choices(parser)
    options = parser.parse_args(words)
    _prepare_scenes(options, "ply", **_choose(options))


def run_pth(words: list[str]) -> None:
    """Run ``prepare pth IN OUT``."""
    parser = _scene_parser(
        "pth",
        "IN",
        "Write PointGroup's NAME_inst_nostuff.pth as scenes for -dataset=scannet -data_path=OUT. The files are in "
        "IN/train, IN/val and optionally IN/test, or IN has the lists train.txt and val.txt. Runs without torch.",
    )
    parser.option("classes", None, "file with one class name per line (default: ScanNet's twenty)", metavar="FILE")
    options = parser.parse_args(words)
    _prepare_scenes(options, "pth", class_names=_class_names(options))


def _scene_parser(kind: str, source: str, description: str) -> CommandParser:
    from ..points.data.scene_store import SPLITS

    parser = CommandParser(f"prepare {kind}", description, (f"raw_{kind} prepared -workers=4",))
    parser.add_argument("input", metavar=source, type=path, help="folder of the raw scenes")
    parser.add_argument(
        "output", metavar="OUT", type=path, help="folder for the prepared scenes; a second run resumes in it"
    )
    for split in SPLITS:
        parser.option(f"{split}_list", None, f"file with the scene names of '{split}', one per line", metavar="FILE")
    parser.option("workers", len(os.sched_getaffinity(0)), "number of processes", at_least(1), "one per core")
    return parser


def _add_choices(parser: CommandParser) -> None:
    from ..points.prepare.channels import USUAL
    from ..points.prepare.tables import INSTANCE_NAMES, LABEL_NAMES

    labels, instances = ", ".join(LABEL_NAMES), ", ".join(INSTANCE_NAMES)
    parser.option(
        "classes", None, "file with one class name per line (default: classes are named by number)", metavar="FILE"
    )
    parser.option("label", None, f"property with the class, or none (default: the first that exists of {labels})")
    parser.option(
        "instance", None, f"property with the object, or none (default: the first that exists of {instances})"
    )
    parser.option("ignore_label", -100, "class number of unlabeled points", int)
    parser.option("missing_colors", "stop", "gray: make scenes without colors gray", choices=("stop", "gray"))
    usual = " and ".join(USUAL)
    parser.option(
        "channels",
        None,
        f"further point channels to keep, for POINTS.FEATURES: names, all, or none (default: {usual}, if present)",
    )


def _choose(options: Namespace) -> dict[str, Any]:
    """Return the options of ``_add_choices`` as arguments of ``SceneChoices``."""
    return {
        "class_names": _class_names(options),
        "label": options.label,
        "instance": options.instance,
        "ignore_label": options.ignore_label,
        "gray": options.missing_colors == "gray",
        "channels": _split_names(options.channels),
    }


def _split_names(listed: str | None) -> tuple[str, ...] | None:
    return tuple(word.strip().lower() for word in listed.split(",")) if listed else None


def _class_names(options: Namespace) -> tuple[str, ...] | None:
    if options.classes is None:
        return None
    from ..points.data.scene_store import read_lines

    names = read_lines(options.classes)
    if not names:
        raise UserError(f"--classes={options.classes}: expected a file with one class name per line")
    return tuple(names)


def _folder(options: Namespace) -> str:
    root = os.path.abspath(options.input)
    if not os.path.isdir(root):
        raise UserError(f"{root} is not a folder: give the folder of the raw scenes")
    return root


def _prepare_scenes(options: Namespace, kind: str, **chosen: Any) -> None:
    """Prepare the scenes with these ``SceneChoices``; exit with code 130 on Ctrl-C."""
    from ..launch.stale_resources import working_folder
    from ..points.data.scannet_classes import CLASS_NAMES
    from ..points.data.scene_store import SPLITS
    from ..points.prepare.formats import get_reader
    from ..points.prepare.listing import SceneChoices
    from ..points.prepare.store import prepare_store

    root, output = _folder(options), Path(os.path.abspath(options.output))
    lists: dict[str, str | None] = {split: vars(options)[f"{split}_list"] for split in SPLITS}
    reader = get_reader(kind, SceneChoices(**chosen))
    splits = reader.sources(root, lists)
    list_remarks = list(reader.remarks)
    try:
        with working_folder("prepare"):
            summary = prepare_store(reader, splits, root, output, options.workers)
    except KeyboardInterrupt as error:
        print("interrupted; finished scenes are kept: run the same command to continue", file=sys.stderr)
        sys.exit(signals.exit_code(error))
    for remark in [*list_remarks, *_shorten(summary.remarks)]:
        print(one_line(f"note: {remark}"))
    dataset = "scannet" if reader.class_names == CLASS_NAMES else "scenes"
    use = "to train on them:" if "train" in splits else f"to evaluate on them: -eval -split={next(iter(splits))}"
    print(one_line(f"{_describe(summary)} in {output}; {use} -dataset={dataset} -data_path={output}"))


def _shorten(remarks: list[str]) -> list[str]:
    """Keep a few remarks: a fault of one scene is often a fault of all."""
    left = len(remarks) - _MOST_REMARKS
    return remarks if left <= 0 else [*remarks[:_MOST_REMARKS], f"{left} more lines of this kind"]


def _describe(summary: Any) -> str:
    scenes = ", ".join(f"{number:,} {split}" for split, number in summary.scenes.items())
    existing = f" ({summary.kept:,} were prepared before)" if summary.kept else ""
    return f"prepared {scenes} scenes{existing} of {summary.points:,} points ({summary.num_bytes / 1e6:,.1f} MB)"
