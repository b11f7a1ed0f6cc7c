"""Two processes, of which one may have no object at all, learn what one process learns, and so do micro-batches."""

import numpy as np
import pytest
from support.processes import run_together
from support.trainings import detector_updates

CALLS = {
    "DETR": ("update_of_detr", 1),
    "DETR in two parts": ("update_of_detr", 2),
    "RT-DETR": ("update_by_losses", "RT-DETR", (2, 3, 6, 0, 0, 0)),
    "D-FINE": ("update_by_losses", "D-FINE", (2, 3, 6, 0, 0, 0)),
    "the whole RT-DETR": ("update_of_the_network", "rtdetr_small"),
    "the whole D-FINE": ("update_of_the_network", "dfine_small"),
    "the whole RF-DETR": ("update_of_the_network", "rfdetr_shapes"),
    "the whole RF-DETR Seg": ("update_of_the_network", "rfdetr_seg_shapes"),
    "the whole DETRPose": ("update_of_poses", "detrpose_small"),
    "Mask R-CNN": ("update_of_mask_rcnn", 1),
    "Mask R-CNN in two parts": ("update_of_mask_rcnn", 2),
    "told": ("told_of_a_rank", 1),
}


@pytest.fixture(scope="module")
def by_two():
    """What each call gives on each rank of a group of two."""
    calls = {
        name: (f"support.trainings.detector_updates:{call}", tuple(words)) for name, (call, *words) in CALLS.items()
    }
    return run_together(calls, timeout=600)


def require_same(found, alone, within, of_all):
    """Changes to ``within`` of the largest of each parameter, or ``of_all``."""
    assert set(found) == set(alone)
    largest = max(abs(change).max() for change in alone.values())
    for name, change in alone.items():
        own = largest if of_all else abs(change).max()
        np.testing.assert_allclose(found[name], change, rtol=0, atol=within * own, err_msg=name)


@pytest.mark.parametrize("kind", ["RT-DETR", "D-FINE"])
def test_a_rank_without_objects_changes_the_outputs_as_one_process_does(by_two, kind):
    alone = detector_updates.update_by_losses(*CALLS[kind][1:])
    for found in by_two[kind]:
        require_same(found, alone, 2e-6, of_all=False)
    assert all(abs(change).max() > 0 for change in alone.values())


@pytest.mark.parametrize("kind", [kind for kind in CALLS if kind.startswith("the whole ")])
def test_a_whole_network_is_changed_as_by_one_process(by_two, kind):
    call, name = CALLS[kind]
    alone = getattr(detector_updates, call)(name)
    for found in by_two[kind]:
        require_same(found, alone, 2e-5, of_all=True)
    # Heads that start at zero learn their last layer first.
    assert sum(np.abs(change).max() > 0 for change in alone.values()) > 0.85 * len(alone)


def test_micro_batches_of_mask_rcnn_change_the_weights_as_one_batch_does(by_two):
    alone = detector_updates.update_of_mask_rcnn(1)
    for found in by_two["Mask R-CNN"] + by_two["Mask R-CNN in two parts"]:
        require_same(found, alone, 1e-6, of_all=False)
    assert all(abs(change).max() > 0 for change in alone.values())


def test_micro_batches_of_detr_change_the_weights_as_one_batch_does(by_two):
    alone = detector_updates.update_of_detr(1)
    assert max(np.abs(change).max() for change in alone.values()) > 0.1
    for found in [detector_updates.update_of_detr(4), *by_two["DETR"], *by_two["DETR in two parts"]]:
        require_same(found, alone, 1e-5, of_all=True)


def test_ranks_that_sum_in_their_losses_make_the_same_passes_to_find_what_is_not_finite(by_two):
    told = by_two["told"][0]
    assert told == by_two["told"][1] and told[0].startswith("rank 1, micro-batch 0: the term 'class'"), told
