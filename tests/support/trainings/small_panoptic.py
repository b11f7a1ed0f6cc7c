"""Short trainings and evaluations of a tiny network with queries on drawn shapes, as workers or in the test's own
process."""

import zlib
from typing import Any

import numpy as np
import paddle
from paddle import nn

from paddlevit_dist import Trainer
from paddlevit_dist.core.inference.evaluation import evaluate_only
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.images.image_size import as_pair
from paddlevit_dist.images.mask_queries.criterion import MaskQueryCriterion
from paddlevit_dist.images.panoptic.task import PanopticSegmentation
from support.trainings.small_runs import make_trainer, make_weights

SHAPES = ["TASK", "panoptic_segmentation", "-dataset=panoptic_shapes", "MODEL.NAME", "queries_of_tests", "-epochs=1"]
SHAPES += ["REPORT", "False", "DATA.NUM_WORKERS", "0", "DATA.SHAPES.SIDES", "[24, 40]", "SAVE_FREQ", "1"]
SHAPES += ["PANOPTIC.INPUT_SIZE", "[32, 32]", "DATA.SHAPES.TRAIN", "24", "DATA.SHAPES.VAL", "9", "VALIDATE_FREQ", "1"]
SHAPES += ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.002", "TRAIN.LR_SCHEDULER.NAME", "constant"]
SHAPES += ["PANOPTIC.SCORE_THRESHOLD", "0", "PANOPTIC.OVERLAP_THRESHOLD", "0.1", "-batch_size=4"]


class TinyQueries(Model):
    """Queries that differ only by what they have learned, and masks that are products with a map of features."""

    variants = {"queries_of_tests": {}}

    def __init__(self, num_classes: int = 4, image_size: Any = 32, channels: int = 16, num_queries: int = 8):
        super().__init__()
        self.num_classes, self.image_size, self.in_channels = num_classes, as_pair(image_size), 3
        self.body = nn.Sequential(nn.Conv2D(3, channels, 4, 4), nn.GELU(), nn.Conv2D(channels, channels, 3, 1, 1))
        self.query = nn.Embedding(num_queries, channels)
        self.class_head, self.mask_head = nn.Linear(channels, num_classes + 1), nn.Linear(channels, channels)

    @property
    def pretrained_part(self) -> Model:
        return self

    def outputs_to_classes(self, outputs: int) -> int:
        return outputs - 1

    @classmethod
    def criterion(cls, name: str, num_classes: int, losses: Any = None, **options: Any) -> MaskQueryCriterion:
        return MaskQueryCriterion(num_classes, options.get("num_queries", 8), 1, points=32, random_samples=False)

    def forward(self, images: Any, update: int | None = None, total_updates: int | None = None) -> Any:
        features = self.body(images)
        mean = features.mean(axis=[2, 3]).unsqueeze(1)
        queries = self.query.weight.unsqueeze(0) + mean
        masks = paddle.einsum("nqc,nchw->nqhw", self.mask_head(queries), features)
        classes = self.class_head(queries)
        return {"classes": classes, "masks": masks} if update is None else {"classes_0": classes, "masks_0": masks}


register_model("queries_of_tests", TinyQueries)


class Watched(PanopticSegmentation):
    """Keeps what each step has seen."""

    def train_step(self, model: Any, batch: dict[str, Any], step: Any) -> Any:
        self.seen += [zlib.crc32(np.ascontiguousarray(image)) for image in batch["images"].numpy()]
        terms = super().train_step(model, batch, step)
        self.losses.append({name: (float(term.sum), float(term.count)) for name, term in terms.items()})
        return terms


def build(output: str, *arguments: str) -> Trainer:
    """A trainer of a tiny network."""
    trainer = make_trainer(output, [*SHAPES, *arguments], task_class=Watched)
    trainer.task.seen, trainer.task.losses = [], []
    return trainer


def train(output: str, arguments: list[str]) -> dict[str, Any]:
    """Weights, what this rank has seen and lost, and the last evaluation."""
    trainer = build(output, *arguments)
    values = trainer.train()
    task = trainer.task
    return {"weights": make_weights(trainer), "seen": task.seen, "losses": task.losses, "evaluation": values}


def evaluate(output: str, weights: str, arguments: list[str]) -> dict[str, Any]:
    """The values of an evaluation."""
    return evaluate_only(build(output, "-eval", f"-pretrained={weights}", *arguments))
