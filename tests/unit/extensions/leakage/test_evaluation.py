"""The score without leaked samples: where they are searched for, which are left out, and what is said."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.trainings.runs import IMAGES, write_images

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.leakage.evaluation import WithoutLeaks, find_in_training
from paddlevit_dist.extensions.leakage.search import FILE


def load(data, output, *words):
    flags = [*IMAGES[:-1], f"-data_path={data}", f"-output={output}", "-eval", "-pretrained=x", "-exclude_leaked"]
    return settings.load([*flags, "DATA.CACHE_FOLDER", str(output / "cache"), *words]).values


def write_copies(folder, copied):
    """Write 16 images of train and 8 of val, this many of which are copies of images of train."""
    write_images(folder)
    generator = np.random.default_rng(7)  # other images than those of train
    for number, path in enumerate(sorted((folder / "val").rglob("*.jpg"))):
        Image.fromarray(generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(path)
        if number < copied:
            path.write_bytes((folder / "train" / "bee" / f"{number + 2:02d}.jpg").read_bytes())
    return folder


def test_the_training_set_is_the_configured_one_or_the_one_that_is_named(tmp_path, capsys):
    data, other = write_copies(tmp_path / "data", 3), tmp_path / "other"
    (data / "train" / "bee" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")  # has no copies to search for
    for path in (write_images(other) / "train").rglob("*.jpg"):
        Image.open(path).rotate(90, expand=True).save(path)  # other images than those of the first folder
    (other / "train" / "ant" / "04.jpg").unlink()
    for words, pairs, size in (([], 3, 17), (["TRAIN_DATA", str(other)], 0, 15)):
        config = load(data, tmp_path, *words)
        val = make_task(config).build_dataset("val", tmp_path)
        find_in_training(config, {"val": val}, tmp_path)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"searching for 8 samples of val in {size} of train"
        assert lines[-1].startswith(f"{pairs} of 8 samples of val are also in train")
        assert lines[-1].endswith(f", listed in {tmp_path / FILE}")
        rows = json.loads((tmp_path / FILE).read_text())["pairs"]
        expected = [(number, f"bee/{number + 2:02d}.jpg") for number in range(pairs)]
        assert [(row["sample"], row["train"][-10:]) for row in rows] == expected
        assert config.DATA.DATA_PATH == str(data)


def test_a_training_set_that_is_missing_or_holds_something_else_is_refused(tmp_path):
    data = write_copies(tmp_path / "data", 1)
    config = load(data, tmp_path, "TRAIN_DATA", str(tmp_path / "absent"))
    val = make_task(config).build_dataset("val", tmp_path)
    with pytest.raises(UserError, match=r"^-exclude_leaked: the training set is not known \(.*absent.*\); add TRAIN_D"):
        find_in_training(config, {"val": val}, tmp_path)
    config = load(data, tmp_path)
    val.dataset = [1]
    with pytest.raises(UserError, match=r"^-exclude_leaked: list contains neither .*; drop -exclude_leaked$"):
        find_in_training(config, {"val": val}, tmp_path)


class Samples(list):
    labeled = True


class Table(list):
    def without(self, indices):
        return Table(value for index, value in enumerate(self) if index not in indices)


def score(folder, listed, values=(1.0, 2.0, 4.0, 8.0), labeled=True):
    """The events and lines about samples with these scores, without those in the list."""
    events, lines = [], []
    (folder / FILE).write_text(json.dumps({"pairs": [{"sample": index} for index in listed]}))
    samples = Samples(range(4))
    samples.labeled = labeled

    def scored(table, without):
        return {"sum": sum(table)}, f"{without} -> sum {sum(table):g}"

    table = None if values is None else Table(values)
    evaluator = SimpleNamespace(samples=samples, table=table, scored=scored, keeps_table=False)
    log = SimpleNamespace(folder=folder, event=lambda *facts: events.append(facts), log_and_print=lines.append)
    observer = WithoutLeaks(SimpleNamespace(evaluator=evaluator, run_log=log))
    assert evaluator.keeps_table
    observer.after_evaluate({"epoch": 3})
    return events, lines


def test_listed_samples_are_left_out_of_the_score(tmp_path):
    events, lines = score(tmp_path, [0, 2])
    facts = {"epoch": 3, "left_out": 2, "samples": 2, "sum": 10.0}
    assert events == [("evaluation_without_leaks", facts)]
    without = {"without": "without 2 of 4 that are in the training set"}
    assert lines == [f"without leaks: {without} -> sum 10"]


def test_all_or_none_or_no_scores_of_samples_are_told(tmp_path):
    assert score(tmp_path, []) == ([], ["without leaks: no sample is in the training set: same score"])
    assert score(tmp_path, [0, 1, 2, 3]) == ([], ["without leaks: all samples are in the training set"])
    expected = ["without leaks: not known: the task's metrics have no 'score' for a part of the samples"]
    assert score(tmp_path, [1], values=None) == ([], expected)
    assert score(tmp_path, [1], labeled=False) == ([], [])
