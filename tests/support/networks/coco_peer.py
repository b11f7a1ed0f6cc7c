"""pycocotools, and datasets and results in its form."""

import contextlib
import copy
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddlevit_dist.images.detection.evaluation import matching
from paddlevit_dist.images.detection.evaluation.curves import DetectionCurves
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.run_lengths import compress_runs


def evaluated(dataset: dict, results: list[dict], kind: str = "bbox", **params: Any) -> Any:
    """What pycocotools makes of them, accumulated and summarized; ids from 1, as it takes 0 for nothing found."""
    from pycocotools.coco import COCO  # only here: what is compared with stored numbers needs no pycocotools
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = copy.deepcopy(dataset)
        for number, annotation in enumerate(truth.dataset["annotations"], 1):
            annotation["id"] = number
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(copy.deepcopy(results)), kind)
        for name, value in params.items():
            setattr(evaluation.params, name, value)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def make_table(
    dataset: dict,
    results: list[dict],
    image_ids: Sequence[int] | None = None,
    use_classes: bool = True,
    max_detections: Sequence[int] = (1, 10, 100),
    kind: str = "bbox",
) -> tuple[MatchTable, list[int]]:
    """The same images matched by ours, and the ids of the categories."""
    category_ids = sorted(category["id"] for category in dataset["categories"])
    sizes = {image["id"]: (image["height"], image["width"]) for image in dataset["images"]}
    label_of = {category: label for label, category in enumerate(category_ids)}
    tables = [MatchTable.empty(len(category_ids) if use_classes else 1)]
    for image_id in sorted(i["id"] for i in dataset["images"]) if image_ids is None else image_ids:
        own = [a for a in dataset["annotations"] if a["image_id"] == image_id]
        found = [r for r in results if r["image_id"] == image_id]
        if not use_classes:  # pycocotools takes class by class, as one
            own, found = (sorted(some, key=lambda one: label_of.get(one["category_id"], -1)) for some in (own, found))
        truth = matching.BoxGroundTruth(
            np.array([a.get("bbox", [0] * 4) for a in own], float).reshape(-1, 4),
            np.array([label_of[a["category_id"]] for a in own], int),
            np.array([a["area"] for a in own], float),
            np.array([a["iscrowd"] for a in own], bool),
        )
        scores = np.array([r["score"] for r in found], float)
        labels = np.array([label_of.get(r["category_id"], -1) for r in found], int)
        number = len(category_ids)
        if not use_classes:
            truth, labels, number = truth._replace(labels=np.zeros_like(truth.labels)), np.minimum(labels, 0), 1
        if kind == "bbox":
            shapes = np.array([r["bbox"] for r in found], float).reshape(-1, 4)
        else:
            height, width = sizes[image_id]
            true_masks = [compress_runs(a["segmentation"], height, width) for a in own]
            masks = [compress_runs(r["segmentation"], height, width) for r in found]
            shapes = matching.ImageMasks(masks, true_masks, height)
        own = matching.CandidateDetections(shapes, scores, labels)
        tables.append(matching.match_detections(image_id, truth, own, number, max_detections))
    return MatchTable.joined(tables), category_ids


def score(table: MatchTable, max_detections: Sequence[int] = (1, 10, 100)) -> tuple[np.ndarray, np.ndarray]:
    """Our twelve numbers, and AP, AP50 and AP75 of each category (categories, 3); -1 where undefined."""
    stats, class_ap = DetectionCurves.from_table(table, max_detections).scores(np.ones((1, len(table.image_ids))))
    return np.nan_to_num(stats[0], nan=-1), np.nan_to_num(class_ap[0], nan=-1)


def scored(dataset: dict, results: list[dict], **options: Any) -> tuple[np.ndarray, np.ndarray]:
    table, _ = make_table(dataset, results, **options)
    return score(table, options.get("max_detections", (1, 10, 100)))


def class_ap(evaluation: Any) -> np.ndarray:
    """AP, AP50 and AP75 of each category as pycocotools' precision gives them, (categories, 3); -1 where undefined."""
    precision = np.moveaxis(evaluation.eval["precision"][..., 0, -1], 2, 0)  # (categories, 10, 101)
    return np.stack([part.mean(axis=(1, 2)) for part in (precision, precision[:, :1], precision[:, 5:6])], axis=1)


def assert_equal(ours: tuple[np.ndarray, np.ndarray], theirs: Any) -> None:
    np.testing.assert_allclose(ours[0], theirs.stats, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], class_ap(theirs), rtol=0, atol=1e-12)


def rows_of_results(dataset: dict, results: list[dict], kind: str) -> np.ndarray:
    """Row of each result in ``make_table``, -1 for those that do not count; told apart by a score of their own."""
    marked = [dict(result, score=result["score"]) for result in results]
    order = sorted(range(len(marked)), key=lambda i: -marked[i]["score"])  # stable
    for rank, position in enumerate(order):
        marked[position]["score"] = float(len(marked) - rank)
    table, _ = make_table(dataset, marked, kind=kind)
    row_of = {score: row for row, score in enumerate(table.scores.tolist())}
    return np.array([row_of.get(result["score"], -1) for result in marked])


def random_case(seed: int, num_images: int = 6, categories: int = 4, most: int = 12) -> tuple[dict, list[dict]]:
    """A dataset and results with whatever makes a difference: equal scores and boxes, crowds, boxes without area, areas
    at the limits of the ranges, images and categories without anything, unknown categories, an annotation of id 0."""
    rng = np.random.default_rng(seed)
    ids = [int(i) for i in rng.permutation(100)[:num_images]]
    names = [{"id": int(i), "name": f"c{i}"} for i in rng.permutation(50)[:categories]]
    annotations, results = [], []

    def box() -> list[float]:
        sides = rng.choice([0.0, 8.0, 16.0, 32.0, 64.0, 96.0, 144.0, float(rng.uniform(1, 200))], 2)
        return [float(v) for v in (*rng.choice([0.0, 4.0, 10.0, float(rng.uniform(0, 60))], 2), *sides)]

    for image_id in ids:
        for _ in range(int(rng.integers(0, most)) if rng.random() < 0.8 else 0):
            own, category = box(), names[int(rng.integers(0, categories - 1))]["id"]
            annotations.append({
                "id": len(annotations) if seed % 2 else len(annotations) + 1, "image_id": image_id, "bbox": own,
                "category_id": category, "iscrowd": int(rng.random() < 0.15),
                "area": own[2] * own[3] * float(rng.choice([1.0, 1.0, 0.5])),
            })  # fmt: skip
            for _ in range(int(rng.integers(0, 3))):
                shift = rng.choice([0.0, 0.0, 1.0, 3.0, 10.0], 4)
                near = [float(v) for v in np.maximum(np.array(own) + shift, 0)]
                results.append({"image_id": image_id, "category_id": category, "bbox": near})
        for _ in range(int(rng.integers(0, most))):
            category = int(rng.choice([*(n["id"] for n in names), 999]))
            results.append({"image_id": image_id, "category_id": category, "bbox": box()})
    results = [results[i] for i in rng.permutation(len(results))]
    for result in results:
        result["score"] = float(rng.choice([0.1, 0.5, 0.9, rng.random()]))
    images = [{"id": i, "width": 320, "height": 320} for i in ids]
    return {"images": images, "categories": names, "annotations": annotations}, results
