"""What is found of data sets, what is kept of them, and what commands make of it."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.processes import run_command, succeeded
from support.runs import PICTURES, TINY, events, refused

from paddlevit_dist import config
from paddlevit_dist.commands import inspect_data
from paddlevit_dist.diagnosis import doctor_data
from paddlevit_dist.diagnosis.doctor_checks import Checkup
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.leaks import evaluation, fingerprints, search, telling
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset
from paddlevit_dist.points.shapes.solids import SyntheticSolids
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.volumes.dataset import VolumeDataset
from paddlevit_dist.volumes.segmentation.dataset import SegmentedVolumes
from paddlevit_dist.volumes.store import Decoded

from .copies import scene, write_leaking


class Files(ImageDataset):
    """Image files in the order of their names."""

    def __init__(self, folder: Path) -> None:
        from paddlevit_dist.images.data.reading import Reading

        self.paths = sorted(map(str, folder.rglob("*.*")))
        self.reading = Reading()

    def __len__(self) -> int:
        return len(self.paths)

    def describe(self, index: int) -> str:
        return self.paths[index]


class Rooms(SceneDataset):
    def __init__(self, seeds, order) -> None:
        self.seeds, self.order = seeds, order

    def __len__(self) -> int:
        return len(self.seeds)

    def read(self, index: int) -> Scene:
        generator = np.random.default_rng(self.seeds[index])
        points = generator.normal(size=(50, 3)).astype(np.float32), generator.integers(0, 256, (50, 3), np.uint8)
        xyz, rgb = (part[:: self.order] for part in points)
        return Scene(xyz, rgb, np.zeros(50, np.int16), np.zeros(50, np.int16), f"room {index}")


class Scans(VolumeDataset):
    def __init__(self, seeds) -> None:
        self.seeds = seeds

    def __len__(self) -> int:
        return len(self.seeds)

    def read(self, index: int):
        array = np.random.default_rng(self.seeds[index]).integers(-1000, 2000, (4, 5, 6)).astype(np.int16)
        return Decoded(array, None, (0.0, 1.0)), np.zeros((1, 3))


def test_each_copy_is_found_with_its_partner_and_kind(tmp_path):
    told = write_leaking(tmp_path)
    val, train = Files(tmp_path / "val"), Files(tmp_path / "train")
    found = search.find(val, train, None)
    assert {val.describe(pair.val) for pair in found.pairs} == set(told)
    for pair in found.pairs:
        path = Path(val.describe(pair.val))
        assert int(path.stem.partition("_")[2]) == int(Path(train.describe(pair.train)).stem)
        assert pair.kind == (told[str(path)] if told[str(path)].startswith("same") else "near duplicate")
    assert found.looked == found.totals == (15, 20) and found.unreadable == 0


def test_small_and_plain_pictures_are_compared_pixel_by_pixel(tmp_path):
    generator = np.random.default_rng(0)
    for folder in ("val", "train"):
        (tmp_path / folder).mkdir()
    pixels = generator.integers(0, 256, (16, 16, 3), np.uint8)
    plain = np.full((80, 80, 3), 90, np.uint8)
    nearly = pixels.copy()
    nearly[0, 0, 0] ^= 1
    for split, name, picture in (
        ("val", "a.png", pixels), ("train", "b.bmp", pixels), ("val", "c.png", plain), ("train", "d.bmp", plain),
        ("val", "e.png", nearly), ("train", "f.png", plain + 1),
    ):  # fmt: skip
        Image.fromarray(picture).save(tmp_path / split / name)
    found = search.find(Files(tmp_path / "val"), Files(tmp_path / "train"), None)
    assert [(pair.val, pair.train, pair.kind) for pair in found.pairs] == [
        (0, 0, "same content"),
        (1, 1, "same content"),
    ]


def test_a_picture_that_cannot_be_read_is_counted(tmp_path):
    write_leaking(tmp_path, train=9, val=0)
    (tmp_path / "val" / "a" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    found = search.find(Files(tmp_path / "val"), Files(tmp_path / "train"), None)
    assert found.unreadable == 1 and len(found.pairs) == 9
    assert "1 cannot be read" in found.summary("val", "pictures")


def test_scenes_are_equal_whatever_the_order_of_their_points():
    found = search.find(Rooms([1, 2, 3], 1), Rooms([5, 3, 1, 1], -1), None)
    assert [(pair.val, pair.train, pair.kind) for pair in found.pairs] == [
        (0, 2, "same content"),
        (2, 1, "same content"),
    ]


def test_volumes_are_equal_by_their_values():
    found = search.find(Scans([1, 2]), Scans([7, 2]), None)
    assert [(pair.val, pair.train) for pair in found.pairs] == [(1, 1)]


class LabelledScans(SegmentedVolumes):
    __init__, __len__ = Scans.__init__, Scans.__len__

    def read(self, index: int):
        return [Scans.read(self, index)[0]] * 2, None


def test_volumes_with_label_maps_and_shapes_are_compared_too():
    found = search.find(LabelledScans([1, 2]), LabelledScans([7, 2]), None)
    assert [(pair.val, pair.train) for pair in found.pairs] == [(1, 1)]
    assert not search.find(SyntheticSolids(9, "val"), SyntheticSolids(9, "train"), None).pairs
    assert len(search.find(SyntheticSolids(9, "val"), SyntheticSolids(9, "val"), None).pairs) == 9


def test_what_holds_something_else_is_refused():
    with pytest.raises(UserError, match="holds neither pictures nor scenes nor volumes"):
        search.find([1], [2], None)


def test_a_second_look_reads_no_picture_again_unless_it_has_changed(tmp_path, monkeypatch):
    write_leaking(tmp_path / "data")
    train = Files(tmp_path / "data" / "train")
    first = fingerprints.fingerprints(train, "train", 1, tmp_path)
    looked = []
    plain = fingerprints._look
    monkeypatch.setattr(fingerprints, "_look", lambda *given: looked.append(given) or plain(*given))
    second = fingerprints.fingerprints(train, "train", 1, tmp_path)
    assert not looked and all(np.array_equal(a, b) for a, b in zip(first, second))
    scene(np.random.default_rng(9)).save(train.describe(3))
    third = fingerprints.fingerprints(train, "train", 1, tmp_path)
    assert looked and third.hashes[3] != first.hashes[3]


def test_an_interrupted_look_goes_on_where_it_was(tmp_path, monkeypatch):
    write_leaking(tmp_path / "data")
    train = Files(tmp_path / "data" / "train")
    plain, looked = fingerprints.in_threads, []

    def interrupted(*arguments):
        for number, row in enumerate(plain(*arguments)):
            if number == 7:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setattr(fingerprints, "in_threads", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fingerprints.fingerprints(train, "train", 1, tmp_path)
    monkeypatch.setattr(fingerprints, "in_threads", lambda *given: looked.extend(given[2]) or plain(*given))
    found = fingerprints.fingerprints(train, "train", 1, tmp_path)
    assert looked == list(range(7, 20)) and found.num_read == 20


@pytest.fixture(scope="module")
def leaking(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("leaking")
    write_leaking(root, train=24, val=7)
    return root


@pytest.mark.parametrize("command", ["data", "leaks"])
def test_the_pairs_are_shown_side_by_side(leaking, tmp_path, command):
    words = ["inspect", command, *PICTURES, f"-data_path={leaking}", f"-output={tmp_path}"]
    ended = succeeded(run_command([sys.executable, "-m", "paddlevit_dist", *words], timeout=120))
    (line,) = (line for line in ended.out.splitlines() if line.startswith("leaks: "))
    assert "9 of 16 images of val stand in train (1 same file, 1 same content, 7 near duplicate)" in line
    listed = json.loads((tmp_path / "leaks.json").read_text())["pairs"]
    assert len(listed) == 9 and all(Path(row["train"]).is_file() for row in listed)
    assert Image.open(tmp_path / "leaks.png").width > 2 * 200


def test_inspect_data_looks_for_some_seconds_and_says_how_far_it_came(leaking, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(telling, "SECONDS", 0.0)
    words = [*PICTURES, f"-data_path={leaking}", f"-output={tmp_path}", "DATA.CACHE_FOLDER", str(tmp_path / "cache")]
    inspect_data.run(words)
    *_, found, further = capsys.readouterr().out.splitlines()
    assert found.endswith("compared: 0 of 16 of val with 0 of 24 of train")
    assert further == "inspect leaks, with the same flags, compares all of them"
    telling.run(words)
    assert "leaks: 9 of 16 images of val stand in train (1 same file" in capsys.readouterr().out


def test_the_doctor_warns(leaking, tmp_path):
    values = config.load([*PICTURES, f"-data_path={leaking}", f"-output={tmp_path / 'none'}"]).values
    found = doctor_data.leaks(Checkup(values, tmp_path, 1, False))
    assert found.status == "warning" and found.facts["leaks"] == 9, found
    assert "9 of 16 images of val" in found.text and "-without_leaks" in found.mend
    assert doctor_data.LEAKS in [check.name for check in doctor_data.CHECKS]


@pytest.fixture(scope="module")
def weights(leaking, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "run"
    succeeded(run_command(command("train", leaking, output), timeout=120))
    return output


def command(name: str, data: Path, output: Path, *more: str) -> list[str]:
    words = [name, *PICTURES, f"-data_path={data}", f"-output={output}", "REPORT", "false", *more]
    return [sys.executable, "-m", "paddlevit_dist", *words]


@pytest.mark.parametrize("processes, more", [(1, ()), (2, ("EVALUATION.INTERVAL", "off"))])
def test_an_evaluation_prints_the_score_without_them_and_that_of_all(leaking, weights, tmp_path, processes, more):
    scored = command("evaluate", leaking, tmp_path / "all", f"-pretrained={weights}", f"-ngpus={processes}", *more)
    plain = succeeded(run_command(scored, timeout=120)).out.splitlines()[-1]
    again = command("evaluate", leaking, tmp_path / "both", f"-pretrained={weights}", f"-ngpus={processes}", *more)
    *_, without, last = succeeded(run_command([*again, "-without_leaks"], timeout=120)).out.splitlines()
    assert last == plain
    assert without.startswith("without leaks: top-1 ") and "(without 9 of 16 that stand in training)" in without
    # What remains, as data of its own.
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "train").symlink_to(leaking / "train")
    for path in (leaking / "val").rglob("[0-9]*.png"):
        (kept / "val" / path.parent.name).mkdir(parents=True, exist_ok=True)
        (kept / "val" / path.parent.name / path.name).symlink_to(path)
    alone = command("evaluate", kept, tmp_path / "alone", f"-pretrained={weights}", "-allow_changes")
    succeeded(run_command(alone, timeout=120))
    found, expected = (
        [event for event in events(tmp_path / name) if event["kind"] == kind][-1]
        for name, kind in (("both", "evaluation_without_leaks"), ("alone", "evaluation"))
    )
    assert (found["left_out"], found["samples"]) == (9, 7)
    assert found.get("interval") == (None if more else expected["interval"])
    assert found["top-1"] == expected["top-1"] and found["loss"] == pytest.approx(expected["loss"], abs=1e-5)


def test_a_training_set_that_is_elsewhere_is_named(leaking, weights, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "val").symlink_to(leaking / "val")
    words = [*PICTURES, f"-data_path={tmp_path / 'data'}", f"-pretrained={weights}", "-without_leaks", "-allow_changes"]
    said = refused("-eval", *words, f"-output={tmp_path / 'out'}")
    assert said.startswith("-without_leaks: the training set is not known") and "TRAIN_DATA PATH" in said
    named = [sys.executable, "-m", "paddlevit_dist", "evaluate", *words, "TRAIN_DATA", str(leaking)]
    ended = succeeded(run_command([*named, f"-output={tmp_path / 'out'}"], timeout=120))
    assert "without 9 of 16" in ended.out


@pytest.mark.parametrize(
    "words, said", [((), "is for an evaluation"), (("-eval", "-split=train", "-pretrained=x"), "is the training set")]
)
def test_where_it_means_nothing_it_is_refused(words, said):
    assert said in refused(*TINY, "-dataset=digits", "-cfg=vit_digits", "-without_leaks", *words)


def test_metrics_that_keep_nothing_of_single_samples_are_told_in_a_line(tmp_path):
    class Samples(list):
        labelled = True

    said: list[str] = []
    (tmp_path / "leaks.json").write_text('{"pairs": [{"sample": 1}]}')
    evaluated = SimpleNamespace(samples=Samples("abc"), table=None, keeps_table=False)
    record = SimpleNamespace(folder=tmp_path, say=said.append)
    evaluation.WithoutLeaks(SimpleNamespace(evaluation=evaluated, record=record)).evaluation_done({})
    assert evaluated.keeps_table  # also where no intervals are made
    (line,) = said
    assert line == "without leaks: not known: the task's metrics give no 'score' of the other samples alone"


def test_copies_of_another_class_are_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for place in ("train/cat/1", "train/cat/2", "train/dog/1", "val/cat/5", "val/dog/6"):
        file = tmp_path / "data" / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(file)
    for before, after in (("train/cat/1", "val/dog/8"), ("train/cat/2", "val/cat/9")):
        shutil.copy(tmp_path / f"data/{before}.png", tmp_path / f"data/{after}.png")
    words = ["-cfg=finetune_pictures", f"-data_path={tmp_path / 'data'}", f"-output={tmp_path / 'out'}"]
    telling.run(words)
    told = capsys.readouterr().out
    assert "1 of these have another class in train: " in told
    assert "dog/8.png is dog, " in told and "cat/1.png is cat" in told and "cat/9.png is" not in told
