"""How often a step on scenes makes the host wait for a GPU, counted on a CPU with a GPU's plans."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import paddle
import pytest
from support.waits import counted_waits

from paddlevit_dist import config
from paddlevit_dist.contracts.task import Step, Term
from paddlevit_dist.points.sparse.convolution import batched_products
from paddlevit_dist.registry import resolve

ROOMS = ["-dataset=synthetic_rooms", "POINTS.ROOMS.TRAIN", "2", "POINTS.ROOMS.SPACING_M", "0.15"]
MINKUNET = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet14a", "DATA.VOXEL_SIZE_M", "0.5"]
POINTGROUP = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "DATA.VOXEL_SIZE_M", "0.2"]
POINTGROUP += ["POINTS.INSTANCES.WIDTH", "4", "POINTS.INSTANCES.BLOCKS", "1", "POINTS.INSTANCES.RADIUS_M", "0.3"]
POINTGROUP += ["POINTS.INSTANCES.PREPARE_EPOCHS", "0", "POINTS.INSTANCES.CLUSTER_POINTS", "5"]


def losses(task: Any, model: paddle.nn.Layer, batch: Dict[str, Any]) -> Dict[str, Term]:
    """The loss terms of one pass forward and backward."""
    terms = task.train_step(model, batch, Step(1, 0, 10))
    paddle.add_n([term.sum * term.weight for term in terms.values() if term.weight]).backward()
    return terms


# Of the update as a whole one more: the flag that tells whether it is finite.
@pytest.mark.parametrize(
    "arguments, most",
    [([*MINKUNET, "POINTS.LOVASZ_WEIGHT", "1.0"], 0), (POINTGROUP, 3)],
    ids=["MinkUNet14", "PointGroup"],
)
def test_a_step_waits_no_more_than_it_must_and_computes_the_same(arguments, most):
    found = {}
    for on_gpu in (False, True):
        with batched_products(on_gpu):
            task = resolve("task", arguments[1])(config.load([*ROOMS, *arguments]).values)
            samples = task.build_dataset("train", None)
            paddle.seed(0)
            model = task.build_model()
            arrays = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(2)])
            batch = {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
            if on_gpu:
                with counted_waits() as waits:
                    terms = losses(task, model, batch)
                assert len(waits) <= most, str(waits)
            else:
                terms = losses(task, model, batch)
        found[on_gpu] = {name: term.sum.item() for name, term in terms.items()}
        found[on_gpu]["gradient"] = sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None)
    assert found[True] == pytest.approx(found[False], rel=1e-3)
