"""D-FINE's losses: RT-DETR's, and losses of the distributions of sides of boxes.

Source: Peng et al., D-FINE, ICLR 2025, sections 4.2 and 4.3, with the authors' DFINECriterion.
"""

from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.distributed import all_reduce_sum, host_barrier, world_size
from ....core.runtime.transfers import is_on_gpu, to_device_together
from ....core.tasks.step_types import LossTerm
from ...mask_queries.matching import QueryMatches
from ..denoising import PREFIX
from ..detector import Outputs, single_or_double
from .criterion import AUXILIARY, DENOISING, MatchedTargets, Sums, VarifocalCriterion, stack_heads
from .distributions import DistanceBins, bin_entropy, softened_divergence


class FineCriterion(VarifocalCriterion):
    """RT-DETR's losses with one matching for the boxes of all layers, and losses of distributions.

    The matching is the union of the matchings of the decoder's layers, of the first layer's box head and of the
    encoder's selection. A query with several objects gets the object of most matchings, the first of equal ones.
    ``fine`` teaches each distribution the two bins next to the object's side, ``distill`` each layer the last one's
    distribution. Boxes and ``fine`` are divided by the pairs of the union over all devices, each micro-batch by its
    own pairs: the gradients of earlier ones are in the sum, divided, when a later one is matched. These means weigh as
    the micro-batches have objects. ``distill`` is a mean over matched sides and a mean over all others, weighted by the
    roots of their numbers, of each micro-batch; with the normalizer "reference" means are per device, as by the
    authors. Every rank must call ``terms``. For other arguments see ``VarifocalCriterion``.
    """

    communicates = True
    parts: tuple[str, ...] = ("class", "box", "giou", "fine")  # all but the first over pairs of the union

    def __init__(
        self,
        num_classes: int,
        queries: int,
        layers: int,
        normalizer: str = "global",
        fine_weight: float = 0.15,
        distill_weight: float = 1.5,
        *,
        bins: DistanceBins,
        **options: Any,
    ):
        super().__init__(num_classes, queries, layers, normalizer, **options)
        self.weights.update(fine=fine_weight, distill=distill_weight)
        self.bins = bins

    def heads(self, outputs: Outputs) -> Any:
        """Return the heads matched with objects: decoder's layers, first layer's box head, encoder's selection."""
        return stack_heads(outputs, "first", "encoder")

    def select_terms(self, sums: Sums, last: int, objects: float) -> dict[str, LossTerm]:
        """Return the loss terms that count in the loss."""
        terms, weight = super().select_terms(sums, last, objects), self.weights["distill"]
        names = [f"distill{suffix}" for suffix in self.suffixes if suffix != AUXILIARY] if weight else []
        for name in names:  # already over all ranks
            terms[name] = LossTerm(sums[name].sum() * world_size(), 1.0, weight, is_local=True)
        return terms

    def layer_sums(
        self,
        outputs: Outputs,
        heads: Any,
        targets: Any,
        matches: QueryMatches,
        union: np.ndarray | None = None,
    ) -> Sums:
        """Return the sums of ``VarifocalCriterion``, and of the distributions.

        These are ``fine`` (layers,), ``distill`` (layers - 1,), which is already divided, ``pairs``, the pairs of the
        union on an average device, and ``objects_per_pair`` of all devices. Every rank must call this. ``union`` is
        int64 (N, Q), the object of each query in the union, M for none; None: ``unite_matchings`` of ``matches``.
        """
        truth, objects = self.ground_truth(targets, heads.logits.dtype), matches.object_of
        union = unite_matchings(objects, truth.most) if union is None else union
        numbers = np.array([matches.counts.sum(), (union < truth.most).sum()])
        rows, shared_rows, counts = to_device_together(truth.rows(objects).ravel(), truth.rows(union).ravel(), numbers)
        matched, union_matched = (
            truth.gather(rows.reshape(objects.shape)),
            truth.gather(shared_rows.reshape(union.shape)),
        )
        sums = {**self.class_sums(heads, matched), **self.place_sums(heads, union_matched)}
        counts = counts.astype("float64")
        matched_and_others = [counts, paddle.full([1], union.size, "float64") - counts[1:]]
        if self.noise:
            matched, weights = truth.gather_denoising()
            queries = weights.astype("float64")
            num_matched = (matched.matched.astype("float64") * queries).sum()
            matched_and_others += [num_matched.reshape([1]), (queries.sum() - num_matched).reshape([1])]
        means, shares = self._divided(paddle.concat(matched_and_others))
        sums["pairs"], sums["objects_per_pair"] = means.astype(heads.logits.dtype)
        sums.update(self._side_sums(outputs, heads, union_matched, shares[:2]))
        if self.noise:
            heads = stack_heads(outputs, "first", prefix=PREFIX, kind=type(heads))
            denoising_sums = {**self.class_sums(heads, matched, weights), **self.place_sums(heads, matched, weights)}
            denoising_sums.update(self._side_sums(outputs, heads, matched, shares[2:], weights, PREFIX))
            sums.update({name + DENOISING: value for name, value in denoising_sums.items()})
        return sums

    def _divided(self, numbers: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return pairs on an average device and objects for each pair, (2,), and the factors of sums in ``distill``.

        ``numbers`` are float64 (3,) or (5,): objects, then queries with an object and others, of the union and of
        denoising.
        """
        if not is_on_gpu():
            host_barrier()  # gloo aborts after a long wait
        of_all = all_reduce_sum(numbers.clone())
        means = paddle.concat([of_all[1:2] / world_size(), of_all[:1] / paddle.clip(of_all[1:2], min=1.0)])
        sizes = (of_all if self.is_global else numbers)[1:]
        roots = sizes[:2].sqrt()
        factors = paddle.concat([roots / roots.sum()] * (len(sizes) // 2)) / paddle.clip(sizes, min=1.0)
        return means, factors if self.is_global else factors / world_size()

    def _side_sums(
        self,
        outputs: Outputs,
        heads: Any,
        matched: MatchedTargets,
        factors: paddle.Tensor,
        weights: paddle.Tensor | None = None,
        prefix: str = "",
    ) -> Sums:
        """Return ``fine`` (layers,) and ``distill`` (layers - 1,), from outputs whose names begin with ``prefix``.

        Args:
            heads: outputs of heads, the decoder's layers first.
            factors: (2,), factors of the sums of matched and of other queries in ``distill``.
            weights: (N, Q), weights of the queries.
        """
        logits = single_or_double(outputs[f"{prefix}layer_corners"])
        logits = logits.reshape([*logits.shape[:3], -1, self.bins.number + 1])
        layers = logits.shape[0]
        with paddle.no_grad():
            overlap = self.overlaps(type(heads)(*(part[:layers] for part in heads)), matched)  # (L, N, Q)
            weight = paddle.ones_like(matched.matched) if weights is None else weights
            is_matched, factors = matched.matched * weight, factors.astype(logits.dtype)
            confidence = F.sigmoid(heads.logits[layers - 1]).max(axis=-1) * (1 - matched.matched)  # (N, Q)
            query_weights = factors[0] * overlap[:-1] * is_matched + factors[1] * confidence * weight
        divergence = softened_divergence(logits[:-1], logits[-1]) * query_weights
        sums = {"distill": divergence.sum(axis=[1, 2])}
        if "fine" in self.parts:
            with paddle.no_grad():
                target = self.bins.target(outputs[f"{prefix}references"].astype(logits.dtype), matched.values)
            sums["fine"] = (bin_entropy(logits, target) * (overlap * weight)).sum(axis=[1, 2])
        return sums


def unite_matchings(objects: np.ndarray, most: int) -> np.ndarray:
    """Return the object of each query in the union of matchings, int64 (L, N, Q), as int64 (N, Q), ``most`` for none.

    It is the object of most matchings, the first of equal ones. (The authors leave this to an unstable sort.)
    """
    _, images, queries = objects.shape
    votes = np.zeros((images, queries, most + 1), np.int64)
    image_index, query_index = np.ogrid[:images, :queries]
    for matching in objects:
        votes[image_index, query_index, matching] += 1
    votes = votes[..., :most]
    return np.where(votes.any(axis=-1), votes.argmax(axis=-1), most)
