"""Workers that run one recipe after another, each for two updates at reduced size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import paddle

from paddlevit_dist import Trainer, config
from paddlevit_dist.models import variant_options
from paddlevit_dist.parallel import rank
from paddlevit_dist.registry import SPELLINGS, resolve


def reduced(name: str) -> List[str]:
    """Overrides that make the model narrow and shallow; the rest of its structure stays."""
    patch = variant_options(name).get("patch_size", 4)
    size = ["-image_size", str(4 * patch if patch > 4 else 64)]
    name = SPELLINGS.get(name, name)
    if name.startswith("swin"):
        return [*size, "MODEL.EMBED_DIM", "96", "MODEL.DEPTHS", "[1, 1, 1, 1]"]
    if name.startswith("pvt"):
        return [*size, "MODEL.EMBED_DIM", "[8, 16, 40, 64]", "MODEL.DEPTHS", "[1, 1, 1, 1]"]
    if name.startswith(("convnext", "resnet")):
        return [*size, "MODEL.DIMS", "[8, 16, 24, 32]", "MODEL.DEPTHS", "[1, 1, 1, 1]"]
    return [*size, "MODEL.EMBED_DIM", "96", "MODEL.DEPTH", "2"]


def run_all(recipes: List[str], pictures: str, output: str, teacher: List[str]) -> Dict[str, Any]:
    """What became of each recipe: losses of its updates, the last evaluation, a sum over its weights."""
    return {Path(recipe).stem: _run(recipe, pictures, output, teacher) for recipe in recipes}


def _run(recipe: str, pictures: str, output: str, teacher: List[str]) -> Dict[str, Any]:
    words = (
        f"-cfg={recipe} -dataset=folder -data_path={pictures} -output={output}/{Path(recipe).stem} -batch_size=4 "
        "-accum_iter=1 -num_workers=0 -epochs=1 -ngpus=2 TRAIN.WARMUP_STEPS None TRAIN.WARMUP_EPOCHS 0 "
        "REPORT_FREQ 1 MODEL.PRETRAINED None"
    ).split()
    given = config.load([f"-cfg={recipe}"]).values
    words += reduced(given.MODEL.NAME)
    words += teacher if given.TRAIN.DISTILLATION_TYPE != "none" else []
    values = config.load(words).values
    folder = Path(values.SAVE)
    folder.mkdir(parents=True, exist_ok=True)
    task = resolve("task", values.TASK)(values)
    cache = folder / f"cache_{rank()}"
    cache.mkdir()
    datasets = {split: task.build_dataset(split, cache) for split in ("train", "val")}
    trainer = Trainer(values, task, datasets)
    before = _sum(trainer.model)
    evaluation = trainer.train()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] if rank() == 0 else []
    return {
        "losses": [line["loss"] for line in lines if line["kind"] == "training"],
        "evaluation": evaluation,
        "before": before,
        "after": _sum(trainer.model),
    }


def _sum(model: paddle.nn.Layer) -> float:
    """A number that changes when weights do, and is equal on all ranks when they are."""
    with paddle.no_grad():
        return float(np.sum([parameter.numpy().astype(np.float64).sum() for parameter in model.parameters()]))
