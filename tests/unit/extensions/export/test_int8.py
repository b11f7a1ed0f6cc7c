"""What is said of the cost of int8."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.extensions.export.differences import OutputDifference
from paddlevit_dist.extensions.export.int8 import QuantizationCost, Quantizer, describe_saturation
from paddlevit_dist.extensions.export.scoring import ComparedModels

COST = QuantizationCost(
    score="top-1",
    scores=(81.0, 80.5),
    compared=ComparedModels(OutputDifference(0.5, 4.0), 7, {"top-1": 81.0}, "", ConfidenceInterval(-0.5, -1.25, 0.25)),
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
        in COST.describe()[5]
    )
    assert COST.describe()[4] == "7 of 360 images of val have another answer" and COST.plain()["changed"] == 7
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
