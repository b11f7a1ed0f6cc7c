"""``paddlevit-dist evaluate detections [TRUTH] RESULTS``: COCO's twelve numbers of any results, without Paddle."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...commands.parser import CommandParser, at_least, path
from ...commands.scored import (
    MOST_SHOWN,
    add_data,
    add_group,
    add_output,
    compute_intervals,
    data_set,
    find_sample_groups,
    find_small_sample_warning,
    takes_data,
    to_json,
    write_scores,
)
from ...runtime.json_format import format_json
from ...runtime.printing import one_line
from ...tasks.sample_groups import FOLDER
from ...tasks.score_report import UNKNOWN, ResultSource, ScoreReport

if TYPE_CHECKING:
    from .evaluation.match_tables import MatchTable
    from .evaluation.matching import AnnotationFile
    from .evaluation.scored_files import ResultFile

_UNDEFINED = -1.0  # a score where nothing is annotated, as in COCO's tools


def run(words: list[str]) -> None:
    """Read annotations and results, match them, print scores, and write them."""
    from .evaluation import scored_files, yolo_results

    options = _options(words)
    kind, origin = options.iou_type, UNKNOWN
    if not takes_data(options):
        annotations = scored_files.read_annotations(options.truth, kind)
        labels = {i: i for i in range(len(annotations.names))}
        protocol: list[str] = []
    else:
        from ...tasks.dataset import dataset_class
        from .data.detection_dataset import DetectionDataset

        with data_set(options, "detection") as (values, cache, origin):
            dataset = dataset_class(values, DetectionDataset).open(values, origin.split, cache)
            annotations = yolo_results.load_annotations(dataset, str(origin), kind)
            annotations = annotations._replace(root=values.DATA.DATA_PATH or "")
        is_yolo = origin.dataset == "yolo"  # its categories are the class numbers in its files
        labels = {category if is_yolo else index: index for index, category in enumerate(dataset.category_ids)}
        protocol = [_rules(options)]
    if os.path.isdir(options.results):
        results = yolo_results.read_yolo(options.results, annotations, labels, kind)
        number, label = next(iter(labels.items()))
        mapping = f"class {number} of the results is {annotations.names[label]}, and so on by ascending number"
        protocol = [_rules(options), f"{mapping}; an image without a file has no results"]
    else:
        results = scored_files.read_results(options.results, annotations, kind)
    _print_and_write(options, annotations, results, origin, protocol)


def _print_and_write(
    options: Namespace, annotations: "AnnotationFile", results: "ResultFile", origin: ResultSource, protocol: list[str]
) -> None:
    """Match results with annotations, print scores, and write them with ``protocol`` to the folder of -output."""
    from .evaluation import scored_files
    from .evaluation.curves import DetectionCurves, stat_names
    from .evaluation.match_tables import MAX_DETECTIONS, resolve_detection_limits

    kind, limits = options.iou_type, resolve_detection_limits(options.max_detections)
    notices, matched = [*annotations.notices, *results.notices], [results.matched] if results.matched else []
    table = scored_files.build_match_table(annotations, results, kind, limits)
    notices += _crowded(table, limits)
    all_stats, all_class_ap = DetectionCurves.from_table(table, limits).scores(np.ones((1, len(table.image_ids))))
    stats, class_ap = np.nan_to_num(all_stats[0], nan=_UNDEFINED), np.nan_to_num(all_class_ap[0], nan=_UNDEFINED)
    scored = _score(annotations, table, origin, kind, limits)
    groups = find_sample_groups(options, scored.names, FOLDER)
    intervals = compute_intervals(scored, options.interval, groups) if scored.names else {}
    intervals = {name: interval for name, interval in intervals.items() if name in stat_names(limits)}
    warning = find_small_sample_warning(scored, intervals, groups, stat_names(limits))
    notices += [warning] if warning else []
    for notice in notices:
        print(one_line(f"note: {notice}"), file=sys.stderr)
    per_class = dict(zip(annotations.names, class_ap[:, 0].tolist()))
    values = {**dict(zip(stat_names(limits), stats.tolist())), **{f"AP {name}": ap for name, ap in per_class.items()}}
    scores = to_json(
        {name: value for name, value in values.items() if value != _UNDEFINED},
        intervals,
        options.interval,
        len(table.image_ids),
        [*(protocol or [_rules(options)]), *matched],
        notices,
        groups,
    )
    scores.update(stats=stats.tolist(), per_category=per_class)  # in COCO's order, -1 for undefined values
    if options.output:
        write_scores(scored, scores, Path(options.output), options.results, groups)
    if options.json:
        print(format_json(scores))
        return
    counts = f"{len(annotations.image_ids):,} images, {len(annotations.truth.labels):,} annotations"
    print(
        one_line(f"{counts} of {len(annotations.names):,} categories, {len(results.labels):,} results; IoU of {kind}")
    )
    wide = [name for name in ("AP", "AP50", "AP75") if name in intervals and intervals[name].has_width()]
    shown = [f"{name} {intervals[name].value:.4f} {intervals[name].ends(3)}" for name in wide]
    over = f"{options.interval} % intervals over images{f' {groups}' if groups else ''}"
    over_images = [f" {', '.join(shown)}: {over}"] if shown else []
    rules = protocol or [_rules(options)] * (limits != MAX_DETECTIONS)
    rules = [f" {text}" for text in map(one_line, [*rules, *matched])]
    for line in format_summary(stats, limits) + over_images + rules + _per_category(annotations, class_ap):
        print(line)


def _options(words: list[str]) -> Namespace:
    parser = CommandParser(
        "evaluate detections",
        "Compute COCO's twelve numbers and the AP of each category for a file of results, equal to pycocotools. Runs "
        "without Paddle and, with COCO annotations, without the images.",
        ("things/annotations/val.json output/things_eval/predictions/results.json", "things runs/detect/val/labels"),
        imports=True,
    )
    truth = "COCO annotations of the images, a JSON file; or a dataset folder, as -data_path"
    parser.add_argument("truth", metavar="TRUTH", nargs="?", type=path, help=truth)
    meaning = "results in COCO's format, a JSON file; or a folder of YOLO text files, one line for each box"
    parser.add_argument("results", metavar="RESULTS", type=path, help=meaning)
    add_data(parser)
    add_output(parser)
    parser.option("iou_type", "bbox", "compare boxes (bbox) or masks (segm)", choices=("bbox", "segm"))
    parser.option(
        "interval",
        "95",
        "level of the bootstrap intervals over images, in percent; off: no intervals",
        choices=("off", "95", "99"),
    )
    limit = "detections that count for each image and category, COCO's maxDets"
    parser.option("max_detections", 100, limit, at_least(10))  # recall is also computed at 1 and 10
    add_group(parser)
    parser.add_argument(
        "--json",
        "-json",
        action="store_true",
        help="print all values as one line of JSON; in stats and per_category, -1 means undefined",
    )
    return parser.parse_args(words)


def _score(
    annotations: "AnnotationFile", table: "MatchTable", origin: ResultSource, kind: str, limits: Sequence[int]
) -> ScoreReport:
    """Collect the matches in the form that intervals and ``compare`` need."""
    names = [name or f"image {image_id}" for name, image_id in zip(annotations.file_names, annotations.image_ids)]
    return ScoreReport(
        counted="",
        names=names,
        sample="image",
        shown={"AP": 4},
        classes=annotations.names,
        protocol=[],
        notices=[],
        task="detection" if kind == "bbox" else "detection by masks",  # a run's main score is the AP of boxes
        kind="boxes",
        arrays={"ids": table.image_ids, "limits": np.array(limits), **table.to_arrays()},
        origin=origin,
    )


def _rules(options: Namespace) -> str:
    """Format the rules by which boxes are scored."""
    limit = f"{options.max_detections:,} detections for each image and category"
    return f"AP: COCO's rules, {limit}, areas in pixels of the image files"


def _crowded(table: "MatchTable", limits: Sequence[int]) -> list[str]:
    """Count images with more annotations of a category than detections that count."""
    from ..data.data_warnings import count

    crowded = table.annotated[table.annotated[:, 2] > limits[-1]]
    if not len(crowded):
        return []
    number, most = len(np.unique(crowded[:, 0])), int(crowded[:, 2].max())
    return [
        f"{number:,} of {count(len(table.image_ids), 'image')} with more annotations of a category than the "
        f"{limits[-1]:,} detections that count, up to {most:,}: add -max_detections={most} to count all"
    ]


def format_summary(stats: np.ndarray, limits: Sequence[int]) -> list[str]:
    """Format COCO's numbers, (12,), as lines in the layout of pycocotools."""
    last = limits[-1]
    rows = [("Precision", "AP", "0.50:0.95", "all", last), ("Precision", "AP", "0.50", "all", last)]
    rows += [("Precision", "AP", "0.75", "all", last)]
    rows += [("Precision", "AP", "0.50:0.95", size_range, last) for size_range in ("small", "medium", "large")]
    rows += [("Recall", "AR", "0.50:0.95", "all", limit) for limit in limits]
    rows += [("Recall", "AR", "0.50:0.95", size_range, last) for size_range in ("small", "medium", "large")]
    lines = []
    for (what, short, iou, area, most), value in zip(rows, stats.tolist()):
        name = f"Average {what}"
        lines.append(f" {name:<18} ({short}) @[ IoU={iou:<9} | area={area:>6s} | maxDets={most:>3d} ] = {value:0.3f}")
    return lines


def _per_category(annotations: "AnnotationFile", class_ap: np.ndarray) -> list[str]:
    """Format AP and AP50 of each category from (categories, 3), or name the option that prints them."""
    if len(annotations.names) > MOST_SHOWN:
        return [f"{len(annotations.names):,} categories: add -json to print the AP of each"]
    names = [one_line(class_name) for class_name in annotations.names]
    width = max([len(class_name) for class_name in names] + [len("category")])
    lines = [f"{'category':{width}}     AP   AP50"]
    for name, (ap, ap50, _) in zip(names, class_ap.tolist()):
        shown = [f"{value:6.3f}" if value >= 0 else "     -" for value in (ap, ap50)]
        lines.append(f"{name:{width}} {shown[0]} {shown[1]}")
    return lines
