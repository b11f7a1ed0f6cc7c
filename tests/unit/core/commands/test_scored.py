"""What commands that score results of others print, write and ask for."""

import json
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import Manifest, UserError, register_feature, register_score_kind
from paddlevit_dist.core.commands import scored
from paddlevit_dist.core.commands.parser import CommandParser
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.score_kind import ScoreKind
from paddlevit_dist.core.tasks.score_report import ResultSource, ScoreReport

RIGHT = np.array([1.0] * 30 + [0.0] * 18 + [1.0] * 12)
CLASSES = ["bird", "cat", "a dog"]


class Shares(ScoreKind):
    class_score, decimals = "recall {}", 1

    def compute(self, arrays, weights):
        share = 100.0 * (weights @ arrays["right"]) / weights.sum(axis=1)
        recalls = {"recall bird": share / 2, f"recall {self.classes[2]}": share / 4}
        return {"top-1": share, **recalls, "none": np.full(len(weights), np.nan)}


class Rates(Shares):
    class_score = ""

    def hits(self, arrays, classes):
        return {"top-1": arrays["right"] > 0}


REPORT = ScoreReport(
    counted="60 images,\n3 classes",
    names=[f"video{number // 6}/{number}.png" for number in range(60)],
    sample="image",
    shown={"top-1": 2, "none": 1},
    classes=CLASSES,
    protocol=["largest score", "ties:\nfirst"],
    notices=["two images are equal"],
    task="classification",
    kind="shares",
    arrays={"right": RIGHT},
)


def read(*words: str, data: bool = True) -> Namespace:
    parser = CommandParser("evaluate classes", "Evaluate.", ())
    scored.add_options(parser, "the truth", "the results", "images", data)
    return parser.parse_args(words)


@pytest.fixture(autouse=True, scope="module")
def registered(registered_names):
    register_score_kind("shares", Shares)
    register_score_kind("rates", Rates)


def test_scores_are_printed_with_intervals_protocol_and_a_row_for_each_class(capsys):
    scored.print_scores(REPORT, read("truth", "results"))
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "60 images,\\n3 classes" and lines[1].startswith("top-1 70.00 [5")
    assert lines[2] == "none is not defined"
    assert lines[3:] == [
        "95 % intervals: half samples of images",
        "largest score",
        "ties:\\nfirst",
        "recall of each:",
        "  bird   35.0",
        "  cat       -",
        "  a dog  17.5",
    ]
    unbounded = "top-1 has no bound: gross errors that are not in these 60 images are not in its interval"
    assert err == f"note: two images are equal\nnote: {unbounded}\n"


def test_an_interval_without_width_is_not_shown(capsys):
    alike = replace(REPORT, arrays={"right": np.ones(60)})  # every draw has the same value
    scored.print_scores(alike, read("truth", "results"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "top-1 100.00" and "95 % intervals: half samples of images" in lines


def test_without_intervals_nothing_is_drawn_and_nothing_said_of_them(capsys):
    scored.print_scores(replace(REPORT, kind="rates"), read("truth", "results", "-interval=off"))
    assert capsys.readouterr().out.splitlines()[1:] == [
        *("top-1 70.00", "none is not defined", "largest score", "ties:\\nfirst"),
    ]


def test_json_has_what_is_defined_and_is_written_too(capsys, tmp_path):
    written = []
    options = read("truth", "results.json", "-json", "-interval=99", f"-output={tmp_path / 'a' / 'b'}")
    with forgotten():
        register_feature(Manifest("acme", functions={"write_scored": lambda *words: written.append(words)}))
        scored.print_scores(REPORT, options)
    (line,) = capsys.readouterr().out.splitlines()
    printed = json.loads(line)
    text = (tmp_path / "a" / "b" / "scores.json").read_text()
    assert printed == json.loads(text) and text.startswith('{\n "') and text.endswith("\n}\n")
    assert printed["scores"] == {"top-1": 70.0, "recall bird": 35.0, "recall a dog": 17.5}
    assert (printed["percent"], printed["samples"], "groups" in printed) == (99.0, 60, False)
    assert (printed["protocol"], printed["notes"][:-1]) == (REPORT.protocol, REPORT.notices)
    assert printed["notes"][-1].startswith("top-1 has no bound")
    assert set(printed["intervals"]) >= {"top-1", "recall bird"}
    assert written == [(tmp_path / "a" / "b" / scored.TABLE, REPORT, "results.json", None)]


def test_groups_are_drawn_together(capsys):
    options = read("truth", "results", "-group=folder", "-json")
    scored.print_scores(REPORT, options, {"folder": r"(.+)/[^/]+"})
    printed = json.loads(capsys.readouterr().out)
    alone = scored.compute_intervals(REPORT, "95", None)["top-1"].plain()
    assert printed["intervals"]["top-1"] != alone and printed["groups"]
    assert scored.find_sample_groups(read("truth", "results"), REPORT.names, {}) is None
    assert scored.compute_intervals(REPORT, "off", None) == {}


def test_rates_have_wilsons_intervals_and_their_errors_are_counted(capsys):
    scored.print_scores(replace(REPORT, kind="rates"), read("truth", "results"))
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == "top-1 70.00 [57.49, 80.10]"
    assert out.splitlines()[3] == "95 % intervals: half samples of images, Wilson's of rates"
    few = replace(REPORT, kind="rates", arrays={"right": np.arange(60) > 8})
    scored.print_scores(few, read("truth", "results"))
    assert "note: the interval is rough: 9 wrong (below 10)" in capsys.readouterr().err
    scored.print_scores(few, read("truth", "results", "-interval=off"))
    assert capsys.readouterr().err == "note: two images are equal\n"


def test_a_kind_that_is_not_registered_is_named():
    with pytest.raises(UserError, match="no kind of scores 'gone' is registered"):
        replace(REPORT, kind="gone").recompute(np.ones((1, 60)))


def test_many_classes_are_counted_and_long_names_shortened(capsys):
    many = replace(REPORT, classes=[f"class {number}" for number in range(101)])
    scored.print_scores(many, read("truth", "results", "-interval=off"))
    assert capsys.readouterr().out.splitlines()[-1] == "101 classes: add -json to print the value of each"
    scored.print_scores(
        replace(REPORT, classes=[f"{number}{'b' * 99}" for number in range(100)]),
        read("truth", "results", "-interval=off"),
    )
    assert len(capsys.readouterr().out.splitlines()[-1]) < 70


# Truth


def test_the_truth_is_a_file_or_the_folder_of_a_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "truth.csv").touch()
    (tmp_path / "images").mkdir()
    assert not scored.takes_data(read("truth.csv", "results"))
    assert not scored.takes_data(read("truth.csv", "results", "-split=test"), has_splits=True)
    assert scored.takes_data(read("results", "-cfg=a.yaml"))
    options = read("images", "results", "-split=test")
    assert scored.takes_data(options) and options.data_path == "images" and options.split == "test"
    assert not scored.takes_data(read("images", "results"), lambda path: True)
    for words, line in (
        (("gone", "results"), "gone cannot be read: No such file or directory"),
        (("images", "results", "-data_path=x"), "two dataset folders: images and -data_path=x; remove one"),
        (("truth.csv", "results", "-split=test"), "truth.csv and -split both name the ground truth: remove one"),
        (("truth.csv", "results", "-dataset=coco"), "truth.csv and -dataset both name the ground truth: remove one"),
    ):
        assert refusal_of(scored.takes_data, read(*words)) == line


def test_the_data_set_is_named_or_guessed_for_the_task(tmp_path):
    data, empty = tmp_path / "data", tmp_path / "empty"
    empty.mkdir()
    for name in ("ant", "bee"):
        (data / "train" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(data / "train" / name / "1.png")
    with scored.data_set(read("r", f"-data_path={data}", "-split=train"), "classification") as (values, _, source):
        assert (values.DATA.DATASET, values.DATA.DATA_PATH, values.TASK) == ("folder", str(data), "classification")
        assert source == ResultSource("folder", "train") and str(source) == "folder (train)"
    for words, line in (
        (
            (f"-data_path={empty}",),
            f"{empty}: the dataset type cannot be detected from the files; add -dataset=NAME",
        ),
        ((), "no ground truth: give TRUTH before RESULTS, or add -cfg, -dataset or -data_path"),
    ):
        with pytest.raises(UserError) as refusal, scored.data_set(read("r", *words), "classification"):
            pass
        assert str(refusal.value) == line
    with scored.data_set(read("r", "-dataset=synthetic_shapes"), "detection") as (values, cache, source):
        assert (values.TASK, source.split) == ("detection", "val")


def test_keys_that_messages_about_data_name_are_taken_and_others_are_not(tmp_path):
    (tmp_path / "truth.csv").touch()
    words = ("r", "-dataset=synthetic_shapes", "DATA.SHAPES.VAL", "3")
    with scored.data_set(read(*words), "detection") as (values, _, _):
        assert values.DATA.SHAPES.VAL == 3
    refusal = pytest.raises(UserError, match="TRAIN.BASE_LR=1 does not change the ground truth: remove it")
    with refusal, scored.data_set(read(*words, "TRAIN.BASE_LR", "1"), "detection"):
        pass
    with pytest.raises(UserError, match="truth.csv and DATA.EXIF_ROTATE=true both name the ground truth: remove one"):
        scored.takes_data(read(str(tmp_path / "truth.csv"), "r", "DATA.EXIF_ROTATE", "true"))


def test_a_command_without_data_sets_needs_its_truth():
    with pytest.raises(UserError, match="required: RESULTS"):
        read("truth", data=False)
    assert not hasattr(read("truth", "results", data=False), "cfg")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".CSV", ".json"])
def test_a_column_of_groups_may_be_in_the_truth_or_in_a_table_of_results(tmp_path, suffix):
    name = REPORT.names[0]
    cells = {each: f"g{place % 2}" for place, each in enumerate(REPORT.names)}
    separator = "\t" if suffix == ".tsv" else ","
    lines = [f"sample{separator}site", *(f"{each}{separator}{group}" for each, group in cells.items())]
    (tmp_path / f"with{suffix}").write_text("\n".join(lines) + "\n")
    (tmp_path / "without.csv").write_text(f"sample,score\n{name},1\n")
    for truth, results in (("without.csv", f"with{suffix}"), (f"with{suffix}", "without.csv")):
        options = read(str(tmp_path / truth), str(tmp_path / results), "-group=site")
        if suffix == ".json" and results.startswith("with."):
            with pytest.raises(UserError, match="site"):
                scored.find_sample_groups(options, REPORT.names, {})
        elif suffix != ".json":
            assert scored.find_sample_groups(options, REPORT.names, {}).names.tolist() == list(cells.values())


@pytest.mark.parametrize("level", ["off", "95", "99"])
def test_levels_of_intervals_are_those_of_a_run(level):
    parser = CommandParser("evaluate shares", "Score shares.", ())
    scored.add_interval(parser, "images")
    assert parser.parse_args([f"-interval={level}"]).interval == level
    assert load([f"-interval={level}"]).values.EVALUATION.INTERVAL == (level != "off" and int(level))
