"""``prepare images``: checking a dataset, and rewriting it as tar files of smaller images."""

import io
import json
import os
import re
import shutil
import sys
import time

import numpy as np
import pytest
from integration.core.commands.preparations import (
    members,
    prepare,
    require_continuation_after_ctrl_c,
    require_continuation_after_kills,
    write,
)
from PIL import Image
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import contents, refusal, well

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.parts import crop_jpeg_rows, read_layout
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.data.tar import TarImages


@pytest.fixture
def images(tmp_path):
    """A folder dataset with images around a shorter side of 40, of several kinds."""
    root = tmp_path / "pictures"
    for split, number in (("train", 7), ("val", 2)):
        for name in ("ant", "bee"):
            for position in range(number):
                write(root / split / name / f"{position}.jpg", (90 + position, 60))
    write(root / "train" / "ant" / "small.jpg", (30, 20), quality=33)
    write(root / "train" / "ant" / "small.png", (30, 20))
    write(root / "train" / "bee" / "gray.jpg", (80, 100), "L")
    write(root / "train" / "bee" / "cmyk.jpg", (80, 100), "CMYK")
    exif = Image.Exif()
    exif[0x0112] = 6
    write(root / "train" / "bee" / "turned.jpg", (80, 100), exif=exif)
    return root


def test_a_whole_data_set_becomes_smaller_and_stays_in_order(images, tmp_path):
    output = tmp_path / "output"
    ended = well(prepare(images, output, "--shorter_side=40", "--shard_size", "4", "--workers=2"))
    assert ended.out.startswith(f"prepared 23 images in {output} (0.1 MB); to train on them: -dataset=tar")
    names = [f"train-0000{number}.tar" for number in range(5)] + ["val-00000.tar"]
    assert sorted(file.name for file in output.iterdir()) == ["classes.txt", "prepared.json", *names]
    (tmp_path / "cache").mkdir()
    for split in ("train", "val"):
        source = ClassFolders(str(images), split, tmp_path / "cache")
        ready = TarImages(str(output), split, tmp_path / "cache")
        assert ready.labels.tolist() == source.labels.tolist() and ready.class_names == ["ant", "bee"]
        for index in range(len(source)):
            before, after = source.read(index)[0], ready.read(index)[0]
            assert min(after.size) == min(40, min(before.size))
            resized = before.resize(after.size, Image.Resampling.BICUBIC)
            assert np.abs(np.asarray(after, float) - np.asarray(resized, float)).mean() < 4


def test_small_jpegs_are_copied_and_others_become_jpegs(images, tmp_path):
    output = tmp_path / "output"
    well(prepare(images, output, "--shorter_side=40"))
    found = members(output, "train-*.tar")
    by_source = {
        json.loads(found[name])["source"]: found[name.replace("json", "jpg")] for name in found if name.endswith("json")
    }
    assert len(by_source) == len(found) // 2 == 19
    assert by_source["train/ant/small.jpg"] == (images / "train" / "ant" / "small.jpg").read_bytes()
    kinds = {source: Image.open(io.BytesIO(content)) for source, content in by_source.items()}
    assert {image.format for image in kinds.values()} == {"JPEG"}
    assert kinds["train/ant/small.png"].size == (30, 20)
    assert kinds["train/bee/gray.jpg"].mode == "L" and kinds["train/bee/cmyk.jpg"].mode == "RGB"
    assert kinds["train/bee/turned.jpg"].size == (40, 50)

    dataset = TarImages(str(output), "train", tmp_path)
    encoded = dataset.encoded(0)
    layout = read_layout(encoded)
    assert (layout.width, layout.height, layout.block_height) == (60, 40, 16)
    assert Image.open(io.BytesIO(crop_jpeg_rows(encoded, layout, (0, 0, 10, 10)))).size == (60, 16)
    sizes = {dataset.read(index)[0].size for index in range(len(dataset))}
    dataset.reading = ReadConfig(exif_rotate=True)
    turned = {dataset.read(index)[0].size for index in range(len(dataset))}
    assert (40, 50) in sizes and (50, 40) not in sizes and (50, 40) in turned

    well(prepare(images, tmp_path / "worse", "--shorter_side=40", "--quality=30"))
    worse, usual = (sum(map(len, members(folder).values())) for folder in (tmp_path / "worse", output))
    assert worse < 0.8 * usual


def test_pages_hold_the_pixels_as_they_are(images, tmp_path):
    output = tmp_path / "output"
    well(prepare(images, output, "--shorter_side=5000", "--store=pages"))
    (tmp_path / "cache").mkdir()
    source, ready = (
        kind(str(root), "train", tmp_path / "cache") for kind, root in ((ClassFolders, images), (TarImages, output))
    )
    forms = set()
    for index in range(len(source)):
        before, after = source.read(index)[0], ready.read(index)[0]
        np.testing.assert_array_equal(np.asarray(after), np.asarray(before))
        forms.add((ready.describe(index)[-4:], Image.open(io.BytesIO(ready.encoded(index))).mode))
    # A page cannot say how it is to be turned, so that image stays a JPEG.
    assert forms == {(".ppm", "RGB"), (".pgm", "L"), (".jpg", "RGB")}
    assert "at most 5000 pixels, as pages of pixels" in ready.notices[0]
    message = refusal(prepare(images, output, "--shorter_side=5000"))
    assert "prepared with other settings (stored pages, now jpeg)" in message


def test_a_second_run_keeps_what_is_finished_and_makes_what_is_missing(images, tmp_path):
    output = tmp_path / "output"
    arguments = (images, output, "--shorter_side=40", "--shard_size=4", "--workers=1")
    well(prepare(*arguments))
    before = contents(output)
    times = {file: file.stat().st_mtime_ns for file in output.glob("*.tar")}
    record = json.loads((output / "prepared.json").read_text())
    (output / "prepared.json").write_text(json.dumps({**record, "complete": False}))
    with pytest.raises(UserError, match=f"the preparation of {output} was not finished; run the command"):
        TarImages(str(output), "train", tmp_path)
    missing = output / "train-00002.tar"
    missing.rename(output / "train-00002.tar.4711.abcd.tmp")  # as a killed run leaves it
    well(prepare(*arguments))
    assert contents(output) == before
    assert {file for file in times if file.stat().st_mtime_ns != times[file]} == {missing}


def test_other_settings_do_not_mix_with_what_is_there(images, tmp_path):
    output = tmp_path / "output"
    well(prepare(images, output, "--shorter_side=40"))
    before = contents(output)
    for changed, message in (
        (["--shorter_side=41"], "shorter_side 40, now 41"),
        (["--shorter_side=40", "--quality=80"], "quality 90, now 80"),
        (["--shorter_side=40", "--shard_size=9"], "shard_size 1000, now 9"),
    ):
        assert f"{output} was prepared with other settings ({message})" in refusal(prepare(images, output, *changed))
    shutil.rmtree(images / "val")
    assert "(the images of the source)" in refusal(prepare(images, output, "--shorter_side=40"))
    assert contents(output) == before


def spoil(images):
    bad = [images / "train" / "ant" / "3.jpg", images / "val" / "bee" / "1.jpg"]
    bad[0].write_bytes(bad[0].read_bytes()[:-300])
    bad[1].write_bytes(b"")
    return bad


def test_an_unreadable_image_ends_the_preparation_or_is_left_out_and_listed(images, tmp_path):
    first, second = spoil(images)
    output = tmp_path / "output"
    arguments = (images, output, "--shorter_side=40", "--shard_size=4", "--workers=1")
    message = refusal(prepare(*arguments))
    assert f"{first} cannot be read as an image" in message and "--on_bad_sample=skip" in message
    assert not list(output.glob("*.tmp"))
    ended = well(prepare(*arguments, "--on_bad_sample=skip"))
    assert f"prepared 21 images in {output}" in ended.out and "2 unreadable ones are omitted" in ended.out
    assert [line.split("\t")[0] for line in (output / "quarantine.tsv").read_text().splitlines()[1:]] == [
        str(first),
        str(second),
    ]
    assert not list(output.glob("*.unreadable"))
    dataset = TarImages(str(output), "train", tmp_path)
    assert len(dataset) == 18 and dataset.notices[0].endswith("JPEG quality 90, 2 unreadable images skipped")
    assert "2 unreadable ones" in well(prepare(*arguments, "--on_bad_sample=skip")).out


def test_a_check_lists_what_cannot_be_read_and_leaves_nothing_in_the_current_folder(images, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    listed = tmp_path / "list.tsv"
    assert well(prepare(images, "--workers=1", f"--quarantine={listed}")).out.startswith("all 23 images of")
    assert listed.read_text() == "path\treason\n"
    first, second = spoil(images)
    os.rename(first, os.path.join(os.fsencode(first.parent), b"caf\xe9.jpg"))
    ended = prepare(images, "--workers=1")
    assert (ended.code, ended.err) == (1, "")
    said = ended.out.splitlines()
    assert said[0] == f"2 of 23 images of {images} cannot be read:"
    assert said[1].startswith(f"{first.parent}/caf\\xe9.jpg\t") and said[2] == f"{second}\tthe file is empty"
    assert list((tmp_path / "here").iterdir()) == []
    ended = prepare(images, "--workers=2", f"--quarantine={listed}")
    assert ended.out == f"2 of 23 images of {images} cannot be read; they are listed in {listed}\n"
    assert listed.read_text("utf-8", "replace").splitlines()[2] == f"{second}\tthe file is empty"


def test_images_that_cannot_be_opened_here_are_not_passed_over(images, tmp_path):
    (images / "val" / "ant" / "x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (images / "val" / "ant" / "notes.txt").write_text("words")
    told = f"skipped below {images}/val: 1 .heic (pip install pillow-heif), 1 .txt"
    ended = prepare(images, "--workers=1")
    assert (ended.code, ended.out) == (1, f"{told}\nall 23 images of {images} can be read, but 1 skipped cannot\n")
    output = tmp_path / "output"
    assert told in refusal(prepare(images, output, "--workers=1")) and not output.exists()
    ended = well(prepare(images, output, "--workers=1", "--on_bad_sample=skip"))
    assert ended.out.startswith(f"{told}\nprepared 23 images in {output}") and "unreadable" not in ended.out
    assert TarImages(str(output), "val", tmp_path).notices[0].endswith("JPEG quality 90, 1 unreadable images skipped")


def test_what_was_left_out_by_the_preparation_is_not_refused_by_a_training_on_it(images, tmp_path):
    (images / "val" / "ant" / "x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    spoil(images)
    output = tmp_path / "output"
    well(prepare(images, output, "--workers=1", "--on_bad_sample=skip"))
    words = ["-cfg=vit_tiny_patch16_224", f"-data_path={output}", f"-output={tmp_path / 'run'}", "-num_classes=2"]
    words += ["-image_size=16", "-batch_size=4", "-epochs=1", "-ngpus=1", "-num_workers=0", "MODEL.DEPTH", "1"]
    message = refusal(run_main(*words, "-dataset=folder"))
    assert message == f"{output} contains the output of 'prepare images': add -dataset=tar"
    said = well(run_main(*words, "-dataset=tar")).out
    assert "3 unreadable images skipped" in said and "skipped below" not in said


def test_lists_tar_files_and_single_folders_are_recognized(images, tmp_path):
    (images / "train_list.txt").write_text("train/ant/0.jpg 0\ntrain/none.jpg 999\n")
    ended = prepare(images, "--workers=1", f"--quarantine={tmp_path / 'list.tsv'}")
    assert ended.out.startswith("1 of 2 images") and "none.jpg\tNo such file" in (tmp_path / "list.tsv").read_text()
    well(prepare(images / "train", tmp_path / "tars", "--shorter_side=40", "--workers=1"))
    again = well(prepare(tmp_path / "tars", tmp_path / "smaller", "--shorter_side=10", "--workers=1"))
    assert again.out.startswith("prepared 19 images")
    dataset = TarImages(str(tmp_path / "smaller"), "train", tmp_path)
    assert dataset.class_names == ["ant", "bee"] and dataset.read(0)[0].size == (15, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{none}"], "none is not a folder; expected a folder of images"),
        (["{in}", "{out}", "--quality=101"], "argument --quality/-quality: '101' is not a whole number from 1 to 100"),
        (
            ["{in}", "{out}", "--shorter_side=0"],
            "argument --shorter_side/-shorter_side: '0' is not a whole number from 1 up",
        ),
        (
            ["{in}", "{out}", "--quarantine=x"],
            "--quarantine is for a check without OUT: remove it; with OUT the list is quarantine",
        ),
        (["{in}", "{out}", "--shorterside=3"], "--shorterside is not a known option: did you mean '-shorter_side'?"),
        ([], "the following arguments are required: IN"),
        (["{in}", "{in}"], "is not empty and has no prepared.json; choose a new folder"),
        (["{in}/train/ant"], "train/ant has no class folders"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message, images, tmp_path):
    names = {"in": images, "out": tmp_path / "out", "none": tmp_path / "none"}
    assert message in refusal(prepare(*(word.format(**names) for word in arguments)))


def test_the_command_is_listed_and_a_mistyped_one_is_helped():
    command = [sys.executable, "-m", "paddlevit_dist"]
    assert re.search(r"^  prepare images +check images", well(run_command(command)).out, re.MULTILINE)
    ended = run_command([*command, "prepare", "image"])
    assert ended.code == 2 and "did you mean 'prepare images'?" in ended.err
    assert "-shorter_side=N" in well(prepare("-h")).out


def test_ctrl_c_leaves_finished_tar_files_only_and_the_same_command_goes_on(tmp_path):
    require_continuation_after_ctrl_c(True, tmp_path)


def test_killed_at_any_moment_the_same_command_goes_on_and_nothing_is_left(tmp_path):
    require_continuation_after_kills("SIGKILL", tmp_path)


def test_files_that_another_preparation_is_writing_are_left_alone(images, tmp_path):
    (tmp_path / "out").mkdir()
    other = tmp_path / "out/train-00000.tar.4711.0123abcd.tmp"
    other.touch()
    os.utime(other, (time.time() + 3600,) * 2)  # written to after this one began
    well(prepare(images, tmp_path / "out"))
    assert other.exists() and (tmp_path / "out/train-00000.tar").exists()
