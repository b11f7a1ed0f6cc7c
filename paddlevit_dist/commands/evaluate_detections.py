"""``python -m paddlevit_dist evaluate detections ANNOTATIONS.json RESULTS.json``: COCO's twelve numbers of any results.

Needs no Paddle and no pictures.
"""

import json
import sys
from argparse import Namespace
from typing import Any

from ..runtime.printing import one_line
from .parser import CommandParser, path

_MOST_SHOWN = 100  # categories; -json has all


def run(words: list[str]) -> None:
    """Read both files, match, and print."""
    from ..images.detection.evaluation import scored_files
    from ..images.detection.evaluation.accumulation import accumulate

    options = _options(words)
    kind = options.iou_type
    annotations = scored_files.read_annotations(options.annotations, kind, options.federated)
    results = scored_files.read_results(options.results, annotations, kind)
    for notice in annotations.notices + results.notices:
        print(one_line(f"note: {notice}"), file=sys.stderr)
    table = scored_files.table_of(annotations, results, kind)
    limits = scored_files.limits_of(annotations)
    accumulated = accumulate(table, limits)
    found = {} if options.interval == "off" else _intervals(table, limits, float(options.interval))
    rates = scored_files.by_frequency(annotations, accumulated.class_ap()) if options.federated else {}
    if options.json:
        per_class = dict(zip(annotations.names, accumulated.class_ap()[:, 0].tolist()))
        said = {"stats": accumulated.stats().tolist(), "per_category": per_class}
        if options.interval != "off":
            said["intervals"] = {name: interval.plain() for name, interval in found.items()}
        print(json.dumps({**said, "per_frequency": rates} if options.federated else said))
        return
    counts = f"{len(annotations.image_ids):,} pictures, {len(annotations.truth.labels):,} annotations"
    print(
        one_line(f"{counts} of {len(annotations.names):,} categories, {len(results.labels):,} results; IoU of {kind}")
    )
    of_rates = [f" AP of categories of frequency {one_line(name)}: {ap:0.3f}" for name, ap in rates.items()]
    wide = [name for name in ("AP", "AP50", "AP75") if name in found and found[name].has_width()]
    shown = [f"{name} {found[name].value:.4f} {found[name].ends(3)}" for name in wide]
    of_pictures = [f" {', '.join(shown)}: {options.interval} % intervals over pictures"] if shown else []
    for line in summary(accumulated) + of_pictures + of_rates + _per_category(annotations, accumulated):
        print(line)


def _options(words: list[str]) -> Namespace:
    parser = CommandParser(
        "evaluate detections",
        "COCO's twelve numbers and the AP of each category for a file of results, equal to those of pycocotools. Needs "
        "neither Paddle nor the pictures.",
        ("things/annotations/val.json output/things_eval/predictions/results.json",),
    )
    parser.add_argument("annotations", metavar="ANNOTATIONS.json", type=path, help="COCO's annotations of the pictures")
    parser.add_argument("results", metavar="RESULTS.json", type=path, help="list of results in COCO's format")
    parser.option("iou_type", "bbox", "what is compared, boxes or masks", choices=("bbox", "segm"))
    parser.option(
        "interval", "95", "percent of the intervals by bootstrap over pictures; off: none", choices=("off", "95", "99")
    )
    parser.add_argument(
        "--json",
        "-json",
        action="store_true",
        help="print one line of JSON: stats, AP per_category, intervals; -1: undefined",
    )
    parser.add_argument(
        "--federated",
        "-federated",
        action="store_true",
        help="LVIS's rules: pictures say which categories they were checked for, and 300 results of each count",
    )
    return parser.parse_args(words)


def _intervals(table: Any, limits: tuple[int, ...], percent: float) -> dict[str, Any]:
    """The interval of each of the twelve numbers that is defined, by name."""
    from ..images.detection.evaluation.accumulation import STAT_NAMES
    from ..images.detection.evaluation.resampling import Curves
    from ..intervals import bootstrap

    if not len(table.image_ids):
        return {}
    curves = Curves.of(table, limits)
    return bootstrap(lambda weights: dict(zip(STAT_NAMES, curves.scores(weights)[0].T)), len(table.image_ids), percent)


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
    if len(annotations.names) > _MOST_SHOWN:
        return [f"{len(annotations.names):,} categories: -json prints the AP of each"]
    names = [one_line(name) for name in annotations.names]
    width = max([len(name) for name in names] + [len("category")])
    lines = [f"{'category':{width}}     AP   AP50"]
    for name, (ap, ap50, _) in zip(names, accumulated.class_ap().tolist()):
        shown = [f"{value:6.3f}" if value >= 0 else "     -" for value in (ap, ap50)]
        lines.append(f"{name:{width}} {shown[0]} {shown[1]}")
    return lines
