"""Features of a probe: computed once the backbone has its weights, and the groups of its heads."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.runtime.errors import UserError
from ...core.runtime.transfers import to_device
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.protocols import FeatureCaching, ParameterGrouping
from .checks import PretrainedMatching
from .probes import FeatureSamples, KnnProbe, LinearProbe, ProbeTask


class ProbeFeatures(TaskAspect, FeatureCaching):
    """Computes the features of all samples."""

    task: ProbeTask

    def on_weights_loaded(
        self, model: paddle.nn.Layer, datasets: Mapping[str, TransformedDataset], keep: Callable[..., np.ndarray]
    ) -> None:
        """Compute the features of all splits with the loaded backbone."""
        if self.task.config.MODEL.PRETRAINED is None and self.task.config.MODEL.RESUME is None:
            raise UserError(
                "a probe of random weights is meaningless: set trained weights with -pretrained=PATH or NAME"
            )
        backbone = model.backbone
        for split, samples in datasets.items():
            if isinstance(samples, FeatureSamples):
                samples.features = keep(
                    split, samples, backbone, lambda batch: model.compute_features(self.task.normalize(batch["images"]))
                )


class NeighborFeatures(ProbeFeatures):
    """Computes the features of all samples and of the training images."""

    task: KnnProbe

    def on_weights_loaded(
        self, model: paddle.nn.Layer, datasets: Mapping[str, TransformedDataset], keep: Callable[..., np.ndarray]
    ) -> None:
        """Compute the features of the training images and of all splits."""
        bank = self.task.bank_samples
        assert bank is not None
        super().on_weights_loaded(model, {"train": bank, **datasets}, keep)
        features = to_device(np.array(bank.features))
        self.task.bank = F.normalize(features, axis=-1), to_device(np.asarray(bank.dataset.labels, np.int64))


class ProbeMatching(PretrainedMatching):
    """Lets a probe load the weights of classifiers, too."""

    compatible_tasks = ("classification", *PretrainedMatching.compatible_tasks)


class HeadGrouping(TaskAspect, ParameterGrouping):
    """Gives each head its learning rate."""

    task: LinearProbe

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        """Return the parameters of each head with its learning rate."""
        decays = {"weight": self.task.config.TRAIN.WEIGHT_DECAY, "bias": 0.0}
        return [
            {"names": [f"heads.{head}.{name}"], "weight_decay": decay, "learning_rate": rate}
            for head, rate in enumerate(self.task.rates)
            for name, decay in decays.items()
        ]
