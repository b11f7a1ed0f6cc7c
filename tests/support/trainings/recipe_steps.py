"""Workers that run one recipe after another, each for a few updates at reduced size."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import rank, world_size
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model_factory import variant_options
from support.processes import ROOT
from support.trainings.runs import read_events


def make_recipes(task: str) -> list[Path]:
    """Those of ``configs/`` that name it."""
    return [path for path, named in _tasks().items() if named == task]


@functools.cache
def _tasks() -> dict[Path, str]:
    recipes = sorted((ROOT / "configs").glob("*.yaml"))
    return {path: settings.load([f"-cfg={path}"]).values.TASK for path in recipes}


def reduced(name: str) -> list[str]:
    """Overrides that make the model narrow and shallow; the rest of its structure stays."""
    patch = variant_options(name).get("patch_size", 4)
    size = ["-image_size", str(4 * patch if patch > 4 else 64)]
    name = REGISTRY.aliases.get(name, name)
    if name.startswith("swin"):
        return [*size, "MODEL.EMBED_DIM", "96", "MODEL.DEPTHS", "[1, 1, 1, 1]"]
    if name.startswith(("pvt", "mit")):
        return [*size, "MODEL.EMBED_DIM", "[8, 16, 40, 64]", "MODEL.DEPTHS", "[1, 1, 1, 1]"]
    if name.startswith(("convnext", "resnet")):
        return [*size, "MODEL.DIMS", "[8, 16, 24, 32]", "MODEL.DEPTHS", "[1, 1, 1, 1]"]
    if name.startswith("hgnet"):
        return size
    return [*size, "MODEL.EMBED_DIM", "96", "MODEL.DEPTH", "2"]


def require_two_updates(of_ranks: list[dict[str, Any]]) -> None:
    """That a recipe has trained, and that all ranks end with the same weights."""
    first = of_ranks[0]
    assert len(first["losses"]) == 2 and np.isfinite(first["losses"]).all()
    assert first["before"] != first["after"]
    assert {(result["before"], result["after"]) for result in of_ranks} == {(first["before"], first["after"])}


def run_each(recipes: dict[str, list[str]], output: str) -> dict[str, Any]:
    """The same of any recipes, each with words of its own."""
    return {Path(recipe).stem: run(recipe, output, words) for recipe, words in recipes.items()}


def run(recipe: str, output: str, words: list[str]) -> dict[str, Any]:
    common = (
        f"-cfg={recipe} -output={output}/{Path(recipe).stem} -accum_iter=1 -num_workers=0 -epochs=1 REPORT False "
        f"-ngpus={world_size()} TRAIN.WARMUP_STEPS None TRAIN.WARMUP_EPOCHS 0 REPORT_FREQ 1 MODEL.PRETRAINED None"
    ).split()
    values = settings.load([*common, *words]).values
    folder = Path(values.SAVE)
    folder.mkdir(parents=True, exist_ok=True)
    task = resolve("task", values.TASK)(values)
    cache = folder / f"cache_{rank()}"
    cache.mkdir()
    datasets = {split: task.build_dataset(split, cache) for split in ("train", "val")}
    trainer = Trainer(values, task, datasets)
    before = _sum(trainer.model)
    evaluation = trainer.train()
    return {
        "losses": read_losses(folder) if rank() == 0 else [],
        "evaluation": evaluation,
        "before": before,
        "after": _sum(trainer.model),
    }


def read_losses(output: Path) -> list[float]:
    """The loss of the classes after each update, which is called differently by each family."""
    names = ("loss", "class", "classes", "semantic", "heatmap", "cross_entropy")
    lines = [line for line in read_events(output) if line["kind"] == "training"]
    return [next(line[name] for name in names if name in line) for line in lines]


def _sum(model: paddle.nn.Layer) -> float:
    """A number that changes when weights do, and is equal on all ranks when they are."""
    with paddle.no_grad():
        return float(np.sum([parameter.numpy().astype(np.float64).sum() for parameter in model.parameters()]))
