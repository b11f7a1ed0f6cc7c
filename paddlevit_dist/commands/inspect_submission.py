"""``python -m paddlevit_dist inspect submission PREDICTIONS``: predictions against the rules of ScanNet's benchmark."""

import os
import sys
from argparse import Namespace
from pathlib import Path

from ..runtime.errors import UserError
from ..runtime.printing import one_line
from .parser import CommandParser, path

_MOST_SHOWN = 30


def run(words: list[str]) -> None:
    """Check predictions and perhaps pack them. Exits with code 1 if they break a rule."""
    from ..points import submission

    options = _options(words)
    files = submission.Files(os.path.abspath(options.predictions))
    scenes = submission.expected_scenes(options.data_path, options.split, options.list)
    found = submission.check(files, scenes, options.kind)
    for problem in found.problems[:_MOST_SHOWN]:
        print(one_line(problem))
    if len(found.problems) > _MOST_SHOWN:
        print(f"and {len(found.problems) - _MOST_SHOWN:,} more")
    checked = f"{len(scenes):,} scenes of {options.data_path}"
    if found.problems:
        print(one_line(f"not a valid submission: {len(found.problems):,} rules broken in {checked}"))
        sys.exit(1)
    what = f"{found.num_instances:,} instances" if found.kind == submission.INSTANCES else "classes"
    print(one_line(f"{what} for {checked} follow the rules of ScanNet's benchmark{_completeness(list(scenes))}"))
    if options.zip:
        submission.pack(files, found.packed, Path(options.zip))
        left = f"; {len(found.others):,} other files are left out" if found.others else ""
        print(one_line(f"packed {len(found.packed):,} files in {options.zip}{left}"))


def _options(words: list[str]) -> Namespace:
    from ..points.submission import INSTANCES, SEMANTIC

    parser = CommandParser(
        "inspect submission",
        "Check the predictions that -eval -split=test or predict has written, or any others, against the rules of "
        "ScanNet's benchmark, and pack them for it.",
        ("output/test/predictions -data_path=/dataset/scannet -zip=submission.zip",),
    )
    parser.add_argument("predictions", metavar="PREDICTIONS", type=path, help="folder or zip archive with NAME.txt")
    parser.option("data_path", None, "prepared store or ScanNet's download, for the numbers of vertices", path)
    parser.option("split", "test", "whose scenes these are")
    parser.option("list", None, "file of scene names, in place of the split's", path, metavar="FILE")
    parser.option("kind", None, "found out if not given", choices=(SEMANTIC, INSTANCES))
    parser.option("zip", None, "also pack what belongs to the submission in this archive", path, metavar="FILE")
    options = parser.parse_args(words)
    if options.data_path is None:
        raise UserError("inspect submission: give the prepared store or ScanNet's download with --data_path=FOLDER")
    if options.zip and not os.path.isdir(options.predictions):
        raise UserError("--zip packs the files of a folder; PREDICTIONS is none")
    return options


def _completeness(names: list[str]) -> str:
    from ..points.data.scannet_classes import TEST_SCENES

    missing = len(set(TEST_SCENES) - set(names))
    if not missing:
        return ""
    return f", but {missing:,} of the {len(TEST_SCENES)} scenes of its test set are not among them"
