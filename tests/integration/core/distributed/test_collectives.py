"""Collectives in real processes, against plain sums and lists; gradients in messages of any size."""

import pickle
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.processes import run_together

import paddlevit_dist
from paddlevit_dist.core.distributed import data_parallel

RANKS = 2


GATHERED = {
    "None and nested": (None, {"nested": [1, ("two", {3.0})]}),
    "0 bytes and 3 MB": (b"", b"x" * 3_000_000),
    "texts": ("", "Grüße"),
    "arrays": (np.arange(6).reshape(2, 3), np.array([], dtype=np.float64)),
    "around the frame size": ([], list(range(250))),
}
SIZES = [(0, 50_000_000), (10_000_000, 10_000_000), (10, 20)]
EXTRAS = [0, 5000]
DIFFERING = {
    "keys": ["extra 0", "extra 1"],
    "shapes": ["'loss'", "(2,)", "(3,)"],
    "dtypes": ["float32", "int64"],
    "sizes": ["(100000,)", "(2,)"],
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict:
    """What each rank got from the functions below."""
    calls = {
        **{f"sums {extra}": ("reduce_entries", (False, extra)) for extra in EXTRAS},
        **{f"averages {extra}": ("reduce_entries", (True, extra)) for extra in EXTRAS},
        "nothing": ("reduce_nothing", ()),
        **{f"differing {how}": ("reduce_differing", (how,)) for how in DIFFERING},
        **{f"gathered {name}": ("gather", (objects,)) for name, objects in GATHERED.items()},
        **{f"counted {sizes}": ("gather_counting_bytes", (sizes,)) for sizes in SIZES},
        "broadcast": ("broadcast", ()),
        "buckets": ("gradients_by_bucket", ()),
        "barrier": ("barrier_alone", (str(tmp_path_factory.mktemp("barrier") / "came"),)),
    }
    module = "integration.core.distributed.test_collectives"
    return run_together({name: (f"{module}:{function}", arguments) for name, (function, arguments) in calls.items()})


def entries(rank: int) -> dict:
    """What rank ``rank`` brings: every kind of value that can be reduced."""
    generator = np.random.default_rng(rank)
    return {
        "python int": 2**53 + 1 + rank,
        "python float": 0.25 * (rank + 1),
        "int here, float there": 3 if rank == 0 else 0.5,
        "bool": np.array([True, rank == 0]),
        "scalar": paddle.to_tensor(1.5 + rank),
        "matrix": paddle.to_tensor(generator.standard_normal((3, 4)).astype("float32")),
        "float64": generator.standard_normal(5),
        "half": paddle.to_tensor(generator.standard_normal((2, 2))).astype("float16"),
        "brain float": paddle.to_tensor([1.0 + rank, 2.0]).astype("bfloat16"),
        "int64": paddle.to_tensor([2**60 + rank, -5], dtype="int64"),
        "int32": np.array([[7 + rank]], dtype=np.int32),
        "uint8": np.full(3, 200, np.uint8),  # the sums of these four do not fit into their dtypes
        "int8": paddle.to_tensor(np.full(2, -100, np.int8)),
        "int16": np.int16(30_000),
        "largest int32": paddle.to_tensor([2**31 - 1], dtype="int32"),
        "empty": paddle.zeros([0, 3]),
        ("a", "tuple key"): 1.0,
    }


def as_numpy(value):
    if isinstance(value, paddle.Tensor):
        return (value.astype("float32") if value.dtype == paddle.bfloat16 else value).numpy()
    return np.asarray(value)


def reduce_entries(average: bool, extra: int):
    """Reduce ``entries`` and, beside them, ``extra`` numbers that push the dictionary over the size for one frame."""
    values = entries(paddlevit_dist.rank())
    if extra:
        values["large"] = paddle.arange(extra, dtype="float32") + paddlevit_dist.rank()
    reduced = paddlevit_dist.reduce_dict(values, average)
    kinds = {name: type(value).__name__ for name, value in reduced.items()}
    dtypes = {name: str(getattr(value, "dtype", "")).rpartition(".")[2] for name, value in reduced.items()}
    return list(reduced), {name: as_numpy(value) for name, value in reduced.items()}, kinds, dtypes


@pytest.mark.parametrize("extra", EXTRAS, ids=["in one frame", "on the device"])
def test_sums_keep_keys_and_kinds_and_are_exact_on_every_rank(extra, seen):
    results = seen[f"sums {extra}"]
    bring = [entries(rank) for rank in range(RANKS)]
    for names, values, kinds, dtypes in results:
        assert names[: len(bring[0])] == list(bring[0])
        for name, first in bring[0].items():
            expected = sum(as_numpy(b[name]).astype(object) for b in bring)
            tolerance = {"half": 2e-3, "brain float": 1e-2, "matrix": 1e-6}.get(name, 1e-14)
            assert values[name].shape == as_numpy(first).shape, name
            np.testing.assert_allclose(values[name].astype(float), np.asarray(expected, dtype=float), rtol=tolerance)
        assert values["python int"] == 2 * (2**53 + 1) + 1
        assert values["int64"].tolist() == [2**61 + 1, -10]
        assert dtypes["half"] == "float16" and dtypes["brain float"] == "bfloat16"
        assert {dtypes[name] for name in ("bool", "uint8", "int8", "int16", "int32", "largest int32")} == {"int64"}
        assert kinds["bool"] == "ndarray" and kinds["python int"] == "int"
        assert kinds["scalar"] == "Tensor" and kinds["float64"] == "ndarray"
        if extra:
            np.testing.assert_array_equal(values["large"], 2 * np.arange(extra) + 1)
    for name in results[0][1]:
        for other in results[1:]:
            np.testing.assert_array_equal(results[0][1][name], other[1][name])


@pytest.mark.parametrize("extra", EXTRAS, ids=["in one frame", "on the device"])
def test_averages_divide_by_the_ranks_and_integers_become_float(extra, seen):
    _, values, kinds, dtypes = seen[f"averages {extra}"][1]
    assert values["python float"] == pytest.approx(0.375)
    assert values["int here, float there"] == pytest.approx(1.75)
    assert values["int32"].tolist() == [[7.5]] and dtypes["int32"] == "float64"
    assert values["bool"].tolist() == [1.0, 0.5]
    assert dtypes["matrix"] == "float32"
    assert kinds["python int"] == "float"


def reduce_nothing():
    return paddlevit_dist.reduce_dict({}), paddlevit_dist.reduce_dict({}, average=False)


def test_an_empty_dictionary_stays_empty(seen):
    assert seen["nothing"] == [({}, {})] * RANKS


def reduce_differing(how: str):
    rank = paddlevit_dist.rank()
    values = {
        "keys": {"loss": 1.0, f"extra {rank}": 2.0},
        "shapes": {"loss": paddle.zeros([2 + rank])},
        "dtypes": {"loss": paddle.zeros([2], dtype=["float32", "int64"][rank])},
        "sizes": {"loss": paddle.zeros([[2], [100_000]][rank])},
    }[how]
    try:
        paddlevit_dist.reduce_dict(values)
    except ValueError as error:
        # The group must still be usable.
        return str(error), paddlevit_dist.reduce_dict({"after": 1.0}, average=False)
    return "no error"


@pytest.mark.parametrize("how, expected", DIFFERING.items())
def test_ranks_that_bring_different_entries_all_get_the_same_clear_error(how, expected, seen):
    results = seen[f"differing {how}"]
    assert results[0] == results[1]
    message, after = results[0]
    assert all(part in message for part in expected)
    assert after == {"after": 2.0}


def gather(objects):
    return paddlevit_dist.all_gather(objects[paddlevit_dist.rank()])


@pytest.mark.parametrize("name", GATHERED)
def test_all_gather_returns_every_ranks_object_in_rank_order(name, seen):
    objects = GATHERED[name]
    for gathered in seen[f"gathered {name}"]:
        assert len(gathered) == RANKS
        for got, sent in zip(gathered, objects):
            assert type(got) is type(sent)
            np.testing.assert_equal(got, sent)


def gather_counting_bytes(sizes):
    """Gather ``sizes[rank]`` bytes and return what was handed to paddle.distributed on the way."""
    import paddle.distributed as dist

    handed = []
    original = dist.all_gather

    def counting(output, tensor, *rest, **named):
        handed.append(int(np.prod(tensor.shape)) * tensor.element_size())
        return original(output, tensor, *rest, **named)

    dist.all_gather = counting
    data = np.random.default_rng(0).bytes(sizes[paddlevit_dist.rank()])

    try:
        return [len(part) for part in paddlevit_dist.all_gather(data)], handed
    finally:
        dist.all_gather = original


@pytest.mark.parametrize("sizes", SIZES)
def test_all_gather_hands_over_hardly_more_than_the_largest_pickle(sizes, seen):
    largest = len(pickle.dumps(b"x" * max(sizes), protocol=pickle.HIGHEST_PROTOCOL))
    for lengths, handed in seen[f"counted {sizes}"]:
        assert lengths == list(sizes)
        assert sum(handed) * RANKS <= 1.05 * RANKS * largest + RANKS * 1024


def broadcast():
    rank = paddlevit_dist.rank()
    first = paddlevit_dist.broadcast_object({"from": rank})
    return first, paddlevit_dist.broadcast_object(f"rank {rank}", source=1)


def test_broadcast_gives_the_sources_object_to_all(seen):
    assert seen["broadcast"] == [({"from": 0}, "rank 1")] * RANKS


def gradients_by_bucket():
    """For buckets of 1 and 25 MiB: how many there are for four matrices of 1 MiB, and the gradients."""
    found = []
    for megabytes in (1, 25):
        paddle.seed(7)
        model = paddle.nn.Sequential(*[paddle.nn.Linear(512, 512, bias_attr=False) for _ in range(4)])
        parallel = data_parallel(model, bucket_megabytes=megabytes)
        rows = np.random.default_rng(paddlevit_dist.rank()).standard_normal((3, 512)).astype(np.float32)
        parallel(paddle.to_tensor(rows)).square().mean().backward()
        found.append((len(parallel.group_indices), [p.grad.numpy() for p in model.parameters()]))
    return found


def test_smaller_buckets_are_more_messages_with_the_same_gradients(seen):
    ranks = seen["buckets"]
    for small, large in ranks:
        assert small[0] == 4 and large[0] < 4
        assert all(np.array_equal(a, b) and a.any() for a, b in zip(small[1], large[1]))
    assert all(np.array_equal(a, b) for a, b in zip(ranks[0][0][1], ranks[1][0][1]))


def barrier_alone(marker: str):
    """Rank 0 waits in vain at a barrier: at the first collective of all, and at a later one."""
    said = []
    for turn in range(2):
        came = Path(f"{marker}_{turn}")
        if paddlevit_dist.rank() == 0:
            with pytest.raises(TimeoutError) as caught:
                paddlevit_dist.barrier(timeout=0.3)
            said.append(str(caught.value))
            came.touch()
        else:
            while not came.exists():
                time.sleep(0.01)
            paddlevit_dist.barrier()
        assert paddlevit_dist.all_gather(turn) == [turn] * RANKS  # the group is still usable
    return said


def test_a_barrier_names_the_ranks_that_did_not_come_and_lets_late_ones_through(seen):
    results = seen["barrier"]
    assert len(results[0]) == 2 and all("rank(s) [1]" in said for said in results[0])
