"""What a subject (images, points, volumes) tells the engine: the only thing the two know of each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import paddle

from ..errors import UserError

Number = Union[int, float, paddle.Tensor]


class Term(NamedTuple):
    """One summed quantity of a training step.

    Attributes:
        sum: scalar tensor, added up over the micro-batch.
        count: what its mean divides by; a number, or a tensor where it exists only after the forward pass.
        weight: its share in the loss; 0 for a quantity that is only shown.
    """

    sum: paddle.Tensor
    count: Number
    weight: float = 1.0


class Moment(NamedTuple):
    """Where in the run a step is.

    Attributes:
        epoch: from 1.
        update: from 0, over the whole run.
        total_updates: of the whole run.
        micro: number of the micro-batch within the update, from 0.
    """

    epoch: int
    update: int
    total_updates: int
    micro: int = 0


class Metrics:
    """Additive evaluation state: sums and counts that are divided once, when all ranks' have been added.

    A subclass keeps float64 and int64 tensors or numbers in ``state``.
    """

    def __init__(self) -> None:
        self.state: Dict[str, Any] = {}

    def compute(self, state: Dict[str, Any]) -> Dict[str, float]:
        """Final values from a state that has been summed over all ranks."""
        raise NotImplementedError

    def summary(self, values: Dict[str, float]) -> str:
        """The one line that an evaluation ends with."""
        raise NotImplementedError


class Task:
    """Base class of all tasks. It is pickled to the workers after ``build_dataset`` ran in the parent: keep it small.

    Args:
        config: the frozen configuration.
    """

    #: name of the metric that chooses the best checkpoint, and whether more is better
    best_metric: Tuple[str, bool] = ("loss", False)
    #: what TRAIN.BATCH_NORM means when it is not set: "sync" or "local"
    batch_norm: str = "local"
    #: what TRAIN.EMPTY_CACHE_FREQ means when it is not set
    empty_cache_freq = 0
    #: what a sample is called where throughput is shown
    sample_name = "samples"
    #: normalisers of loss terms, by term name, that are this many per sample: then they need no communication.
    #: None: ``counts`` says them for each batch.
    counts_per_sample: Optional[Dict[str, int]] = None
    #: names of the normalisers that ``counts`` returns
    count_names: Tuple[str, ...] = ()
    #: whether its models are functions of tensors that ``paddle.jit.to_static`` can trace
    compiles = False
    #: whether the task can write its predictions
    writes_predictions = False

    def __init__(self, config: Any) -> None:
        self.config = config
        self.notices: List[str] = []
        #: folder for what the model predicts; set by the engine when predictions are asked for
        self.predictions: Optional[Path] = None

    def build_dataset(self, split: str, cache_folder: Any) -> Any:
        """The samples of "train" or "val": ``__len__``, ``sample(index, generator)``, ``describe(index)``."""
        raise NotImplementedError

    def describe_samples(self, samples: Any) -> str:
        """How many there are, by class where that is known: what the first lines of a run say of a split."""
        return f"{len(samples):,} {self.sample_name}"

    def collate(self, samples: Sequence[Any]) -> Dict[str, Any]:
        """A batch, a dictionary of numpy arrays, from a list of samples. Runs in the loader process."""
        raise NotImplementedError

    def counts(self, batch: Dict[str, Any]) -> Dict[str, int]:
        """Normalisers of loss terms, by term name, that are known before the forward pass; the same names for every
        batch. Runs in the loader. Not asked for when ``counts_per_sample`` is set."""
        raise NotImplementedError

    def build_model(self) -> paddle.nn.Layer:
        raise NotImplementedError

    def check_model(self) -> List[str]:
        """What can be told of the configured model without data, weights or memory: lines about what a run would still
        need. Called by -show_config.

        Raises:
            UserError: ``build_model`` would refuse the configuration.
        """
        return []

    def parameter_groups(self, model: paddle.nn.Layer) -> Optional[List[Dict[str, Any]]]:
        """Groups of ``{"names": [...], "weight_decay": float, "learning_rate": factor}``; None for the engine's own:
        no decay on biases, norms and whatever the model's ``no_weight_decay()`` names."""
        return None

    def about_input(self) -> Dict[str, Any]:
        """Everything about how samples are made that the weights have learned to expect (orientation, range of
        colours, ...), as plain YAML values by name. It is kept in each checkpoint's ``about.yaml``; evaluating or
        resuming with other values is an error. Called on every rank, after ``build_model``."""
        return {}

    def about_data(self, samples: Any) -> Dict[str, Any]:
        """What identifies the samples of a split wherever they lie, as plain YAML values by name: "samples" (how many),
        "classes" (names in the order of their numbers) and "labels" (a digest), each where it is known. It is kept in
        each checkpoint; a resumed training with others takes another course, an evaluation must have the classes."""
        return {"samples": len(samples)}

    def notices_of_old_weights(self) -> List[str]:
        """Lines for the log when a checkpoint of ours is loaded that says nothing about its input: it was written
        before ``about.yaml`` was, and may have seen other samples than this version makes."""
        return []

    def recomputed_layers(self, model: paddle.nn.Layer) -> List[paddle.nn.Layer]:
        """The layers whose inner values TRAIN.RECOMPUTE drops; each maps tensors to a tensor."""
        raise UserError(f"TRAIN.RECOMPUTE: task {self.config.TASK} cannot recompute; leave it out")

    def train_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], moment: Moment) -> Dict[str, Term]:
        """Loss terms of one micro-batch. Must call ``model(...)`` itself, or gradients are not synchronised."""
        raise NotImplementedError

    def eval_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], metrics: Metrics) -> None:
        """Add one batch to the metrics, and write what it predicts to ``predictions`` if that is set."""
        raise NotImplementedError

    def build_metrics(self) -> Metrics:
        raise NotImplementedError

    def pictures(self, samples: Any, batch: Dict[str, Any], epoch: int) -> List[Tuple[Any, str]]:
        """What the model sees of a collated batch of training samples: uint8 pictures with captions."""
        raise NotImplementedError

    def evaluation_pictures(self, samples: Any, indices: Sequence[int]) -> List[Tuple[Any, str]]:
        """The same for samples as an evaluation treats them."""
        raise NotImplementedError

    def finish_predictions(self) -> List[str]:
        """Called on every rank after an evaluation with ``predictions`` set, when all ranks' ``eval_step`` calls are
        done; returns lines for the log of the main process."""
        return []

    def finish_epoch(self) -> List[str]:
        """Called on every rank when an epoch's training has ended; returns lines for the log of the main process."""
        return []
