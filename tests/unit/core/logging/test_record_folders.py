"""The output folder of a run that is given none: named by its recipe, and numbered."""

import threading
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.commands.train import with_output
from paddlevit_dist.core.logging.record import cache_folder, output_folder
from paddlevit_dist.core.settings import DEFAULT_RECIPE, load


def test_runs_that_start_at_once_get_different_numbers(tmp_path):
    path, taken, go = tmp_path / "output" / "run", [], threading.Barrier(8, timeout=60)

    def start():
        go.wait()
        with output_folder(str(path), is_numbered=True) as folder:
            taken.append(folder.name)

    threads = [threading.Thread(target=start) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(taken) == ["run", *(f"run-{number}" for number in range(2, 9))]


def test_a_folder_that_was_deleted_is_not_counted_again(tmp_path):
    (tmp_path / "run-4").mkdir()
    with output_folder(str(tmp_path / "run"), is_numbered=True) as folder:
        assert folder.name == "run-5"  # the highest is the newest: -resume=auto goes by that


def test_what_is_in_the_way_of_all_numbers_is_told(tmp_path):
    (tmp_path / "output").symlink_to("gone")
    with pytest.raises(UserError, match="cannot be written"), output_folder(str(tmp_path / "output/run"), (), True):
        pass


def test_a_folder_for_caches_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    config = load([f"DATA.CACHE_FOLDER={tmp_path / 'file' / 'cache'}"]).values
    with pytest.raises(UserError, match="^DATA.CACHE_FOLDER .*file/cache cannot be created: Not a directory; choose"):
        cache_folder(config)


def test_of_numbered_runs_only_the_refused_one_leaves_no_folder(tmp_path):
    path = tmp_path / "output" / "run"
    path.mkdir(parents=True)
    with pytest.raises(UserError), output_folder(str(path), is_numbered=True) as folder:
        assert folder.name == "run-2"
        raise UserError("the data are missing")
    assert [other.name for other in path.parent.iterdir()] == ["run"]


@pytest.mark.parametrize(
    "words, there, is_launched, expected",
    [
        ("", [], False, ("output/vit_digits", True)),
        ("-eval -pretrained=x", [], False, ("output/vit_digits_eval", True)),
        ("-resume=auto", [], False, ("output/vit_digits", False)),
        ("-resume=auto", ["vit_digits", "vit_digits-2", "vit_digits-10"], False, ("output/vit_digits-10", False)),
        (
            "-resume=auto",
            ["vit_digits", "vit_digits_eval", "vit_digits-x", "vit_digits-²"],
            False,
            ("output/vit_digits", False),
        ),
        ("-eval -resume=auto", ["vit_digits-2"], False, ("output/vit_digits-2", False)),
        ("", ["vit_digits"], True, ("output/vit_digits", False)),  # machines see different folders
        ("-resume=auto", ["vit_digits-2"], True, ("output/vit_digits", False)),
        ("-output=mine", ["vit_digits"], False, ("mine", False)),
        ("-output=./output", [], False, ("./output", False)),
    ],
)
def test_the_folder_follows_from_recipe_and_command(tmp_path, monkeypatch, words, there, is_launched, expected):
    monkeypatch.chdir(tmp_path)
    for name in there:
        Path("output", name, "checkpoints", "epoch_0001").mkdir(parents=True)
    Path("output", "vit_digits-11").mkdir(parents=True)  # was ended before it saved anything
    run, is_numbered = with_output(load(words.split(), DEFAULT_RECIPE), is_launched)
    assert (run.values.SAVE, is_numbered) == expected
