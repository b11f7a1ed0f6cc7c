"""Checkpoints with any damage, also valid content that is wrong: a good one is used, or one line says why not."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.trainings import small_runs
from support.trainings.runs import DIGITS, refused

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import store as checkpoint_store

RUN = ["-batch_size=64", "-epochs=2", "SAVE_FREQ", "1", "SAVE_EVERY_UPDATES", "3", "TRAIN.MODEL_EMA", "True"]
JSON = ("manifest.json", "state.json", "evaluation.json", "about.yaml")
BINARY = ("model.pdparams", "model_ema.pdparams", "optimizer.npz")
WRONG: list[Any] = [
    *(
        None,
        True,
        -5,
        0,
        7,
        10**30,
        -(10**400),
        0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "../../secret",
        "/etc/passwd",
    ),
    *([], [1], {}, {"a": 1}, "\x1b[31m\n", [[[[]]]], {"epoch": -5}, "0" * 64),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two epochs of five updates, each evaluated, with a checkpoint in the middle of each."""
    return trained(tmp_path_factory.mktemp("run"))


def trained(folder: Path) -> Path:
    small_runs.build(str(folder), *RUN).train()
    assert sorted(os.listdir(folder / "checkpoints")) == [
        *("best", "epoch_0001", "epoch_0002", "last", "update_00000006", "update_00000009")
    ]
    return folder


@pytest.fixture
def damaged(run, tmp_path) -> Path:
    """A copy of its output folder, to be damaged."""
    return Path(shutil.copytree(run, tmp_path / "run", symlinks=True))


def resumed(folder: Path, capsys: Any) -> dict[str, Any]:
    """What -resume=auto begins with, or the line that it ends with; whatever else it raises fails the test."""
    capsys.readouterr()
    try:
        run = small_runs.build(str(folder), *RUN, "-resume=auto")
        run.prepare_training()
    except UserError as error:
        assert str(error).isprintable() and len(str(error)) < 1000, repr(str(error))
        return {"error": str(error)}
    assert run.resume_state.directory is not None, "it began again at epoch 1"
    return {"position": run.resume_state.position, "from": run.resume_state.directory.name}


def mutate_tree(tree: Any, generator: random.Random) -> Any:
    """Replaces, removes or adds one thing anywhere in it."""
    if isinstance(tree, dict) and tree and generator.random() < 0.9:
        key = generator.choice(sorted(tree, key=str))
        choice = generator.random()
        if choice < 0.15:
            return {name: value for name, value in tree.items() if name != key}
        if choice < 0.25:
            return {**tree, generator.choice(["../x", "a/b", "", "epoch", "new\n"]): generator.choice(WRONG)}
        return {**tree, key: mutate_tree(tree[key], generator)}
    if isinstance(tree, list) and tree and generator.random() < 0.5:
        place = generator.randrange(len(tree))
        return [*tree[:place], mutate_tree(tree[place], generator), *tree[place + 1 :]]
    return generator.choice(WRONG)


def mutate_bytes(content: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(content) + 1)
    how = generator.choice(["cut", "change", "insert", "empty", "deep", "digits", "zeros"])
    changed = bytearray(content)
    if how == "change":
        for _ in range(generator.randrange(1, 9)):
            changed[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return {
        "cut": content[:place],
        "change": bytes(changed),
        "insert": content[:place] + generator.randbytes(9) + content[place:],
        "empty": b"",
        "deep": b"[" * 100_000,
        "digits": b'{"position": ' + b"9" * 5000 + b"}",
        "zeros": bytes(len(content)),
    }[how]


def mutate_file(path: Path, generator: random.Random) -> None:
    content = path.read_bytes()
    if path.name in JSON and generator.random() < 0.75:
        load, dump = (yaml.safe_load, yaml.safe_dump) if path.suffix == ".yaml" else (json.loads, json.dumps)
        path.write_text(dump(mutate_tree(load(content), generator)))
    else:
        path.write_bytes(mutate_bytes(content, generator))
    if path.name not in ("manifest.json", "evaluation.json") and generator.random() < 0.7:
        sign(path)


def sign(path: Path) -> None:
    """Make the manifest fit, so that what reads the content has to find the damage."""
    content, manifest = path.read_bytes(), path.with_name("manifest.json")
    listed = json.loads(manifest.read_text())
    listed["files"][path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_text(json.dumps(listed))


def test_any_mutation_ends_in_a_good_checkpoint_or_in_one_line(run, tmp_path, capsys):
    """30 here, 220 more at night."""
    mutations_end_well(run, tmp_path, capsys, range(15))


def mutations_end_well(run: Path, tmp_path: Path, capsys: Any, seeds: range) -> None:
    fallen_back = 0
    for seed in seeds:
        generator = random.Random(seed)
        folder = Path(shutil.copytree(run, tmp_path / f"{seed}", symlinks=True))
        name = generator.choice(["epoch_0002", "epoch_0002", "update_00000009"])
        chosen = folder / "checkpoints" / name / generator.choice([*JSON, *JSON, *BINARY])
        mutate_file(chosen if chosen.exists() else chosen.with_name("state.json"), generator)
        if name != "epoch_0002":
            shutil.rmtree(folder / "checkpoints" / "epoch_0002")
        result = resumed(folder, capsys)
        fallen_back += result.get("from") not in (name, None)
        shutil.rmtree(folder)
    assert fallen_back >= len(seeds) // 3


LASTS: dict[str, Callable[[Path], object]] = {
    "loop": lambda last: last.symlink_to("last"),
    "directory": lambda last: shutil.copytree(last.with_name("epoch_0002"), last),
    "dangling": lambda last: last.symlink_to("epoch_0077"),
    "outside": lambda last: last.symlink_to("/etc"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("how", LASTS)
def test_a_last_that_is_no_link_to_a_checkpoint_is_passed_over_and_replaced(damaged, capsys, how):
    folder = damaged / "checkpoints"
    (folder / "last").unlink()
    LASTS[how](folder / "last")
    assert resumed(damaged, capsys)["from"] == "epoch_0002"
    checkpoint_store.link(folder, "last", folder / "epoch_0001")
    assert os.readlink(folder / "last") == "epoch_0001"
    assert (folder / "last.folder").exists() == (how == "directory")


WRONG_POSITIONS = [
    *(("epoch", -5), ("epoch", 10**25), ("epoch", "2"), ("epoch", 3)),
    *(("consumed", -5), ("consumed", 2.0), ("update", None), ("update", True)),
]


@pytest.mark.parametrize("name, wrong", WRONG_POSITIONS)
def test_a_position_that_cannot_be_falls_back_to_the_checkpoint_before(damaged, capsys, name, wrong):
    """Signed anew, so that only its content shows that it is wrong."""
    file = damaged / "checkpoints" / "epoch_0002" / "state.json"
    content = json.loads(file.read_text())
    content["position"][name] = wrong
    file.write_text(json.dumps(content))
    sign(file)
    assert resumed(damaged, capsys) == {
        "from": "update_00000009",
        "position": {"epoch": 1, "consumed": 256, "update": 9},
    }


def no_manifests(folder: Path) -> None:
    for file in folder.glob("*_*/manifest.json"):
        file.unlink()


def only_last(folder: Path) -> None:
    for path in folder.glob("*_*"):
        shutil.rmtree(path)
    (folder / "best").unlink()


def empty_folders(folder: Path) -> None:
    for path in folder.glob("*_*"):
        shutil.rmtree(path)
        path.mkdir()


def looping(folder: Path) -> None:
    only_last(folder)
    (folder / "last").unlink()
    (folder / "last").symlink_to("last")


@pytest.mark.parametrize("how", [no_manifests, only_last, empty_folders, looping])
def test_where_all_are_damaged_a_resume_stops_and_writes_nothing(damaged, how):
    folder = damaged / "checkpoints"
    how(folder)
    before = sorted(folder.rglob("*"))
    message = refused(f"-output={damaged}", *DIGITS, "-resume=auto")
    assert f"all checkpoints in {folder} are damaged or gone" in message and "-output" in message
    assert sorted(folder.rglob("*")) == before


def test_a_folder_with_nothing_but_a_link_left_is_not_begun_anew(damaged):
    only_last(damaged / "checkpoints")
    assert "already holds a run's checkpoints" in refused(f"-output={damaged}", *DIGITS)


def test_leftovers_go_and_what_others_have_put_there_stays(damaged):
    folder = damaged / "checkpoints"
    before = set(os.listdir(folder))
    theirs = [".snapshot", ".mine.tmp", "notes"]
    ours = [".epoch_0003.node-1.4711.0123abcd.tmp"]
    for name in [*ours, *theirs]:
        (folder / name).mkdir()
    (folder / ".best.node-1.4711.0123abcd.tmp").symlink_to("epoch_0001")
    half = folder / "epoch_0002" / "evaluation.json.4711.0123abcd.tmp"
    half.write_text("{")
    (folder / "epoch_0001").rename(folder / "epoch_0001.replaced")
    removed = checkpoint_store.remove_leftovers(folder)
    assert sorted(removed) == sorted([*ours, ".best.node-1.4711.0123abcd.tmp", f"epoch_0002/{half.name}"])
    assert set(os.listdir(folder)) == {*before, *theirs}
    checkpoint_store.verify(folder / "epoch_0001")
    assert checkpoint_store.remove_leftovers(folder / "absent") == []
