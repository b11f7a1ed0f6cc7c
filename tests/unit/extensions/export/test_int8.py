"""Which layers of a network in int8 stay in float32, and what is said of its cost."""

from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.extensions.export import int8
from paddlevit_dist.extensions.export.differences import OutputDifference
from paddlevit_dist.extensions.export.int8 import Attempt, QuantizationCost, Quantizer, describe_saturation, search

LAYERS = tuple(f"layer{number}" for number in range(500))


def find_best(losses: dict[int, float], most: float, layers=LAYERS) -> tuple[int, list[int]]:
    """Layers in float32 of the best attempt, and of all; ``losses`` by number of layers in float32."""
    tried = []

    def attempt(kept: tuple[str, ...]) -> Attempt:
        assert kept == layers[: len(kept)]
        tried.append(len(kept))
        return Attempt(Path("file"), kept, 0.0, losses.get(len(kept), 9.0), None)

    return len(search(attempt, lambda first: layers, most).kept), tried


def test_the_first_attempt_without_a_loss_ends_the_search():
    assert find_best({0: -1.0}, 0.1) == (0, [0])
    assert find_best({4: 0.1}, 0.1) == (4, [0, 1, 2, 4])


def test_at_most_eight_attempts_follow_and_the_best_one_counts():
    best, tried = find_best({2: 3.0, 16: 3.0}, 0.1)
    assert best == 2 and len(tried) == 9
    assert find_best({}, 0.1, LAYERS[:4])[1] == [0, 1, 2]  # never all of them


COST = QuantizationCost(
    score="top-1",
    scores=(81.0, 80.5),
    interval=ConfidenceInterval(-0.5, -1.25, 0.25),
    percent=95,
    milliseconds=(2.0, 1.0),
    size=(4_000_000, 1_000_000),
    kept=("head",),
    layers=18,
    calibration="256 of 1,437 images of train",
    of="360 images of val",
)


def test_a_cost_is_a_table_with_difference_speed_and_size():
    table = [line.split("  ") for line in COST.describe()[:4]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert cells[1] == ["top-1", "81.0000", "80.5000", "-0.5 [-1.25, +0.25]"]
    assert cells[2] == ["ms of one sample", "2.00", "1.00", "2.00 times as fast"]
    assert cells[3] == ["MB", "4.00", "1.00", "0.25 of the size"]
    assert (
        "17 of 18 layers are in int8, calibrated on 256 of 1,437 images of train; in float32: 1 (head)"
        in COST.describe()[4]
    )
    assert COST.plain()["score"]["interval_95"] == [-1.25, 0.25]


@pytest.mark.parametrize("flags, told", [("avx2 avx512_vnni", "has VNNI"), ("avx2", "has none"), (None, "not say")])
def test_the_processor_is_asked_for_exact_sums(tmp_path, flags, told):
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    assert told in describe_saturation(tmp_path / "cpuinfo")


def test_weights_without_a_run_have_nothing_to_calibrate_on():
    with pytest.raises(UserError, match="export a run's folder"):
        Quantizer(None, 256, print)


def test_no_finite_difference_of_int8_is_unexplained():
    assert OutputDifference(3.0, 1.0).is_rounding("int8") and not OutputDifference(3.0, 1.0).is_rounding("float16")
    assert not OutputDifference(float("inf"), 1.0).is_rounding("int8")


def test_tries_are_as_many_as_the_page_says():
    assert len(int8.KEPT) == 8
