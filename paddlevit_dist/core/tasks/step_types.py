"""Values that the engine and a task exchange: loss terms, positions, targets of an evaluation, exported models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import paddle

from ..runtime.device_graph import enter_value as enter_value

Number: TypeAlias = int | float | paddle.Tensor


@dataclass(frozen=True)
class TaskTraits:
    """Facts about a task's batches and steps that a training run needs to know.

    Attributes:
        sample_name: plural noun for samples in log lines, such as "images/s".
        supports_to_static: whether ``paddle.jit.to_static`` can trace the models.
        supports_capture: whether captured passes (TRAIN.CAPTURE) repeat a step of a task of this package. Other tasks,
            which may derive from these and compute anything, say so by the aspect ``protocols.Capturable``.
        fixed_shapes: whether all batches except an epoch's last have one shape, so that cuDNN may search for its
            fastest algorithms.
        normalizers_per_sample: normalizer that each sample adds to a loss term, by term name, if it is the same for all
            samples: no all-reduce is needed then. None: ``Task.loss_normalizers`` returns them for each batch.
        normalizer_names: names of the normalizers that ``Task.loss_normalizers`` returns.
        communicates_in_step: whether ``Task.train_step`` itself communicates with the other ranks; then every rank must
            make the same steps.
        selftest_overrides: key values for -selftest that turn off what depends on the rank (random draws, losses over a
            rank's whole batch), so that it can compare different numbers of ranks.
        batch_norm: default of TRAIN.BATCH_NORM, "sync" or "local".
        uses_cross_entropies: whether steps compute cross-entropies by ``losses``, so that a run on a GPU first chooses
            the right way (``losses.choose_cross_entropy``).
        empty_cache_freq: steps after which unused GPU memory is returned to the device, for batches that differ in
            size; 0: never.
        takes_last: why no metric shows which weights are better, so that the last evaluated ones count as the best;
            empty: one does.
    """

    sample_name: str = "samples"
    supports_to_static: bool = False
    supports_capture: bool = False
    fixed_shapes: bool = False
    normalizers_per_sample: Mapping[str, int] | None = None
    normalizer_names: tuple[str, ...] = ()
    communicates_in_step: bool = False
    selftest_overrides: Mapping[str, Any] = field(default_factory=dict)
    batch_norm: str = "local"
    uses_cross_entropies: bool = False
    empty_cache_freq: int = 0
    takes_last: str = ""


class LossTerm(NamedTuple):
    """A sum over a micro-batch: a term of the loss, or a value that is only reported.

    Do not divide it. The engine divides a term with a normalizer of its name by that number over all ranks and
    micro-batches, and any other by its own ``count`` on each rank (``engine.step.compute_loss``).

    Attributes:
        sum: scalar float tensor, the sum over the micro-batch.
        count: divisor of the mean; a number, or a tensor if it is known only after the forward pass.
        weight: weight of the mean in the loss; 0 for a quantity that is only reported.
        is_local: whether each process divides by its own ``count`` on purpose, in place of a normalizer; gradients then
            depend on the number of processes, unless all have equal counts.
    """

    sum: paddle.Tensor
    count: Number  # type: ignore[assignment]  # hides tuple.count, which is not used
    weight: float = 1.0
    is_local: bool = False


class StepPosition(NamedTuple):
    """The position of a micro-batch in the training run.

    Attributes:
        epoch: from 1.
        update: number of the optimizer step, from 0, over the whole run.
        total_updates: optimizer steps of the whole run.
        micro: number of the micro-batch within the step, from 0.
        epochs_left: epochs after this one; None: unknown.
        learning_rate: rate of the step by the run's schedule, which a group's own rate may be a part of.
    """

    epoch: int
    update: int
    total_updates: int
    micro: int = 0
    epochs_left: int | None = None
    learning_rate: float = 0.0

    def compute_progress(self, first_epoch: int = 1) -> float:
        """Return the share of the steps from the start of ``first_epoch`` to the run's end that came before this one.

        It is below 0 before that epoch. Raises TypeError if ``epochs_left`` is unknown.
        """
        before = (first_epoch - 1) * self.total_updates / (self.epoch + self.epochs_left)  # type: ignore[operator]
        return (self.update - before) / (self.total_updates - before)


class EvaluationStep(NamedTuple):
    """The objects that an evaluation adds its batches to.

    Attributes:
        metrics: the metrics of this rank, from ``build_metrics``.
        writer: None: predictions are not written. Otherwise its ``add`` takes, once for each batch, the result of
            ``predict_step`` and the ground truth of each sample, for ``PredictionWriter.write``.
        epoch: the last epoch trained, from 1; None if nothing is trained.
        keeps_records: whether the report's figures are made from this evaluation.
    """

    metrics: Any
    writer: Any = None
    epoch: int | None = None
    keeps_records: bool = False


class ExportParts(NamedTuple):
    """Description of an exported model, in plain values that can be written to a file.

    Attributes:
        channels: channels of the input, float32 (batch, channels, ...).
        about: how the input is prepared and what the outputs mean, by name. An evaluation of the exported model
            compares "preprocessing", steps by name or a text, with the one here. For -input=uint8, the steps
            have a "layout", and there are "mean" and "standard_deviation" of the channels.
        size: size of the input's axes after the channels; None: the model's ``image_size``.
        is_any_size: whether the input's height and width are free where the network can be converted so.
        input_name: name of the input.
        example: arrays for testing another program: "input", (1, channels, *size), and the data it was prepared from.
            The outputs for it are added.
        paddlex: content of PaddleX's ``inference.yml`` for this model without its name; None: PaddleX cannot read such
            a model.
        output_names: names of the outputs; empty: one output, of a classifier or of heatmaps.
        output_shape: shape of the only output without the batch axis, with None for any length; None: unknown.
        sizes_name: name of a second input, int64 (batch, 2), width and height of the images as stored; None: there is
            none.
        is_exclusive: whether classes exclude one another, so that the softmax of the only output are probabilities.
        choose: returns which labels are chosen, bool (n, classes), by the only output, float (n, classes), if classes
            do not exclude one another; None: those above 0.
        difference: compares expected with computed outputs, both in the order of ``output_names``; returns the relative
            difference and a text that says what it is relative to. None: the largest absolute difference.
    """

    channels: int
    about: dict[str, Any]
    size: tuple[int, ...] | None = None
    input_name: str = "images"
    example: Mapping[str, np.ndarray] = {}
    paddlex: dict[str, Any] | None = None
    output_names: tuple[str, ...] = ()
    output_shape: tuple[int | None, ...] | None = None
    sizes_name: str | None = None
    is_exclusive: bool = True
    choose: Callable[[np.ndarray], np.ndarray] | None = None
    difference: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], tuple[float, str]] | None = None
    is_any_size: bool = False
