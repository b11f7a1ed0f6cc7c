"""Images are opened before a run starts, and findings are reported."""

import contextlib
import itertools
import os
import pickle
import re
import shutil
import tarfile
import threading

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data import inspection as opening
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.held_out import hold_out
from paddlevit_dist.images.data.imagenet import ImageNet2012
from paddlevit_dist.images.data.inputs import open_image_inputs
from paddlevit_dist.images.data.inspection import SplitInspection, find_empty_classes, note_pixels
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.data.small_sets import Digits
from paddlevit_dist.images.data.tar import TarImages


def save(path, number, orientation=None):
    """An image of its own for each number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation or 1
    Image.fromarray(pixels).save(path, **({"exif": exif.tobytes()} if orientation else {}))


@pytest.fixture
def root(tmp_path, cache):
    """Two classes with six images each in train and three in val, all different."""
    for label, name in enumerate(("ant", "bee")):
        for split, number in (("train", 6), ("val", 3)):
            for position in range(number):
                seed = 100 * label + 10 * (split == "val") + position
                save(tmp_path / "data" / split / name / f"{position}.png", seed)
    return tmp_path / "data"


@pytest.fixture
def limit(monkeypatch):
    """Return a function that sets how many images of a split are opened."""

    def set_limits(**limits: int) -> None:
        for name, number in limits.items():
            monkeypatch.setattr(opening, name, number)

    return set_limits


def folders(root, split):
    return ClassFolders(str(root), split, root.parent / "cache")


def lists(root, split):
    files = sorted(root.glob(f"{split}/*/*"))
    lines = [f"{file.relative_to(root)} {int(file.parent.name == 'bee')}\n" for file in files]
    (root / f"{split}_list.txt").write_text("".join(lines))
    return ImageNet2012(str(root), split, root.parent / "cache")


def tars(root, split):
    with tarfile.open(root / f"{split}-0.tar", "w") as tar:
        for file in sorted(root.glob(f"{split}/*/*")):
            tar.add(file, str(file.relative_to(root / split)))
    return TarImages(str(root), split, root.parent / "cache")


every_dataset = pytest.mark.parametrize("dataset_of", [folders, lists, tars])


def looked(dataset_of, root, is_evaluation=False, replaces_bad=False):
    """All lines of a run, or of an evaluation."""
    inspection = SplitInspection(is_evaluation, replaces_bad)
    splits = ["val"] if is_evaluation else ["train", "val"]
    return [line for split in splits for line in inspection.inspect(dataset_of(root, split), split, 2)]


@every_dataset
@pytest.mark.parametrize("replaces_bad", [False, True])
def test_a_bad_validation_image_stops_before_the_run(replaces_bad, dataset_of, root):
    assert looked(dataset_of, root) == ["opened all 12 images of train", "opened all 6 images of val"]
    first = root / "val" / "bee" / "1.png"
    first.write_bytes(first.read_bytes()[:90])
    (root / "val" / "bee" / "2.png").write_bytes(b"words")
    message = refusal_of(looked, dataset_of, root, replaces_bad=replaces_bad)
    assert "bee/1.png cannot be read as an image: " in message
    assert "(2 of the 6 opened images of val cannot be read, also " in message and "bee/2.png)" in message
    assert message.endswith("; repair or remove it: an evaluation does not skip images")
    with pytest.raises(UserError, match=r"bee/1\.png cannot be read"):
        looked(dataset_of, root, is_evaluation=True)
    for number, is_cut in ((3, False), (4, True)):  # images that cannot be read; three are named
        sorted((root / "val").rglob("*.png"))[number - 1].write_bytes(b"words")
        line = refusal_of(looked, dataset_of, root)
        assert f"({number} of the 6" in line and (", …)" in line) is is_cut


@every_dataset
def test_a_bad_training_image_stops_or_is_told_where_the_next_one_replaces_it(dataset_of, root):
    (root / "train" / "ant" / "4.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"ant/4\.png cannot .* empty; .* with DATA\.ON_INVALID_SAMPLE skip"):
        looked(dataset_of, root)
    (line, _) = looked(dataset_of, root, replaces_bad=True)
    assert (
        line.startswith("opened all 12 images of train; one of them cannot be read")
        and "ant/4.png cannot be read as an image: " in line
    )
    for file in root.glob("train/*/*"):
        file.write_bytes(b"")
    with pytest.raises(UserError, match="12 of the 12 .*none of them can be read, so there is no replacement"):
        looked(dataset_of, root, replaces_bad=True)


def test_a_large_set_is_judged_by_the_same_sample_each_time_and_within_the_time(root, limit):
    limit(ALL_UP_TO=11, SAMPLE=5)
    first, second = (opening.open_split(folders(root, "train"), "train") for _ in range(2))
    assert first.findings() == ["opened 5 of 12 images of train"]
    assert [look.index for look in first.results] == [look.index for look in second.results]
    assert len({look.index for look in first.results}) == 5
    limit(WITHOUT_LIMIT=3)
    in_no_time = opening.open_split(folders(root, "train"), "train", seconds=-1.0)
    assert in_no_time.findings() == ["opened 3 of 12 images of train"]


def test_ctrl_c_ends_the_threads_at_once(root):
    def interrupted():
        yield from range(4)
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        list(
            opening.run_in_threads(
                lambda dataset, index: index, folders(root, "train"), interrupted(), "images", None, 60.0
            )
        )
    assert threading.active_count() == before


def test_each_thread_reads_its_own_copy(root, machine):
    """With one copy of tar files for all, a thread would close the file that another reads from."""
    machine.cores = 4
    dataset = tars(root, "train")
    together = threading.Barrier(4, timeout=60)

    def look(own, index):
        together.wait()  # four threads are at work at once
        return threading.get_ident(), id(own), opening.compute_digest(own.encoded(index))

    found = list(opening.run_in_threads(look, dataset, range(12), "images", 12, 60.0))
    copies = {(thread, copy) for thread, copy, _ in found}
    assert len(copies) == len({copy for _, copy in copies}) == 4 and id(dataset) not in {copy for _, copy in copies}
    assert [digest for _, _, digest in found] == [opening.compute_digest(dataset.encoded(index)) for index in range(12)]


def test_one_thread_reads_a_dataset_that_cannot_be_copied(machine):
    """A class that is defined in a function, or that has an open file, as of HDF5."""
    machine.cores = 4

    class Local:
        def encoded(self, index):
            return threading.get_ident(), index

    dataset = Local()
    found = list(
        opening.run_in_threads(lambda own, index: (own, *own.encoded(index)), dataset, range(9), "all", 9, 60.0)
    )
    assert {id(own) for own, _, _ in found} == {id(dataset)} and len({thread for _, thread, _ in found}) == 1
    assert [index for *_, index in found] == list(range(9))


@pytest.mark.parametrize(
    "without_limit, in_time, taken",  # the last: indices taken when an image is done; four for each thread wait
    [(0, 2, [3, 3]), (3, 1, [5] * 4), (20, 0, [8, 9, 10, *[11] * 8])],
)
def test_threads_are_started_until_the_time_is_over_and_a_bar_counts_what_is_done(
    monkeypatch, without_limit, in_time, taken, machine, simulated_time
):
    told, begun = [], []

    class Bar(contextlib.nullcontext):
        def __init__(self, **options):
            super().__init__(self)
            told.append(options)

        def update(self):
            told.append(len(begun))

    times = iter([100.0, *[105.0] * in_time, 105.1])  # at the beginning, and before each that has a limit
    monkeypatch.setattr(opening, "tqdm", Bar)
    machine.cores = 2
    simulated_time.readings = times

    def take():
        for index in range(31, 42):
            begun.append(index)
            yield index

    together = opening.run_in_threads(lambda *given: given, "images", take(), "opening", 11, 5.0, without_limit)
    assert list(together) == [("images", 31 + number) for number in range(len(taken))]
    bar = {"total": 11, "desc": "opening", "unit": "image", "delay": 1.0, "disable": None, "leave": False}
    assert told == [bar, *taken]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_turned_images_are_counted_unless_they_are_turned_back(suffix, root):
    for orientation, name in ((6, b"caf\xe9"), (3, b"y"), (1, b"z")):
        save(root / "val" / "ant" / f"turned.{suffix}", 50 + orientation, orientation)
        named = os.path.join(os.fsencode(root), b"val/ant", name + f".{suffix}".encode())
        os.rename(root / "val" / "ant" / f"turned.{suffix}", named)
    (_, _, line) = looked(folders, root)
    assert line.encode("utf-8").decode() == (
        "2 of the 9 opened images of val are to be turned by the EXIF orientation, but DATA.EXIF_ROTATE is "
        rf"false: {root}/val/ant/caf\xe9.{suffix}"
    )
    dataset = folders(root, "val")
    dataset.reading = ReadConfig(exif_rotate=True)
    assert SplitInspection(False, False).inspect(dataset, "val", 2) == ["opened all 9 images of val"]


def test_images_of_more_than_eight_bits_are_counted_also_before_a_prediction(root, tmp_path):
    deep = root / "train" / "ant" / "deep.png"
    Image.fromarray(np.full((6, 8), 40_000, np.uint16)).save(deep)
    said = f"stored with more than 8 bits a pixel, such as {deep}; "
    assert re.match(f"1 of the 13 opened images of train is {said}", looked(folders, root)[1])
    inputs = open_image_inputs([str(root / "train")], tmp_path, lambda image, _: image, "RGB", ReadConfig())
    (line,) = [line for line in inputs.notices if "8 bits" in line]
    assert re.match(f"1 of 13 images is {said}", line)
    deep.unlink()
    assert not open_image_inputs([str(root / "train")], tmp_path, None, "RGB", ReadConfig()).notices


def test_images_of_several_pages_are_counted_also_before_a_prediction(root, tmp_path):
    bands, pages = root / "train" / "ant" / "bands.tif", [Image.new("L", (8, 6), level) for level in (1, 2, 3)]
    pages[0].save(bands, save_all=True, append_images=pages[1:])
    said = f"stored with several pages or frames, such as {bands}; the first is read"
    assert f"1 of the 13 opened images of train is {said}" in looked(folders, root)[1]
    inputs = open_image_inputs([str(root / "train")], tmp_path, None, "RGB", ReadConfig())
    assert [line for line in inputs.notices if line.startswith(f"1 of 13 images is {said}")]
    with Image.open(bands) as image:
        opened = open_image_inputs([image, pages[0]], tmp_path, None, "RGB", ReadConfig())
        assert opened.notices[0].startswith("1 of 2 images is stored with several pages or frames, such as image 0; ")
        image.seek(1)
        assert not open_image_inputs([image], tmp_path, None, "RGB", ReadConfig()).notices


def test_before_a_prediction_as_many_images_are_opened_as_time_allows(root, simulated_time):
    files = sorted(root.glob("train/*/*"))
    for file in files:
        Image.new("RGBA", (8, 6), (1, 2, 3, 4)).save(file)
    simulated_time.readings = itertools.count(0.0, 2.0)  # each image takes two of the five seconds
    (line,) = note_pixels(len(files), lambda index: files[index].read_bytes(), lambda index: files[index].name)
    assert line.startswith("2 of 2 images are transparent in part, such as ")


GROUND, CLEAR = (9, 9, 9, 255), (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("mode", "color", "saved", "is_told"),
    [
        ("RGBA", CLEAR, {}, True),
        ("RGBA", GROUND, {}, False),
        ("LA", (9, 254), {}, True),
        ("P", 0, {"transparency": 0}, True),
        ("P", 0, {"transparency": bytes([200])}, True),
        ("P", 3, {"transparency": bytes([0, 255])}, False),  # a transparent color that no pixel has
        ("RGB", (1, 2, 3), {"transparency": (1, 2, 3)}, True),
        ("L", 7, {"transparency": 7}, True),
        ("L", 7, {"transparency": 8}, False),
    ],
)
def test_transparent_images_are_counted_also_before_a_prediction(root, tmp_path, mode, color, saved, is_told):
    file = root / "train" / "ant" / "icon.png"
    Image.new(mode, (8, 6), color).save(file, **saved)
    said = f"transparent in part, such as {file}; transparency is not used"
    lines = [line for line in looked(folders, root) if "transparent" in line]
    assert len(lines) == is_told and all(
        line.startswith(f"1 of the 13 opened images of train is {said}") for line in lines
    )
    inputs = open_image_inputs([str(root / "train")], tmp_path, lambda image, _: image, "RGB", ReadConfig())
    lines = [line for line in inputs.notices if "transparent" in line]
    assert len(lines) == is_told and all(line.startswith(f"1 of 13 images is {said}") for line in lines)


@every_dataset
@pytest.mark.parametrize("sample", [100, 3])
def test_identical_images_of_train_and_val_are_counted_with_an_example(sample, dataset_of, root, limit):
    shutil.copy(root / "train" / "bee" / "0.png", root / "val" / "ant" / "x.png")
    shutil.copy(root / "train" / "ant" / "5.png", root / "val" / "bee" / "y.png")
    link = shutil.copy if dataset_of is tars else os.symlink
    link(root / "train" / "ant" / "5.png", root / "val" / "bee" / "link.png")
    limit(ALL_UP_TO=sample, SAMPLE=9)  # all of val; of train the others are compared by size and content
    line = looked(dataset_of, root)[-1]
    assert line.startswith("3 images of val are identical to images of train, such as ")
    assert line.endswith("bee/0.png") and "ant/x.png and " in line


def test_the_first_of_identical_training_images_is_named_whether_it_was_opened_or_not(root, limit):
    for file in root.glob("train/*/*"):
        shutil.copy(root / "train" / "ant" / "0.png", file) if file.parent.name + file.stem != "ant0" else None
    shutil.copy(root / "train" / "ant" / "0.png", root / "val" / "bee" / "1.png")
    limit(ALL_UP_TO=3, SAMPLE=6)  # all of val, half of train
    opened = [opening.open_split(folders(root, split), split) for split in ("train", "val")]
    assert 0 not in {look.index for look in opened[0].results}
    (line,) = opening.compare(*opened)
    assert line.startswith("1 image of val is identical") and line.endswith(
        "val/bee/1.png and " + str(root / "train/ant/0.png")
    )


def test_a_training_image_that_vanishes_meanwhile_is_identical_to_none(root, limit):
    shutil.copy(root / "train" / "ant" / "0.png", root / "val" / "bee" / "1.png")
    limit(ALL_UP_TO=3, SAMPLE=6)  # all of val, half of train
    opened = [opening.open_split(tars(root, split), split) for split in ("train", "val")]
    assert 0 not in {look.index for look in opened[0].results}
    (root / "train-0.tar").unlink()
    assert opening.compare(*opened) == []


def test_what_was_compared_is_said_where_it_was_not_all(root, limit):
    limit(ALL_UP_TO=7, SAMPLE=4)
    opened = [opening.open_split(folders(root, split), split) for split in ("train", "val")]
    assert opening.compare(*opened, seconds=-1.0) == [
        "no validation image is identical to a training image (compared: all 6 with 4 of 12)"
    ]
    assert opening.compare(*opened) == []
    opened = [
        opening.open_split(folders(root, split), split) for split in ("val", "train")
    ]  # train is smaller, and whole
    assert opening.compare(*opened) == [
        "no validation image is identical to a training image (compared: 4 of 12 with 6 of 6)"
    ]


def test_a_held_out_part_is_compared_with_the_rest(root, cache):
    shutil.rmtree(root / "val")
    for name in ("ant", "bee"):
        for position in range(1, 6):
            shutil.copy(root / "train" / name / "0.png", root / "train" / name / f"{position}.png")
    inspection = SplitInspection(False, False)
    whole = ClassFolders.whole(str(root), cache)
    parts = {split: hold_out(whole, split, 0.5, 0, cache) for split in ("train", "val")}
    lines = [line for split, part in parts.items() for line in inspection.inspect(part, split, 2)]
    assert lines[:2] == ["opened all 6 images of train", "opened all 6 images of val"]
    assert lines[2].startswith("6 images of val are identical to images of train")


def test_classes_without_images_are_named(root, tmp_path):
    shutil.rmtree(root / "val" / "ant")
    assert looked(folders, root)[1] == "val has no images of 1 of 2 classes: ant"
    assert find_empty_classes(lists(root, "val"), "val", 1000) == [
        "val has no images of 999 of 1,000 classes: 0, 2, 3, …"
    ]
    # Images that are no files are not opened again.
    assert SplitInspection(False, False).inspect(Digits(None, "val", tmp_path), "val", 10) == []


def test_the_findings_follow_what_was_told_when_a_split_was_opened(root):
    shutil.rmtree(root / "val")
    words = ["-dataset=folder", f"-data_path={root}", f"-output={root.parent}", "DATA.VAL_FRACTION_IF_MISSING", "0.25"]
    values = load(words).values
    told, findings, change = resolve("task", values.TASK)(values).build_dataset("val", root.parent).notices
    assert told.startswith("note: 4 of 12 training images are held out for validation (DATA.VAL_FRACTION_IF_MISSING ")
    assert findings == "opened all 4 images of val" and change.startswith("images of val: ")


def test_what_is_kept_of_the_look_does_not_travel_to_other_processes(root):
    output = root.parent / "output"
    output.mkdir()
    values = load(["-dataset=folder", f"-data_path={root}", f"-output={output}", "-image_size=16"]).values
    task = resolve("task", values.TASK)(values)
    samples = task.build_dataset("train", output)
    assert len(pickle.dumps(task)) < 20_000 and pickle.loads(pickle.dumps(task))._inspection is None
    lost = "lost: 40.7 % of the pixels (an evaluation crops to the middle 59.3 %)"
    line = f"images of train: 8 x 6 color -> 16 x 16 color; {lost}"
    assert samples.notices[-2:] == ["opened all 12 images of train", line]
