"""The scored trainings of ``make accept`` in short form: with two processes the loss falls and digits are learned."""

import acceptance
from support.processes import ROOT, run_main, succeeded
from support.trainings.runs import read_events


def epochs_and_windows(folder) -> tuple:
    lines = read_events(folder)
    return tuple([line["loss"] for line in lines if line["kind"] == kind] for kind in ("epoch", "training"))


def test_the_digits_recipe_learns_in_ten_epochs(tmp_path):
    ended = succeeded(
        run_main(
            f"-cfg={ROOT}/configs/vit_digits.yaml", "-ngpus=2", "-epochs=10", f"-output={tmp_path}", "REPORT=False"
        )
    )
    epochs, _ = epochs_and_windows(tmp_path)
    assert epochs[-1] < 0.6 * epochs[0]
    top1 = float(ended.out.strip().splitlines()[-1].split()[1])
    assert top1 > 80.0


def test_the_mnist_recipe_learns_within_a_tenth_of_its_epoch(tmp_path):
    acceptance.write_digits_as_idx(tmp_path, train_size=6000)
    recipe = [f"-cfg={ROOT}/configs/vit_mnist.yaml", f"-data_path={tmp_path / 'data'}", f"-output={tmp_path / 'run'}"]
    succeeded(run_main(*recipe, "-ngpus=2", "TRAIN.WARMUP_STEPS", "10"))
    _, windows = epochs_and_windows(tmp_path / "run")
    assert windows[-1] < 0.85 * windows[0]
