"""How often an update and an evaluation of a masked autoencoder make the host wait for a GPU, counted on a CPU."""

import numpy as np
import paddle
import pytest
from support.trainings.updates import waits_of_an_update
from support.waits import counted_waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.images.pretraining.masked_autoencoder import masks
from paddlevit_dist.images.pretraining.masked_autoencoder.task import MaskedAutoencoding

SIZES = "-image_size=16 MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2"
DECODER = "MASKED_AUTOENCODER.DECODER_WIDTH 8 MASKED_AUTOENCODER.DECODER_DEPTH 1 MASKED_AUTOENCODER.DECODER_HEADS 2"


def make(*words):
    task = MaskedAutoencoding(
        settings.load(["TASK", "masked_autoencoder", *f"{SIZES} {DECODER}".split(), *words]).values
    )
    generator = np.random.default_rng(0)
    image = generator.integers(0, 255, (3, 16, 16)).astype(np.uint8)
    return task, task.collate([(image, -1, masks.draw_order(16, generator)) for _ in range(4)])


@pytest.mark.parametrize("words", [[], ["MASKED_AUTOENCODER.NORMALIZED_PATCHES", "False", "MODEL.DROPPATH", "0.1"]])
def test_an_update_waits_for_the_norm_alone(words):
    task, batch = make(*words)
    waits = waits_of_an_update(task, task.build_model(), batch, 4)
    assert len(waits) == 1 and waits.transfers == 0, str(waits)


def test_an_evaluation_does_not_wait_before_all_batches_are_queued():
    task, batch = make()
    task.has_classes = True
    model, tensors = task.build_model(), {name: paddle.to_tensor(array) for name, array in batch.items()}
    model.eval()
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    task.eval_step(model, tensors, step)  # makes what all share
    with counted_waits() as waits:
        records = task.eval_step(model, tensors, step)
    assert len(waits) == 0 and waits.transfers == 0, str(waits)
    assert len(records()) == 4
