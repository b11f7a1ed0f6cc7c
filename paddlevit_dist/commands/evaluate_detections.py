"""``paddlevit-dist evaluate detections [TRUTH] RESULTS``: COCO's twelve numbers of any results.

Needs no Paddle, and no images where files of COCO have the truth.
"""

import functools
import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.printing import one_line
from ..tasks.sample_groups import FOLDER
from ..tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from .parser import CommandParser, at_least, path
from .scored import (
    MOST_SHOWN,
    add_data,
    add_group,
    add_output,
    compute_intervals,
    data_set,
    find_rough_note,
    find_sample_groups,
    takes_data,
    to_json,
    write,
)


def run(words: list[str]) -> None:
    """Read both sides, match, print, and write."""
    from ..images.detection.evaluation import scored_files, yolo_results

    options = _options(words)
    kind, origin = options.iou_type, UNKNOWN
    if not takes_data(options):
        annotations = scored_files.read_annotations(options.truth, kind)
        label_of = {number: number for number in range(len(annotations.names))}
        protocol: list[str] = []
    else:
        from ..images.detection.data.detection_dataset import DetectionDataset
        from ..tasks.dataset import dataset_class

        with data_set(options, "detection") as (values, cache, origin):
            dataset: Any = dataset_class(values, DetectionDataset).open(values, origin.split, cache)
            annotations = yolo_results.load_annotations(dataset, str(origin), kind)
        of_yolo = origin.dataset == "yolo"  # whose categories are the numbers in its files
        label_of = {own if of_yolo else label: label for label, own in enumerate(dataset.category_ids)}
        protocol = [_rules(options)]
    if os.path.isdir(options.results):
        results = yolo_results.read_yolo(options.results, annotations, label_of, kind)
        number, label = next(iter(label_of.items()))
        named = f"class {number} of the results is {annotations.names[label]}, and so on by ascending number"
        protocol = [_rules(options), f"{named}; an image without a file has no results"]
    else:
        results = scored_files.read_results(options.results, annotations, kind)
    _print_and_write(options, annotations, results, origin, protocol)


def _print_and_write(
    options: Namespace, annotations: Any, results: Any, origin: ResultSource, protocol: list[str]
) -> None:
    """Match results with annotations, print scores, and write them where -output says.

    Args:
        protocol: lines on how files in other forms than COCO's are understood.
    """
    from ..images.detection.evaluation import scored_files
    from ..images.detection.evaluation.accumulation import (
        MAX_DETECTIONS,
        UNDEFINED,
        accumulate,
        resolve_detection_limits,
        stat_names,
    )

    kind, limits = options.iou_type, resolve_detection_limits(options.max_detections)
    notices, matched = [*annotations.notices, *results.notices], [results.matched] if results.matched else []
    table = scored_files.build_match_table(annotations, results, kind, limits)
    notices += _crowded(table, limits)
    accumulated = accumulate(table, limits)
    scored = _score(annotations, table, origin, kind, limits)
    groups = find_sample_groups(options, scored.names, FOLDER)
    found = compute_intervals(scored.recompute, len(table.image_ids), options.interval, groups) if scored.names else {}
    rough = find_rough_note(scored, found, groups, stat_names(limits))
    notices += [rough] if rough else []
    for notice in notices:
        print(one_line(f"note: {notice}"), file=sys.stderr)
    per_class = dict(zip(annotations.names, accumulated.class_ap()[:, 0].tolist()))
    stats = accumulated.stats().tolist()
    values = {**dict(zip(stat_names(limits), stats)), **{f"AP {name}": ap for name, ap in per_class.items()}}
    said = to_json(
        {name: value for name, value in values.items() if value > UNDEFINED},
        found,
        options.interval,
        len(table.image_ids),
        [*(protocol or [_rules(options)]), *matched],
        notices,
        groups,
    )
    said.update(stats=stats, per_category=per_class)  # in COCO's order and with its -1 for what is not defined
    if options.output:
        write(scored, said, Path(options.output), options.results, groups)
    if options.json:
        print(json.dumps(said))
        return
    counts = f"{len(annotations.image_ids):,} images, {len(annotations.truth.labels):,} annotations"
    print(
        one_line(f"{counts} of {len(annotations.names):,} categories, {len(results.labels):,} results; IoU of {kind}")
    )
    wide = [name for name in ("AP", "AP50", "AP75") if name in found and found[name].has_width()]
    shown = [f"{name} {found[name].value:.4f} {found[name].ends(3)}" for name in wide]
    over = f"{options.interval} % intervals over images{f' {groups}' if groups else ''}"
    of_images = [f" {', '.join(shown)}: {over}"] if shown else []
    told = protocol or [_rules(options)] * (limits != MAX_DETECTIONS)
    told = [f" {line}" for line in map(one_line, [*told, *matched])]
    for line in summary(accumulated) + of_images + told + _per_category(annotations, accumulated):
        print(line)


def _options(words: list[str]) -> Namespace:
    parser = CommandParser(
        "evaluate detections",
        "COCO's twelve numbers and the AP of each category for a file of results, equal to those of pycocotools. Needs "
        "neither Paddle nor, with COCO's annotations, the images.",
        ("things/annotations/val.json output/things_eval/predictions/results.json", "things runs/detect/val/labels"),
        imports=True,
    )
    truth = "COCO's annotations of the images, a JSON file; or a folder, as -data_path"
    parser.add_argument("truth", metavar="TRUTH", nargs="?", type=path, help=truth)
    meaning = "list of results in COCO's format, a JSON file; or a folder of YOLO's, with a line for each box"
    parser.add_argument("results", metavar="RESULTS", type=path, help=meaning)
    add_data(parser)
    add_output(parser)
    parser.option("iou_type", "bbox", "what is compared, boxes or masks", choices=("bbox", "segm"))
    parser.option(
        "interval", "95", "percent of the intervals by bootstrap over images; off: none", choices=("off", "95", "99")
    )
    many = "detections of an image and category that count, COCO's maxDets"
    parser.option("max_detections", 100, f"{many} (default: 100)", at_least(10))  # its recalls are of 1 and of 10
    add_group(parser)
    parser.add_argument(
        "--json",
        "-json",
        action="store_true",
        help="print one line of JSON, with all values; stats and per_category: -1 is undefined",
    )
    return parser.parse_args(words)


def _score(annotations: Any, table: Any, origin: ResultSource, kind: str, limits: Sequence[int]) -> ScoreReport:
    """Collect what intervals and ``compare`` need of the matches."""
    from ..images.detection.evaluation.resampling import DetectionCurves

    curves = functools.cache(lambda: DetectionCurves.from_table(table, limits))

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(curves().names(), curves().scores(weights)[0].T))

    names = [name or f"image {own}" for name, own in zip(annotations.file_names, annotations.image_ids)]
    return ScoreReport(
        counted="",
        names=names,
        sample="image",
        recompute=recompute,
        shown={"AP": 4},
        of_class=None,
        classes=annotations.names,
        protocol=[],
        notices=[],
        task="detection" if kind == "bbox" else "detection by masks",  # a run's main score is of boxes
        kind="boxes",
        arrays={"ids": table.image_ids, "limits": np.array(limits), **table._asdict()},
        origin=origin,
    )


def _rules(options: Namespace) -> str:
    """Say by which rules boxes are scored."""
    many = f"{options.max_detections:,} detections of an image and category"
    return f"AP: COCO's rules, {many}, areas in pixels of the images' files"


def _crowded(table: Any, limits: Sequence[int]) -> list[str]:
    """Say how many images have more annotations of a category than detections of it count."""
    from ..images.data.data_warnings import count

    crowded = table.annotated[table.annotated[:, 2] > limits[-1]]
    if not len(crowded):
        return []
    number, most = len(np.unique(crowded[:, 0])), int(crowded[:, 2].max())
    return [
        f"{number:,} of {count(len(table.image_ids), 'image')} with more annotations of a category than the "
        f"{limits[-1]:,} detections that count, up to {most:,}: -max_detections={most} counts more"
    ]


def summary(accumulated: Any) -> list[str]:
    """The twelve lines, as COCO's tools print them."""
    last = accumulated.max_detections[-1]
    rows = [("Precision", "AP", "0.50:0.95", "all", last), ("Precision", "AP", "0.50", "all", last)]
    rows += [("Precision", "AP", "0.75", "all", last)]
    rows += [("Precision", "AP", "0.50:0.95", area, last) for area in ("small", "medium", "large")]
    rows += [("Recall", "AR", "0.50:0.95", "all", most) for most in accumulated.max_detections]
    rows += [("Recall", "AR", "0.50:0.95", area, last) for area in ("small", "medium", "large")]
    lines = []
    for (what, short, iou, area, most), value in zip(rows, accumulated.stats().tolist()):
        name = f"Average {what}"
        lines.append(f" {name:<18} ({short}) @[ IoU={iou:<9} | area={area:>6s} | maxDets={most:>3d} ] = {value:0.3f}")
    return lines


def _per_category(annotations: Any, accumulated: Any) -> list[str]:
    """AP and AP50 of each category, or where they are found."""
    if len(annotations.names) > MOST_SHOWN:
        return [f"{len(annotations.names):,} categories: -json prints the AP of each"]
    names = [one_line(name) for name in annotations.names]
    width = max([len(name) for name in names] + [len("category")])
    lines = [f"{'category':{width}}     AP   AP50"]
    for name, (ap, ap50, _) in zip(names, accumulated.class_ap().tolist()):
        shown = [f"{value:6.3f}" if value >= 0 else "     -" for value in (ap, ap50)]
        lines.append(f"{name:{width}} {shown[0]} {shown[1]}")
    return lines
