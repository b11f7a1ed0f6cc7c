"""``paddlevit-dist evaluate keypoints [TRUTH] RESULTS``: COCO's ten numbers of any results, without Paddle."""

import math
from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.commands.parser import CommandParser
from ...core.commands.scored import (
    MOST_SHOWN,
    add_inputs,
    add_output,
    data_set,
    find_predicted,
    print_scores,
    takes_data,
)
from ...core.intervals import quotient
from ...core.runtime.printing import count, one_line, shorten
from ...core.tasks.sample_groups import FOLDER
from ...core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from ..detection.evaluate_command import (
    UNDEFINED,
    MatchReport,
    add_scoring,
    collect_matches,
    count_annotations,
    is_annotation_file,
    list_categories,
    note_crowded,
    print_report,
)

if TYPE_CHECKING:
    from .evaluation.matching import KeypointMatches
    from .evaluation.result_files import KeypointAnnotations

TASK = "keypoint_detection"
_LONGEST_NAME = 40


def run(words: list[str]) -> None:
    """Read annotations and results, match them, print scores, and write them."""
    from ..detection.detections import BOXES, RESULT_FILES
    from .evaluation import result_files
    from .evaluation.score_kind import TEN, score_table

    options, origin = _options(words), UNKNOWN
    options.results = find_predicted(options.results, RESULT_FILES[BOXES])
    if not takes_data(options, is_annotation_file):
        annotations = result_files.read_annotations(options.truth, options.sigmas)
    else:
        from ...core.tasks.dataset import dataset_class
        from .data.keypoint_dataset import KeypointDataset

        with data_set(options, TASK) as (values, cache, origin):
            dataset = dataset_class(values, KeypointDataset).open(values, origin.split, cache)
            annotations = result_files.read_dataset(dataset, str(origin), options.sigmas)
            file = annotations.file._replace(root=values.DATA.DATA_PATH or "")
            annotations = annotations._replace(file=file)
            if getattr(dataset, "has_whole_objects", False):
                order = np.argsort(dataset.image_ids).tolist()
                _print_errors(options, annotations, origin, [dataset.spacing_mm(index) for index in order])
                return
    results = result_files.read_results(options.results, annotations)
    matches = annotations.match(results, options.max_detections)
    numbers, all_class_ap = score_table(matches.table, options.max_detections, np.ones((1, len(matches.sums))))
    stats = {name: float(np.nan_to_num(numbers[name][0], nan=UNDEFINED)) for name in TEN}
    class_ap = np.nan_to_num(all_class_ap[0], nan=UNDEFINED)
    scored, points = _score(annotations, matches, origin, options.max_detections), _PointValues(matches.sums)
    rules = f"AP: COCO's rules for keypoints, {options.max_detections:,} results for each image and category"
    report = MatchReport(
        scored,
        stats,
        dict(zip(annotations.file.names, class_ap[:, 0].tolist())),
        f"{count_annotations(annotations.file)}, {len(results.found.scores):,} results; OKS of keypoints",
        format_summary(stats, options.max_detections),
        [*list_categories(annotations.file, class_ap), *points.list_points(scored)],
        [*annotations.file.notices, *results.notices, *note_crowded(matches.table, options.max_detections)],
        [rules, *annotations.remarks, *([results.matched] if results.matched else [])],
        {"per_point": points.to_dict(scored)},
    )
    print_report(options, report, report.protocol)


def _print_errors(
    options: Namespace, annotations: "KeypointAnnotations", origin: ResultSource, spacings: list[Any]
) -> None:
    """Print the errors of one object an image, with width and height of the pixels of each, or None."""
    from .evaluation import point_scores, result_files

    results, file = result_files.read_results(options.results, annotations), annotations.file
    arrays = result_files.measure_results(annotations, results, spacings)
    units = [unit for unit, name in (("px", "errors"), ("mm", "errors_mm")) if not np.isnan(arrays[name]).all()]
    known = results.found.images[results.found.labels >= 0]
    missing = int((np.bincount(known, minlength=len(spacings)) == 0).sum())
    share = f"{point_scores.PCK_SHARE:g} of the longer side of the extent of the labeled points"
    scored = ScoreReport(
        counted=f"{len(spacings):,} images with one object each, {len(results.found.scores):,} results",
        names=file.file_names,
        sample="image",
        shown={"PCK": 2, **{f"{value}_{unit}": 4 for unit in units for value in ("mre", "sd")}},
        classes=annotations.sets[0].names,
        protocol=[f"PCK: percent of points within {share}; the result with the highest score of each image"],
        notices=[
            *file.notices,
            *results.notices,
            *([f"{count(missing, 'image')} without a result"] if missing else []),
        ],
        task=TASK,
        kind=point_scores.KIND,
        arrays={name: array for name, array in arrays.items() if name != "places"},
        origin=origin,
    )
    print_scores(scored, options, FOLDER)


def _options(words: list[str]) -> Namespace:
    parser = CommandParser(
        "evaluate keypoints",
        "Compute COCO's ten numbers of keypoints, the AP of each category and the similarity of each point for a file "
        "of results, equal to pycocotools. Runs without Paddle and, with COCO annotations, without the images.",
        ("annotations/person_keypoints_val2017.json results.json", "hands.json results.json -sigmas=0.05"),
        imports=True,
    )
    results = "results in COCO's format, a JSON file, with keypoints x, y, score of each point"
    add_inputs(parser, "COCO annotations of the images with keypoints, a JSON file", results)
    add_output(parser)
    sigmas = "COCO's sigma of each point, or one for all: 0.05 or 0.03,0.05,0.1 (default: by TRUTH, as for training)"
    parser.option("sigmas", None, sigmas, _parse_sigmas, metavar="NUMBERS")
    add_scoring(parser, 20, 1)
    return parser.parse_args(words)


def _parse_sigmas(text: str) -> list[float]:
    """Return the numbers of a list with commas; raise ArgumentTypeError if one is not a number above 0."""
    try:
        sigmas = [float(word) for word in text.strip("[]() ").split(",")]
    except ValueError:
        sigmas = []
    if not sigmas or not all(0 < sigma < math.inf for sigma in sigmas):
        raise ArgumentTypeError(f"expected numbers above 0 with commas, such as 0.03,0.05, got {shorten(text, 40)}")
    return sigmas


def _score(
    annotations: "KeypointAnnotations", matches: "KeypointMatches", origin: ResultSource, most: int
) -> ScoreReport:
    """Collect the matches in the form that intervals and ``compare`` need."""
    from .evaluation.score_kind import KIND, encode_names, name_points

    file = annotations.file
    names = encode_names(name_points(file.names, annotations.sets))
    table = {"ids": matches.table.image_ids, "limits": np.array([most]), "points": matches.sums, "point_names": names}
    return collect_matches(file, {**table, **matches.table.to_arrays()}, origin, TASK, KIND)


class _PointValues:
    """What is known about each point of all images: its sums, see ``KeypointMatches.sums``."""

    def __init__(self, sums: np.ndarray) -> None:
        self.labeled, self.found, similarities, distances = np.moveaxis(sums.sum(axis=0), -1, 0)
        self.similarities, self.distances = (quotient(part, self.found) for part in (similarities, distances))

    def to_dict(self, scored: ScoreReport) -> dict[str, dict[str, float | int]]:
        """Return the values of each point by name, for JSON; -1 where none is found."""
        from .evaluation.score_kind import decode_names

        columns = (self.labeled.astype(int), self.found.astype(int), self.similarities, self.distances)
        rows = zip(*(np.nan_to_num(column, nan=UNDEFINED).tolist() for column in columns))
        keys = ("labeled", "found", "OKS", "error_px")
        return {name: dict(zip(keys, row)) for name, row in zip(decode_names(scored.arrays), rows)}

    def list_points(self, scored: ScoreReport) -> list[str]:
        """Format a line for each point, or name the option that prints them."""
        rows = self.to_dict(scored)
        if len(rows) > MOST_SHOWN:
            return [f"{len(rows):,} points: add -json to print the values of each"]
        names = [shorten(one_line(name), _LONGEST_NAME) for name in rows]
        width = max([len(name) for name in names] + [len("point of found objects")])
        lines = [f"{'point of found objects':{width}}  labeled   found    OKS  error px"]
        for name, (labeled, found, similarity, distance) in zip(names, (row.values() for row in rows.values())):
            shown = f"{similarity:6.3f} {distance:9.2f}" if found else f"{'-':>6} {'-':>9}"
            lines.append(f"{name:{width}} {labeled:8,} {found:7,} {shown}")
        return lines


def format_summary(stats: dict[str, float], most: int) -> list[str]:
    """Format COCO's ten numbers as lines in the layout of pycocotools."""
    lines = []
    for name, value in stats.items():
        short, _, area = name.partition("_")
        oks = {"50": "0.50", "75": "0.75"}.get(short[2:], "0.50:0.95")
        what = f"Average {'Precision' if short.startswith('AP') else 'Recall'}"
        area = area or "all"
        lines.append(
            f" {what:<18} ({short[:2]}) @[ OKS={oks:<9} | area={area:>6s} | maxDets={most:>3d} ] = {value:0.3f}"
        )
    return lines
