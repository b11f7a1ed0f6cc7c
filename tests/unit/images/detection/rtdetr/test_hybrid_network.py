"""The choice of the best cells as queries, plain and in a saved program, against a sort of each image's cells."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.detection.rtdetr.hybrid_network import choose_cells

IMAGES, CELLS, CLASSES, CHOSEN = 3, 11, 4, 5


class BestCells(paddle.nn.Layer):
    def forward(self, logits, values):
        best = choose_cells(logits, CHOSEN, values)
        return best.numbers, best.gather(values)


@pytest.mark.parametrize("is_saved", [False, True])
def test_the_cells_of_an_image_with_the_highest_logits_are_chosen_in_any_batch(is_saved, tmp_path):
    random, layer = np.random.default_rng(0), BestCells()
    logits = random.permutation(IMAGES * CELLS * CLASSES).reshape(IMAGES, CELLS, CLASSES).astype("float32")
    values = random.standard_normal((IMAGES, CELLS, 2)).astype("float32")
    if is_saved:
        specs = [paddle.static.InputSpec([None, *array.shape[1:]], "float32") for array in (logits, values)]
        paddle.jit.save(layer, str(tmp_path / "cells"), input_spec=specs)
        layer = paddle.jit.load(str(tmp_path / "cells"))
    numbers = np.argsort(-logits.max(axis=2), axis=1)[:, :CHOSEN]
    for batch in range(1, IMAGES + 1):
        found, gathered = layer(paddle.to_tensor(logits[:batch]), paddle.to_tensor(values[:batch]))
        np.testing.assert_array_equal(found.numpy(), numbers[:batch])
        for image in range(batch):
            np.testing.assert_array_equal(gathered.numpy()[image], values[image, numbers[image]])
