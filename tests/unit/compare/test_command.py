"""What the command ``compare`` refuses, hands on and prints."""

import json
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.compare import command


def refuse(*words: str) -> str:
    with pytest.raises(UserError) as refusal:
        command.run(list(words))
    return str(refusal.value)


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "-plan=1", "g"], "-plan takes one group of seeds, whose spread it uses for both methods"),
        (["a", "g", "-output=x.HTM"], "-output does not apply to groups of seeds: use 'report GROUP' for charts, or "),
        (["g", "a", "-group=f"], "-group does not apply to groups of seeds, which are compared by their scores: drop "),
    ],
)
def test_what_is_not_for_groups_is_refused(monkeypatch, words, said):
    monkeypatch.setattr(command, "is_group", lambda run: run == "g")
    assert refuse(*words).startswith(f"compare: {said}")


@pytest.fixture
def calls(monkeypatch) -> list:
    """Notes what reads and compares; a table is the name of its run."""
    noted = []
    tables = {name: SimpleNamespace(name=name, kind=SimpleNamespace(decimals=len(name))) for name in ("a", "bb", "c")}
    monkeypatch.setattr(command, "read_table", lambda folder: tables[folder])
    monkeypatch.setattr(command, "with_groups", lambda table, file: noted.append((table.name, file)) or table)
    monkeypatch.setattr(command, "compare_tables", lambda first, other: {"pair": first.name + other.name})
    monkeypatch.setattr(command, "add_findings", lambda rows: [{**row, "of": len(rows)} for row in rows])
    monkeypatch.setattr(
        command, "format_lines", lambda all_tables, rows, decimals: [str(len(all_tables)), str(rows), str(decimals)]
    )
    monkeypatch.setattr(
        command,
        "write_images",
        lambda target, all_tables, rows, decimals, data: f"{target} {len(all_tables)} {len(rows)} {decimals} {data}",
    )
    return noted


def test_each_run_is_compared_with_the_first(calls, capsys):
    rows = [{"pair": "abb", "of": 2}, {"pair": "ac", "of": 2}]
    command.run(["a", "bb", "c", "-group=f"])
    assert capsys.readouterr().out.splitlines() == ["3", str(rows), "1"]
    assert calls == [("a", "f"), ("bb", "f"), ("c", "f")]
    command.run(["a", "bb", "c", "-output=p.html", "-json", "-data_path=d"])
    said = capsys.readouterr()
    assert json.loads(said.out) == {"comparisons": rows} and said.err == "p.html 3 2 1 d\n"
    command.run(["bb", "a", "-output=p.html"])
    said = capsys.readouterr()
    assert said.err == "" and said.out.splitlines()[-1] == "p.html 2 1 2 None"


@pytest.mark.parametrize("as_json", [True, False])
def test_seeds_json_of_a_group_means_its_folder(monkeypatch, capsys, as_json):
    given = []
    monkeypatch.setattr(command, "is_group", lambda run: run == "out/g")
    monkeypatch.setattr(command, "compare_groups", lambda runs: given.append(runs) or ({"n": 2}, ["one", "two"]))
    command.run(["out/g/seeds.json", "out/h/seeds.json", *["-json"] * as_json])
    said = capsys.readouterr().out
    assert given == [["out/g", "out/h"]] and (json.loads(said) == {"n": 2} if as_json else said == "one\ntwo\n")


def test_a_plan_is_of_a_group_a_pair_or_a_run(calls, monkeypatch, capsys):
    monkeypatch.setattr(command, "is_group", lambda run: run in ("g", "h"))
    monkeypatch.setattr(command, "read_group", lambda run: SimpleNamespace(scores=[1.0] * (2 if run == "g" else 1)))
    monkeypatch.setattr(command, "plan_group", lambda group, size: {"group": [len(group.scores), size]})
    monkeypatch.setattr(command, "plan_pair", lambda first, other, size: {"pair": [first.name, other.name, size]})
    monkeypatch.setattr(command, "plan_single", lambda first, size: {"single": [first.name, size]})
    monkeypatch.setattr(command, "format_plan", lambda plan: ["of", json.dumps(plan)])
    for words, plan in (
        (["g"], {"group": [2, 0.5]}),
        (["g/seeds.json"], {"group": [2, 0.5]}),
        (["a", "c"], {"pair": ["a", "c", 0.5]}),
        (["bb", "-group=f"], {"single": ["bb", 0.5]}),
    ):
        command.run([*words, "-plan=0.5"])
        assert capsys.readouterr().out == f"of\n{json.dumps(plan)}\n"
        command.run([*words, "-plan=0.5", "-json"])
        assert json.loads(capsys.readouterr().out) == plan
    assert calls[-1] == ("bb", "f")
    assert refuse("h", "-plan=1") == "h has 1 finished seeds: train two or more to see their spread"


def test_the_page_is_in_a_folder_or_a_file_with_images_or_the_reason(tmp_path, monkeypatch):
    written, asked = [], []
    drawn = SimpleNamespace(drawn={"x": 1}, problem="")

    def draw(table, names, data_path):
        asked.append((table, names, data_path))
        return drawn

    monkeypatch.setattr(command.images, "draw_images", draw)
    monkeypatch.setattr(command, "write_page", lambda *given: written.append(given))
    rows = [{"fixed": [{"sample": "s"}, {"sample": "t"}], "broken": []}, {"broken": [{"sample": "u"}]}]
    told = command.write_images(tmp_path, ["first", "other"], rows, 2, "data")
    target = tmp_path / command.COMPARED
    assert told == f"{target}: 1 image" and asked == [("first", ["s", "t", "u"], "data")]
    assert written == [(target, ["first", "other"], rows, 2, drawn)]
    drawn.drawn = {"x": 1, "y": 2}
    assert command.write_images(tmp_path / "p.html", ["first"], [], 2, None) == f"{tmp_path / 'p.html'}: 2 images"
    drawn.problem = "no data"
    assert command.write_images(tmp_path / "p.html", ["first"], [], 2, None).endswith(": no images: no data")

    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(command, "write_page", fail)
    with pytest.raises(UserError, match=rf"^compare: {tmp_path / 'p.html'}: .*ermission"):
        command.write_images(tmp_path / "p.html", ["first"], [], 2, None)
