"""pycocotools for keypoints, and datasets and results in its form."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddlevit_dist.images.keypoints.evaluation import matching
from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN, score_table
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from support.networks import coco_peer


def evaluated(dataset: dict, results: list[dict], sigmas: Sequence[float], category: int | None = None) -> Any:
    """What pycocotools makes of them, or of those of a category; see ``coco_peer``."""
    params: dict[str, Any] = {"kpt_oks_sigmas": np.array(sigmas)}
    if category is not None:  # it needs equal numbers of points
        results = [result for result in results if result["category_id"] == category]
        own = [annotation for annotation in dataset["annotations"] if annotation["category_id"] == category]
        dataset, params["catIds"] = {**dataset, "annotations": own}, [category]
    return coco_peer.evaluated(dataset, results, "keypoints", **params)


def build_sets(sigmas: Sequence[Sequence[float]]) -> list[KeypointSet]:
    return [KeypointSet(tuple(f"p{point}" for point in range(len(own))), (), tuple(own), ()) for own in sigmas]


def to_arrays(flat: Sequence[Sequence[float]], most: int) -> np.ndarray:
    """Lists of x, y, v as an array (n, most, 3), with zeros after the points of each."""
    points = np.zeros((len(flat), most, 3))
    for row, numbers in zip(points, flat):
        row[: len(numbers) // 3] = np.reshape(numbers, (-1, 3))
    return points


def inputs(dataset: dict, results: list[dict], sigmas: Sequence[Sequence[float]]) -> tuple[Any, ...]:
    """Ids of the images, annotations, results and points as ``match_keypoints`` takes them."""
    image_ids = sorted(image["id"] for image in dataset["images"])
    label_of = {id_: label for label, id_ in enumerate(sorted(entry["id"] for entry in dataset["categories"]))}
    own, most = dataset["annotations"], max(map(len, sigmas))
    order = np.argsort([image_ids.index(entry["image_id"]) for entry in own], kind="stable").tolist()
    own = [own[place] for place in order]
    is_crowd = np.array([entry["iscrowd"] for entry in own], bool)
    truth = matching.KeypointTruth(
        np.array([image_ids.index(entry["image_id"]) for entry in own], int),
        to_arrays([entry["keypoints"] for entry in own], most),
        np.array([entry["bbox"] for entry in own], float).reshape(-1, 4),
        np.array([entry["area"] for entry in own], float),
        np.array([label_of[entry["category_id"]] for entry in own], int),
        is_crowd,
        is_crowd | np.array([entry["num_keypoints"] == 0 for entry in own], bool),
    )
    has_boxes = bool(results) and "bbox" in results[0]
    found = matching.KeypointCandidates(
        np.array([image_ids.index(entry["image_id"]) for entry in results], int),
        to_arrays([entry["keypoints"] for entry in results], most),
        np.array([entry["score"] for entry in results], float),
        np.array([label_of.get(entry["category_id"], -1) for entry in results], int),
        np.array([entry["bbox"][2] * entry["bbox"][3] for entry in results]) if has_boxes else None,
    )
    return np.array(image_ids), truth, found, matching.PointTable.from_sets(build_sets(sigmas))


def match(dataset: dict, results: list[dict], sigmas: Sequence[Sequence[float]]) -> matching.KeypointMatches:
    """The same images matched by ours; ``sigmas`` are of each category, by ascending id."""
    return matching.match_keypoints(*inputs(dataset, results, sigmas))


def score(matches: matching.KeypointMatches) -> dict[str, float]:
    """Our ten numbers, -1 where undefined."""
    values, _ = score_table(matches.table, matching.MAX_DETECTIONS, np.ones((1, len(matches.table.image_ids))))
    return {name: float(np.nan_to_num(column[0], nan=-1.0)) for name, column in values.items()}


def similarities(dataset: dict, results: list[dict], sigmas: Sequence[float], image: int) -> np.ndarray:
    """OKS of an image's results, by falling score and at most 20, and annotations, as in the file."""
    own = {**dataset, "annotations": [entry for entry in dataset["annotations"] if entry["image_id"] == image]}
    results = sorted((entry for entry in results if entry["image_id"] == image), key=lambda one: -one["score"])[:20]
    _, truth, found, table = inputs(own, results, [sigmas])
    shape = len(results), len(truth.labels)
    groups = np.array([[0, 0, shape[0], 0, shape[1]]])
    return matching.compute_similarities(groups, np.zeros(1, int), found.points[:, :, :2], truth, table).reshape(shape)


def averaged(dataset: dict, results: list[dict], sigmas: Sequence[Sequence[float]]) -> dict[str, float]:
    """The ten numbers of pycocotools for each category alone, averaged over those that have one; -1 for none."""
    columns = []
    for own, category in zip(sigmas, sorted(entry["id"] for entry in dataset["categories"])):
        if any(result["category_id"] == category for result in results):
            columns.append(evaluated(dataset, results, own, category).stats)
        else:  # pycocotools reads no empty list: a result far from everything, which matches nothing
            far = {"category_id": category, "keypoints": [1e6, 1e6, 0] * len(own), "score": 0.0}
            far["image_id"] = dataset["images"][0]["id"]
            columns.append(evaluated(dataset, [far], own, category).stats)
    numbers = np.where(np.array(columns) == -1, np.nan, columns)
    return {name: -1.0 if np.isnan(column).all() else float(np.nanmean(column)) for name, column in zip(TEN, numbers.T)}


def random_case(seed: int, num_images: int = 6) -> tuple[dict, list[dict], list[list[float]]]:
    """A dataset, results and sigmas with whatever makes a difference: equal scores and places, crowds, objects without
    labeled points or with another number than the file says, areas at the limits of the ranges or 0, images and
    categories without anything, unknown categories, categories of other points, more results than count."""
    rng = np.random.default_rng(seed)
    ids = [int(one) for one in rng.permutation(100)[:num_images]]
    names = [{"id": int(one), "name": f"c{one}"} for one in rng.permutation(50)[: rng.integers(1, 4)]]
    sigmas = [rng.uniform(0.01, 0.2, rng.integers(1, 20)).tolist() for _ in names]
    number_of = {id_: len(own) for id_, own in zip(sorted(entry["id"] for entry in names), sigmas)}
    annotations, results, has_boxes = [], [], seed % 3 == 0

    def result(image_id: int, category: int, points: np.ndarray) -> None:
        rows = np.column_stack([points, rng.random(len(points))]).round(2)
        entry = {"image_id": image_id, "category_id": category, "keypoints": rows.ravel().tolist()}
        results.append({**entry, "bbox": rng.uniform(0, 150, 4).round(1).tolist()} if has_boxes else entry)

    for image_id in ids:
        for _ in range(int(rng.integers(0, 7)) if rng.random() < 0.8 else 0):
            category = names[int(rng.integers(0, max(len(names) - 1, 1)))]["id"]
            place, sides = rng.choice([0.0, 20.0, 60.0], 2), rng.choice([0.0, 16.0, 32.0, 96.0, 150.0], 2)
            points = np.rint(place + rng.random((number_of[category], 2)) * sides)
            seen = rng.choice([0, 1, 2], number_of[category]) * (rng.random() < 0.8)
            crowd = int(rng.random() < 0.15)
            annotations.append({
                "id": len(annotations), "image_id": image_id, "bbox": [*place.tolist(), *sides.tolist()],
                "category_id": category, "iscrowd": crowd, "area": float(sides.prod() * rng.choice([1.0, 1.0, 0.5])),
                "num_keypoints": int(rng.choice([np.count_nonzero(seen), np.count_nonzero(seen), 0, 3])),
                "keypoints": np.column_stack([points, seen]).ravel().tolist(),
            })  # fmt: skip
            for _ in range(int(rng.integers(0, 3))):
                result(image_id, category, points + rng.choice([0.0, 1.0, 5.0, 20.0]) * rng.normal(size=points.shape))
        for _ in range(25 if rng.random() < 0.1 else int(rng.integers(0, 4))):
            category = int(rng.choice([*number_of, 999]))
            result(image_id, category, rng.uniform(0, 150, (number_of.get(category, 1), 2)))
    results = [results[place] for place in rng.permutation(len(results))]
    for entry in results:
        entry["score"] = float(rng.choice([0.1, 0.5, 0.9, rng.random()]))
    images = [{"id": one, "width": 320, "height": 320} for one in ids]
    return {"images": images, "categories": names, "annotations": annotations}, results, sigmas
