"""Images to predict are looked at before, and what will be seen otherwise than programs show it is told."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.settings import load
from paddlevit_dist.tasks.aspects import get_aspect
from paddlevit_dist.tasks.protocols import Predictable
from paddlevit_dist.tasks.task_factory import make_task

TASKS = {
    "classification": ("vit_tiny_patch16_224", "TASK", "classification"),
    "detection": ("detr_resnet50", "TASK", "detection"),
    "masks": ("mask_rcnn_resnet50_fpn", "TASK", "detection"),
    "segmentation": ("upernet_swin_tiny", "TASK", "image_segmentation"),
}


def write_images(folder):
    for number, orientation in enumerate((1, 6, 3, 0)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (20, 10), (90, 20 * number, 0)).save(folder / f"{number}.jpg", exif=exif)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("turned", [None, False, True])
@pytest.mark.parametrize("name", TASKS)
def test_an_orientation_that_is_not_applied_is_one_line_with_the_key(tmp_path, name, turned, in_memory):
    (tmp_path / "photos").mkdir()
    write_images(tmp_path / "photos")
    network, *words = TASKS[name]
    words += ["MODEL.NAME", network] + ([] if turned is None else ["DATA.EXIF_ROTATE", str(turned)])
    aspect = get_aspect(make_task(load(words).values), Predictable)
    inputs = [str(tmp_path / "photos")]
    if in_memory:
        inputs = [Image.open(tmp_path / "photos" / f"{number}.jpg") for number in range(4)]
        inputs.append(np.zeros((10, 20, 3), np.uint8))
    samples = aspect.open_inputs(inputs, tmp_path)
    lines = [line for line in samples.notices if "EXIF" in line]
    if turned:
        assert not lines and samples.image(1).size == (10, 20)
    else:
        example = "image 1" if in_memory else str(tmp_path / "photos" / "1.jpg")
        amount = "2 of 5" if in_memory else "2 of 4"
        message = "images are to be turned by the EXIF orientation, but DATA.EXIF_ROTATE is false"
        assert lines == [f"{amount} {message}: {example}"] and samples.image(1).size == (20, 10)
