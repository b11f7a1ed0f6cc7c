"""The contract between a data modality (images, points, volumes) and the engine, which use only this of each other."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle

from ..registry.required_methods import missing_method
from ..settings.every_run import RunSettings
from .dataset import TransformedDataset
from .metrics import Metrics
from .step_types import EvaluationStep, LossTerm, StepPosition, TaskTraits

Records = Callable[[], Sequence[Any]]  # returns one record per sample of a batch, see ``protocols.Reportable``


class Task:
    """Base class of all tasks: what training and evaluation need.

    A task implements ``build_dataset``, ``collate``, ``build_model``, ``train_step``, ``build_metrics`` and
    ``eval_step``, and sets ``best_metric``. It sets ``normalizers_per_sample`` of its ``traits``, or implements
    ``loss_normalizers`` and sets ``normalizer_names``.

    What one feature asks in addition, such as a prediction or an export, are aspects of the task (``aspects``): classes
    with the methods of a protocol (``protocols``), next to the task's.

    A task is built in the parent process from the frozen configuration. There, ``build_dataset`` is called for each
    split and may store values that it derives from the data. Then the task is pickled to the workers, so it must be
    small. Each worker calls ``build_model`` once, then the steps. Its loader processes, which are forked from it, call
    ``collate`` and ``loss_normalizers``.

    Args:
        config: the frozen configuration.

    Attributes:
        config: the frozen configuration.
    """

    #: log lines about the task itself; datasets have their own
    notices: Sequence[str] = ()
    #: facts about batches and steps; a task may replace them once its configuration or its data define them
    traits = TaskTraits()
    #: name of the metric that chooses the best checkpoint, which ``Metrics.compute`` returns, and whether larger values
    #: are better
    best_metric: tuple[str, bool] = ("loss", False)
    #: name of a protocol -> class of the aspect, or its "module:Class", where ".module" is next to the task's
    aspects: Mapping[str, str | type]
    reads_options: bool  # of the network; ``model_factory.join_options`` sets it

    def __init__(self, config: RunSettings) -> None:
        self.config = config
        self.notices: list[str] = []

    @abstractmethod
    def build_dataset(self, split: str, cache_folder: Path) -> TransformedDataset:
        """Build the dataset of a split; log lines about it go to the dataset's ``notices``.

        A user's task may return anything with a length and samples by index, such as a ``paddle.io.Dataset``.

        Args:
            split: "train", "val", or another split to evaluate (DATA.SPLIT).
            cache_folder: folder for files that are made once, such as indices and decoded volumes.

        Raises:
            UserError: the data are missing or damaged, or do not fit the configuration.
        """

    @abstractmethod
    def collate(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Combine samples of ``TransformedDataset.sample`` into a batch. Runs in the loader process.

        Returns:
            Numpy arrays by name, usually with the batch as first axis.
        """

    @abstractmethod
    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model, usually a ``Model``, with its initial weights, equal on every rank.

        If no data are open, as for an export, ``num_classes`` is given; otherwise it follows from the data. Raises
        UserError: the configuration does not describe a model.
        """

    def signature(self, dataset: TransformedDataset | None = None) -> dict[str, Any]:
        """Return what a checkpoint remembers of the preprocessing or of the samples of a split, as plain YAML values.

        Each checkpoint stores both in ``about.yaml``. Preprocessing settings are those that the weights depend on, such
        as orientation, mean and range of colors: evaluating or resuming with other values is an error. Values about
        samples identify them, wherever they are stored: a resumed run with other values trains differently, and an
        evaluation must have the same classes. Called on every rank, after ``build_model``.

        Args:
            dataset: the samples of a split; None: the preprocessing.

        Returns:
            Of the preprocessing, settings by name; by default, there are none. Of samples, "samples" (their number),
            and "classes" (names in the order of their labels), "number of classes" and "labels" (a digest), each if
            known.
        """
        return {} if dataset is None else {"samples": len(dataset)}

    def loss_normalizers(self, batch: dict[str, Any]) -> Mapping[str, int | float]:
        """Return the normalizers of loss terms that are known before the forward pass, for one batch of ``collate``.

        Runs in the loader process. Not called if the traits have ``normalizers_per_sample``.

        Returns:
            Numbers by term name, which may be fractions (class weights), with the names in the traits'
            ``normalizer_names`` for every batch; by default, there are none.
        """
        if self.traits.normalizer_names:
            raise missing_method(type(self), "loss_normalizers")
        return {}

    @abstractmethod
    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the loss terms of one micro-batch by name, the same names for every batch.

        It must call ``model(...)`` itself, or gradients are not synchronized. On a GPU, it may be called again with the
        same ``step``; any counter of the task must count such a step once.

        Args:
            model: the data-parallel model.
            batch: tensors on the device by name, from ``collate``.
            step: position of the micro-batch in the run.
        """

    @abstractmethod
    def build_metrics(self) -> Metrics:
        """Build empty metrics; called on each rank for each evaluation."""

    @abstractmethod
    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add one batch to ``step.metrics``, and its predictions to ``step.writer`` if there is one.

        Called without gradients, in evaluation mode. Ranks may have different numbers of batches, so this method must
        not communicate.

        Args:
            model: the bare model.
            batch: tensors on the device by name, from ``collate``.
            step: collects the results.

        Returns:
            None; or, if ``step.keeps_records``, a function that returns the records of this batch, see
            ``protocols.Reportable``. The engine calls it on this rank after all batches. Until then it must hold
            little memory. It may wait for the device, which this method should not.
        """
