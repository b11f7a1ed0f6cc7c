"""The commands ``prepare scannet``, ``prepare ply`` and ``prepare pth``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional

from ...errors import UserError
from ..data.scene_store import read_lines
from .listing import SPLITS
from .plain_ply import INSTANCE_NAMES, LABEL_NAMES, PlyReader
from .pth import PthReader
from .scannet import LIST_NAME, ScanNetReader
from .store import Summary, prepare_store

_MOST_REMARKS = 5


def run_scannet(words: List[str]) -> None:
    """``prepare scannet RAW OUT``"""
    parser = _parser(
        "scannet",
        "RAW",
        "Write ScanNet v2 as scenes for -dataset=scannet -data_path=OUT. RAW holds the downloaded scenes at any depth "
        f"(_vh_clean_2.ply, labels, segments, aggregation) and the lists {LIST_NAME.format('train')}, "
        f"{LIST_NAME.format('val')} and perhaps {LIST_NAME.format('test')}, or the scenes lie in train, val and test.",
    )
    _run(parser.parse_args(words), lambda options: ScanNetReader(), "scannet")


def run_ply(words: List[str]) -> None:
    """``prepare ply IN OUT``"""
    parser = _parser(
        "ply",
        "IN",
        "Write PLY files as scenes for -dataset=scenes -data_path=OUT. The scenes lie in IN/train, IN/val and perhaps "
        "IN/test, or IN has the lists train.txt and val.txt; otherwise every fifth scene is for validation.",
    )
    parser.add_argument("--classes", metavar="FILE", help="a class name in each line; without it numbers are the names")
    parser.add_argument("--label", help=f"property with the class (default: the first of {', '.join(LABEL_NAMES)})")
    parser.add_argument(
        "--instance", help=f"property with the object (default: the first of {', '.join(INSTANCE_NAMES)})"
    )
    parser.add_argument("--ignore_label", type=int, default=-100, help="class that stands for none (default: -100)")
    parser.add_argument("--missing_colors", choices=("stop", "grey"), default="stop", help="default: stop")

    def reader(options: argparse.Namespace) -> PlyReader:
        grey = options.missing_colors == "grey"
        return PlyReader(_class_names(options), options.label, options.instance, options.ignore_label, grey)

    _run(parser.parse_args(words), reader, "scenes")


def run_pth(words: List[str]) -> None:
    """``prepare pth IN OUT``"""
    parser = _parser(
        "pth",
        "IN",
        "Write PointGroup's NAME_inst_nostuff.pth as scenes for -dataset=scannet -data_path=OUT. The files lie in "
        "IN/train, IN/val and perhaps IN/test, or IN has the lists train.txt and val.txt. torch is not needed.",
    )
    parser.add_argument("--classes", metavar="FILE", help="a class name in each line (default: ScanNet's twenty)")
    options = parser.parse_args(words)
    _run(options, lambda options: PthReader(_class_names(options)), "scannet" if options.classes is None else "scenes")


def _parser(kind: str, source: str, description: str) -> argparse.ArgumentParser:
    class Options(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UserError(f"prepare {kind}: {message}; see python -m paddlevit_dist prepare {kind} -h")

    parser = Options(prog=f"python -m paddlevit_dist prepare {kind}", description=description, allow_abbrev=False)
    parser.add_argument("input", metavar=source, help="folder of the raw scenes")
    parser.add_argument("output", metavar="OUT", help="folder of the prepared ones; a second run resumes in it")
    for split in SPLITS:
        parser.add_argument(f"--{split}_list", metavar="FILE", help=f"a scene name in each line, those of '{split}'")
    workers = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=workers, help=f"processes (default: {workers})")
    return parser


def _class_names(options: argparse.Namespace) -> Optional[List[str]]:
    if options.classes is None:
        return None
    names = read_lines(options.classes)
    if not names:
        raise UserError(f"--classes={options.classes}: expected a file with a class name in each line")
    return names


def _run(options: argparse.Namespace, make_reader: Callable[[argparse.Namespace], Any], dataset: str) -> None:
    """Prepare, and end the process with code 130 on Ctrl-C."""
    root = os.path.abspath(os.path.expanduser(options.input))
    output = Path(os.path.abspath(os.path.expanduser(options.output)))
    if not os.path.isdir(root):
        raise UserError(f"{root} is not a folder; give the one that the raw scenes lie in")
    if options.workers < 1:
        raise UserError(f"--workers={options.workers}: expected a whole number from 1 up")
    lists: Dict[str, Optional[str]] = {split: getattr(options, f"{split}_list") for split in SPLITS}
    reader = make_reader(options)
    splits = reader.sources(root, lists)
    try:
        summary = prepare_store(reader, splits, root, output, options.workers)
    except KeyboardInterrupt:
        print("interrupted; finished scenes are kept, the same command goes on", file=sys.stderr)
        sys.exit(130)
    for remark in _shortened(summary.remarks):
        print(f"note: {remark}")
    print(f"{_described(summary)} in {output}; train on them with -dataset={dataset} -data_path={output}")


def _shortened(remarks: List[str]) -> List[str]:
    """At most a few lines: what is wrong with one scene is often wrong with all."""
    left = len(remarks) - _MOST_REMARKS
    return remarks if left <= 0 else [*remarks[:_MOST_REMARKS], f"{left} more lines of this kind"]


def _described(summary: Summary) -> str:
    scenes = ", ".join(f"{number:,} {split}" for split, number in summary.scenes.items())
    kept = f" ({summary.kept:,} were there already)" if summary.kept else ""
    return f"prepared {scenes} scenes{kept} of {summary.points:,} points ({summary.num_bytes / 1e6:,.1f} MB)"
