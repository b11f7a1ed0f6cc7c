"""Confusion counts of elements (points, pixels) on the host. Needs no Paddle."""

import numpy as np

_SHARE_OF_DIAGONAL = 0.02  # of an image, how far a boundary reaches into its class


def count_confusion(
    true: np.ndarray, predicted: np.ndarray, num_classes: int, ignored: int | None = None
) -> np.ndarray:
    """Count the labeled elements of each class (rows) that are predicted to be of each class (columns), int64.

    Both are integers of one shape; predictions of labeled elements are below ``num_classes``. The value of missing
    labels is ``ignored``, or any negative number if that is None.
    """
    labeled = true >= 0 if ignored is None else true != ignored
    pairs = true[labeled].astype(np.int64) * num_classes + predicted[labeled]
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def reduce_confusions(confusions: np.ndarray) -> np.ndarray:
    """Reduce confusion matrices (..., classes, classes) to counts (..., 3, classes), see ``confusion_scores``."""
    right = np.diagonal(confusions, axis1=-2, axis2=-1)
    return np.stack([right, confusions.sum(axis=-1), confusions.sum(axis=-2)], axis=-2)


def count_statistics(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Count elements, int64 (3, classes), as ``reduce_confusions`` does for confusions.

    Classes are int (elements,). A prediction may be negative for no class, which is wrong.
    """
    counted = true[true == predicted], true, predicted[predicted >= 0]
    return np.stack([np.bincount(labels, minlength=num_classes) for labels in counted])


def boundary_statistics(true: np.ndarray, predicted: np.ndarray, num_classes: int, labeled: np.ndarray) -> np.ndarray:
    """Count the pixels of one image near a boundary of their class, as ``reduce_confusions`` does for all pixels.

    Correct pixels are near a boundary in truth and prediction. The boundary IoU of a class is right / (true + taken -
    right), each summed over all images. Near is what ``near_boundary`` marks for 0.02 of the image's diagonal in
    pixels, rounded, at least 1. Unlabeled pixels are removed from both maps before, so that pixels next to them have a
    boundary in both.

    Source: B. Cheng et al., "Boundary IoU: Improving Object-Centric Image Segmentation Evaluation", CVPR 2021, arXiv
    2103.16562, equation 2, with the dilation of section 5 and the authors' code; there for single objects, here for all
    pixels of a class.

    The maps are integers (height, width), where ``labeled``, bool, marks the pixels whose truth is a class; the counts
    are int64 (3, classes).
    """
    distance = max(1, round(_SHARE_OF_DIAGONAL * float(np.hypot(*true.shape))))
    maps = [
        np.where(labeled, labels.astype(np.promote_types(labels.dtype, np.int16)), -1) for labels in (true, predicted)
    ]
    is_true, is_taken = (near_boundary(labels, distance) & labeled for labels in maps)
    is_right = is_true & is_taken & (true == predicted)
    predicted_near = predicted[is_taken]
    counted = true[is_right], true[is_true], predicted_near[(predicted_near >= 0) & (predicted_near < num_classes)]
    return np.stack([np.bincount(labels, minlength=num_classes) for labels in counted])


Packed = tuple[np.ndarray, np.ndarray, np.ndarray]  # int32: pairs of classes, their counts, and boundaries


def pack_counts(confusion: np.ndarray, boundaries: np.ndarray) -> Packed:
    """Pack the counts of one image into 8 bytes for each pair of classes that occurs in it, and 12 for each class."""
    pairs = np.flatnonzero(confusion)
    return pairs.astype(np.int32), confusion.ravel()[pairs].astype(np.int32), boundaries.astype(np.int32)


def unpack_counts(counts: Packed) -> tuple[np.ndarray, np.ndarray]:
    """Unpack confusion and boundaries, int64; see ``pack_counts``."""
    pairs, numbers, boundaries = counts
    confusion = np.zeros(boundaries.shape[1:] * 2, np.int64)
    confusion.flat[pairs] = numbers
    return confusion, boundaries.astype(np.int64)


def near_boundary(labels: np.ndarray, distance: int) -> np.ndarray:
    """Mark the pixels that have another label, or the image's edge, within a distance: bool (height, width).

    A pixel is marked if a square of 2 ``distance`` + 1 pixels around it contains another label, or reaches out of the
    image. Removing the marked pixels of a mask equals ``distance`` erosions by 3 x 3. There is at least one pixel, and
    ``distance`` is at least 1.
    """
    height, width = labels.shape
    reach = distance - 1
    marked = np.zeros((height + 2 * reach, width + 2 * reach), bool)
    inner = marked[reach : reach + height, reach : reach + width]
    # First for a distance of 1: both pixels of a pair that differs, as at an edge, and the pixels left and right of
    # such a pair in one column. A pixel that differs diagonally from another is in such a pair, or next to one.
    across = np.ones((height, width + 1), bool)
    across[:, 1:-1] = labels[:, 1:] != labels[:, :-1]
    across = across[:, 1:] | across[:, :-1]
    down = np.ones((height + 1, width), bool)
    down[1:-1] = labels[1:] != labels[:-1]
    down = down[1:] | down[:-1]
    inner |= across
    inner |= down
    inner[:, 1:] |= down[:, :-1]
    inner[:, :-1] |= down[:, 1:]
    _spread(marked, reach)
    _spread(marked.T, reach)
    return inner


def _spread(marked: np.ndarray, by: int) -> None:
    """Mark in place, along the first axis, all rows that are at most ``by`` from a marked one, in time log(``by``)."""
    reach = 0
    while reach < by:
        step = min(2 * reach + 1, by - reach)
        before = marked.copy("K")
        marked[step:] |= before[:-step]
        marked[:-step] |= before[step:]
        reach += step
