"""Classes of images by votes of the most similar other images, as a measure of features.

Source: M. Caron et al., DINO, arXiv 2104.14294, appendix F.1; each image is compared with all others of one split.
"""

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.runtime.transfers import to_device
from ..classification.probes import find_nearest, weigh_votes

_BATCH = 256


@paddle.no_grad()
def predict_by_others(features: np.ndarray, labels: np.ndarray, number: int) -> np.ndarray:
    """Return the class that the ``number`` most similar other images vote for, int32 (images,).

    Args:
        features: float32 (images, channels); they are compared by their cosine.
        labels: int (images,), the class of each.
        number: of neighbors; at most all other images vote.

    Images whose features are not finite have no class, -1.
    """
    count, classes = len(features), int(labels.max()) + 1
    number = min(number, count - 1)
    if number < 1:
        return np.full(count, -1, np.int32)
    is_finite = np.isfinite(features).all(axis=1)
    bank = F.normalize(to_device(np.where(is_finite[:, None], features, 0.0).astype(np.float32)), axis=-1)
    known = to_device(labels.astype(np.int64))
    rows = to_device(np.arange(count)).unsqueeze(-1)  # (images, 1)
    predictions = []
    for first in range(0, count, _BATCH):
        similarity, places = find_nearest(bank[first : first + _BATCH], bank, number + 1)  # (batch, number + 1)
        is_other = (places != rows[first : first + _BATCH]).astype("float32")
        # An image that is not among its own neighbors has more than enough equal ones: the last one does not vote.
        is_last = paddle.arange(number + 1) == number
        is_other = is_other * (1.0 - (is_last & (is_other.sum(axis=1, keepdim=True) > number)).astype("float32"))
        votes = weigh_votes(similarity, known[places], classes) * is_other.unsqueeze(-1)
        predictions.append(votes.sum(axis=1).argmax(axis=1))
    return np.where(is_finite, paddle.concat(predictions).numpy(), -1).astype(np.int32)
