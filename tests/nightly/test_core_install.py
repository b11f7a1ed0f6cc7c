"""What is installed without any extra, so without Paddle and numba, compares runs and draws reports."""

from integration.test_core_install import commands, core_packages  # noqa: F401
from support.processes import run_main, succeeded


def test_runs_are_compared_and_reported_without_paddle_and_numba(commands, tmp_path):  # noqa: F811
    for seed in "12":
        words = ["-cfg=vit_digits", "-epochs=1", "TRAIN.WARMUP_EPOCHS", "0", "MODEL.DEPTH", "1", "CPU_TUNING", "false"]
        succeeded(run_main(*words, "SEED", seed, f"-output={tmp_path / seed}", OMP_NUM_THREADS="1"))
    assert "McNemar's mid-p test" in commands("compare", "1", "2")
    (tmp_path / "1" / "report.html").unlink()
    assert "1/report.html" in commands("report", "1")
    assert "<html" in (tmp_path / "1" / "report.html").read_text(encoding="utf-8")
