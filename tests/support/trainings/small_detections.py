"""Short trainings and evaluations of a small detector on drawn shapes, as workers or in the test's own process."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import yaml

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.inference.evaluation import evaluate_only
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.images.detection.detr.network import Detr
from paddlevit_dist.images.detection.task import Detection
from support.processes import ROOT
from support.trainings.small_runs import make_trainer, make_weights

SHAPES = [f"-cfg={ROOT / 'configs' / 'detr_shapes.yaml'}", "-epochs=1", "REPORT", "False", "VALIDATE_FREQ", "1"]
SHAPES += ["DATA.NUM_WORKERS", "0", "DATA.SHAPES.SIDES", "[24, 32]", "DATA.SHORTEST_SIDES", "[32]"]
SHAPES += ["DATA.EVAL_SHORTEST_SIDE", "32", "DATA.SHAPES.TRAIN", "24", "DATA.SHAPES.VAL", "9", "SAVE_FREQ", "1"]
SHAPES += ["MODEL.NAME", "detr_of_tests", "TRAIN.WARMUP_STEPS", "None", "TRAIN.GRAD_CLIP", "None"]
SHAPES += ["MODEL.MASK_PADDING", "True", "DATA.HORIZONTAL_FLIP", "0", "TRAIN.OPTIMIZER.NAME", "SGD"]
SHAPES += ["TRAIN.BASE_LR", "0.02", "TRAIN.LR_SCHEDULER.NAME", "constant"]


class TinyDetr(Detr):
    """Without the statistics of batches, which depend on how these are divided."""

    variants = {
        "detr_of_tests": {
            "backbone": "resnet18",
            "backbone_options": {"depths": (1, 1), "dims": (8, 16)},
            "feature_level": 1,
            "embed_dim": 16,
            "num_heads": 2,
            "feedforward": 32,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "num_queries": 10,
            "frozen_batch_norm": True,
            "frozen_stages": 0,
        }
    }


register_model("detr_of_tests", TinyDetr)


class Watched(Detection):
    """Keeps what each step has seen, and fails in one if it is told to."""

    fails_at = -1  # update

    def train_step(self, model: Any, batch: dict[str, Any], step: Any) -> Any:
        if step.update == self.fails_at:
            raise RuntimeError("as the test wants")
        self.seen.extend(map(fingerprint, batch["images"].numpy()))
        self.box_counts.append(int((batch["labels"].numpy() >= 0).sum()))
        terms = super().train_step(model, batch, step)
        self.losses.append({name: float(term.sum.item()) for name, term in terms.items()})
        return terms


def fingerprint(image: np.ndarray) -> int:
    """Of uint8 (3, height, width), whatever it is padded with."""
    rows, columns = image.any(axis=(0, 2)), image.any(axis=(0, 1))
    return zlib.crc32(np.ascontiguousarray(image[:, rows][:, :, columns]).tobytes())


def build(output: str, *arguments: str, fails_at: int = -1) -> Trainer:
    """A trainer of a tiny DETR."""
    trainer = make_trainer(output, [*SHAPES, *arguments], task_class=Watched)
    task = trainer.task
    task.seen, task.box_counts, task.losses, task.fails_at = [], [], [], fails_at
    return trainer


def train(output: str, arguments: list[str], fails_at: int = -1) -> dict[str, Any]:
    """Weights, what this rank has seen, and the last evaluation (None where the training failed)."""
    trainer = build(output, *arguments, fails_at=fails_at)
    try:
        values = trainer.train()
    except RuntimeError as error:
        if "as the test wants" not in str(error):
            raise
        values = None
    task = trainer.task
    return {
        "weights": make_weights(trainer),
        "seen": task.seen,
        "box counts": task.box_counts,
        "losses": task.losses,
        "evaluation": values,
    }


def evaluate(output: str, weights: str, arguments: list[str]) -> dict[str, Any]:
    """The values of an evaluation that writes its predictions to ``output``."""
    return evaluate_only(build(output, "-eval", f"-pretrained={weights}", "SAVE_PREDICTIONS", "True", *arguments))


def write_weights(folder: Path, *words: str, class_names: Sequence[str] = ("circle", "square", "triangle")) -> Path:
    """``weights.pdparams`` of an untrained tiny DETR, with an ``about.yaml`` beside it."""
    values = settings.load([*SHAPES, *words]).values
    paddle.seed(0)
    model = Detection(values).build_model(len(class_names))
    folder.mkdir(parents=True)
    paddle.save(model.state_dict(), str(folder / "weights.pdparams"))
    about = {"input": {}, "data": {"val": {"classes": list(class_names)}}, "settings": to_plain_settings(values)}
    (folder / "about.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    return folder / "weights.pdparams"
