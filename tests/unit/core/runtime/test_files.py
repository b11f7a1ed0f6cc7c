"""Arrays in files, memory-mapped by many threads at once."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from paddlevit_dist.core.runtime.files import map_array


class Late:
    """Garbage whose end takes a while, so that a collection inside numpy's parsing lets another thread run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(range(200))


@pytest.fixture
def hasty():
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_threads_may_map_arrays_at_once_whatever_the_garbage_collector_does(tmp_path, hasty):
    expected = np.arange(15).reshape(5, 3)
    np.save(tmp_path / "array.npy", expected)

    def map_often(_: int) -> bool:
        return all(Late() and np.array_equal(map_array(tmp_path / "array.npy"), expected) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(map_often, range(20)))
    with pytest.raises(ValueError, match="read-only"):
        map_array(tmp_path / "array.npy")[0] = 1
