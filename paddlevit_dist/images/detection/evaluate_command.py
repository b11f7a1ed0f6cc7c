"""``paddlevit-dist evaluate detections [TRUTH] RESULTS``: COCO's twelve numbers of any results, without Paddle."""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.commands.parser import CommandParser, at_least
from ...core.commands.scored import (
    MOST_SHOWN,
    add_group,
    add_inputs,
    add_interval,
    add_output,
    compute_intervals,
    data_set,
    find_predicted,
    find_sample_groups,
    find_small_sample_warning,
    publish_scores,
    takes_data,
    to_json,
)
from ...core.runtime.printing import count, one_line
from ...core.tasks.sample_groups import FOLDER
from ...core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport

if TYPE_CHECKING:
    from .evaluation.match_tables import MatchTable
    from .evaluation.matching import AnnotationFile
    from .evaluation.scored_files import ResultFile

UNDEFINED = -1.0  # a score where nothing is annotated, as in COCO's tools


def run(words: list[str]) -> None:
    """Read annotations and results, match them, print scores, and write them."""
    from .detections import RESULT_FILES
    from .evaluation import scored_files, yolo_results

    options = _options(words)
    kind, origin = options.iou_type, UNKNOWN
    if not yolo_results.has_files(options.results):
        options.results = find_predicted(options.results, RESULT_FILES[kind])
    if not takes_data(options, is_annotation_file):
        annotations = scored_files.read_annotations(options.truth, kind)
        labels = {i: i for i in range(len(annotations.names))}
        protocol: list[str] = []
    else:
        from ...core.tasks.dataset import dataset_class
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
        if annotations.are_positions and results.ids:
            protocol.append(annotations.describe_ids())
    _print_and_write(options, annotations, results, origin, protocol)


def is_annotation_file(truth: str) -> bool:
    """Return whether TRUTH is a file of annotations, and not the folder or the YAML file of a data set."""
    from ..data.box_layouts import is_yolo_description

    return os.path.isfile(truth) and not is_yolo_description(truth)


def _print_and_write(
    options: Namespace, annotations: "AnnotationFile", results: "ResultFile", origin: ResultSource, protocol: list[str]
) -> None:
    """Match results with annotations, print scores, and write them with ``protocol`` to the folder of -output."""
    from .evaluation import scored_files
    from .evaluation.curves import DetectionCurves, stat_names
    from .evaluation.match_tables import MAX_DETECTIONS, resolve_detection_limits

    kind, limits = options.iou_type, resolve_detection_limits(options.max_detections)
    table = scored_files.build_match_table(annotations, results, kind, limits)
    all_stats, all_class_ap = DetectionCurves.from_table(table, limits).scores(np.ones((1, len(table.image_ids))))
    stats, class_ap = np.nan_to_num(all_stats[0], nan=UNDEFINED), np.nan_to_num(all_class_ap[0], nan=UNDEFINED)
    arrays = {"ids": table.image_ids, "limits": np.array(limits), **table.to_arrays()}
    task = "detection" if kind == "bbox" else "detection by masks"  # a run's main score is the AP of boxes
    report = MatchReport(
        collect_matches(annotations, arrays, origin, task, "boxes"),
        dict(zip(stat_names(limits), stats.tolist())),
        dict(zip(annotations.names, class_ap[:, 0].tolist())),
        f"{count_annotations(annotations)}, {len(results.labels):,} results; IoU of {kind}",
        format_summary(stats, limits),
        list_categories(annotations, class_ap),
        [*annotations.notices, *results.notices, *_note_masks(results, kind), *note_crowded(table, limits[-1])],
        [*(protocol or [_rules(options)]), *([results.matched] if results.matched else [])],
    )
    hidden = 0 if protocol or limits != MAX_DETECTIONS else 1  # COCO's own rules are not printed
    print_report(options, report, report.protocol[hidden:])


class MatchReport(NamedTuple):
    """Scores of matched results."""

    scored: ScoreReport  # the matches, for intervals and ``compare``
    stats: Mapping[str, float]  # COCO's numbers in pycocotools' order; -1: undefined
    per_category: Mapping[str, float]  # AP of each category, likewise
    heading: str  # what was compared, one line
    summary: Sequence[str]  # lines of ``stats``
    tables: Sequence[str]  # lines about categories
    notices: Sequence[str]  # remarks, one line each
    protocol: Sequence[str]  # how results are scored, one line each
    more: Mapping[str, Any] = MappingProxyType({})  # further entries of the JSON


def print_report(options: Namespace, report: MatchReport, shown_protocol: Sequence[str]) -> None:
    """Compute intervals, print all, with these lines of the protocol, and write the scores to the folder of -output."""
    scored, names = report.scored, list(report.stats)
    groups = find_sample_groups(options, scored.names, FOLDER)
    intervals = compute_intervals(scored, options.interval, groups) if scored.names else {}
    intervals = {name: interval for name, interval in intervals.items() if name in names}
    warning = find_small_sample_warning(scored, intervals, groups, names)
    notices = [*report.notices, *([warning] if warning else [])]
    values = {**report.stats, **{f"AP {name}": ap for name, ap in report.per_category.items()}}
    scores = to_json(
        {name: value for name, value in values.items() if value != UNDEFINED},
        intervals,
        options.interval,
        len(scored.names),
        report.protocol,
        notices,
        groups,
    )
    # in COCO's order, -1 for undefined values
    scores.update(stats=list(report.stats.values()), per_category=dict(report.per_category), **report.more)
    if publish_scores(scored, scores, options, groups):
        return
    print(one_line(report.heading))
    wide = [name for name in ("AP", "AP50", "AP75") if name in intervals and intervals[name].has_width()]
    shown = [f"{name} {intervals[name].value:.4f} {intervals[name].ends(3)}" for name in wide]
    over = f"{options.interval} % intervals over images{f' {groups}' if groups else ''}"
    over_images = [f" {', '.join(shown)}: {over}"] if shown else []
    for line in [*report.summary, *over_images, *(f" {one_line(text)}" for text in shown_protocol), *report.tables]:
        print(line)


def count_annotations(annotations: "AnnotationFile") -> str:
    """Format the numbers of images, annotations and categories."""
    counts = f"{len(annotations.image_ids):,} images, {len(annotations.truth.labels):,} annotations"
    return f"{counts} of {len(annotations.names):,} categories"


def _options(words: list[str]) -> Namespace:
    parser = CommandParser(
        "evaluate detections",
        "Compute COCO's twelve numbers and the AP of each category for a file of results, equal to pycocotools. Runs "
        "without Paddle and, with COCO annotations, without the images.",
        ("things/annotations/val.json output/things_eval/predictions/results.json", "things runs/detect/val/labels"),
        imports=True,
    )
    results = "results in COCO's format, a JSON file; or a folder of YOLO text files, one line for each box"
    add_inputs(parser, "COCO annotations of the images, a JSON file", results)
    add_output(parser)
    parser.option("iou_type", "bbox", "compare boxes (bbox) or masks (segm)", choices=("bbox", "segm"))
    add_scoring(parser, 100, 10)  # recall is also computed at 1 and 10
    return parser.parse_args(words)


def add_scoring(parser: CommandParser, most: int, least: int) -> None:
    """Add the options for intervals, groups, JSON, and the limit of results, ``most`` by default."""
    add_interval(parser, "images")
    limit = "detections that count for each image and category, COCO's maxDets"
    parser.option("max_detections", most, limit, at_least(least))
    add_group(parser)
    parser.add_argument(
        "--json",
        "-json",
        action="store_true",
        help="print all values as one line of JSON; in stats and per_category, -1 means undefined",
    )


def collect_matches(
    annotations: "AnnotationFile", arrays: Mapping[str, np.ndarray], origin: ResultSource, task: str, kind: str
) -> ScoreReport:
    """Collect the matches of images in the form that intervals and ``compare`` need; ``kind`` of scores, see there."""
    names = [name or f"image {image_id}" for name, image_id in zip(annotations.file_names, annotations.image_ids)]
    return ScoreReport(
        counted="",
        names=names,
        sample="image",
        shown={"AP": 4},
        classes=annotations.names,
        protocol=[],
        notices=[],
        task=task,
        kind=kind,
        arrays=arrays,
        origin=origin,
    )


def _rules(options: Namespace) -> str:
    """Format the rules by which boxes are scored."""
    limit = f"{options.max_detections:,} detections for each image and category"
    return f"AP: COCO's rules, {limit}, areas in pixels of the image files"


def _note_masks(results: "ResultFile", kind: str) -> list[str]:
    if kind != "bbox" or not results.has_masks:
        return []
    return [f"{results.path}: results have masks, but boxes are compared: add -iou_type=segm to compare masks"]


def note_crowded(table: "MatchTable", most_counted: int) -> list[str]:
    """Count images with more annotations of a category than detections that count."""
    crowded = table.annotated[table.annotated[:, 2] > most_counted]
    if not len(crowded):
        return []
    number, most = len(np.unique(crowded[:, 0])), int(crowded[:, 2].max())
    return [
        f"{number:,} of {count(len(table.image_ids), 'image')} with more annotations of a category than the "
        f"{most_counted:,} detections that count, up to {most:,}: add -max_detections={most} to count all"
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


def list_categories(annotations: "AnnotationFile", class_ap: np.ndarray) -> list[str]:
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
