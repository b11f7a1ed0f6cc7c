"""What a run reports about its images before it starts, on the command line."""

import os
import shutil
import signal
import sys

import numpy as np
import pytest
from PIL import Image
from support.processes import left_behind, run_main, start_command, wait_until
from support.trainings.runs import IMAGES, MAIN, last_line, read_events, refused, well, write_images


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path / "pictures")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_training_tells_each_finding_once_and_no_top5_of_two_classes(processes, images, tmp_path):
    for name in ("1.heic", "2.heic"):
        (images / "train" / "ant" / name).write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (images / "val" / "bee" / "notes.txt").write_text("words")
    shutil.copy(images / "train" / "ant" / "03.jpg", images / "val" / "bee" / "again.jpg")
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.open(images / "val" / "ant" / "00.jpg").save(images / "val" / "ant" / "00.jpg", exif=exif)
    output = tmp_path / "output"
    arguments = [*IMAGES, f"-data_path={images}"]
    trained = well(run_main(f"-output={output}", *arguments, f"-ngpus={processes}"))
    turned = "1 of the 9 opened images of val is to be turned by the EXIF orientation, but DATA.EXIF_ROTATE is false"
    kept = "24 x 20 color -> 16 x 16 color; lost: 46.7 % of the pixels"
    assert [line for line in trained.out.splitlines()[5:12] if kept not in line] == [
        f"skipped below {images}/train: 2 .heic (pip install pillow-heif)",
        "opened all 16 images of train",
        f"skipped below {images}/val: 1 .txt",
        "opened all 9 images of val",
        f"{turned}: {images}/val/ant/00.jpg",
        f"1 image of val is identical to images of train, such as {images}/val/bee/again.jpg and "
        f"{images}/train/ant/03.jpg",
    ]
    (evaluation,) = (line for line in read_events(output) if line["kind"] == "evaluation")
    low, high = evaluation["interval"]["top-1"]
    told = f"top-1 {evaluation['top-1']:.2f} [{low:.1f}, {high:.1f}] loss {evaluation['loss']:.4f} ("
    assert last_line(trained).startswith(told)
    assert "top-5" not in evaluation and "top-5 count" not in evaluation
    if processes == 2:
        return
    weights = ["-eval", f"-pretrained={output / 'checkpoints' / 'last'}"]
    evaluated = well(run_main(f"-output={tmp_path / 'evaluation'}", *arguments, *weights))
    assert (
        last_line(trained).startswith(f"{last_line(evaluated)} (last") and "opened all 9 images of val" in evaluated.out
    )


def test_a_training_stops_over_the_same_images_as_an_evaluation_or_both_say_beside_the_score_what_it_lacks(
    images, tmp_path
):
    output = tmp_path / "output"
    (images / "val" / "ant" / "x.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    arguments = [f"-output={output}", *IMAGES, f"-data_path={images}"]
    weights = ["-eval", f"-pretrained={output / 'checkpoints' / 'last'}"]
    said = f"skipped below {images}/val: 1 .heic (pip install pillow-heif); a score without them is"
    message = refused(*arguments)
    assert message.startswith(said) and message.endswith("or add DATA.ALLOW_SKIPPED_FILES True")
    beside = "(without 1 image not opened here)"
    trained = well(run_main(*arguments, "DATA.ALLOW_SKIPPED_FILES", "True"))
    assert f"{beside} (last and best" in last_line(trained)
    assert refused(*arguments, *weights) == message
    evaluated = well(run_main(*arguments, *weights, "DATA.ALLOW_SKIPPED_FILES", "True"))
    assert last_line(evaluated).endswith(beside) and last_line(trained).startswith(last_line(evaluated))
    recorded = [event["without"] for event in read_events(output) if event["kind"] == "evaluation"]
    assert recorded == [beside[1:-1]] * 2


def test_ctrl_c_while_images_are_opened(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            (tmp_path / "pictures" / split / name).mkdir(parents=True)
    first = tmp_path / "pictures" / "train" / "ant" / "000.jpg"
    Image.fromarray(pixels).resize((3000, 2000), Image.Resampling.NEAREST).save(first)
    for number in range(1, 400):
        os.link(first, first.with_name(f"{number:03d}.jpg"))
    os.link(first, tmp_path / "pictures" / "train" / "bee" / "000.jpg")
    arguments = [f"-output={tmp_path / 'output'}", *IMAGES, f"-data_path={tmp_path / 'pictures'}"]
    process = start_command([sys.executable, str(MAIN), *arguments])
    indices = "output/data/folder-train-*.index"
    wait_until(lambda: list(tmp_path.glob(indices)) or process.poll() is not None, "it opens nothing")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 75 and err.startswith("stopped: asked to stop (SIGINT)") and len(err.splitlines()) == 1
    assert "opened" not in out and left_behind(process.pid) == []
