"""What the commands hand to readers, and which lines they print of a store."""

from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.prepare import command, formats, store
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.store import StoreSummary


@pytest.fixture
def prepared(monkeypatch, tmp_path):
    """Run a command on ``tmp_path``; return kind and choices of its reader, and what the store was asked for."""
    (tmp_path / "raw").mkdir()

    def prepare(run, *words, remarks=(), splits=("train", "val"), class_names=None):
        calls = []
        sources = dict.fromkeys(splits, ["source"])
        reader = SimpleNamespace(class_names=class_names, remarks=["of a list"])
        reader.sources = lambda root, lists: calls.append((root, lists)) or sources

        def get_reader(kind, choices):
            calls.append((kind, choices))
            return reader

        def prepare_store(*given):
            calls.append(given)
            return StoreSummary(dict.fromkeys(splits, 1200), 34_567, 12_340_000, 30, list(remarks))

        monkeypatch.setattr(formats, "get_reader", get_reader)
        monkeypatch.setattr(store, "prepare_store", prepare_store)
        run([str(tmp_path / "raw"), str(tmp_path / "out"), *words])
        (kind, choices), (root, lists), asked = calls
        assert root == str(tmp_path / "raw") and asked == (reader, sources, root, tmp_path / "out", asked[-1])
        return kind, choices, lists, asked[-1]

    return prepare


def test_each_option_reaches_the_reader(prepared, tmp_path):
    (tmp_path / "names").write_text("wall\n\nchair \n")
    words = ["-format=text", f"-classes={tmp_path}/names", "-label=kind", "-instance=thing", "-ignore_label=7"]
    words += ["-missing_colors=gray", "-channels=Ring, time", "-columns=X,y,z,-,ring", "-val_area=3", "-workers=2"]
    words += ["-train_list=a.txt", "-test_list=b.txt"]
    kind, choices, lists, workers = prepared(command.run_scenes, *words)
    assert (kind, workers) == ("text", 2) and lists == {"train": "a.txt", "val": None, "test": "b.txt"}
    assert choices == SceneChoices(
        class_names=("wall", "chair"),
        label="kind",
        instance="thing",
        ignore_label=7,
        gray=True,
        channels=("ring", "time"),
        columns=("x", "y", "z", "-", "ring"),
        val_area=3,
    )
    assert prepared(command.run_ply)[:2] == ("ply", SceneChoices())
    assert prepared(command.run_pth, f"-classes={tmp_path}/names")[:2] == (
        "pth",
        SceneChoices(class_names=("wall", "chair")),
    )
    for number, words in ((20, []), (200, ["-classes=200"])):
        assert prepared(command.run_scannet, *words)[:2] == ("scannet", SceneChoices(two_hundred=number == 200))
    (tmp_path / "names").write_text("\n")
    with pytest.raises(UserError, match="--classes=.*names: expected a file with one class name per line"):
        prepared(command.run_ply, f"-classes={tmp_path}/names")


def test_a_list_with_a_class_twice_is_refused_before_a_scene_is_read(prepared, tmp_path):
    (tmp_path / "names").write_text("floor\nball\nball\nunused\n")
    with pytest.raises(UserError, match=f"^--classes={tmp_path}/names: classes 1 and 2 are both 'ball'; each needs"):
        prepared(command.run_ply, f"-classes={tmp_path}/names")
    assert not (tmp_path / "out").exists()


def test_five_remarks_on_scenes_are_printed_and_the_use_of_the_store(prepared, tmp_path, capsys):
    prepared(command.run_ply, remarks=[f"remark {number}" for number in range(5)])
    *remarks, last = capsys.readouterr().out.splitlines()
    assert remarks == ["note: of a list", *(f"note: remark {number}" for number in range(5))]
    assert last == (
        "prepared 1,200 train, 1,200 val scenes (30 were prepared before) of 34,567 points (12.3 MB) in "
        f"{tmp_path}/out; to train on them: -dataset=scenes -data_path={tmp_path}/out"
    )
    remarks = [f"remark {number}" for number in range(8)]
    prepared(command.run_scannet, remarks=remarks, splits=["test"], class_names=CLASS_NAMES)
    *_, fifth, more, last = capsys.readouterr().out.splitlines()
    assert (fifth, more) == ("note: remark 4", "note: 3 more lines of this kind")
    assert f"; to evaluate on them: -eval -split=test -dataset=scannet -data_path={tmp_path}/out" in last
    prepared(command.run_scannet, remarks=remarks[:6], splits=["test"], class_names=CLASS_NAMES)
    assert "note: 1 more line of this kind\n" in capsys.readouterr().out


def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(UserError, match=f"^{tmp_path}/none is not a folder: give the folder of the raw scenes$"):
        command.run_ply([str(tmp_path / "none"), str(tmp_path / "out")])


def test_only_a_command_for_any_format_imports_code_of_users(prepared):
    for run in (command.run_ply, command.run_pth, command.run_scannet):
        with pytest.raises(UserError, match="-import"):
            prepared(run, "-import=math")
    assert prepared(command.run_scenes, "-import=math", "-format=ply")[0] == "ply"
