"""State of a task: what a checkpoint holds of it is taken back whole or not at all."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.tasks.task_state import TaskState


class TwoCenters(TaskState):
    """A task's state of two tensors."""

    def __init__(self) -> None:
        self.center, self.steps = paddle.zeros([2, 3]), paddle.to_tensor([4])

    def tensors(self) -> dict[str, paddle.Tensor]:
        return {"center": self.center, "steps": self.steps}


SAVED = {"center": np.arange(6, dtype=np.float32).reshape(2, 3), "steps": np.array([9])}


def test_saved_values_are_those_of_the_tensors_themselves():
    state = TwoCenters()
    center = state.center
    state.load_state_dict(SAVED)
    np.testing.assert_array_equal(center.numpy(), SAVED["center"])
    np.testing.assert_array_equal(state.steps.numpy(), [9])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"steps": None, "scale": np.ones(1), "bias": np.ones(1)}, "bias and 2 more differ"),
        ({"steps": None}, "steps and 0 more differ"),
        ({"center": np.zeros((3, 2), np.float32)}, "center is (3, 2)"),
        ({"steps": np.array(9)}, "steps is ()"),
    ],
)
def test_other_names_and_shapes_are_refused_and_nothing_is_taken(changes, told):
    state = TwoCenters()
    saved = {name: array for name, array in (SAVED | changes).items() if array is not None}
    with pytest.raises(ValueError) as caught:
        state.load_state_dict(saved)
    assert str(caught.value) == f"the state of the task does not fit: {told}"
    assert not state.center.numpy().any() and state.steps.item() == 4


def test_a_state_without_tensors_takes_none():
    TaskState().load_state_dict({})
    with pytest.raises(ValueError, match="^the state of the task does not fit: center and 1 more differ$"):
        TaskState().load_state_dict(SAVED)
