"""D-FINE's losses: RT-DETR's, and those of the distributions that the sides of boxes are.

Source: Peng et al., D-FINE, ICLR 2025, sections 4.2 and 4.3, with the authors' DFINECriterion.
"""

from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....distributed import all_reduce_sum, meet, world_size
from ....runtime.transfers import is_on_gpu, to_device_together
from ....tasks.task import Term
from ..boxes import corners, iou
from ..detector import Outputs, Targets, single_or_double
from ..detr.criterion import Matches
from .criterion import (
    AUXILIARY,
    DENOISING,
    DENOISING_PREFIX,
    Judged,
    Sums,
    Truth,
    VarifocalCriterion,
    Wanted,
    box_sums,
    judged,
    queries_of,
)
from .denoising import DenoisingQueries
from .distributions import Bins, bin_entropy, distillation

_SUMMED = ("box", "giou", "fine")  # over pairs of the union


class FineCriterion(VarifocalCriterion):
    """As RT-DETR's, with one matching for the boxes of all layers: the union of the matchings of the decoder's layers,
    of the first layer's box head and of the encoder's choice. A query with several objects is to be the one that most
    of them gave it, the first of those.

    ``fine`` teaches each distribution the two bins beside the object's side, ``distill`` each layer's the last one's.
    Boxes and ``fine`` are divided by the pairs of the union over all devices, which are known after the forward pass:
    of each micro-batch by itself. So is ``distill``, a mean of matched sides and a mean of all others, weighted by the
    roots of their numbers; with the normaliser "reference" it is that of each device, as the authors have it.

    Args:
        fine_weight, distill_weight: of the terms in the loss.
        bins: of the distributions; None: the authors'.
        options: as ``VarifocalCriterion`` takes them.
    """

    def __init__(
        self,
        num_classes: int,
        queries: int,
        layers: int,
        normaliser: str = "global",
        fine_weight: float = 0.15,
        distill_weight: float = 1.5,
        bins: Bins | None = None,
        **options: Any,
    ):
        super().__init__(num_classes, queries, layers, normaliser, **options)
        self.weights.update(fine=fine_weight, distill=distill_weight)
        self.bins = bins or Bins()
        known = [f"class{suffix}" for suffix in self.suffixes]
        of_noise = [f"{name}{DENOISING}" for name in _SUMMED] if self.noise else []
        self.count_names = (*known, *of_noise)

    def heads(self, outputs: Outputs) -> Judged:
        """The decoder's layers, the first one's box head, the encoder's choice."""
        return judged(outputs, "first", "encoder")

    def terms(self, outputs: Outputs, targets: Targets) -> dict[str, Term]:
        """As ``VarifocalCriterion``. Every rank must call this."""
        heads = self.heads(outputs)
        matches = self.matches(heads, targets)
        self._note(matches.counts)
        sums = self.layer_sums(outputs, heads, targets, matches)
        last, objects, pairs = outputs["layer_logits"].shape[0] - 1, float(matches.counts.sum()), sums.pop("pairs")
        terms = {}
        for name in ("class", *_SUMMED):
            count = objects if name == "class" else pairs
            of_last = sums[name][last]
            terms[name] = Term(of_last, count, self.weights[name])
            terms[name + AUXILIARY] = Term(sums[name].sum() - of_last, count, self.weights[name])
            if self.noise:
                terms[name + DENOISING] = Term(sums[name + DENOISING].sum(), objects, self.weights[name])
        for suffix in ("", *((DENOISING,) if self.noise else ())):  # of all ranks already
            terms[f"distill{suffix}"] = Term(
                sums[f"distill{suffix}"].sum() * world_size(), 1.0, self.weights["distill"]
            )
        terms["iou"] = Term(sums["iou"][last], objects, 0.0)
        return terms

    def layer_sums(
        self, outputs: Outputs, heads: Judged, targets: Targets, matches: Matches, union: np.ndarray | None = None
    ) -> Sums:
        """As ``VarifocalCriterion``, with ``fine`` (layers,), and ``distill`` (layers - 1,), which is divided already;
        and ``pairs``, of the union on an average device. Every rank must call this.

        Args:
            union: int64 (N, Q), the object of each query in the union, M for none; None: ``union_of`` the matches.
        """
        most = targets.labels.shape[1]
        union = union_of(matches.object_of, most) if union is None else union
        truth = self.truth(targets, heads.boxes.dtype)
        own = matches.object_of
        parts = [truth.rows_on_host(own).ravel(), truth.rows_on_host(union).ravel(), np.array([(union < most).sum()])]
        own_rows, shared_rows, pairs = to_device_together(*parts)
        wanted, shared_wanted = truth.of(own_rows.reshape(own.shape)), truth.of(shared_rows.reshape(union.shape))
        queries = queries_of(targets) if self.noise else None
        sizes = self._sizes(pairs, union.size, queries, truth)
        sums = {**self.class_sums(heads, wanted), **box_sums(heads.boxes, shared_wanted)}
        sums["pairs"] = sizes.pairs.astype(heads.boxes.dtype)
        layers = outputs["layer_logits"].shape[0]
        decoder = Judged(heads.logits[:layers], heads.boxes[:layers])
        sums.update(self._side_sums(outputs, decoder, shared_wanted, sizes.shares))
        if queries is not None:
            heads = judged(outputs, "first", prefix=DENOISING_PREFIX)
            sums.update(self.denoising_sums(heads, truth, queries))
            decoder, wanted = Judged(heads.logits[:layers], heads.boxes[:layers]), truth.of(truth.rows(queries.objects))
            shares, weights = sizes.denoising_shares, queries.weights.astype(heads.boxes.dtype)
            of_noise = self._side_sums(outputs, decoder, wanted, shares, weights, DENOISING_PREFIX)
            sums.update({name + DENOISING: value for name, value in of_noise.items()})
        return sums

    def _sizes(self, pairs: paddle.Tensor, number: int, queries: DenoisingQueries | None, truth: Truth) -> "_Sizes":
        """What sums are divided by, of all devices.

        Args:
            pairs: int64 (1,), of the union on this device; number: of the queries of this device.
        """
        own = [pairs.astype("float64"), paddle.full([1], number, "float64") - pairs.astype("float64")]
        if queries is not None:
            weights = queries.weights.astype("float64")
            matched = (truth.of(truth.rows(queries.objects)).matched.astype("float64") * weights).sum()
            own += [matched.reshape([1]), (weights.sum() - matched).reshape([1])]
        sizes = paddle.concat(own)
        if not is_on_gpu():
            meet()  # gloo ends a run that waits in it for long
        everywhere = all_reduce_sum(sizes.clone())
        sizes = everywhere if self.is_global else sizes
        roots = sizes[:2].sqrt()
        shares = roots / roots.sum()  # of the matched, of the others
        shares = paddle.concat([shares] * (len(own) // 2)) / paddle.clip(sizes, min=1.0)
        if not self.is_global:
            shares = shares / world_size()
        return _Sizes(everywhere[0] / world_size(), shares[:2], shares[2:])

    def _side_sums(
        self,
        outputs: Outputs,
        decoder: Judged,
        wanted: Wanted,
        shares: paddle.Tensor,
        weights: paddle.Tensor | None = None,
        prefix: str = "",
    ) -> Sums:
        """``fine`` (layers,) and ``distill`` (layers - 1,).

        Args:
            decoder: what its layers say; wanted: of its queries.
            shares: (2,), what the sums of matched and of other queries are multiplied by in ``distill``.
            weights: (N, Q), of the queries.
        """
        logits = single_or_double(outputs[f"{prefix}layer_corners"])
        logits = logits.reshape([*logits.shape[:3], 4, self.bins.number + 1])
        with paddle.no_grad():
            target = self.bins.target(outputs[f"{prefix}references"].astype(logits.dtype), wanted.boxes)
            overlap = iou(corners(decoder.boxes), corners(wanted.boxes)) * wanted.matched  # (L, N, Q)
            weight = paddle.ones_like(wanted.matched) if weights is None else weights
            matched, shares = wanted.matched * weight, shares.astype(logits.dtype)
            certain = F.sigmoid(decoder.logits[-1]).max(axis=-1) * (1 - wanted.matched)  # (N, Q)
            of_query = shares[0] * overlap[:-1] * matched + shares[1] * certain * weight
        fine = bin_entropy(logits, target) * (overlap * weight)
        apart = distillation(logits[:-1], logits[-1]) * of_query
        return {"fine": fine.sum(axis=[1, 2]), "distill": apart.sum(axis=[1, 2])}


class _Sizes(NamedTuple):
    """Attributes:
    pairs: of the union, on an average device, a scalar.
    shares: (2,), the weight of matched queries in ``distill`` over their number, and of the others over theirs.
    denoising_shares: (2,), of the denoising queries; none without them.
    """

    pairs: paddle.Tensor
    shares: paddle.Tensor
    denoising_shares: paddle.Tensor


def union_of(objects: np.ndarray, most: int) -> np.ndarray:
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
