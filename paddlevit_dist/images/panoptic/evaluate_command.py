"""``paddlevit-dist evaluate panoptic [TRUTH] RESULTS``: score segments in COCO's panoptic format of any program."""

import os

from ...core.commands.parser import CommandParser
from ...core.commands.scored import add_options, data_set, find_predicted, print_scores, takes_data
from ...core.runtime.errors import UserError
from ...core.tasks.sample_groups import FOLDER


def run(words: list[str]) -> None:
    """Run ``evaluate panoptic [TRUTH] RESULTS``."""
    from .scored_files import RESULTS, open_truth, read_truth, score

    parser = CommandParser(
        "evaluate panoptic",
        "Compute the panoptic quality (PQ) of segments in COCO's panoptic format: a JSON file, and in the folder of "
        "its name a PNG file for each image, whose pixels are the numbers of segments. Runs without Paddle.",
        ("annotations/panoptic_val2017.json found.json", "/dataset/coco predictions"),
        imports=True,
    )
    add_options(parser, "JSON file of the true segments", "JSON file of the segments to score", "images")
    options = parser.parse_args(words)
    options.results = find_predicted(options.results, RESULTS)
    if os.path.isdir(options.results):
        raise UserError(f"{options.results} is a folder without {RESULTS}: give the JSON file of the results")
    if not takes_data(options):
        print_scores(score(read_truth(options.truth), options.results), options, FOLDER)
        return
    from ...core.tasks.dataset import dataset_class
    from .data.panoptic_dataset import PanopticDataset

    with data_set(options, "panoptic_segmentation") as (values, cache, origin):
        dataset = dataset_class(values, PanopticDataset).open(values, origin.split, cache)
        print_scores(score(open_truth(dataset, origin), options.results), options, dataset.groups_by)
