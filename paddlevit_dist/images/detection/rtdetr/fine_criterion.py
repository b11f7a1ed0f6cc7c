"""D-FINE's losses: RT-DETR's, and those of the distributions that the sides of boxes are.

Source: Peng et al., D-FINE, ICLR 2025, sections 4.2 and 4.3, with the authors' DFINECriterion.
"""

from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from ....distributed import all_reduce_sum, host_barrier, world_size
from ....runtime.transfers import is_on_gpu, to_device_together
from ....tasks.task import LossTerm
from ..boxes import corners, iou
from ..detector import DetectionTargets, Outputs, single_or_double
from ..detr.criterion import QueryMatches
from .criterion import (
    AUXILIARY,
    DENOISING,
    BatchGroundTruth,
    HeadOutputs,
    MatchedTargets,
    Sums,
    VarifocalCriterion,
    box_sums,
    judged,
)
from .denoising import PREFIX
from .distributions import DistanceBins, bin_entropy, distillation


class FineCriterion(VarifocalCriterion):
    """As RT-DETR's, with one matching for the boxes of all layers: the union of the matchings of the decoder's layers,
    of the first layer's box head and of the encoder's choice. A query with several objects is to be the one that most
    of them gave it, the first of those.

    ``fine`` teaches each distribution the two bins beside the object's side, ``distill`` each layer's the last one's.
    Boxes and ``fine`` are divided by the pairs of the union over all devices, which are known after the forward pass:
    of each micro-batch by itself. So is ``distill``, a mean of matched sides and a mean of all others, weighted by the
    roots of their numbers; with the normalizer "reference" it is that of each device, as the authors have it. Every
    rank must call ``terms``.

    Args:
        fine_weight, distill_weight: of the terms in the loss.
        bins: of the distributions; None: the authors'.
        options: as ``VarifocalCriterion`` takes them.
    """

    communicates = True
    parts = ("class", "box", "giou", "fine")  # all but the first over pairs of the union

    def __init__(
        self,
        num_classes: int,
        queries: int,
        layers: int,
        normalizer: str = "global",
        fine_weight: float = 0.15,
        distill_weight: float = 1.5,
        bins: DistanceBins | None = None,
        **options: Any,
    ):
        super().__init__(num_classes, queries, layers, normalizer, **options)
        self.weights.update(fine=fine_weight, distill=distill_weight)
        self.bins = bins or DistanceBins()
        of_noise = [f"{name}{DENOISING}" for name in self.parts if name != "class"] if self.noise else []
        self.count_names = (*(f"class{suffix}" for suffix in self.suffixes), *of_noise)

    def heads(self, outputs: Outputs) -> HeadOutputs:
        """The decoder's layers, the first one's box head, the encoder's choice."""
        return judged(outputs, "first", "encoder")

    def select_terms(self, sums: Sums, last: int, objects: float) -> dict[str, LossTerm]:
        terms, weight = super().select_terms(sums, last, objects), self.weights["distill"]
        for name in (f"distill{suffix}" for suffix in self.suffixes if suffix != AUXILIARY):  # of all ranks already
            terms[name] = LossTerm(sums[name].sum() * world_size(), 1.0, weight)
        return terms

    def layer_sums(
        self,
        outputs: Outputs,
        heads: HeadOutputs,
        targets: DetectionTargets,
        matches: QueryMatches,
        union: np.ndarray | None = None,
    ) -> Sums:
        """As ``VarifocalCriterion``, with ``fine`` (layers,), and ``distill`` (layers - 1,), which is divided already;
        and ``pairs``, of the union on an average device. Every rank must call this.

        Args:
            union: int64 (N, Q), the object of each query in the union, M for none; None: ``unite_matchings`` the
                matches.
        """
        truth, own = BatchGroundTruth(targets, heads.boxes.dtype, self.num_classes), matches.object_of
        union = unite_matchings(own, truth.most) if union is None else union
        number = np.array([(union < truth.most).sum()])
        rows, shared_rows, pairs = to_device_together(truth.rows(own).ravel(), truth.rows(union).ravel(), number)
        wanted, shared = truth.of(rows.reshape(own.shape)), truth.of(shared_rows.reshape(union.shape))
        sums = {**self.class_sums(heads, wanted), **box_sums(heads.boxes, shared)}
        pairs = pairs.astype("float64")
        matched_and_others = [pairs, paddle.full([1], union.size, "float64") - pairs]
        if self.noise:
            wanted, weights = truth.of_denoising()
            queries = weights.astype("float64")
            matched = (wanted.matched.astype("float64") * queries).sum()
            matched_and_others += [matched.reshape([1]), (queries.sum() - matched).reshape([1])]
        pairs, shares = self._divided(paddle.concat(matched_and_others))
        sums["pairs"] = pairs.astype(heads.boxes.dtype)
        sums.update(self._side_sums(outputs, heads, shared, shares[:2]))
        if self.noise:
            heads = judged(outputs, "first", prefix=PREFIX)
            found = {**self.class_sums(heads, wanted, weights), **box_sums(heads.boxes, wanted, weights)}
            found.update(self._side_sums(outputs, heads, wanted, shares[2:], weights, PREFIX))
            sums.update({name + DENOISING: value for name, value in found.items()})
        return sums

    def _divided(self, sizes: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """The pairs of the union on an average device, and what the sums in ``distill`` are multiplied by.

        Args:
            sizes: float64 (2,) or (4,): queries with an object and others, of the union and of denoising.
        """
        if not is_on_gpu():
            host_barrier()  # gloo ends a run that waits in it for long
        everywhere = all_reduce_sum(sizes.clone())
        sizes = everywhere if self.is_global else sizes
        roots = sizes[:2].sqrt()
        shares = paddle.concat([roots / roots.sum()] * (len(sizes) // 2)) / paddle.clip(sizes, min=1.0)
        return everywhere[0] / world_size(), shares if self.is_global else shares / world_size()

    def _side_sums(
        self,
        outputs: Outputs,
        heads: HeadOutputs,
        wanted: MatchedTargets,
        shares: paddle.Tensor,
        weights: paddle.Tensor | None = None,
        prefix: str = "",
    ) -> Sums:
        """``fine`` (layers,) and ``distill`` (layers - 1,).

        Args:
            heads: of which the first are the decoder's layers; wanted: of their queries.
            shares: (2,), what the sums of matched and of other queries are multiplied by in ``distill``.
            weights: (N, Q), of the queries.
        """
        logits = single_or_double(outputs[f"{prefix}layer_corners"])
        logits = logits.reshape([*logits.shape[:3], 4, self.bins.number + 1])
        layers = logits.shape[0]
        with paddle.no_grad():
            target = self.bins.target(outputs[f"{prefix}references"].astype(logits.dtype), wanted.boxes)
            overlap = iou(corners(heads.boxes[:layers]), corners(wanted.boxes)) * wanted.matched  # (L, N, Q)
            weight = paddle.ones_like(wanted.matched) if weights is None else weights
            matched, shares = wanted.matched * weight, shares.astype(logits.dtype)
            certain = F.sigmoid(heads.logits[layers - 1]).max(axis=-1) * (1 - wanted.matched)  # (N, Q)
            of_query = shares[0] * overlap[:-1] * matched + shares[1] * certain * weight
        fine = bin_entropy(logits, target) * (overlap * weight)
        apart = distillation(logits[:-1], logits[-1]) * of_query
        return {"fine": fine.sum(axis=[1, 2]), "distill": apart.sum(axis=[1, 2])}


def unite_matchings(objects: np.ndarray, most: int) -> np.ndarray:
    """The object of each query in the union of matchings, int64 (N, Q), ``most`` for none: the one that most matchings
    give it, the first of several. (The authors leave that choice to an unstable sort.)

    Args:
        objects: int64 (L, N, Q), of L matchings, ``most`` for none.
    """
    _, images, queries = objects.shape
    votes = np.zeros((images, queries, most + 1), np.int64)
    image, query = np.ogrid[:images, :queries]
    for matching in objects:
        votes[image, query, matching] += 1
    votes = votes[..., :most]
    return np.where(votes.any(axis=-1), votes.argmax(axis=-1), most)
