"""A small landmark network that can be exported."""

import paddle

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Exportable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.export.command import TrainedModel

SIZE = (12, 10, 14)  # no multiple of what the network halves
NAMES = ("nose", "chin")
RECIPE = ["-cfg=./configs/landmark_unet3d.yaml", "VOLUMES.CROP_SIZE", str(SIZE), "VOLUMES.UNET_WIDTH", "2"]
RECIPE += ["VOLUMES.UNET_DEPTH", "2"]


def trained(*words):
    values = settings.load([*RECIPE, "-eval", "-pretrained=weights.pdparams", *words]).values
    task = make_task(values)
    task.load_meta(CheckpointMeta(2, NAMES, {"spacing_mm": [4.0, 3.0, 3.0]}))
    paddle.seed(3)
    model = task.build_model(2)
    model.head.weight.set_value(paddle.randn(model.head.weight.shape))
    model.eval()
    parts = get_aspect(task, Exportable).export_parts()
    facts = {"model": "unet3d", "num_classes": 2, "input_shape": [None, 1, *SIZE], **parts.about}
    return TrainedModel(model, facts, parts)
