"""``Predictor`` in processes that are forked after its first call."""

import threading

import numpy as np
import pytest
from support.forced_device import forced_device
from support.forks import in_child
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor, UserError

CHILDREN = 8


@pytest.fixture(scope="module")
def predict(tmp_path_factory):
    return Predictor(write_weights(tmp_path_factory.mktemp("weights"), ["cat", "ant", "bee"]))


@pytest.mark.parametrize("is_busy", [False, True])
def test_children_of_a_process_that_has_predicted_give_equal_rows(predict, is_busy):
    images = [np.random.default_rng(index).integers(0, 256, (20, 16, 3), np.uint8) for index in range(3)]
    expected, done = predict(images), threading.Event()

    def keep_busy():
        while not done.is_set():
            predict(images)

    other = threading.Thread(target=keep_busy)
    if is_busy:
        other.start()
    try:
        waits = [in_child(lambda: predict(images)) for _ in range(CHILDREN)]
        assert [wait() for wait in waits] == [expected] * CHILDREN
        assert predict(images) == expected
    finally:
        done.set()
        if is_busy:
            other.join()


def test_a_child_of_a_process_that_computes_on_a_gpu_is_told(tmp_path):
    def refusal():
        try:
            predict([np.zeros((9, 9, 3), np.uint8)])
        except UserError as error:
            return str(error)

    with forced_device():
        predict = Predictor(write_weights(tmp_path, ["cat", "ant", "bee"]))
        assert len(predict([np.zeros((9, 9, 3), np.uint8)])) == 1
        assert in_child(refusal)().startswith("this process was forked from one that computes on a GPU")
