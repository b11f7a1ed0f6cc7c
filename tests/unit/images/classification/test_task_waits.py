"""How often an update of a classifier makes the host wait for a GPU, counted on a CPU."""

import numpy as np
import paddle
import pytest
from support.trainings.recipe_steps import reduced
from support.trainings.updates import waits_of_an_update
from support.waits import counted_waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import EvaluationStep

_CLASSES, _BATCH = 10, 6
_MIXED = "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.MIXUP_PROB 1.0".split()
_ERASED = "TRAIN.RANDOM_ERASE_PROB 0.9 TRAIN.RANDOM_ERASE_COUNT 2 TRAIN.RANDOM_ERASE_MODE".split()
_CASES = {
    "vit": ("vit_tiny_patch16_224", [*_MIXED, *_ERASED, "pixel", "MODEL.DROPPATH", "0.1"]),
    "vit, each image by itself": ("vit_tiny_patch16_224", [*_MIXED, *_ERASED, "rand", "TRAIN.MIXUP_MODE", "elem"]),
    "deit": ("deit_tiny_patch16_224", [*_MIXED, "TRAIN.MIXUP_MODE", "pair", "MODEL.DROPOUT", "0.1"]),
    "distilled": ("deit_tiny_distilled_patch16_224", _MIXED),
    "class weights": ("vit_tiny_patch16_224", _MIXED),
    "plain labels": ("vit_tiny_patch16_224", ["TRAIN.SMOOTHING", "0.0"]),
    "swin": ("swin_tiny_patch4_window7_224", _MIXED),
    "cait": ("cait_xxs24_224", _MIXED),
    "pvt": ("pvt_v2_b0", _MIXED),
    "convnext": ("convnext_tiny", _MIXED),
    "mixer": ("mixer_s16_224", _MIXED),
    "resnet": ("resnet18", []),
    "hgnet": ("hgnetv2_b0", []),
}

_NARROWER = {
    "swin_tiny_patch4_window7_224": ["MODEL.EMBED_DIM", "24"],
    "hgnetv2_b0": ["MODEL.DIMS", "[16, 24, 32, 40]"],
}


def _make_task(model: str, keys: list):
    values = settings.load(
        ["MODEL.NAME", model, *reduced(model), *_NARROWER.get(model, []), f"-num_classes={_CLASSES}", *keys]
    ).values
    return resolve("task", values.TASK)(values)


@pytest.mark.parametrize("case", _CASES)
def test_an_update_of_a_classifier_waits_for_the_norm_of_its_gradients_alone(case):
    task = _make_task(*_CASES[case])
    task.class_weights = np.linspace(0.5, 1.5, _CLASSES, dtype=np.float32) if case == "class weights" else None
    model = task.build_model()
    if case == "distilled":
        task.teacher = lambda images: images[:, 0, 0, :_CLASSES]
    pixels = np.random.default_rng(0)
    size = task.config.DATA.IMAGE_SIZE
    images = pixels.integers(0, 256, (_BATCH, 3, size, size)).astype(np.uint8)
    samples = [(image, row % _CLASSES) for row, image in enumerate(images)]
    if task.erasing is not None:
        samples = [(*sample, task.erasing.draw(sample[0].shape, pixels)) for sample in samples]
    waits = waits_of_an_update(task, model, task.collate(samples), _BATCH)
    assert len(waits) == 1, str(waits)
    assert waits.transfers == (task.mixing is not None) + (task.class_weights is not None)


def test_an_evaluated_batch_of_a_classifier_waits_for_nothing():
    task = _make_task("vit_tiny_patch16_224", [])
    model, metrics = task.build_model(), task.build_metrics()
    model.eval()
    size = task.config.DATA.IMAGE_SIZE
    batch = {"images": paddle.zeros([4, 3, size, size], dtype="uint8"), "labels": paddle.arange(4)}
    with counted_waits() as waits, paddle.no_grad():
        records = task.eval_step(model, batch, EvaluationStep(metrics, keeps_records=True))
        assert len(waits) == 0, str(waits)
        assert len(records()) == 4
    assert len(waits) == 1, str(waits)
