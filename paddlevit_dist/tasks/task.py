"""The contract between a subject (images, points, volumes) and the engine; they use nothing else of each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..registry import require_derived, resolve
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from .dataset import TransformedDataset
from .figures import Figure
from .metrics import Metrics
from .prediction import CheckpointMeta, InputSamples, PredictionWriter, Row
from .sample_checks import require_finite
from .step_types import EvaluationStep, ExportParts, LossTerm, StepPosition

Labeled = tuple[np.ndarray, str]  # an image, uint8 (height, width[, 3]), and its caption
Records = Callable[[], Sequence[Any]]  # returns one record per sample of a batch, see ``Task.figure_records``


class Task:
    """Base class of all tasks: methods take arguments and return values, and no other code sets an attribute of a task.

    A task is built in the parent process from the frozen configuration. There, ``build_dataset`` is called for each
    split and may store values that it derives from the data. Then the task is pickled to the workers, so it must be
    small. Each worker calls ``build_model`` once, then the steps. Its loader processes, which are forked from it, call
    ``collate`` and ``counts``.

    Args:
        config: the frozen configuration.

    Attributes:
        config: the frozen configuration.
    """

    #: plural noun for samples in log lines, such as "images/s"
    sample_name = "samples"
    #: log lines about the task itself; datasets have their own
    notices: Sequence[str] = ()
    #: whether the task implements ``images`` and ``evaluation_images``
    draws_samples = False
    #: whether ``paddle.jit.to_static`` can trace its models
    compiles = False
    #: whether all batches except an epoch's last have one shape, so that cuDNN may search for its fastest algorithms
    fixed_shapes = False
    #: normalizers of loss terms per sample, by term name, if they are constant; they then need no communication.
    #: None: ``counts`` returns them for each batch.
    counts_per_sample: dict[str, int] | None = None
    #: names of the normalizers that ``counts`` returns
    count_names: tuple[str, ...] = ()
    #: whether ``train_step`` itself communicates with the other ranks; then every rank must make the same steps
    communicates_in_step: bool = False
    #: keys with the values that turn off random draws of each rank and losses over a rank's whole batch, so that
    #: -selftest can compare different numbers of ranks
    rank_local_options: Mapping[str, Any] = {}
    #: default of TRAIN.BATCH_NORM: "sync" or "local"
    batch_norm: str = "local"
    #: steps after which unused GPU memory is returned to the device, for batches that differ in size; 0: never
    empty_cache_freq = 0
    #: name of the metric that chooses the best checkpoint, and whether larger values are better
    best_metric: tuple[str, bool] = ("loss", False)
    #: whether the task implements ``figure_records`` and ``figures``, for the report of a run
    makes_figures = False
    #: names of other tasks whose trained weights this task can load
    compatible_tasks: tuple[str, ...] = ()
    #: the key that ``export -image_size`` sets: one number, or height and width
    image_size_key = "DATA.IMAGE_SIZE"

    def __init__(self, config: RunSettings) -> None:
        self.config = config
        self.notices: list[str] = []

    def trains_on(self, split: str) -> bool:
        """Return whether the samples of a split are augmented: "train", unless it is the split to evaluate."""
        return split == "train" and not self.config.EVAL

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> TransformedDataset:
        """Build the samples of a split, with remarks about them in ``notices``.

        Args:
            split: "train", "val", or another split to evaluate (DATA.SPLIT).
            cache_folder: folder for files that are made once, such as indices and decoded volumes.

        Raises:
            UserError: the data are missing or damaged, or do not fit the configuration.
        """
        raise NotImplementedError

    def check_sample(self, sample: Any) -> None:
        """Check a sample before it is used, and raise an error if it must not be.

        Called in the loader process for each sample that is read, in training and in evaluation. The caller adds the
        sample's index, description and rank to the message. By default, all floating-point numbers must be finite. A
        task overrides this if NaN has a meaning in its samples, or if they have labels.

        Args:
            sample: the sample, as ``TransformedDataset.sample`` returned it.

        Raises:
            BadSample: the sample must not be used; the message says why.
        """
        require_finite(sample)

    def collate(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Combine samples into a batch. Runs in the loader process.

        Args:
            samples: samples as ``TransformedDataset.sample`` returned them.

        Returns:
            Numpy arrays by name, usually with the batch as first axis.
        """
        raise NotImplementedError

    def describe_samples(self, samples: Any) -> str:
        """Describe the size of a split for the first log lines: the number of samples, by class if known."""
        return f"{len(samples):,} {self.sample_name}"

    def reading_advice(self, samples: Any) -> Sequence[str]:
        """Return ways to speed up reading these training samples, apart from more loader processes.

        They are parts of a sentence, such as keys to set or commands to run. They are shown once if a run waits for its
        data.
        """
        return ()

    def get_classes(self, samples: Any) -> np.ndarray | None:
        """Return the class of each sample, int (samples,), if it is known without reading samples; for ``doctor``."""
        return None

    def classes_in(self, sample: Any) -> np.ndarray | None:
        """Return the classes in a sample that was read, for ``doctor``.

        Returns:
            int of any shape, without ignored labels; None if labels are not classes.
        """
        return None

    def dataset_signature(self, samples: Any) -> dict[str, Any]:
        """Return values that identify the samples of a split, wherever they are stored, as plain YAML values.

        Each checkpoint stores them. A resumed run with other values trains differently; an evaluation must have the
        same classes.

        Args:
            samples: the samples of a split.

        Returns:
            "samples" (their number), "classes" (names in the order of their labels), "number of classes" and "labels"
            (a digest), each if known.
        """
        return {"samples": len(samples)}

    def images(self, samples: Any, batch: dict[str, Any], epoch: int) -> list[Labeled]:
        """Draw the model's input for each sample of a batch, for ``inspect data``.

        Args:
            samples: the training samples.
            batch: the batch, from ``collate``.
            epoch: the epoch it belongs to, from 1.
        """
        raise NotImplementedError

    def image_legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """Return what the colors in these images mean: names with red, green and blue. Called once data are open."""
        return ()

    def summarize_samples(self, samples: Any) -> Iterable[str]:
        """Return lines for ``inspect data`` about the content of training samples; may read many samples."""
        return ()

    def evaluation_images(self, samples: Any, indices: Sequence[int]) -> list[Labeled]:
        """Draw samples as an evaluation prepares them, for ``inspect data``.

        Args:
            samples: the evaluation samples.
            indices: indices of the samples to draw.
        """
        raise NotImplementedError

    # ---- model -------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model with its initial weights, equal on every rank.

        Args:
            num_classes: number of classes if no data are open, as for an export; None: it follows from the data.

        Returns:
            A Paddle layer, usually a ``Model``.

        Raises:
            UserError: the configuration does not describe a model.
        """
        raise NotImplementedError

    def on_weights_loaded(
        self,
        model: paddle.nn.Layer,
        datasets: Mapping[str, TransformedDataset],
        cache_features: Callable[..., np.ndarray],
    ) -> None:
        """Compute values that depend on frozen layers only. By default, do nothing.

        Called on every rank once the model has the weights of -pretrained or -resume, before any sample is read.

        Args:
            model: the bare model.
            datasets: samples by split.
            cache_features: ``engine.feature_cache.FeatureCache`` of this run, which computes features of all samples
                once.
        """

    def check_model(self) -> list[str]:
        """Check the configured model without data, weights or memory; called by -show_config.

        Returns:
            Lines about files that a run still needs.

        Raises:
            UserError: ``build_model`` would reject the configuration.
        """
        return []

    def preprocess_signature(self) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, as a dict that YAML can hold.

        Examples are orientation, mean and range of colors. Each checkpoint stores them in ``about.yaml``; evaluating or
        resuming with other values is an error. Called on every rank, after ``build_model``.
        """
        return {}

    def mismatch_hint(self, name: str, theirs: Any) -> str:
        """Return what the user can do if weights were trained with another value in ``preprocess_signature``.

        Args:
            name: name of the setting.
            theirs: the value that the weights were trained with.
        """
        return "use the same settings"

    # ---- training ------------------------------------------------------------------------------------------------

    def counts(self, batch: dict[str, Any]) -> dict[str, int]:
        """Return the normalizers of loss terms that are known before the forward pass, for one batch.

        Runs in the loader process. Not called if ``counts_per_sample`` is set.

        Args:
            batch: the batch, from ``collate``.

        Returns:
            Numbers by term name, with the names in ``count_names`` for every batch.
        """
        raise NotImplementedError

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the loss terms of one micro-batch.

        It must call ``model(...)`` itself, or gradients are not synchronized. On a GPU, it may be called again with the
        same ``step``; any counter of the task must count such a step once.

        Args:
            model: the data-parallel model.
            batch: tensors on the device by name, from ``collate``.
            step: position of the micro-batch in the run.

        Returns:
            Loss terms by name, the same names for every batch.
        """
        raise NotImplementedError

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]] | None:
        """Group the parameters by weight decay and learning rate.

        Args:
            model: the bare model.

        Returns:
            Groups ``{"names": [...], "weight_decay": float, "learning_rate": factor}``; None: the engine's groups,
            without decay for biases, norms and the parameters in the model's ``no_weight_decay()``.
        """
        return None

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the layers whose activations TRAIN.RECOMPUTE recomputes; each maps tensors to a tensor.

        Raises:
            UserError: the task does not support recomputation.
        """
        raise UserError(f"TRAIN.RECOMPUTE: task {self.config.TASK} cannot recompute; remove TRAIN.RECOMPUTE")

    def expected_losses(self) -> dict[str, float]:
        """Return the loss terms of an untrained model, which prefers no class, by name; for ``doctor``."""
        return {}

    def finish_epoch(self) -> list[str]:
        """Return log lines for the main process; called on every rank after an epoch's last step."""
        return []

    # ---- evaluation ----------------------------------------------------------------------------------------------

    def build_metrics(self) -> Metrics:
        """Build empty metrics; called on each rank for each evaluation."""
        raise NotImplementedError

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
            None; or, if ``step.keeps_records``, a function that returns the ``figure_records`` of this batch, which
            saves a second forward pass. The engine calls it on this rank after all batches. Until then it must hold
            little memory. It may wait for the device, which this method should not.
        """
        raise NotImplementedError

    def evaluation_lines(self) -> list[str]:
        """Return log lines after an evaluation without training, in addition to its values.

        Called in the main process, for the samples that this process has evaluated.
        """
        return []

    def figure_records(self, batch: Mapping[str, np.ndarray], predictions: Sequence[Any]) -> Sequence[Any]:
        """Return the data that the figures need about each sample of a batch.

        Called on each rank, in the evaluation that figures are made from, for batches for which ``eval_step`` returned
        None. The records of a whole split are gathered on the main process and should stay below 50 MB: a few numbers
        for each image, or data of the scenes that will be shown.

        Args:
            batch: arrays by name, from ``collate``; each is copied from the device when it is read.
            predictions: the result of ``predict_step`` for the batch.

        Returns:
            One small picklable record per sample, in the batch's order; None for a sample without one.
        """
        raise NotImplementedError

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> Sequence[Figure]:
        """Build tables, images and point sets about an evaluation, most important first.

        Called in the main process only, without gradients and with the model in evaluation mode, while the other ranks
        wait. An error here costs the report its figures, nothing else.

        Args:
            samples: the evaluated samples; some may be read again.
            records: index in ``samples`` and record, ordered by index, from all ranks, without records that are None.
            model: the evaluated model, for figures that need further forward passes.
        """
        raise NotImplementedError

    # ---- prediction ----------------------------------------------------------------------------------------------

    def predict_step(self, model: Any, batch: dict[str, Any]) -> list[Any]:
        """Predict each sample of a batch without using labels. Called without gradients, in evaluation mode.

        Args:
            model: the bare model.
            batch: tensors on the device by name, from ``collate``.

        Returns:
            One prediction per sample, in the batch's order, as numpy arrays and plain values.
        """
        raise NotImplementedError

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Store values that would follow from the training data, when trained weights are used on other data.

        Called once in the parent process, before anything else and in place of ``build_dataset``.

        Args:
            meta: metadata of the checkpoint.
        """

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open inputs without labels for a prediction.

        Called after ``load_meta``. Inputs that are missing or cannot be listed are in the result's ``unreadable``;
        remarks are in its ``notices``.

        Args:
            inputs: paths as the user wrote them, such as files, folders and archives; from Python also other inputs
                that the task supports, such as images in memory.
            cache_folder: existing folder for indices and similar files, which are needed until the prediction ends.

        Returns:
            The inputs, in their order.

        Raises:
            UserError: the task cannot predict such inputs.
        """
        raise UserError(f"predict: task {self.config.TASK} does not predict; use -eval with SAVE_PREDICTIONS true")

    def load_annotation_ids(self, annotations: str, samples: InputSamples) -> list[str]:
        """Read the ids of images and classes, matched by name, from a file of annotations, for ``prediction_writer``.

        Called in the parent process, after ``open_inputs``.

        Args:
            annotations: path of the file.
            samples: the inputs.

        Returns:
            Lines for the user.

        Raises:
            UserError: the file cannot be read or lacks ids; by default: the task writes no ids.
        """
        raise UserError("predict: -annotations is for models that find boxes; remove it")

    def save_predictions_as(self, layout: str) -> None:
        """Let ``prediction_writer`` also write a data set of the predictions, for labelling tools.

        Called in the parent process, after ``open_inputs``.

        Args:
            layout: "coco", "yolo" or "voc".

        Raises:
            UserError: the task writes no such data set; the default.
        """
        raise UserError("predict: -save_as is for models that find boxes; remove it")

    def prediction_rows(self, prediction: Any) -> list[Row]:
        """Convert the prediction of one input to rows of the output tables, usually one.

        All rows of a task have the same names, and values that JSON and CSV can hold. The input's name is added in
        front.

        Args:
            prediction: the result of ``predict_step`` for the input.

        Raises:
            BadSample: the outputs are not finite; the input is then listed as unreadable.
        """
        raise NotImplementedError

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> PredictionWriter:
        """Build the writer of files other than the rows of ``predict``, also for an evaluation with SAVE_PREDICTIONS.

        Called on each rank, and in the main process at the end. By default, nothing is written.

        Args:
            folder: existing folder for the files.
            samples: the inputs of ``open_inputs``, or the evaluated samples.
        """
        return PredictionWriter()

    # ---- export --------------------------------------------------------------------------------------------------

    def export_parts(self) -> ExportParts:
        """Describe an exported model. Called after ``load_meta``.

        Raises:
            UserError: the task's models cannot be exported.
        """
        raise UserError(f"export: task {self.config.TASK} does not support it: it has no export_parts")

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return a trained model as a function from tensors to one or several tensors; by default, the model itself."""
        return model

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return the model that ``eval_step`` takes, from a function of ``exported_model``; by default, the same."""
        return function


def make_task(config: RunSettings) -> Task:
    """Build the task that TASK names.

    Raises:
        UserError: the name is unknown, the class is not derived from ``Task``, or the configuration does not fit it.
    """
    task: Task = require_derived(resolve("task", config.TASK), Task)(config)
    return task
