"""What the command ``compare`` refuses, hands on and prints."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist.extensions.compare import command
from paddlevit_dist.extensions.compare.formatting import format_lines
from paddlevit_dist.extensions.compare.group_pairs import compare_groups
from paddlevit_dist.extensions.compare.groups import SeedGroup, read_group
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.plan import format_plan, plan_group, plan_pair, plan_single
from paddlevit_dist.extensions.compare.tables import read_table, write_table

NUMBER = 60


def refuse(*words: str) -> str:
    return refusal_of(command.run, list(words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a"], "give two runs or more"),
        (["a", "b", "-data_path=d"], "--data_path sets the images of the page: add --output=FILE, or drop --data_path"),
        (["a", "b", "-output=x.txt"], "-output=x.txt: expected a file that ends in .html, or an existing folder"),
        (["a", "-plan=1", "-output=x.html"], "-plan takes one run, two runs or a group of seeds, and no -output"),
        (["a", "b", "c", "-plan=1"], "-plan takes one run, two runs or a group of seeds, and no -output"),
    ],
)
def test_words_that_do_not_fit_together_are_refused_first(words, said):
    assert refuse(*words).startswith(f"compare: {said}; see ")


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """Runs a, bb and c, groups of seeds g, h and one, and a file of the samples' groups."""
    monkeypatch.chdir(tmp_path)
    about = {"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True, "split": "val"}
    about |= {"classes": ["x", "y"], "dataset": "drawn", "of": "epoch 1", "protocol": {}, "input": {}}
    for seed, name in enumerate(("a", "bb", "c")):
        Path(name).mkdir()
        wrong = np.random.default_rng(seed).random(NUMBER) < 0.1 * (seed + 1)
        arrays = {"labels": np.arange(NUMBER) % 2, "places": wrong.astype(np.int32), "losses": np.ones(NUMBER)}
        arrays |= {"top": np.array([1]), "indices": np.arange(NUMBER)}
        write_table(Path(name, "scored_samples.npz"), about, [f"s{n}" for n in range(NUMBER)], arrays, None)
    about = {"task": "classification", "dataset": "drawn", "score": "top-1", "more_is_better": True, "settings": {}}
    for name, scores in (("g", (50.0, 60.0, 65.0)), ("h", (70.0, 75.0)), ("one", (70.0,))):
        Path(name).mkdir()
        rows = [{"seed": n, "folder": str(n), "state": "finished", "value": v} for n, v in enumerate(scores)]
        SeedGroup(name, about, rows).write()
    lines = [f"s{number},{number // 5}" for number in range(NUMBER)]
    Path("f.csv").write_text("\n".join(["sample,group", *lines]) + "\n")
    return tmp_path


def as_json(value: object) -> object:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "-plan=1", "g"], "-plan takes one group of seeds, whose spread it uses for both methods"),
        (["a", "g", "-output=x.HTM"], "-output does not apply to groups of seeds: use 'report GROUP' for charts, or "),
        (["g", "a", "-group=f"], "-group does not apply to groups of seeds, which are compared by their scores: drop "),
    ],
)
def test_what_is_not_for_groups_is_refused(runs, words, said):
    assert refuse(*words).startswith(f"compare: {said}")


def test_each_run_is_compared_with_the_first(runs, capsys):
    tables = [read_table(name) for name in ("a", "bb", "c")]
    rows = [compare_tables(tables[0], other, 2) for other in tables[1:]]
    command.run(["a", "bb", "c"])
    plain = capsys.readouterr().out
    assert plain.splitlines() == "\n".join(format_lines(tables, rows, tables[0].kind.decimals)).splitlines()
    assert refuse("a", "bb", "-output=p.html", "-data_path=d").endswith("--data_path=d: a has no config.yaml")
    capsys.readouterr()
    command.run(["a", "bb", "c", "-output=p.html", "-json"])
    said = capsys.readouterr()
    assert as_json(rows) == json.loads(said.out)["comparisons"]
    assert said.err.startswith("p.html: no images: ") and Path("p.html").is_file()
    command.run(["bb", "a", "-output=."])
    said = capsys.readouterr()
    assert said.err == "" and said.out.splitlines()[-1].startswith(f"{command.COMPARED}: no images: ")
    assert Path(command.COMPARED).is_file()
    command.run(["a", "bb", "c", "-group=f.csv"])
    assert capsys.readouterr().out != plain  # resampled by groups


def test_a_report_gets_the_paired_differences_by_the_names_that_it_shows(runs):
    (heading, first, second), lines = command.compare_runs({"a": "small", "bb": "large"})
    wrong = [np.random.default_rng(seed).random(NUMBER) < 0.1 * (seed + 1) for seed in (0, 1)]
    before, after = (100 * (1 - each.mean()) for each in wrong)
    assert heading[:4] == ["run", "top-1", "difference", "p"] and [first[0], second[0]] == ["small", "large"]
    assert first[1].startswith(f"{before:.2f} [") and second[2].startswith(f"{after - before:+.2f} [")
    assert lines[0].startswith("95 % intervals and p (McNemar's mid-p test) of the same 60 samples")
    assert command.compare_runs({"g": "g", "h": "h"}) == ([], [line for line in compare_groups(["g", "h"])[1] if line])


@pytest.mark.parametrize("as_document", [True, False])
def test_seeds_json_of_a_group_means_its_folder(runs, capsys, as_document):
    command.run(["g/seeds.json", "h/seeds.json", *["-json"] * as_document])
    plain, lines = compare_groups(["g", "h"])
    said = capsys.readouterr().out
    assert (json.loads(said) == as_json(plain)) if as_document else (said.splitlines() == lines)


def test_a_plan_is_of_a_group_a_pair_or_a_run(runs, capsys):
    first, second = read_table("a"), read_table("c")
    for words, plan in (
        (["g"], plan_group(read_group("g"), 0.5)),
        (["g/seeds.json"], plan_group(read_group("g"), 0.5)),
        (["a", "c"], plan_pair(first, second, 0.5)),
        (["a"], plan_single(first, 0.5)),
    ):
        command.run([*words, "-plan=0.5"])
        assert capsys.readouterr().out.splitlines() == "\n".join(format_plan(plan)).splitlines()
        command.run([*words, "-plan=0.5", "-json"])
        assert json.loads(capsys.readouterr().out) == as_json(plan)
    command.run(["a", "-plan=0.5", "-json", "-group=f.csv"])
    assert json.loads(capsys.readouterr().out)["half_width"] != plan["half_width"]
    assert refuse("one", "-plan=1") == "one has 1 finished seeds: train two or more to see their spread"


def test_a_page_that_cannot_be_written_is_refused(runs):
    assert refuse("a", "bb", f"-output={'p' * 300}.html").startswith("cannot write ppp")
    assert refuse("a", "bb", "-output=f.csv/p.html") == (
        "compare: f.csv/p.html: File exists; there is a file where a folder is expected: rename it, or choose another "
        "folder"
    )
