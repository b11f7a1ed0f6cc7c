"""One rule for every path: a run's folder means a checkpoint in it."""

import shutil

from support.trainings.runs import DIGITS, last_line, run_main, well


def test_a_runs_folder_is_its_best_checkpoint_else_its_last(trained, tmp_path):
    run = shutil.copytree(trained.output, tmp_path / "run", symlinks=True)
    digits = [word for word in DIGITS if word != "-epochs=1"]

    def evaluate(source):
        ended = well(run_main(*digits, f"-output={tmp_path / 'output'}", "-eval", f"-pretrained={source}"))
        return next(line for line in ended.out.splitlines() if line.startswith("weights ")), last_line(ended)

    said, score = evaluate(run)
    assert (said, score) == evaluate(run / "checkpoints" / "best")
    (run / "checkpoints" / "best").unlink()
    assert evaluate(run) == evaluate(run / "checkpoints") == evaluate(run / "checkpoints" / "last")
