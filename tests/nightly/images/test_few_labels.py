"""What the page on learning without labels compares, with two seeds of two epochs."""

import sys

from support.processes import ROOT, run_command, succeeded


def test_runs_from_200_labels_are_compared_with_those_after_pretraining(tmp_path):
    def run(*words: str) -> str:
        return succeeded(run_command([sys.executable, *words], folder=tmp_path, timeout=600, PYTHONPATH=str(ROOT))).out

    command = ["-m", "paddlevit_dist"]
    assert "200" in run(str(ROOT / "examples" / "few_labels.py"), "output/digits")
    run(*command, "train", "-cfg=mae_digits", "-ngpus=1", "-batch_size=32", "-epochs=2", "-output=output/mae")
    recipe = f"-cfg={ROOT / 'examples' / 'few_labels.yaml'}"
    words = [recipe, "-data_path=output/digits/labels.csv", "-ngpus=1", "-seeds=2", "SEED", "1", "-epochs=2"]
    run(*command, "train", *words, "-output=output/scratch")
    tuned = run(*command, "train", *words, "-pretrained=output/mae", "-output=output/tuned")
    assert "seed 2: finished" in tuned
    compared = run(*command, "compare", "output/scratch", "output/tuned")
    assert "output/scratch" in compared and "output/tuned" in compared and "top-1" in compared
