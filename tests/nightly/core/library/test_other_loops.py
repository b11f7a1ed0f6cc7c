"""Paddle's loader reads the samples of every task."""

import numpy as np
import paddle
import pytest

import paddlevit_dist as pv

RECIPES = ["segformer_b0_shapes", "detr_shapes", "minkunet14_synthetic_rooms", "volume_unet3d_phantoms"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_samples_of_every_task_are_read_by_paddles_loader(recipe):
    samples = pv.open_dataset(recipe, "val")
    first = paddle.io.Subset(samples, [0, 1])  # a loader whose processes are left early keeps them
    (batch,) = paddle.io.DataLoader(first, batch_size=2, collate_fn=samples.collate, num_workers=1, timeout=300)
    expected = samples.collate([samples[0], samples[1]])
    assert list(batch) == list(expected)
    compared = [name for name, value in expected.items() if isinstance(value, np.ndarray)]
    assert compared
    for name in compared:
        np.testing.assert_array_equal(batch[name].numpy(), expected[name])
