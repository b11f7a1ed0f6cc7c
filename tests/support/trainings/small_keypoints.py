"""The words of short runs that learn keypoints of drawn figures by heatmaps of a tiny ResNet."""

from support.processes import ROOT

HEATMAPS = [f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", "DATA.NUM_WORKERS", "0", "REPORT", "False"]
HEATMAPS += ["DATA.SHAPES.TRAIN", "10", "DATA.SHAPES.VAL", "5", "HEATMAPS.CROP_SIZE", "[32, 32]"]
HEATMAPS += ["HEATMAPS.STRIDE", "4", "MODEL.DIMS", "[8, 8, 8]", "-batch_size=4", "TRAIN.WARMUP_STEPS", "0"]
HEATMAPS += ["VALIDATE_FREQ", "1", "SAVE_FREQ", "1"]
