"""Short runs that learn keypoints of drawn figures by heatmaps."""

from pathlib import Path
from typing import Any

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.task_factory import make_task
from support.processes import ROOT

HEATMAPS = [f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", "DATA.NUM_WORKERS", "0", "REPORT", "False"]
HEATMAPS += [
    "DATA.SHAPES.TRAIN",
    "10",
    "DATA.SHAPES.VAL",
    "5",
    "HEATMAPS.CROP_SIZE",
    "[32, 32]",
    "HEATMAPS.STRIDE",
    "4",
]
HEATMAPS += ["MODEL.DIMS", "[8, 8, 8]", "-batch_size=4", "TRAIN.WARMUP_STEPS", "0", "VALIDATE_FREQ", "1"]
HEATMAPS += ["SAVE_FREQ", "1"]


def build_heatmaps(output: Path, *words: Any) -> Trainer:
    """A trainer of a tiny ResNet, in the test's own process."""
    values = settings.load([f"-output={output}", *HEATMAPS, *words]).values
    output.mkdir(parents=True, exist_ok=True)
    task = make_task(values)
    return Trainer(values, task, {split: task.build_dataset(split, output) for split in ("train", "val")})
