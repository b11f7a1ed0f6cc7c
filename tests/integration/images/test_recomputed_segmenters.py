"""Recomputed blocks of a segmenter train as kept ones."""

import numpy as np
from support.trainings import small_segmenters

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Recomputable
from paddlevit_dist.core.tasks.task_factory import make_task


def test_a_recomputed_step_has_the_same_gradients(tmp_path):
    task = make_task(settings.load([*small_segmenters.SHAPES]).values)
    task.build_dataset("train", None)
    assert len(get_aspect(task, Recomputable).recomputed_layers(task.build_model())) == 4
    plain, recomputed = (
        small_segmenters.train(str(tmp_path / name), ["-batch_size=8", *words])["weights"]
        for name, words in (("plain", []), ("recomputed", ["TRAIN.RECOMPUTE", "True"]))
    )
    for name, value in plain.items():
        np.testing.assert_allclose(recomputed[name], value, atol=1e-6)
