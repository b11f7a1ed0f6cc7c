"""``paddlevit-dist evaluate classes [TRUTH] RESULTS``: score a table of predicted classes of any program."""

import sys
from pathlib import Path
from typing import Any

from ...core.commands.parser import CommandParser
from ...core.commands.scored import add_options, data_set, find_predicted, print_scores, takes_data
from ...core.inference.rows import ROWS_CSV
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line


def run(words: list[str]) -> None:
    """Run ``evaluate classes [TRUTH] RESULTS``."""
    parser = CommandParser(
        "evaluate classes",
        "Compute top-1, top-5, balanced accuracy and loss of a table: a column of image names, and one for each class "
        "(probabilities or logits) or columns of the best classes. Images are matched by name, with or without "
        "folders and suffix; each image needs a row. Runs without Paddle.",
        ("predictions.csv -data_path=pets", "truth.csv predictions.csv", "probs.csv -cfg=output/run/config.yaml"),
        imports=True,
    )
    add_options(parser, "table with the true class of each image", "table of results, .csv or .tsv", "images")
    parser.add_argument(
        "--logits", "-logits", action="store_true", help="scores are logits: compute the loss of their softmax"
    )
    options = parser.parse_args(words)
    options.results = find_predicted(options.results, ROWS_CSV)

    from .result_scores import score

    if not takes_data(options, has_splits=True):
        print_scores(score(options.results, options.truth, options.logits, split=options.split), options)
        return
    from ...core.tasks.class_names import name_outputs
    from .result_tables import ClassGroundTruth

    with data_set(options, "classification") as (values, cache, origin):
        dataset = _open(values, origin.split, cache)
        if dataset.labels is None or dataset.num_classes is None:
            raise UserError(f"dataset {origin.dataset} does not have one class for each image")
        number = max(values.MODEL.NUM_CLASSES or 0, dataset.num_classes)
        classes = name_outputs(dataset.class_names, number)
        images = list(map(dataset.identity, range(len(dataset))))
        if getattr(dataset, "is_random_split", False):
            print(
                one_line(f"note: the ground truth is the {len(images):,} images that are held out of training"),
                file=sys.stderr,
            )
        truth = ClassGroundTruth(images, dataset.labels.astype("int64"), classes, str(origin))
        print_scores(score(options.results, truth, options.logits, origin), options, dataset.groups_by)


def _open(values: Any, split: str, cache: Path) -> Any:
    """Open the data set: images as a training run does, or other samples, such as shapes."""
    from ...core.registry.lookup import require_derived, resolve
    from ...core.tasks.dataset import Dataset, RegisteredDataset
    from .opening import open_images

    if "VAL_FRACTION" in values.DATA:  # a task of images
        return open_images(values, split, cache)[0]
    cls = require_derived(resolve("dataset", values.DATA.DATASET), Dataset)
    return RegisteredDataset(cls).open(values, split, cache)
