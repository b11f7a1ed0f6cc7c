"""Short trainings and evaluations of small networks that segment drawn shapes, as workers or in the test's own
process."""

import zlib
from typing import Any

import numpy as np

from paddlevit_dist import Trainer
from paddlevit_dist.core.inference.evaluation import evaluate_only
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.images.models.segformer import SegFormer
from paddlevit_dist.images.models.upernet import UPerNet
from paddlevit_dist.images.segmentation.task import ImageSegmentation
from support.processes import ROOT
from support.trainings.small_runs import make_trainer, make_weights

SHAPES = [f"-cfg={ROOT / 'configs' / 'segformer_b0_shapes.yaml'}", "-epochs=1", "REPORT", "False"]
SHAPES += ["DATA.NUM_WORKERS", "0", "DATA.SHAPES.SIDES", "[24, 40]", "DATA.CROP_SIZE", "[24, 40]", "SAVE_FREQ", "1"]
SHAPES += ["DATA.SHAPES.TRAIN", "24", "DATA.SHAPES.VAL", "9", "VALIDATE_FREQ", "1", "MODEL.NAME", "segformer_of_tests"]
SHAPES += ["TRAIN.WARMUP_STEPS", "None", "TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.02"]
SHAPES += ["TRAIN.LR_SCHEDULER.NAME", "constant", "MODEL.DROPOUT", "0"]  # which each rank would draw for itself
SHAPES += ["TRAIN.LOVASZ_WEIGHT", "0"]


class TinySegFormer(SegFormer):
    is_capturable = True
    variants = {
        "segformer_of_tests": {
            "backbone": "mit_b0",
            "backbone_options": {"embed_dims": (8, 16, 16, 16), "num_heads": (1, 2, 2, 2), "depths": (1, 1, 1, 1)},
            "channels": 16,
        }
    }


class TinyUPerNet(UPerNet):
    """With an auxiliary head."""

    is_capturable = True
    variants = {
        "upernet_of_tests": {
            "backbone": "resnet18",
            "backbone_options": {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)},
            "channels": 8,
            "auxiliary_channels": 8,
        }
    }


register_model("segformer_of_tests", TinySegFormer)
register_model("upernet_of_tests", TinyUPerNet)


class Watched(ImageSegmentation):
    """Keeps what each step has seen."""

    def train_step(self, model: Any, batch: dict[str, Any], step: Any) -> Any:
        self.seen += [zlib.crc32(np.ascontiguousarray(image)) for image in batch["images"].numpy()]
        terms = super().train_step(model, batch, step)
        self.losses.append({name: (float(term.sum), float(term.count)) for name, term in terms.items()})
        return terms


def build(output: str, *arguments: str) -> Trainer:
    """A trainer of a tiny SegFormer."""
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
