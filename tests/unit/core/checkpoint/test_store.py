"""Checkpoint directories: complete or absent, verified, and found by every form of -resume."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.trainings.runs import STATE

from paddlevit_dist import StorageOutage, UserError
from paddlevit_dist.core.checkpoint import finding
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.directory_names import list_checkpoints
from paddlevit_dist.core.checkpoint.finding import newest_first
from paddlevit_dist.core.checkpoint.records import read_evaluated_values, resolve_checkpoint
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.runtime import outages


@pytest.fixture()
def model():
    return paddle.nn.Linear(2, 3)


def save(folder: Path, epoch: int, model, **options) -> Path:
    position = {"epoch": epoch, "consumed": 0, "update": 10 * epoch}
    state = checkpoint_store.RunState(position, {"moment1/weight": np.arange(6.0)}, {**STATE, "evaluation_due": True})
    return checkpoint_store.save(folder, checkpoint_store.epoch_name(epoch), model.state_dict(), state, **options)


def save_update(folder: Path, update: int, model) -> Path:
    """In the middle of an epoch of 10 updates of 8 samples."""
    position = {"epoch": update // 10, "consumed": update % 10 * 8, "update": update}
    state = checkpoint_store.RunState(position, {"moment1/weight": np.arange(6.0)}, STATE)
    return checkpoint_store.save(folder, checkpoint_store.update_name(update), model.state_dict(), state)


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)


def test_what_is_saved_is_read_back(tmp_path, model):
    directory = save(tmp_path, 4, model)
    assert directory.name == "epoch_0004"
    checkpoint_store.verify(directory)
    state = checkpoint_store.read(directory)
    assert state.position == {"epoch": 4, "consumed": 0, "update": 40}
    np.testing.assert_array_equal(state.optimizer["moment1/weight"], np.arange(6.0))
    loaded = paddle.load(str(directory / "model.pdparams"))
    np.testing.assert_array_equal(loaded["weight"].numpy(), model.weight.numpy())


@pytest.mark.parametrize("how", ["missing", "truncated", "changed"])
@pytest.mark.parametrize("name", ["model.pdparams", "optimizer.npz", "state.json", "manifest.json"])
def test_any_damage_to_any_file_is_noticed_and_the_one_before_is_used(tmp_path, model, name, how):
    if (name, how) == ("manifest.json", "changed"):
        how = "truncated"
    good, bad = save(tmp_path, 1, model), save(tmp_path, 2, model)
    damage(bad / name, how)
    with pytest.raises(checkpoint_store.DamagedCheckpointError, match=name):
        checkpoint_store.verify(bad)
    said = []
    assert checkpoint_store.newest_good(tmp_path, said.append) == good
    assert len(said) == 1 and name in said[0]


def test_a_checkpoint_whose_drive_is_away_for_a_moment_is_not_damaged(tmp_path, model, monkeypatch, simulated_time):
    monkeypatch.setattr(outages, "_ends", -outages.SECONDS)
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    folder.mkdir()
    save(folder, 1, model)
    last = save(folder, 2, model)
    verify, failures, said = finding.verify, [], []

    def verify_on_a_lost_drive(directory):
        if not failures:
            failures.append(folder.rename(away))
        verify(directory)

    monkeypatch.setattr(finding, "verify", verify_on_a_lost_drive)
    simulated_time.meanwhile = lambda number: away.rename(folder) if number == 2 else None
    assert checkpoint_store.newest_good(folder, said.append) == last and said == []
    simulated_time.meanwhile = lambda number: None
    failures.clear()
    with pytest.raises(StorageOutage, match="epoch_0002"):
        checkpoint_store.newest_good(folder, said.append)
    away.rename(folder)
    for file in last.iterdir():
        file.unlink()
    assert checkpoint_store.newest_good(folder, said.append).name == "epoch_0001" and "epoch_0002" in said[0]


def test_weights_are_compared_with_the_manifest_where_there_is_one_of_a_checkpoint(tmp_path, model):
    directory = save(tmp_path, 1, model)
    file = directory / "model.pdparams"
    before, content = read_weights(directory).state["weight"], bytearray(file.read_bytes())
    content[content.index(before.tobytes()) + 3] ^= 64  # the exponent of its first number
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"model.pdparams has changed since .* damaged; restore it"):
        read_weights(file)
    for name in ("state.json", "manifest.json"):  # without one of them it is anybody's
        (directory / name).rename(tmp_path / name)
        assert (read_weights(file).state["weight"] != before).sum() == 1
        (tmp_path / name).rename(directory / name)
    damage(file, "truncated")  # what reading it raises is not what is told
    with pytest.raises(UserError, match="were written: the checkpoint is damaged"):
        read_weights(file)


@pytest.mark.parametrize("name", ["about.yaml", "samples.npz"])
def test_what_a_checkpoint_says_of_itself_is_compared_with_the_manifest(tmp_path, model, name):
    state = checkpoint_store.RunState({"epoch": 1, "consumed": 0, "update": 10}, {}, {})
    lists = {"train": np.arange(3, dtype=np.uint64)}
    directory = checkpoint_store.save(
        tmp_path, "epoch_0001", model.state_dict(), state, None, {"run": "b", "input": {"a": 14}}, lists
    )
    about = checkpoint_store.read_about(str(directory))
    assert list(about.items()) == [("run", "b"), ("input", {"a": 14})]  # in this order, for people
    assert checkpoint_store.read_samples(str(directory))["train"].tolist() == [0, 1, 2]
    damage(directory / name, "changed")
    read = checkpoint_store.read_about if name == "about.yaml" else checkpoint_store.read_samples
    with pytest.raises(UserError, match=f"{name} has changed since"):
        read(str(directory))


def test_a_crash_while_saving_leaves_the_earlier_checkpoint_and_no_rubbish_after_the_next(tmp_path, model):
    first = save(tmp_path, 1, model)

    def crash():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, model, before=crash)
    assert checkpoint_store.newest_good(tmp_path, print) == first
    save(tmp_path, 3, model)
    assert sorted(os.listdir(tmp_path)) == ["epoch_0001", "epoch_0003"]


def test_links_are_relative_and_replaced(tmp_path, model):
    for epoch in (1, 2):
        checkpoint_store.link(tmp_path, "last", save(tmp_path, epoch, model))
    assert os.readlink(tmp_path / "last") == "epoch_0002"
    assert sorted(os.listdir(tmp_path)) == ["epoch_0001", "epoch_0002", "last"]


def test_pruning_keeps_linked_and_wanted_checkpoints(tmp_path, model):
    paths = {epoch: save(tmp_path, epoch, model) for epoch in range(1, 7)}
    checkpoint_store.link(tmp_path, "last", paths[5])
    checkpoint_store.link(tmp_path, "best", paths[2])
    checkpoint_store.prune(tmp_path, lambda epoch: epoch % 3 == 0, update=60, keep_updates=2)
    assert sorted(p.name for p in tmp_path.iterdir() if not p.is_symlink()) == [
        "epoch_0002",
        "epoch_0003",
        "epoch_0005",
        "epoch_0006",
    ]


def test_pruning_removes_nothing_where_no_good_one_would_be_left(tmp_path, model):
    paths = [save(tmp_path, epoch, model) for epoch in (1, 2, 3)]
    checkpoint_store.link(tmp_path, "last", paths[2])
    damage(paths[2] / "model.pdparams", "changed")
    checkpoint_store.prune(tmp_path, lambda epoch: False, update=30, keep_updates=2)
    assert checkpoint_store.newest_good(tmp_path, lambda line: None) == paths[1]
    checkpoint_store.prune(tmp_path, lambda epoch: False, update=30, keep_updates=2, keep_epochs=2)
    assert sorted(os.listdir(tmp_path)) == ["epoch_0002", "epoch_0003", "last"]


def test_pruning_keeps_the_newest_updates_of_the_present_life(tmp_path, model):
    """What a run has left behind that was begun again at an earlier place counts for nothing."""
    for update in (9, 13, 17, 21, 25, 99):
        save_update(tmp_path, update, model)
    checkpoint_store.link(tmp_path, "last", save(tmp_path, 1, model))
    checkpoint_store.prune(tmp_path, lambda epoch: False, update=25, keep_updates=2)
    assert sorted(os.listdir(tmp_path)) == ["epoch_0001", "last", "update_00000021", "update_00000025"]


def test_the_newest_is_found_among_epochs_and_updates(tmp_path, model):
    ordered = [save_update(tmp_path, 7, model), save_update(tmp_path, 10, model), save(tmp_path, 1, model)]
    ordered += [save_update(tmp_path, 12, model), save(tmp_path, 2, model)]
    while ordered:
        assert [path for path in [None, *ordered] if checkpoint_store.is_newest(path, tmp_path)] == ordered[-1:]
        assert checkpoint_store.resolve("auto", tmp_path, print) == ordered[-1]
        checkpoint_store.discard(ordered.pop())
    assert checkpoint_store.resolve("auto", tmp_path, print) is None


def test_steps_without_a_position_come_before_all_others_by_their_number(tmp_path, model):
    paths = [save(tmp_path, 1, model), *(save_update(tmp_path, update, model) for update in (12, 17, 13))]
    for path in paths[2:]:
        damage(path / "state.json", "missing")
    assert newest_first(tmp_path) == [paths[2], paths[3], paths[1], paths[0]]


def test_later_epochs_of_a_run_that_began_again_are_removed_and_no_best_among_them(tmp_path, model):
    paths = {epoch: save(tmp_path, epoch, model) for epoch in (2, 3, 4)}
    checkpoint_store.link(tmp_path, "best", paths[4])
    checkpoint_store.link_best(tmp_path, {"epoch": 1})  # whose checkpoint is gone
    checkpoint_store.prune(tmp_path, lambda epoch: True, update=30, keep_updates=2, epoch=3, good=paths[3])
    assert sorted(os.listdir(tmp_path)) == ["epoch_0002", "epoch_0003"]
    checkpoint_store.link_best(tmp_path, {"epoch": 2})
    assert os.readlink(tmp_path / "best") == "epoch_0002"
    checkpoint_store.link_best(tmp_path, None)
    checkpoint_store.link_best(tmp_path, None)
    assert not os.path.lexists(tmp_path / "best")


def test_a_discarded_checkpoint_hands_the_link_on(tmp_path, model):
    first, second = save_update(tmp_path, 7, model), save(tmp_path, 1, model)
    for name in ("last", "best"):
        checkpoint_store.link(tmp_path, name, second)
    checkpoint_store.discard(second)
    assert os.readlink(tmp_path / "last") == first.name
    checkpoint_store.discard(first)
    assert os.listdir(tmp_path) == []


def test_an_evaluation_is_due_until_it_is_noted_with_the_best_one(tmp_path, model):
    directory = save(tmp_path, 1, model)
    assert checkpoint_store.read(directory).extra == {**STATE, "evaluation_due": True}
    best = {"name": "loss", "value": 0.5, "epoch": 1, "line": "loss 0.5"}
    assert read_evaluated_values(str(directory)) == {}
    checkpoint_store.write_evaluation(directory, best, [(1, 0.5)], {"loss": 0.5, "boxes": 3})
    checkpoint_store.verify(directory)
    assert checkpoint_store.read(directory).extra == {**STATE, "best": best, "evaluations": [[1, 0.5]]}
    assert read_evaluated_values(f"{directory}/model.pdparams") == {"loss": 0.5, "boxes": 3}
    (directory / "evaluation.json").write_text('{"best": 3}')
    with pytest.raises(UserError, match="evaluation.json.*; restore the file, or remove it"):
        read_evaluated_values(str(directory))


@pytest.mark.parametrize("name", STATE)
def test_a_state_without_what_a_run_needs_is_told(tmp_path, name):
    extra = {key: value for key, value in STATE.items() if key != name}
    state = checkpoint_store.RunState({"epoch": 1, "consumed": 0, "update": 2}, {}, extra)
    directory = checkpoint_store.save(tmp_path, checkpoint_store.epoch_name(1), {}, state)
    with pytest.raises(UserError, match=f"`{name}`.*continue from another checkpoint"):
        checkpoint_store.read(directory)


@pytest.mark.parametrize(
    "spelling",
    [".", "run", "run/checkpoints", "run/checkpoints/last", "run/checkpoints/epoch_0002", "run/checkpoints/last/model",
     "run/checkpoints/last/model.pdparams"],
)  # fmt: skip
def test_every_spelling_of_resume_finds_the_checkpoint(tmp_path, model, monkeypatch, spelling):
    folder = tmp_path / "run" / "checkpoints"
    save(folder, 1, model)
    checkpoint_store.link(folder, "last", save(folder, 2, model))
    monkeypatch.chdir(tmp_path / "run" if spelling == "." else tmp_path)
    found = checkpoint_store.resolve(spelling, tmp_path / "elsewhere", print)
    assert found.resolve() == folder / "epoch_0002"


def test_where_weights_are_needed_the_best_is_taken_and_else_the_last(tmp_path, model):
    folder = tmp_path / "checkpoints"
    paths = [save(folder, epoch, model) for epoch in (1, 2, 3)]
    checkpoint_store.link(folder, "last", paths[1])
    assert resolve_checkpoint(tmp_path) == resolve_checkpoint(folder) == folder / "last"
    checkpoint_store.link(folder, "best", paths[0])
    assert resolve_checkpoint(tmp_path) == folder / "best"


def test_only_checkpoints_that_exist_are_told_as_damaged(tmp_path, model):
    said = []
    assert checkpoint_store.newest_good(tmp_path, said.append) is None and said == []
    only = save(tmp_path, 1, model)
    checkpoint_store.link(tmp_path, "last", only)
    damage(only / "state.json", "missing")
    assert checkpoint_store.newest_good(tmp_path, said.append) is None
    assert said == [f"damaged checkpoint skipped: {only / 'state.json'} is missing"]


def test_every_file_and_folder_is_flushed_before_it_gets_its_name(tmp_path, model, monkeypatch):
    flushed, flush = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda number: flushed.append(os.readlink(f"/proc/self/fd/{number}")) or flush(number)
    )
    directory = save(tmp_path / "run", 1, model)
    names = [Path(path).name for path in flushed]
    assert sorted(names[:-2]) == sorted(path.name for path in directory.iterdir())
    assert names[-2].startswith(".epoch_0001") and flushed[-1] == str(tmp_path / "run")


def test_folders_in_the_place_of_a_link_are_kept_under_free_names(tmp_path, model):
    target = save(tmp_path, 1, model)
    for number in range(3):
        (tmp_path / "last").unlink(missing_ok=True)
        (tmp_path / "last").mkdir()
        (tmp_path / "last" / str(number)).touch()
        checkpoint_store.link(tmp_path, "last", target)
    assert [os.listdir(tmp_path / f"last.folder{ending}") for ending in ("", "2", "3")] == [["0"], ["1"], ["2"]]


def test_folders_are_hidden_before_their_content_is_removed(tmp_path, model, monkeypatch):
    removed, remove = [], shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: removed.append(path.name) or remove(path))
    checkpoint_store.discard(save(tmp_path, 1, model))
    assert len(removed) == 1 and removed[0].startswith(".epoch_0001.")
    (tmp_path / removed[0]).mkdir()
    assert checkpoint_store.remove_leftovers(tmp_path) == removed[:1] and removed[1] == removed[0]


def test_weights_alone_are_a_file(tmp_path, model):
    paddle.save(model.state_dict(), str(tmp_path / "weights.pdparams"))
    assert checkpoint_store.resolve(str(tmp_path / "weights"), tmp_path, print) == tmp_path / "weights.pdparams"


def test_a_named_damaged_checkpoint_gives_way_to_the_good_one_beside_it(tmp_path, model, monkeypatch):
    good, bad = save(tmp_path, 1, model), save(tmp_path, 2, model)
    damage(bad / "model.pdparams", "changed")
    said = []
    assert checkpoint_store.resolve(str(bad), tmp_path, said.append) == good
    assert any("continuing from" in line for line in said)
    monkeypatch.chdir(bad)
    assert checkpoint_store.resolve(".", tmp_path, said.append) == good.resolve()


def test_nothing_usable_is_the_users_to_mend(tmp_path, model):
    with pytest.raises(UserError, match="no such file or folder"):
        checkpoint_store.resolve(str(tmp_path / "typo"), tmp_path, print)
    for impossible in ("x" * 5000, "null\0byte", "~nobody/run", "/no/such\nfolder"):
        with pytest.raises(UserError, match="^-resume=.*: no such file or folder"):
            checkpoint_store.resolve(impossible, tmp_path, print)
    only = save(tmp_path / "only", 1, model)
    damage(only / "state.json", "missing")
    for source, message in (
        ("auto", "all checkpoints in {0} are damaged or gone; restore one, or choose another -output to start again"),
        (str(only.parent), "all checkpoints in {0} are damaged; restore one or start again"),
        (str(only), "{0}/epoch_0001/state.json is missing, and there is no good checkpoint in that folder"),
    ):
        line = refusal_of(checkpoint_store.resolve, source, only.parent, print)
        assert line == f"-resume={source}: {message.format(only.parent)}"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="manifest.json cannot be read"):
        checkpoint_store.resolve(str(tmp_path / "empty"), tmp_path, print)


def test_the_manifest_lists_size_and_sha256(tmp_path, model):
    import hashlib

    directory = save(tmp_path, 1, model)
    files = json.loads((directory / "manifest.json").read_text())["files"]
    assert sorted(files) == ["model.pdparams", "optimizer.npz", "state.json"]
    for name, entry in files.items():
        content = (directory / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def copied_without_links(run: Path, copy: Path) -> Path:
    shutil.copytree(run, copy)  # follows links, as ``cp -rL`` does
    return copy


def test_a_copy_without_links_means_the_best_that_is_recorded(tmp_path, model):
    folder = tmp_path / "run" / "checkpoints"
    best = {"name": "top-1", "value": 50.0, "epoch": 2, "line": "top-1 50"}
    for epoch in (1, 2, 3):
        checkpoint_store.write_evaluation(save(folder, epoch, model), {**best, "epoch": min(epoch, 2)})
    checkpoint_store.link(folder, "best", folder / "epoch_0002")
    checkpoint_store.link(folder, "last", folder / "epoch_0003")
    copy = copied_without_links(tmp_path / "run", tmp_path / "copy")
    assert not (copy / "checkpoints" / "best").is_symlink()
    assert resolve_checkpoint(copy) == copy / "checkpoints" / "epoch_0002"
    shutil.rmtree(copy / "checkpoints" / "epoch_0002")
    assert resolve_checkpoint(copy) == copy / "checkpoints" / "best"


def test_without_evaluations_the_newest_counts_by_its_number(tmp_path, model):
    for epoch in (1, 9999, 10000):
        save(tmp_path / "checkpoints", epoch, model)
    assert resolve_checkpoint(tmp_path).name == "epoch_10000"


def test_what_a_crash_left_under_the_name_for_the_replaced_is_removed(tmp_path, model):
    first = save(tmp_path, 1, model)
    left = first.with_name(first.name + checkpoint_store.REPLACED)
    left.mkdir()
    (left / "rubbish").write_text("x")
    again = save(tmp_path, 1, model)
    assert again == first and (first / "manifest.json").exists() and not left.exists()


def test_what_killed_processes_left_is_removed_and_the_replaced_gets_its_name_back(tmp_path, model):
    assert checkpoint_store.remove_leftovers(tmp_path / "none") == []
    end = "17.0123abcd.tmp"
    paths = {epoch: save(tmp_path, epoch, model) for epoch in (1, 2, 3)}
    for epoch in (2, 3):
        shutil.copytree(paths[epoch], tmp_path / f"epoch_000{epoch}.replaced")
    shutil.rmtree(paths[3])
    (tmp_path / f".last.host.{end}").symlink_to("epoch_0001")
    (tmp_path / f".epoch_0004.host.{end}").mkdir()
    for name in (f".epoch_0004.host.{end}/state.json", f"weights.{end}", f"epoch_0001/b.{end}", f"epoch_0001/a.{end}"):
        (tmp_path / name).touch()
    for name in ("notes.tmp", "epoch_9", "other.replaced"):
        (tmp_path / name).touch()
    removed = [f".epoch_0004.host.{end}", f".last.host.{end}", f"epoch_0001/a.{end}", f"epoch_0001/b.{end}"]
    assert checkpoint_store.remove_leftovers(tmp_path) == [*removed, "epoch_0002.replaced", f"weights.{end}"]
    kept = ["epoch_0001", "epoch_0002", "epoch_0003", "epoch_9", "notes.tmp", "other.replaced"]
    assert sorted(os.listdir(tmp_path)) == kept
    for path in paths.values():
        checkpoint_store.verify(path)
        assert len(os.listdir(path)) == 4
    assert checkpoint_store.remove_leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_listed_is_named(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert list_checkpoints(tmp_path / "nowhere") == []
    with pytest.raises(UserError, match=r"loop cannot be read: .*; make it readable for this user"):
        list_checkpoints(tmp_path / "loop")


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
def test_a_text_that_is_no_path_is_told_in_one_line(path):
    with pytest.raises(UserError, match="^(x+|a.*b).* cannot be read: (File name too long|embedded null)"):
        resolve_checkpoint(path)
