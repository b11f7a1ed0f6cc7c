"""What features ask of a task: one protocol for each feature.

``Task`` has what training and evaluation need. What one command or feature asks in addition is an aspect of the task,
which ``aspects.get_aspect`` finds. If a task lacks it, a command that needs it says so, and a run continues without the
feature.

| protocol | asked by |
|---|---|
| ``LogContributor`` | log of a run, ``doctor`` |
| ``ParameterGrouping`` | optimizer |
| ``Recomputable`` | TRAIN.RECOMPUTE |
| ``Capturable`` | TRAIN.CAPTURE |
| ``FeatureCaching`` | training and evaluation of probes |
| ``StateKeeping`` | training, checkpoints |
| ``ModelChecking`` | -show_config |
| ``CheckpointMatching`` | -pretrained, -resume, ``evaluate`` |
| ``Predictable`` | ``predict``, SAVE_PREDICTIONS |
| ``Ensembling`` | ``predict`` with several runs |
| ``AnnotationMatching`` | ``predict -annotations`` |
| ``DatasetSaving`` | ``predict -save_as`` |
| ``Exportable`` | ``export``, evaluation of exported files |
| ``Reportable`` | report of a run |
| ``Drawable`` | ``inspect data``, ``compare`` |
| ``Checkable`` | ``doctor`` |

A task itself has the methods of these, if it needs them:

| protocol | asked by |
|---|---|
| ``SampleChecking`` | loader processes, ``predict``, ``doctor`` |
| ``Restorable`` | ``predict``, ``export`` |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import paddle

from ..runtime.transfers import batch_to_device
from .aspects import get_aspect
from .dataset import TransformedDataset
from .figures import Color, Figure
from .prediction import ArrayMakers, CheckpointMeta, InputSamples, PredictionWriter, Row
from .sample_checks import require_finite
from .step_types import ExportParts
from .task import Task
from .task_state import TaskState

CaptionedImage = tuple[np.ndarray, str]  # an image, uint8 (height, width[, 3]), and its caption
SAME_SETTINGS = "use the same settings"  # what to do about other preprocessing


@runtime_checkable
class SampleChecking(Protocol):
    """Checks samples: NaN has a meaning in them, or they have labels. Others must have finite numbers only.

    Asked for in ``core/tasks/protocols.py``.
    """

    def check_sample(self, sample: Any) -> None:
        """Check a sample of ``TransformedDataset.sample`` before it is used, in training and in evaluation.

        Called in the loader process. The caller adds the sample's index, description and rank to the message. Raises
        BadSample: the sample must not be used; the message says why.
        """


@runtime_checkable
class Restorable(Protocol):
    """Works with trained weights alone, without the data that they were trained on.

    Asked for in ``core/tasks/protocols.py``, ``core/inference/changed_keys.py``.
    """

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Store values that would follow from the training data, when trained weights are used on other data.

        Called once in the parent process, before anything else and in place of ``build_dataset``.
        """


class LogContributor:
    """Adds lines to the log of a run.

    Asked for in ``core/tasks/protocols.py``, ``core/engine/hooks.py``, ``core/engine/startup_log.py``,
    ``core/inference/evaluation.py``, ``extensions/debug/doctor_checks.py``.
    """

    def describe_samples(self, dataset: TransformedDataset) -> str | None:
        """Describe the content of a split for the first log lines; None: only the number of samples is known."""
        return None

    def count_classes(self, dataset: TransformedDataset) -> Mapping[str, int] | None:
        """Count the samples, or objects, of each class of a split for the run's record; None if that is not known."""
        return None

    def finish_epoch(self) -> list[str]:
        """Return log lines for the main process; called on every rank after an epoch's last step."""
        return []

    def evaluation_lines(self) -> list[str]:
        """Return log lines after an evaluation without training, in addition to its values.

        Called on every rank, for the samples that it has evaluated; the main process logs its own lines.
        """
        return []


class ParameterGrouping(ABC):
    """Chooses the weight decay and the learning rate of each parameter, and when it is frozen.

    Other tasks have the engine's groups, without decay for biases, norms and the model's ``no_weight_decay()``.
    Asked for in ``core/engine/training_state.py``.
    """

    @abstractmethod
    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        """Group the parameters of the bare model.

        Returns:
            Groups ``{"names": [...], "weight_decay": float, "learning_rate": rate}``. Without "weight_decay", biases,
            norms and what the model exempts do not decay. A learning rate that is a number multiplies the scheduled
            rate (timm's ``lr_scale``). A function gets the ``StepPosition`` of each step and returns the rate itself,
            or None in steps in which the group is frozen; at a rate of 0 its moments still change. It returns the same
            for the same position: all ranks and a resumed run call it. None in place of a rate, or no group, freezes a
            parameter for the whole run. With ``"second_warmup": updates`` parameters wait for the end of the warm-up,
            and then have a warm-up of their own.
        """


class Recomputable(ABC):
    """Recomputes activations of a model in the backward pass. Asked for in ``core/engine/training_state.py``."""

    @abstractmethod
    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the layers whose activations TRAIN.RECOMPUTE recomputes; each maps tensors to a tensor.

        Raises:
            UserError: the configured model has no such layers.
        """


class Capturable(ABC):
    """Says whether a graph can repeat its passes.

    Asked for in ``core/engine/captured_passes.py``, ``core/engine/trainer.py``.
    """

    @abstractmethod
    def find_obstacle(self) -> str:
        """Return why captured passes would not repeat a step, or an empty text.

        Passes can be captured if ``train_step`` reads nothing on the host, copies no array to the device, and takes all
        that changes from step to step from its batch or from ``enter_value``. It is asked in training, once the model
        is built.
        """

    def use_one_shape(self) -> None:  # noqa: B027 - a task whose batches have one shape need not implement it
        """Let all batches have one shape, if the task can; called before the first batch. By default, do nothing."""


class FeatureCaching(ABC):
    """Computes values of frozen layers once, before training or evaluation. Asked for in ``core/engine/trainer.py``."""

    @abstractmethod
    def on_weights_loaded(
        self,
        model: paddle.nn.Layer,
        datasets: Mapping[str, TransformedDataset],
        cache_features: Callable[..., np.ndarray],
    ) -> None:
        """Compute values that depend on frozen layers of the bare model only.

        Called on every rank once the model has the weights of -pretrained or -resume, before any sample is read.
        ``cache_features`` is the run's ``engine.feature_cache.FeatureCache``, which computes features of all samples
        once.
        """


class StateKeeping(ABC):
    """Keeps state that changes in training besides the weights. Asked for in ``core/engine/training_state.py``."""

    @abstractmethod
    def build_state(self, model: paddle.nn.Layer, owned: set[str] | None) -> TaskState:
        """Build the state of a training run; called once on every rank, before weights are loaded.

        Args:
            model: the bare model.
            owned: with TRAIN.SHARDING, names of the model's float32 state that this rank saves in ``average``; None:
                all.

        Raises:
            UserError: a setting rules out the state.
        """


class ModelChecking(ABC):
    """Checks the configured model without building it. Asked for in ``core/commands/train.py``."""

    @abstractmethod
    def check_model(self) -> list[str]:
        """Check the configured model without data, weights or memory; return log lines about what a run still lacks.

        Called by -show_config. Raises UserError: ``build_model`` would reject the configuration.
        """


class CheckpointMatching:
    """Knows more about the fit of a checkpoint than equal settings. Asked for in ``core/engine/compatibility.py``."""

    #: names of other tasks whose trained weights this task can load
    compatible_tasks: tuple[str, ...] = ()

    def mismatch_hint(self, name: str, trained_value: object) -> str:
        """Return what to do if weights were trained with another value of the setting ``name`` in ``signature``."""
        return SAME_SETTINGS


class Predictable(ABC):
    """Predicts inputs without labels.

    Asked for in ``core/inference/evaluation.py``, ``core/inference/trained.py``, ``core/tasks/protocols.py``.
    """

    #: input in memory that ``Predictor`` predicts when it is opened, so that its first call is fast; None: files only
    example_input: Any = None

    @abstractmethod
    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[Any]:
        """Predict each sample of a batch without using labels. Called without gradients, in evaluation mode.

        Args:
            model: the bare model.
            batch: tensors on the device by name, from ``collate``.

        Returns:
            One prediction per sample, in the batch's order, as numpy arrays and plain values.
        """

    @abstractmethod
    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open inputs without labels for a prediction, in their order; called after ``load_meta``.

        Inputs that are missing or cannot be listed are in the result's ``unreadable``; remarks are in its ``notices``.

        Args:
            inputs: paths as the user wrote them, such as files, folders and archives; from Python also other inputs
                that the task supports, such as images in memory.
            cache_folder: existing folder for indices of paths and similar files, which are needed until the prediction
                ends. If no input is a path, nothing may be written to it.

        Raises:
            UserError: the task cannot predict such inputs.
        """

    @abstractmethod
    def prediction_rows(self, prediction: Any) -> list[Row]:
        """Convert the prediction of one input to rows of the output tables, usually one.

        All rows of a task have the same names, and values that JSON and CSV can hold. The input's name is added in
        front. Raises BadSample: the outputs are not finite; the input is then listed as unreadable.
        """

    def prediction_arrays(self, index: int, prediction: Any, samples: InputSamples) -> ArrayMakers:
        """Return a function for each array that ``Predictor`` gives with the rows of an input, by its name.

        By default, there are none. The functions, such as from ``pack_array``, are kept as long as the rows, can be
        pickled and make an array when they are called. The files of ``prediction_writer`` have the same values.
        """
        return {}

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Build the writer of files other than the rows of ``predict``, also for an evaluation with SAVE_PREDICTIONS.

        Called on each rank, and in the main process at the end. By default, nothing is written. ``folder`` exists
        before the first ``write``; ``dataset`` has the inputs of ``open_inputs``, or the evaluated samples.
        """
        return PredictionWriter()


class EnsembleMember(NamedTuple):
    """A model in evaluation mode on the device, and the task of its weights with their settings."""

    task: Any
    model: paddle.nn.Layer


class Ensembling(Predictable):
    """Predicts with several models. Asked for in ``core/inference/ensemble.py``."""

    @abstractmethod
    def predict_mean(self, members: Iterable[EnsembleMember], batch: dict[str, Any]) -> list[Any]:
        """Predict as ``predict_step`` does, by the mean of the models' probabilities.

        ``members`` can be iterated several times; each model is on the device until the next one is asked for.
        """


class AnnotationMatching(Predictable):
    """Gives prediction files the ids of an annotation file. Asked for in ``core/commands/predict.py``."""

    @abstractmethod
    def load_annotation_ids(self, annotations: str, samples: InputSamples) -> list[str]:
        """Read the ids of images and classes, matched by name, from a file of annotations, for ``prediction_writer``.

        Called in the parent process, after ``open_inputs``. Returns lines for the user. Raises UserError: the file
        cannot be read or lacks ids.
        """


class DatasetSaving(Predictable):
    """Saves predictions as a data set for labelling tools. Asked for in ``core/commands/predict.py``."""

    @abstractmethod
    def save_predictions_as(self, layout: str) -> None:
        """Let ``prediction_writer`` also write a data set of the predictions: "coco", "yolo" or "voc".

        Called in the parent process, after ``open_inputs``.
        """


class Exportable(ABC):
    """Exports models. Asked for in ``extensions/export/descriptions.py``."""

    #: the key that ``export -image_size`` sets: one number, or height and width
    image_size_key = "DATA.IMAGE_SIZE"

    @abstractmethod
    def export_parts(self) -> ExportParts:
        """Describe an exported model; called after ``load_meta``. Raises a UserError if it cannot be exported."""

    def check_export(self) -> None:  # noqa: B027 (optional)
        """Raise a UserError if the settings ask for what an exported model does not compute; by default, do nothing."""

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return a trained model as a function from tensors to one or several tensors; by default, the model itself."""
        return model

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return the model that ``eval_step`` takes, from a function of ``exported_model``; by default, the same."""
        return function


class Reportable(ABC):
    """Makes figures for the report of a run.

    The task's ``eval_step`` returns records if ``step.keeps_records``: one small picklable record per sample, in the
    batch's order; None for a sample without one. The records of a whole split are gathered on the main process and
    should stay below 50 MB: a few numbers for each image, or data of the scenes that will be shown.
    Asked for in ``core/inference/evaluation.py``, ``extensions/report/hook.py``.
    """

    @abstractmethod
    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> Sequence[Figure]:
        """Build tables, images and point sets about an evaluation, most important first.

        Called in the main process only, without gradients and with the model in evaluation mode, while the other ranks
        wait. An error here costs the report its figures, nothing else.

        Args:
            dataset: the evaluated samples; some may be read again.
            records: index in ``dataset`` and record, ordered by index, from all ranks, without records that are None.
            model: the evaluated model, for figures that need further forward passes.
        """


class Drawable(ABC):
    """Draws samples. Asked for in ``core/commands/inspect_data.py``, ``extensions/compare/images.py``."""

    @abstractmethod
    def visualize_batch(self, dataset: Any, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Draw the model's input for each training sample of a batch from ``collate``, in ``epoch``, from 1."""

    @abstractmethod
    def visualize_eval_samples(self, dataset: Any, indices: Sequence[int]) -> list[CaptionedImage]:
        """Draw samples of any split as an evaluation prepares them, not by ``sample``, which may augment them."""

    def image_legend(self) -> Sequence[tuple[str, Color]]:
        """Return what the colors in these images mean: names with red, green and blue. Called once data are open."""
        return ()

    def summarize_samples(self, dataset: TransformedDataset) -> Iterable[str]:
        """Return lines about the content of training samples; may read many samples."""
        return ()


class Checkable:
    """Lets ``doctor`` check labels and first losses.

    Asked for in ``extensions/debug/doctor_checks.py``, ``extensions/debug/doctor_updates.py``.
    """

    def get_labels(self, dataset: Any) -> np.ndarray | None:
        """Return the class of each sample, int (samples,), if it is known without reading samples."""
        return None

    def labels_in(self, sample: Any) -> np.ndarray | None:
        """Return the classes in a sample, int of any shape, without ignored labels; None if labels are not classes."""
        return None

    def expected_losses(self) -> dict[str, float]:
        """Return the expected loss terms at initialization (uniform predictions), by name."""
        return {}


def get_sample_check(task: Task) -> Callable[[Any], None]:
    """Return the function that checks a sample: ``check_sample`` of the task, or ``require_finite``."""
    return task.check_sample if isinstance(task, SampleChecking) else require_finite


def load_meta(task: Task, meta: CheckpointMeta) -> None:
    """Let a task store what follows from the training data of weights, if anything does."""
    if isinstance(task, Restorable):
        task.load_meta(meta)


def describe_samples(task: Task, dataset: TransformedDataset) -> str:
    """Describe the size of a split for the log: as the task does, or by the number of samples."""
    log = get_aspect(task, LogContributor)
    return (log and log.describe_samples(dataset)) or count_samples(task, dataset)


def count_samples(task: Task, dataset: TransformedDataset) -> str:
    """Return the number of samples with their noun, such as "480 images"."""
    return f"{len(dataset):,} {get_sample_name(task, dataset)}"


def get_sample_name(task: Task, dataset: TransformedDataset) -> str:
    """Return the plural noun of a dataset's samples, which may differ from that of training samples."""
    return getattr(dataset, "sample_name", "") or task.traits.sample_name


def predict_again(task: Task, dataset: TransformedDataset, index: int, model: paddle.nn.Layer) -> Any:
    """Read a sample again, without augmentation, and return its prediction, for figures; None if the task has none."""
    predicting = get_aspect(task, Predictable)
    if predicting is None:
        return None
    batch = task.collate([dataset.sample(index, np.random.default_rng(0))])
    return predicting.predict_step(model, batch_to_device(batch))[0]
