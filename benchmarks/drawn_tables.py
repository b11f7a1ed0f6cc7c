"""Models of data: tables of samples, as evaluations write them, drawn from distributions that are known.

A model draws the arrays that a kind of scores reads, of so many samples and classes. Samples of a group resemble one
another: a share of what makes them easy or hard is their group's.
"""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.random import Generator

from paddlevit_dist.images.detection.evaluation.match_tables import IOU_THRESHOLDS, MatchTable
from paddlevit_dist.images.keypoints.evaluation.score_kind import encode_names
from paddlevit_dist.points.instances.matching import IOU_THRESHOLDS as INSTANCE_THRESHOLDS
from paddlevit_dist.volumes.landmarks.metrics import sum_errors
from paddlevit_dist.volumes.segmentation.metrics import COLUMNS

Arrays = Mapping[str, np.ndarray]
Groups = np.ndarray | None  # int (samples,), the group of each sample; None: they are independent

_THINGS = 0.5  # share of the classes of instances whose segments have a score
_MEDIUM = 2  # COCO's range of areas of all objects that are drawn
_POINTS = 17  # of an object with keypoints


def name_classes(number: int) -> list[str]:
    return [str(label) for label in range(number)]


def assign_groups(samples: int, groups: int, is_even: bool = True) -> Groups:
    """Groups of samples that follow one another, of equal sizes, or of sizes that rise to twice the mean."""
    if not groups:
        return None
    order = np.arange(samples)
    return order * groups // samples if is_even else (groups * np.sqrt(order / samples)).astype(np.int64)


def draw_effects(rng: Generator, samples: int, groups: Groups, share: float, columns: int = 1) -> np.ndarray:
    """Standard normal numbers, float64 (samples, columns), with the correlation ``share`` within a group."""
    own = rng.normal(size=(samples, columns))
    if groups is None:
        return own
    shared = rng.normal(size=(int(groups.max()) + 1, columns))[groups]
    return np.sqrt(share) * shared + np.sqrt(1 - share) * own


def squash(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def list_shares(prior: str | Sequence[float], classes: int) -> np.ndarray:
    """Shares of classes, of which the sum is 1: "even", "zipf" (proportional to 1 / rank), or the shares."""
    rows = {"even": np.ones(classes), "zipf": 1 / np.arange(1, classes + 1)}
    shares = rows[prior] if isinstance(prior, str) else np.array(prior, float)
    return shares / shares.sum()


# ---- classes and labels ----------------------------------------------------------------------------------------------


def draw_classes(
    rng: Generator,
    samples: int,
    classes: int,
    groups: Groups,
    recall: float | Sequence[float] = 0.8,
    prior: str | Sequence[float] = "even",
    of_group: bool = False,
) -> Arrays:
    """Samples of one class each, right with the probability ``recall``; where wrong the loss is larger by 1.

    ``of_group``: all samples of a group have one class, such as the diagnosis of a patient.
    """
    labels = rng.choice(classes, samples, p=list_shares(prior, classes))
    labels = labels[groups] if of_group and groups is not None else labels
    limits = np.array([NormalDist().inv_cdf(share) for share in np.broadcast_to(recall, classes)])
    return answer(rng, labels, draw_effects(rng, samples, groups, 0.4)[:, 0] < limits[labels], classes)


def answer(rng: Generator, labels: np.ndarray, is_right: np.ndarray, classes: int) -> Arrays:
    """The arrays of classified samples, of which some are right."""
    return {
        "labels": labels,
        "places": np.where(is_right, 0, 1),
        "predictions": np.where(is_right, labels, (labels + 1) % classes),
        "losses": rng.exponential(0.3, len(labels)) + ~is_right,
        "top": np.array([1]),
    }


def draw_labels(
    rng: Generator, samples: int, classes: int, groups: Groups, rate: float, distance: float = 1.5
) -> Arrays:
    """Images that have each label with probability ``rate``; its scores are higher by ``distance`` deviations."""
    if groups is None:
        has_label = rng.random((samples, classes)) < rate
        shared = 0.3 * rng.normal(size=(samples, 1))
    else:
        has_label = draw_effects(rng, samples, groups, 0.4, classes) < NormalDist().inv_cdf(rate)
        shared = 0.5 * draw_effects(rng, samples, groups, 0.4)
    scores = rng.normal(size=(samples, classes)) + distance * has_label + shared
    return {
        "labels": has_label.astype(np.int8),
        "logits": scores - distance,
        "chosen": scores > distance / 2 + 0.3,
    }


# ---- maps ------------------------------------------------------------------------------------------------------------


def draw_maps(
    rng: Generator,
    samples: int,
    classes: int,
    groups: Groups,
    presence: float | str = 0.5,
    quality: float = 0.8,
) -> Arrays:
    """Label maps: the background is in each, another class with probability ``presence`` ("zipf": 0.9 / rank).

    The share of right pixels of a class varies with map and class around ``quality``. Other pixels are taken for the
    background, and those of the background for one of the classes.
    """
    true = label_maps(rng, samples, classes, presence)
    ease = 0.7 * draw_effects(rng, samples, groups, 0.5) + 0.8 * rng.normal(size=true.shape)
    return segment_maps(rng, true, np.log(quality / (1 - quality)) + ease)


def label_maps(rng: Generator, samples: int, classes: int, presence: float | str) -> np.ndarray:
    """Labeled pixels, int (samples, classes), 0 where a map has no such class."""
    rates = 0.9 / np.arange(1, classes + 1) if presence == "zipf" else np.full(classes, presence)
    is_there = rng.random((samples, classes)) < rates
    is_there[:, 0] = True
    return np.where(is_there, rng.gamma(2.0, 200.0, (samples, classes)).astype(int) + 1, 0)


def segment_maps(rng: Generator, true: np.ndarray, ease: np.ndarray) -> Arrays:
    """The arrays of maps with these labeled pixels; ``ease`` is the logit of the share that is right."""
    samples, classes = true.shape
    share, confused = squash(ease), rng.integers(1, classes, samples)
    edge = true // 5  # pixels near boundaries, which are harder
    return {
        "statistics": confuse(true, rng.binomial(true, share), confused),
        "boundaries": confuse(edge, rng.binomial(edge, 0.8 * share), confused),
        "losses": np.full(samples, np.nan),
    }


def confuse(true: np.ndarray, right: np.ndarray, confused: np.ndarray) -> np.ndarray:
    """Counts of right, true and taken pixels, int (samples, 3, classes), from true and right ones (samples, classes).

    Pixels of class 0 that are wrong are taken for the class ``confused``, others for class 0.
    """
    taken, wrong = right.copy(), true - right
    taken[:, 0] += wrong[:, 1:].sum(axis=1)
    taken[np.arange(len(true)), confused] += wrong[:, 0]
    return np.stack([right, true, taken], axis=1)


# ---- objects ---------------------------------------------------------------------------------------------------------


class Objects:
    """True objects and detections of images.

    Args:
        rate: expected number of objects of a class in an image.
        found: probability that an object is found; in groups it varies with the image.
        false: expected number of false detections for each object.
        skill: how much a detection's score grows with its overlap; false ones have scores around 0.
        overlap: of the beta distribution of overlaps, which are from 0.5 to 1.
        true: int (samples, classes), the true objects; None draws them.
    """

    def __init__(
        self,
        rng: Generator,
        samples: int,
        classes: int,
        groups: Groups,
        rate: float,
        found: float = 0.8,
        false: float = 1.0,
        skill: float = 1.3,
        overlap: tuple[float, float] = (3.0, 1.5),
        true: np.ndarray | None = None,
    ) -> None:
        self.true = rng.poisson(rate, (samples, classes)) if true is None else true
        ease = 0.0 if groups is None else draw_effects(rng, samples, groups, 0.5)
        chance = squash(np.log(found / (1 - found)) + ease) * np.ones((samples, classes))
        self.hits, self.wrong = rng.binomial(self.true, chance), rng.poisson(false * rate, (samples, classes))
        places = np.arange(samples * classes)
        cells = np.concatenate([np.repeat(places, self.hits.ravel()), np.repeat(places, self.wrong.ravel())])
        number = int(self.hits.sum())
        iou = np.append(0.5 + 0.5 * rng.beta(*overlap, number), np.zeros(len(cells) - number))
        scores = rng.normal(size=len(cells)) + skill * np.where(iou > 0, 0.5 + iou, 0.0)
        order = np.lexsort((-scores, cells))
        #: image, class, score and overlap (0 if false) of each detection, by image, class and falling score
        self.images, self.labels = np.divmod(cells[order], classes)
        self.scores, self.iou = scores[order], iou[order]

    def match(self, overlaps: np.ndarray, prefix: str = "") -> Arrays:
        """The arrays of COCO's matches at these overlaps of the detections."""
        samples, classes = self.true.shape
        bits = (overlaps[:, None] >= IOU_THRESHOLDS) @ (1 << np.arange(len(IOU_THRESHOLDS)))
        bits = bits.astype(np.uint64)
        image, label = np.nonzero(self.true)
        number, none = self.true[image, label], np.zeros(len(image), int)
        table = MatchTable(
            image_ids=np.arange(samples),
            counts=np.bincount(self.images, minlength=samples).astype(np.int32),
            num_true=self.true.sum(axis=1).astype(np.int32),
            labels=self.labels.astype(np.uint16),
            scores=self.scores,
            true_positives=bits | bits << np.uint64(_MEDIUM * len(IOU_THRESHOLDS)),
            ignored=np.zeros(len(bits), np.uint64),
            annotated=np.stack([image, label, number, none, number, none], axis=1).astype(np.int32),
            num_classes=classes,
        )
        return table.to_arrays(prefix)


def draw_boxes(
    rng: Generator, samples: int, classes: int, groups: Groups, rate: float, crowding: float = 0.0, **options: Any
) -> Arrays:
    """Images with boxes; for other options see ``Objects``.

    ``crowding`` is the deviation of the logarithm of the number of objects of an image.
    """
    true = (
        rng.poisson(rate * np.exp(crowding * rng.normal(size=(samples, 1))), (samples, classes)) if crowding else None
    )
    drawn = Objects(rng, samples, classes, groups, rate, true=true, **options)
    return {**drawn.match(drawn.iou), "ids": np.arange(samples), "limits": np.array((1, 10, 100))}


def draw_masks(rng: Generator, samples: int, classes: int, groups: Groups, **options: Any) -> Arrays:
    """Images with boxes and masks, whose overlaps are lower by up to a tenth."""
    drawn = Objects(rng, samples, classes, groups, **options)
    of_masks = drawn.match(drawn.iou - 0.1 * rng.random(len(drawn.iou)), "mask ")
    return {**drawn.match(drawn.iou), **of_masks, "ids": np.arange(samples), "limits": np.array((1, 10, 100))}


def draw_keypoints(rng: Generator, samples: int, classes: int, groups: Groups, **options: Any) -> Arrays:
    """Images with objects that have keypoints, whose overlap is their similarity (OKS)."""
    drawn = Objects(rng, samples, classes, groups, **options)
    found = np.repeat(drawn.hits.sum(axis=1)[:, None], _POINTS, axis=1)  # (images, points)
    points = np.stack([found, found, 0.8 * found, 5.0 * found], axis=2)
    names = encode_names(name_classes(_POINTS))
    return {
        **drawn.match(drawn.iou),
        **{"ids": np.arange(samples), "limits": np.array([20]), "points": points, "point_names": names},
    }


def draw_instances(rng: Generator, samples: int, classes: int, groups: Groups, **options: Any) -> Arrays:
    """Scenes with segments of 100 points; the first half of the classes are instances with scores."""
    drawn = Objects(rng, samples, classes, groups, overlap=(8.0, 2.0), **options)
    things = max(int(classes * _THINGS), 1)
    kept = drawn.labels < things
    image, label = drawn.images[kept], drawn.labels[kept]
    is_right = drawn.iou[kept, None] > INSTANCE_THRESHOLDS  # (detections, thresholds)
    found = np.zeros((samples, things, len(INSTANCE_THRESHOLDS)), np.int64)
    np.add.at(found, (image, label), is_right)
    ious = np.zeros(drawn.true.shape)
    np.add.at(ious, (drawn.images, drawn.labels), drawn.iou)
    matched, false, true = drawn.hits, drawn.wrong, drawn.true
    points = np.stack([80 * matched, 100 * true, 80 * matched + 50 * false], axis=1)
    return {
        "instance_classes": np.arange(things),
        "rows": np.bincount(image, minlength=samples) * len(INSTANCE_THRESHOLDS),
        "class_numbers": np.repeat(label, len(INSTANCE_THRESHOLDS)).astype(np.int16),
        "thresholds": np.tile(np.arange(len(INSTANCE_THRESHOLDS), dtype=np.int8), len(label)),
        "scores": np.repeat(drawn.scores[kept], len(INSTANCE_THRESHOLDS)),
        "is_right": is_right.ravel(),
        "missed": true[:, :things, None] - found,
        "num_true": true[:, :things],
        "segment_counts": np.concatenate([np.stack([matched, false, true - matched], axis=1), points], axis=1),
        "segment_ious": ious,
        "statistics": points,
        "losses": np.full(samples, np.nan),
    }


# ---- points and volumes ----------------------------------------------------------------------------------------------


def draw_errors(rng: Generator, samples: int, points: int, groups: Groups, deviation: float) -> np.ndarray:
    """Errors of points, float64 (samples, points), lognormal with a median of 1.35; one of ten is not labeled."""
    ease = 0.5 * draw_effects(rng, samples, groups, 0.5)
    errors = np.exp(0.3 + deviation * rng.normal(size=(samples, points)) + ease)
    errors[rng.random((samples, points)) < 0.1] = np.nan
    return errors


def draw_points(rng: Generator, samples: int, classes: int, groups: Groups, deviation: float) -> Arrays:
    """Images of an object of 30 pixels with points, of which one of twenty images has no detection."""
    errors = draw_errors(rng, samples, classes, groups, deviation)
    missing = (rng.random((samples, 1)) < 0.05) & ~np.isnan(errors)
    return {
        "errors": np.where(missing, np.inf, errors),
        "errors_mm": np.full(errors.shape, np.nan),
        "sides": np.full(samples, 30.0),
        "share": np.array(0.05),
    }


def draw_decisions(
    rng: Generator,
    samples: int,
    classes: int,
    groups: Groups,
    right: float | np.ndarray,
    likeness: float = 0.0,
    failing: float = 0.0,
    uneven: bool = False,
) -> Arrays:
    """Images of an object with points, each right with the probability ``right``, or none of an image.

    Args:
        right: of all images, or of each, (samples, 1).
        likeness: correlation of the points of an image; their share that is right has a beta distribution.
        failing: share of images whose object is not detected.
        uneven: images have from one to all points, instead of all.
    """
    of_all = 1 / likeness - 1 if likeness else 0.0
    share = rng.beta(right * of_all, (1 - right) * of_all, (samples, 1)) if likeness else right
    errors = np.where(rng.random((samples, classes)) < share, 0.0, 30.0)
    errors[rng.random(samples) < failing] = np.inf
    if uneven:
        errors[np.arange(classes) >= rng.integers(1, classes + 1, (samples, 1))] = np.nan
    sides, no_mm = np.full(samples, 30.0), np.full(errors.shape, np.nan)
    return {"errors": errors, "errors_mm": no_mm, "sides": sides, "share": np.array(0.05)}


def draw_landmarks(
    rng: Generator, samples: int, classes: int, groups: Groups, deviation: float, gross: float = 0.0
) -> Arrays:
    """Volumes with landmarks; for the errors see ``draw_errors``, in millimeters. A share ``gross`` is 80 mm off."""
    errors = draw_errors(rng, samples, classes, groups, deviation)
    is_gross = (rng.random(errors.shape) < gross) & ~np.isnan(errors)
    return {"sums": sum_errors(np.where(is_gross, 80.0, errors))}


def draw_volumes(
    rng: Generator, samples: int, classes: int, groups: Groups, presence: float = 0.9, quality: float = 2.0
) -> Arrays:
    """Volumes that have each class with probability ``presence``; ``quality`` is the logit of the share that is right.

    One of twenty classes is not found at all, and a tenth of absent ones is found.
    """
    true = label_volumes(rng, samples, classes, presence)
    ease = rng.normal(size=true.shape) + 0.7 * draw_effects(rng, samples, groups, 0.5)
    return segment_volumes(rng, true, quality + ease)


def label_volumes(rng: Generator, samples: int, classes: int, presence: float) -> np.ndarray:
    """Labeled voxels, float64 (samples, classes), 0 where a volume has no such class."""
    is_there = rng.random((samples, classes)) < presence
    return np.where(is_there, rng.lognormal(7, 1.0, is_there.shape), 0.0)


def segment_volumes(rng: Generator, true: np.ndarray, ease: np.ndarray) -> Arrays:
    """The arrays of segmented volumes with these labeled voxels; ``ease`` is the logit of the share that is right."""
    shape, share = true.shape, squash(ease)
    share[rng.random(shape) < 0.05] = 0.0
    false = np.where(rng.random(shape) < 0.1, 50.0, 0.0)
    right, extra = true * share, np.where(true > 0, 0.7 * true * (1 - share), false)
    taken = right + extra
    either = true + taken
    dice = np.divide(2 * right, either, out=np.zeros(shape), where=either > 0)
    close = (true > 0) & (taken > 0)
    distance = np.where(close, np.exp(1.5 - 2 * share + 0.5 * rng.normal(size=shape)), 0.0)
    sums = {
        "dice": dice,
        "volumes": either > 0,
        "labeled dice": np.where(true > 0, dice, 0.0),
        "labeled": true > 0,
        "right": right,
        "true": true,
        "taken": taken,
        "assd": distance,
        "hd95": 4 * distance,
        "close": close,
        "missed": (true > 0) != (taken > 0),
    }
    return {"sums": np.stack([sums[name] for name in COLUMNS], axis=2).astype(np.float64)}
