"""Files of scenes as a prediction opens them."""

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.data.scene import CENTERED
from paddlevit_dist.points.inputs import InputScenes, find_scenes

SEMANTIC = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", "DATA.VOXEL_SIZE_M", "0.4"]


def make_inputs(*paths, coordinates=CENTERED, needs_colors=True):
    scenes, unreadable, _ = find_scenes([str(path) for path in paths])
    return InputScenes(scenes, coordinates, needs_colors, CLASS_NAMES), unreadable


def recalled(task_class, arguments):
    task = task_class(settings.load([*arguments, "-eval", "-pretrained=x", "-dataset=scannet"]).values)
    task.load_meta(CheckpointMeta(20, CLASS_NAMES, {"coordinates": CENTERED}))
    return task
