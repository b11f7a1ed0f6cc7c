"""Short runs that learn keypoints of drawn figures by heatmaps."""

from support.processes import ROOT
from support.trainings.small_runs import build

FIGURES = ["DATA.DATASET", "drawn_figures", "DATA.SHAPES.TRAIN", "10", "DATA.SHAPES.VAL", "5", "DATA.NUM_WORKERS", "0"]
HEATMAPS = [f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", *FIGURES, "HEATMAPS.CROP_SIZE", "[32, 32]"]
HEATMAPS += ["MODEL.DIMS", "[8, 8, 8]", "-batch_size=4", "TRAIN.WARMUP_STEPS", "0", "REPORT", "False"]
HEATMAPS += ["VALIDATE_FREQ", "1", "SAVE_FREQ", "1", "-ngpus=1"]
__all__ = ["FIGURES", "HEATMAPS", "build"]
