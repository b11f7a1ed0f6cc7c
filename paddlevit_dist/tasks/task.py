"""The contract between a subject (images, points, volumes) and the engine: all that the two know of each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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

Number: TypeAlias = int | float | paddle.Tensor
Labeled = tuple[np.ndarray, str]  # an image, uint8 (height, width[, 3]), and its caption
Records = Callable[[], Sequence[Any]]  # gives one record per sample of a batch, see ``figure_records``


class LossTerm(NamedTuple):
    """One summed quantity of a training step.

    Attributes:
        sum: scalar tensor, added up over the micro-batch.
        count: what its mean divides by; a number, or a tensor where it exists only after the forward pass.
        weight: its weight in the loss; 0 for a quantity that is only reported.
    """

    sum: paddle.Tensor
    count: Number  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    weight: float = 1.0


class StepPosition(NamedTuple):
    """The position of a micro-batch in the training run.

    Attributes:
        epoch: from 1.
        update: from 0, over the whole run.
        total_updates: of the whole run.
        micro: number of the micro-batch within the update, from 0.
        epochs_left: after this one; None: nobody knows.
    """

    epoch: int
    update: int
    total_updates: int
    micro: int = 0
    epochs_left: int | None = None


class EvaluationStep(NamedTuple):
    """The sums that an evaluation accumulates its batches into.

    Attributes:
        metrics: what ``build_metrics`` has made on this rank.
        writer: None: predictions are not written; else its ``add`` takes, once for each batch, what ``predict_step``
            would return for it, and what is known of the truth of each sample, for ``PredictionWriter.write``.
        epoch: the last one trained, from 1; None where nothing is trained.
        keeps_records: the report's figures are made of this evaluation.
    """

    metrics: Any
    writer: Any = None
    epoch: int | None = None
    keeps_records: bool = False


class ExportParts(NamedTuple):
    """The parts of an exported model besides its weights. Values are plain: they are written beside the model.

    Attributes:
        channels: of its input, float32 (batch, channels, ...).
        about: how the input is prepared and what the outputs mean, by name.
        size: of the input behind the channels; None: the model's ``image_size``.
        input_name: of the input.
        example: arrays for somebody who wants to check a program of their own: "input", (1, channels, *size), and what
            it was prepared from. The outputs for it are added.
        paddlex: the content of PaddleX's ``inference.yml`` for this model, apart from its name; None: PaddleX has no
            reader for it.
        output_names: of the outputs; none: that of a classifier, or of heatmaps.
        output_shape: of the only output behind the batch, where None stands for any length; None: not known.
        sizes_name: of a second input, int64 (batch, 2), width and height of the pictures as they are stored; None: it
            has none.
        difference: how far the expected outputs and found ones, both as ``output_names``, are apart, as a share, and of
            what, in words; None: the largest difference of a number.
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
    difference: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], tuple[float, str]] | None = None


class Task:
    """Base class of all tasks: functions in, values out. Nothing outside sets an attribute of it.

    Built in the parent process from the frozen configuration. There ``build_dataset`` is called for each split, and may
    keep what it derives from the data; then the task is pickled to the workers, so it must be small. Each worker calls
    ``build_model`` once, then the steps; its loader processes, forked from it, call ``collate`` and ``counts``.

    Args:
        config: the frozen configuration.
    """

    #: what a sample is called where throughput is shown
    sample_name = "samples"
    #: lines for the log of the run, of the task itself; those of a split are in its samples
    notices: Sequence[str] = ()
    #: whether it can draw its samples (``images``, ``evaluation_images``)
    draws_samples = False
    #: whether its models are functions of tensors that ``paddle.jit.to_static`` can trace
    compiles = False
    #: whether its batches, but for the last of an epoch, have one shape: then cuDNN may look for its fastest algorithms
    fixed_shapes = False
    #: normalizers of loss terms, by term name, that are this many per sample: then they need no communication.
    #: None: ``counts`` says them for each batch.
    counts_per_sample: dict[str, int] | None = None
    #: names of the normalizers that ``counts`` returns
    count_names: tuple[str, ...] = ()
    #: whether ``train_step`` exchanges something with the other ranks itself: then every rank makes the same steps
    communicates_in_step: bool = False
    #: keys, with the values that switch off what each rank does by itself in a step, so that -selftest can compare
    #: different numbers of ranks: what it draws, and losses of its own batch as a whole
    rank_local_options: Mapping[str, Any] = {}
    #: what TRAIN.BATCH_NORM means when it is not set: "sync" or "local"
    batch_norm: str = "local"
    #: GPU: updates between returning unused memory to the device, for batches that differ in size; 0: never
    empty_cache_freq = 0
    #: name of the metric that chooses the best checkpoint, and whether more is better
    best_metric: tuple[str, bool] = ("loss", False)
    #: whether it makes figures for the report of a run (``figure_records``, ``figures``)
    makes_figures = False
    #: other tasks whose trained weights it starts from or evaluates
    compatible_tasks: tuple[str, ...] = ()
    #: the key that ``export -image_size`` sets: one number, or height and width where the key has two
    image_size_key = "DATA.IMAGE_SIZE"

    def __init__(self, config: RunSettings) -> None:
        self.config = config
        self.notices: list[str] = []

    def trains_on(self, split: str) -> bool:
        """Whether the samples of a split are varied at random: those of "train", unless that is what is evaluated."""
        return split == "train" and not self.config.EVAL

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> TransformedDataset:
        """The samples of "train", "val", or another split that is evaluated (DATA.SPLIT), with anything worth reporting
        in their ``notices``.

        Args:
            cache_folder: for what is made once, such as indices and decoded volumes.

        Raises:
            UserError: the data are missing or damaged, or do not fit the configuration.
        """
        raise NotImplementedError

    def check_sample(self, sample: Any) -> None:
        """Refuse a sample that must not be computed with. Called in the loader process for each sample that is read, in
        training and in evaluation; whoever calls it adds the sample's index, description and rank to the message.

        By default all floating-point numbers must be finite. A task in whose samples NaN has a meaning, or that has
        labels, overrides this.

        Raises:
            BadSample: says what is wrong with it.
        """
        require_finite(sample)

    def collate(self, samples: Sequence[Any]) -> dict[str, Any]:
        """A batch, a dictionary of numpy arrays, from a list of samples. Runs in the loader process."""
        raise NotImplementedError

    def describe_samples(self, samples: Any) -> str:
        """How many there are, by class where known: what the first lines of a run say about a split."""
        return f"{len(samples):,} {self.sample_name}"

    def reading_advice(self, samples: Any) -> Sequence[str]:
        """Say what makes these training samples come faster, besides more loader processes: parts of a sentence that
        say what to set or to call. Shown once in a run that waits for its data."""
        return ()

    def get_classes(self, samples: Any) -> np.ndarray | None:
        """The class of each sample, int (samples,), where it is known without reading them; for ``doctor``."""
        return None

    def classes_in(self, sample: Any) -> np.ndarray | None:
        """The classes in a sample that was read, int of any shape, without those that are ignored; None where labels
        are no classes. For ``doctor``."""
        return None

    def dataset_signature(self, samples: Any) -> dict[str, Any]:
        """Return what identifies the samples of a split, wherever stored, as plain YAML values by name: "samples" (how
        many), "classes" (names in the order of their numbers), "number of classes" and "labels" (a digest), each where
        known. It is kept in each checkpoint; a resumed training with others runs differently, an evaluation must
        have the classes."""
        return {"samples": len(samples)}

    def images(self, samples: Any, batch: dict[str, Any], epoch: int) -> list[Labeled]:
        """Draw what the model sees of a collated batch of training samples, for ``inspect data``."""
        raise NotImplementedError

    def image_legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """Say what the colors in these images mean: names with red, green and blue. Asked for once data are open."""
        return ()

    def about_samples(self, samples: Any) -> Iterable[str]:
        """Lines for ``inspect data`` on what these training samples hold, to choose keys by; may read many of them."""
        return ()

    def evaluation_images(self, samples: Any, indices: Sequence[int]) -> list[Labeled]:
        """The same for samples as an evaluation treats them."""
        raise NotImplementedError

    # ---- model -------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """The model with initial weights, the same on every rank.

        Args:
            num_classes: its outputs where no data were opened, as for an export; else they follow from the data.

        Raises:
            UserError: the configuration describes none.
        """
        raise NotImplementedError

    def on_weights_loaded(
        self, model: paddle.nn.Layer, datasets: Mapping[str, TransformedDataset], keep: Callable[..., np.ndarray]
    ) -> None:
        """Called on every rank once the model has the weights that -pretrained or -resume names, before a training or
        an evaluation reads any sample: compute what follows from those of its layers that stay as they are.

        Args:
            keep: ``engine.feature_cache.cache_features`` of this run, which computes rows of all samples once.
        """

    def check_model(self) -> list[str]:
        """Say what is known about the configured model without data, weights or memory: lines about what a run still
        needs. Called by -show_config.

        Raises:
            UserError: ``build_model`` would refuse the configuration.
        """
        return []

    def preprocess_signature(self) -> dict[str, Any]:
        """Everything about how samples are made that the weights have come to expect (orientation, range of
        colors, ...), as plain YAML values by name. It is kept in each checkpoint's ``about.yaml``; evaluating or
        resuming with other values is an error. Called on every rank, after ``build_model``."""
        return {}

    def mismatch_hint(self, name: str, theirs: Any) -> str:
        """Say what to do where weights were trained with the value ``theirs`` of ``name`` in
        ``preprocess_signature``."""
        return "use the same settings"

    # ---- training ------------------------------------------------------------------------------------------------

    def counts(self, batch: dict[str, Any]) -> dict[str, int]:
        """Normalizers of loss terms, by term name, that are known before the forward pass; the same names for every
        batch. Runs in the loader. Not asked for when ``counts_per_sample`` is set."""
        raise NotImplementedError

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Loss terms of one micro-batch. Must call ``model(...)`` itself, or gradients are not synchronized. On a GPU
        it may be called again with the same ``step``: what it counts besides its terms, it counts once a step."""
        raise NotImplementedError

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]] | None:
        """Groups of ``{"names": [...], "weight_decay": float, "learning_rate": factor}``; None for the engine's own:
        no decay on biases, norms and whatever the model's ``no_weight_decay()`` names."""
        return None

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """The layers whose inner values TRAIN.RECOMPUTE drops; each maps tensors to a tensor."""
        raise UserError(f"TRAIN.RECOMPUTE: task {self.config.TASK} cannot recompute; leave it out")

    def expected_losses(self) -> dict[str, float]:
        """Return what terms of the loss are for a model that prefers no class, as it should be before it is trained;
        for ``doctor``."""
        return {}

    def finish_epoch(self) -> list[str]:
        """Called on every rank when an epoch's training has ended; returns lines for the log of the main process."""
        return []

    # ---- evaluation ----------------------------------------------------------------------------------------------

    def build_metrics(self) -> Metrics:
        """Empty metrics; one on each rank for each evaluation."""
        raise NotImplementedError

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add one batch to ``step.metrics``, and what it predicts to ``step.writer`` if there is one. Called without
        gradients, in evaluation mode; ranks may have different numbers of batches, so nothing may be communicated.

        Returns:
            None; or, which saves a second forward pass where ``step.keeps_records``, a function that gives the
            ``figure_records`` of this batch. It is called on the same rank once all batches are done: what it holds
            until then must be small, and it may wait for the device, which this method should not.
        """
        raise NotImplementedError

    def evaluation_lines(self) -> list[str]:
        """Lines for the log of a run that only evaluates, once all is evaluated, beside its values; called in the main
        process, of what that process has evaluated."""
        return []

    def figure_records(self, batch: Mapping[str, np.ndarray], predictions: Sequence[Any]) -> Sequence[Any]:
        """Return what the figures need to know of each sample of a batch: one small picklable record per sample, in its
        order; None where nothing is to be kept. Those of a whole split are gathered on the main process and should stay
        below 50 MB: for images a few numbers each, for scenes only those that will be shown.

        Called on each rank, in the evaluation that figures are made of, for batches of which ``eval_step`` returns
        nothing.

        Args:
            batch: arrays by name, as ``collate`` made them; each is copied from the device when it is asked for.
            predictions: what ``predict_step`` returned for it.
        """
        raise NotImplementedError

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> Sequence[Figure]:
        """Tables, images and point sets about an evaluation, most telling first. Called in the main process only,
        without gradients and with the model in evaluation mode, while the other ranks wait; an error in here costs the
        report its figures, nothing else.

        Args:
            samples: what was evaluated; some may be read again.
            records: index in ``samples`` and record, ordered by index, of all ranks; without those that are None.
            model: the evaluated model, for what needs it again.
        """
        raise NotImplementedError

    # ---- prediction ----------------------------------------------------------------------------------------------

    def predict_step(self, model: Any, batch: dict[str, Any]) -> list[Any]:
        """One prediction for each sample of a batch, in its order, as numpy arrays and plain values. Labels are not
        looked at. Called as ``eval_step`` is."""
        raise NotImplementedError

    def load_meta(self, learned: CheckpointMeta) -> None:
        """In place of ``build_dataset`` where trained weights are used on other data: keep what would follow from the
        data that they were trained on. Called once, in the parent process, before anything else."""

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open what there is to predict in ``inputs``, without labels; anything worth telling goes to its ``notices``.

        Called after ``load_meta``. Inputs that are missing or cannot be listed are in its ``unreadable``.

        Args:
            inputs: paths as the user gave them, such as files, folders and archives; from Python also what
                else the task takes, such as images in memory.
            cache_folder: exists; for indices and the like, which are needed until the prediction ends.
        Raises:
            UserError: the task cannot predict such inputs at all.
        """
        raise UserError(f"predict: task {self.config.TASK} does not predict; use -eval with SAVE_PREDICTIONS true")

    def take_ids(self, annotations: str, samples: InputSamples) -> list[str]:
        """Let ``prediction_writer`` write the ids that a file of annotations has for inputs and classes, which are
        found in it by their names; returns lines for the user. Called in the parent process, after ``open_inputs``.

        Raises:
            UserError: the file cannot be read, or does not have them; by default: the task writes no ids.
        """
        raise UserError("predict: -annotations is for models that find boxes; leave it out")

    def prediction_rows(self, prediction: Any) -> list[Row]:
        """Return what the tables say of one input: usually one row. All rows of a task have the same names, and values
        that JSON and CSV can hold; the input's name is added before them.

        Args:
            prediction: what ``predict_step`` returned for it.
        Raises:
            BadSample: nothing can be said, as the outputs are not finite; the input is then listed as unreadable.
        """
        raise NotImplementedError

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> PredictionWriter:
        """Make what writes more than the rows of ``predict``, and the predictions of an evaluation (SAVE_PREDICTIONS);
        by default nothing. Made on each rank, and in the main process at the end.

        Args:
            folder: for the files; exists.
            samples: of ``open_inputs``, or those that are evaluated.
        """
        return PredictionWriter()

    # ---- export --------------------------------------------------------------------------------------------------

    def export_parts(self) -> ExportParts:
        """Return what an exported model needs besides its weights. Called after ``load_meta``.

        Raises:
            UserError: its models cannot be exported.
        """
        raise UserError(f"export: task {self.config.TASK} does not say how its models are used elsewhere")

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """A trained model as a function of the tensors of ``export_parts`` that gives one or several; by default as it
        is."""
        return model

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """The other way round: what ``eval_step`` takes, of such a function; by default as it is."""
        return function


def make_task(config: RunSettings) -> Task:
    """The task that TASK names.

    Raises:
        UserError: its name is unknown, it is no ``Task``, or the configuration does not fit it.
    """
    made: Task = require_derived(resolve("task", config.TASK), Task)(config)
    return made
