"""``paddlevit-dist evaluate masks TRUTH RESULTS``: score label maps of any program."""

import argparse

from ...core.commands.parser import CommandParser, path
from ...core.commands.scored import add_options, find_predicted, print_scores
from ...core.tasks.sample_groups import FOLDER


def run(words: list[str]) -> None:
    """Run ``evaluate masks TRUTH RESULTS``."""
    from ..data.class_lists import read_class_list
    from ..label_maps import LabelMapRules, require_same_numbers, score

    parser = CommandParser(
        "evaluate masks",
        "Compute the IoU of each class and mIoU of label maps: two folders of PNG files, gray (8 or 16 bits) or with a "
        "palette, whose pixels are class numbers. Files are matched by name; each file of TRUTH needs one of the same "
        "size in RESULTS. Runs without Paddle.",
        ("labels/val predictions", "gtFine/val found -truth_suffix=_gtFine_labelTrainIds.png -classes=cityscapes.txt"),
    )
    add_options(parser, "folder of true label maps", "folder of label maps to score", "images", data=False)
    parser.option(
        "classes",
        None,
        "list of classes, one name per line, from 0, or in the form of a dataset (default: the classes that occur)",
        path,
    )
    parser.option("ignore", 255, "pixel value in TRUTH that is not scored, or none", _parse_ignored, metavar="N")
    meaning = "ignore 0 in TRUTH and read k as class k - 1, the format of ADE20K; RESULTS are not changed"
    parser.add_argument("--reduce_zero_label", "-reduce_zero_label", action="store_true", help=meaning)
    parser.option("truth_suffix", ".png", "suffix of file names in TRUTH", metavar="TEXT")
    parser.option("result_suffix", ".png", "suffix of file names in RESULTS", metavar="TEXT")
    options = parser.parse_args(words)
    options.results = find_predicted(options.results, ".")
    listed = None if options.classes is None else read_class_list(options.classes)
    if not options.reduce_zero_label:
        require_same_numbers(options.truth, options.results, listed)
    classes = None if listed is None else listed.by_number()
    ends = options.truth_suffix, options.result_suffix
    rules = LabelMapRules(classes, options.ignore, options.reduce_zero_label, *ends)
    print_scores(score(options.truth, options.results, rules), options, FOLDER)


def _parse_ignored(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 65535 or none")
    return int(text)
