"""``paddlevit-dist prepare scannet|scenes|ply|pth``: write raw scenes as memory-mapped ones."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.commands.parser import CommandParser, at_least, path
from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, one_line

if TYPE_CHECKING:
    from .store import StoreSummary

_MOST_REMARKS = 5


def run_scannet(words: list[str]) -> None:
    """Run ``prepare scannet RAW OUT``."""
    from .scannet import LIST_NAME, TABLE

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
    from .formats import describe_formats, detect_format, get_format
    from .listing import SceneChoices
    from .s3dis import NUM_AREAS

    parser = _scene_parser(
        "scenes",
        "IN",
        "Write scenes in any of these formats for -dataset=scenes -data_path=OUT: "
        f"{describe_formats()}. The format is detected. "
        "The splits come from the dataset, else from the folders train, val and test in IN, or lists train.txt, "
        "val.txt and test.txt there; else every fifth scene is for validation.",
        imports=True,
    )
    parser.option("format", None, "one of the formats above (default: detected)")
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
        print(one_line(f"{root} contains scenes of format {kind}: {get_format(kind).meaning}"))
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


def _scene_parser(kind: str, source: str, description: str, imports: bool = False) -> CommandParser:
    from ..data.scene_store import SPLITS

    parser = CommandParser(f"prepare {kind}", description, (f"raw_{kind} prepared -workers=4",), imports)
    parser.add_argument("input", metavar=source, type=path, help="folder of the raw scenes")
    parser.add_argument(
        "output", metavar="OUT", type=path, help="folder for the prepared scenes; a second run resumes in it"
    )
    for split in SPLITS:
        parser.option(f"{split}_list", None, f"file with the scene names of '{split}', one per line", metavar="FILE")
    parser.option("workers", len(os.sched_getaffinity(0)), "number of processes", at_least(1), "one per core")
    return parser


def _add_choices(parser: CommandParser) -> None:
    from ...core.runtime.column_roles import CLASS_OF_POINT, INSTANCE
    from .channels import USUAL

    labels, instances = ", ".join(CLASS_OF_POINT.words), ", ".join(INSTANCE.words)
    parser.option(
        "classes", None, "file with one class name per line (default: classes are named by number)", metavar="FILE"
    )
    parser.option("label", None, f"property with the class, or none (default: the first that exists of {labels})")
    parser.option(
        "instance", None, f"property with the object, or none (default: the first that exists of {instances})"
    )
    parser.option("ignore_label", -100, "class number of unlabeled points", int)
    parser.option(
        "missing_colors", "stop", "gray: make scenes without colors of a known range gray", choices=("stop", "gray")
    )
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
    from ...core.tasks.class_names import require_unique
    from ..data.scene_store import read_lines

    names = read_lines(options.classes)
    if not names:
        raise UserError(f"--classes={options.classes}: expected a file with one class name per line")
    require_unique(names, f"--classes={options.classes}: classes")
    return tuple(names)


def _folder(options: Namespace) -> str:
    root = os.path.abspath(options.input)
    if not os.path.isdir(root):
        raise UserError(f"{root} is not a folder: give the folder of the raw scenes")
    return root


def _prepare_scenes(options: Namespace, kind: str, **chosen: Any) -> None:
    """Prepare the scenes with these ``SceneChoices``; exit with code 130 on Ctrl-C."""
    from ...core.launch.stale_resources import working_folder
    from ..data.scannet_classes import CLASS_NAMES
    from ..data.scene_store import SPLITS
    from .formats import get_reader
    from .listing import SceneChoices
    from .store import prepare_store

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
    remarks = [*list_remarks, *summary.remarks[:_MOST_REMARKS]]  # a fault of one scene is often a fault of all
    if (left := len(summary.remarks) - _MOST_REMARKS) > 0:
        remarks.append(f"{count(left, 'more line')} of this kind")
    for remark in remarks:
        print(one_line(f"note: {remark}"))
    dataset = "scannet" if reader.class_names == CLASS_NAMES else "scenes"
    use = "to train on them:" if "train" in splits else f"to evaluate on them: -eval -split={next(iter(splits))}"
    print(one_line(f"{_describe(summary)} in {output}; {use} -dataset={dataset} -data_path={output}"))


def _describe(summary: "StoreSummary") -> str:
    scenes = ", ".join(f"{number:,} {split}" for split, number in summary.scenes.items())
    existing = f" ({summary.kept:,} were prepared before)" if summary.kept else ""
    return f"prepared {scenes} scenes{existing} of {summary.points:,} points ({summary.num_bytes / 1e6:,.1f} MB)"
