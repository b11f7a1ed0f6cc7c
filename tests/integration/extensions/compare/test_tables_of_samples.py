"""An evaluation writes its table of samples with and without intervals."""

import csv
import io

import numpy as np
import pytest
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.evaluation import evaluate_only


def test_an_evaluation_writes_its_table_with_and_without_intervals(tmp_path):
    small_runs.build(str(tmp_path / "run"), "-epochs=1", "-batch_size=64", val_size=40).train()
    files = []
    for number, words in enumerate(([], ["EVALUATION.INTERVAL", "off"])):
        file, folder = tmp_path / f"{number}.csv", tmp_path / str(number)
        evaluated = small_runs.build(
            str(folder), "-eval", f"-pretrained={tmp_path / 'run'}", f"-per_sample={file}", *words, val_size=40
        )
        values = evaluate_only(evaluated)
        assert (folder / "eval_intervals.json").exists() == (not words)
        rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
        assert [row["name"] for row in rows] == [evaluated.eval_dataset.describe(index) for index in range(40)]
        assert 100 * np.mean([row["correct"] == "True" for row in rows]) == pytest.approx(values["top-1"])
        assert 100 * np.mean([int(row["rank"]) <= 5 for row in rows]) == pytest.approx(values["top-5"])
        assert np.mean([float(row["loss"]) for row in rows]) == pytest.approx(values["loss"], rel=1e-5)
        said = (folder / "log.txt").read_text().splitlines()
        assert said[-2].endswith(f"a row for each of 40 images: {file}") and " top-1 " in said[-1]
        files.append(file.read_bytes())
    assert files[0] == files[1]


def test_a_score_is_said_where_its_table_cannot_be_written(tmp_path, capsys):
    small_runs.build(str(tmp_path / "run"), "-epochs=1", "-batch_size=64", val_size=40).train()
    (tmp_path / "gone").mkdir()
    words = ["-eval", f"-pretrained={tmp_path / 'run'}", f"-per_sample={tmp_path / 'gone' / 'a.csv'}"]
    evaluated = small_runs.build(str(tmp_path / "again"), *words, val_size=40)
    (tmp_path / "gone").rmdir()
    with pytest.raises(UserError, match=r"cannot write .*gone/a.csv: "):
        evaluate_only(evaluated)
    assert capsys.readouterr().out.splitlines()[-1].startswith("top-1 ")
