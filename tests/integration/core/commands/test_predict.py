"""``predict``: rows for images without labels, whatever is among them and however it ends."""

import csv
import json
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import Finished, run_command
from support.refusals import refusal_of
from support.trainings.runs import PLAIN, refusal, run_main, well
from support.trainings.trained import WORDS, network, write_weights

from paddlevit_dist import Predictor, UserError

NAMES = ['a, "b"', "bee", "čmelák", "x\ty", "e", "f"]
KILLED = """
import os, signal, sys
from paddlevit_dist.core.inference import rank_prediction
from paddlevit_dist.core.commands.predict import run
from paddlevit_dist.core.runtime.errors import run_and_report

after, signal_name, *words = sys.argv[1:]  # also in the processes that are started by this one
compute, batches = rank_prediction.predict_batch, []


def compute_and_end(*arguments):
    batches.append(1)
    if len(batches) == int(after):
        os.kill(os.getpid(), getattr(signal, signal_name))
    return compute(*arguments)


rank_prediction.predict_batch = compute_and_end
if __name__ == "__main__":
    sys.exit(run_and_report(lambda: run(words)))
"""


def image(seed: int, mode: str = "RGB", size=(20, 24)) -> Image.Image:
    generator = np.random.default_rng(seed)
    channels = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}
    if mode == "I;16":
        return Image.fromarray(generator.integers(0, 60000, size[::-1], dtype=np.uint16))
    if mode == "P":
        return image(seed).quantize(17)
    return Image.fromarray(generator.integers(0, 255, (*size[::-1], *channels[mode]), dtype=np.uint8), mode)


def predict(*words: object, folder: Path) -> Finished:
    command = [sys.executable, "-m", "paddlevit_dist", "predict", *map(str, words)]
    return run_command(command, folder=folder)


def table(folder: Path, name: str = "predictions.csv") -> list:
    with open(folder / name, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, "excel-tab" if name.endswith("tsv") else "excel"))


def objects(folder: Path) -> list:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text(encoding="ascii").splitlines()]


# ---- interrupted, killed, again ----------------------------------------------------------------------------------


def end_early(weights: Path, images: Path, folder: Path, after: int, name: str, *words: str) -> Finished:
    script = folder / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(after), name, str(weights), str(images), "-batch_size=2", *words]
    return run_command(command, folder=folder)


def assert_same(one: list, other: list) -> None:
    """The same rows in the same order, to the rounding of float32."""
    assert [row["input"] for row in one] == [row["input"] for row in other] and one
    for first, second in zip(one, other):
        assert list(first) == list(second)
        classes = [name for name in first if not name.startswith("score")]
        assert [first[name] for name in classes] == [second[name] for name in classes]
        scores = [name for name in first if name not in classes]
        np.testing.assert_allclose([first[name] for name in scores], [second[name] for name in scores], rtol=1e-4)


def require_continuation(weights: Path, images: Path, tmp_path: Path, name: str, code: int) -> None:
    """The same command goes on where an earlier one has ended."""
    ended = end_early(weights, images, tmp_path, 4, name)
    assert ended.code == code, ended.err
    folder = tmp_path / "predictions"
    (rows,) = (folder / "unfinished").iterdir()
    done = [json.loads(line)[0] for line in rows.read_text().splitlines()]
    assert done[:6] == list(range(6)) and len(done) < 12
    if name == "SIGINT":
        assert [row[0] for row in table(folder)[1:]] == [f"{images}/{number + 1}.png" for number in done]
    with open(rows, "a") as file:
        file.write('[11,[{"class":"bee","sc')  # as a process leaves it that is killed while it writes
    again = well(predict(weights, images, "-batch_size=5", folder=tmp_path))
    assert f"continuing: {len(done)} of 12 inputs are done" in again.out and not (folder / "unfinished").exists()
    assert_same(Predictor(weights)(images), objects(folder))
    assert [row[0] for row in table(folder)[1:]] == [row["input"] for row in objects(folder)]
    once_more = well(predict(weights, images, folder=tmp_path))
    assert "are already predicted" in once_more.out


def write_pictures(folder: Path) -> Path:
    """Twelve images called 1.png to 12.png, the last of them in a folder."""
    (folder / "z").mkdir()
    for number in range(1, 13):
        image(number).save(folder / ("z" if number == 12 else ".") / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights"), NAMES)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"))


def expected_scores(image: Image.Image, model, crop: float = 0.875, mean=0.5, deviation=0.5) -> np.ndarray:
    """A plain loop: the evaluation's resize and crop with Pillow, mean and deviation, softmax."""
    image, size = image.convert("RGB"), 16
    shorter = int(size / crop)
    width, height = image.size
    longer = int(shorter * max(width, height) / min(width, height))
    image = image.resize((shorter, longer) if width <= height else (longer, shorter), Image.Resampling.BICUBIC)
    left, top = (round((side - size) / 2) for side in image.size)
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), np.float32) / 255
    values = (pixels - mean) / deviation
    with paddle.no_grad():
        logits = model(paddle.to_tensor(values.transpose(2, 0, 1)[None].astype("float32"))).numpy()[0]
    shares = np.exp(logits - logits.max(), dtype=np.float64)
    return shares / shares.sum()


def assert_row(row: dict, shares: np.ndarray, names) -> None:
    order = np.argsort(-shares)[:5]
    endings = ["", "_2", "_3", "_4", "_5"][: len(order)]
    assert [row[f"class{ending}"] for ending in endings] == [names[label] for label in order]
    np.testing.assert_allclose([float(row[f"score{ending}"]) for ending in endings], shares[order], atol=2e-6)


# ---- what is in the rows -----------------------------------------------------------------------------------------


def test_every_kind_of_image_gets_what_a_plain_loop_computes(tmp_path):
    of_run = ["DATA.CROP_PCT", "0.7", "DATA.IMAGENET_MEAN", "[0.4, 0.5, 0.6]", "DATA.IMAGENET_STD", "[0.2, 0.3, 0.25]"]
    weights = write_weights(tmp_path / "w", NAMES, *of_run)
    paths = []
    for seed, mode in enumerate(("RGB", "L", "RGBA", "P", "CMYK", "I;16")):
        paths.append(tmp_path / f"{mode.replace(';', '')}.{'jpg' if mode == 'CMYK' else 'png'}")
        image(seed, mode).save(paths[-1])
    turned = Image.Exif()
    turned[0x0112] = 6
    image(9).save(tmp_path / "turned.jpg", exif=turned)
    paths.append(tmp_path / "turned.jpg")
    predictor = Predictor(weights)
    rows = predictor(paths)
    assert [row["input"] for row in rows] == list(map(str, paths)) and predictor.unreadable == []
    model = network(len(NAMES))
    for row, path in zip(rows, paths):
        assert list(row) == ["input", "class", "score"] + [f"{n}_{k}" for k in range(2, 6) for n in ("class", "score")]
        shares = expected_scores(Image.open(path), model, 0.7, [0.4, 0.5, 0.6], [0.2, 0.3, 0.25])
        assert_row(row, shares, NAMES)
    Image.new("L", (2, 60_000)).save(tmp_path / "line.png")
    Image.new("L", (1, 4_000_000)).save(tmp_path / "thread.png")
    assert len(predictor([tmp_path / "line.png", tmp_path / "thread.png"])) == 1
    assert "crop it" in predictor.unreadable[0][1]
    assert "1 could not be read" in refusal_of(predictor, [np.zeros((3, 4, 2), np.uint8)])
    assert "expected uint8" in predictor.unreadable[0][1]
    of_turned = write_weights(tmp_path / "turned", NAMES, "DATA.EXIF_ROTATE", "true")
    (row,) = Predictor(of_turned)(tmp_path / "turned.jpg")
    upright = Image.open(tmp_path / "turned.jpg").transpose(Image.Transpose.ROTATE_270)
    assert_row(row, expected_scores(upright, model), NAMES)
    in_memory = predictor([Image.open(paths[0]), np.asarray(Image.open(paths[1]))])
    assert_same([{**row, "input": rows[place]["input"]} for place, row in enumerate(in_memory)], rows[:2])


def test_classes_without_a_name_are_numbers_and_a_file_may_name_them(tmp_path):
    image(0).save(tmp_path / "one.png")
    source = write_weights(tmp_path / "w", None, num_classes=3)
    shares = expected_scores(image(0), network(3))
    (row,) = Predictor(source)(tmp_path / "one.png")
    assert_row(row, shares, ["0", "1", "2"])
    (tmp_path / "names.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    well(predict(source, "one.png", "-class_names=names.txt", folder=tmp_path))
    header, named = table(tmp_path / "predictions")
    assert header == ["input", "class", "score", "class_2", "score_2", "class_3", "score_3"]
    assert_row(dict(zip(header, named)), shares, ["one", "two", "three"])


def test_a_folder_of_validation_gets_the_accuracy_of_an_evaluation(weights, tmp_path):
    for number in range(30):
        place = tmp_path / "data" / "val" / ("ant", "bee", "cat")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        image(number).save(place / f"{number}.png")
    source = write_weights(tmp_path / "w", ["cat", "ant", "bee"], seed=5)
    well(predict(source, "data/val", "-batch_size=7", folder=tmp_path))
    rows = table(tmp_path / "predictions")[1:]
    assert len(rows) == 30
    right = sum(row[1] == Path(row[0]).parent.name for row in rows)
    ended = well(
        run_main(
            *("-eval", f"-pretrained={source}", "-dataset=folder", f"-data_path={tmp_path / 'data'}"),
            *(PLAIN, "-image_size=16", "-batch_size=4"),
            *(f"-output={tmp_path / 'eval'}", "-num_workers=0", *WORDS),
        )
    )
    assert 0 < right < 30 and f"top-1 {100 * right / 30:.2f} " in ended.out.splitlines()[-1]


def test_a_runs_folder_means_the_averaged_weights_of_its_best_checkpoint(tmp_path):
    checkpoints = tmp_path / "run" / "checkpoints"
    for epoch, seed in ((1, 1), (2, 2)):
        folder = checkpoints / f"epoch_{epoch:04d}"
        write_weights(folder, NAMES, seed=seed).rename(folder / "model.pdparams")
        (folder / "state.json").write_text("{}")
    paddle.save(network(len(NAMES), 3).state_dict(), str(checkpoints / "epoch_0001" / "model_ema.pdparams"))
    (checkpoints / "last").symlink_to("epoch_0002")
    image(4).save(tmp_path / "one.png")

    def shares_of(seed):
        return expected_scores(image(4), network(len(NAMES), seed))

    assert_row(Predictor(tmp_path / "run")(tmp_path / "one.png")[0], shares_of(2), NAMES)
    (checkpoints / "best").symlink_to("epoch_0001")
    assert_row(Predictor(tmp_path / "run")(tmp_path / "one.png")[0], shares_of(3), NAMES)
    plain = checkpoints / "epoch_0001" / "model.pdparams"
    assert_row(Predictor(plain)(tmp_path / "one.png")[0], shares_of(1), NAMES)


# ---- what is listed ----------------------------------------------------------------------------------------------


def test_inputs_keep_their_order_and_what_cannot_be_read_is_listed(weights, images, tmp_path):
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / ".hidden.png").write_bytes(b"")
    (odd / "notes.txt").write_text("no image")
    (odd / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(20))
    (odd / "cut.png").write_bytes((images / "3.png").read_bytes()[:300])
    image(20).save(odd / "caf\udce9.png")
    archive = tmp_path / "some.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(images / "10.png", "b/10.png")
        tar.add(images / "9.png", "./a.png")
        tar.add(odd / "notes.txt", "notes.txt")
    (tmp_path / "broken.tar").write_bytes(archive.read_bytes()[:2000])
    words = [str(images), "some.tar", "broken.tar", "odd", "some.tar", "odd/notes.txt"]
    ended = predict(weights, *words, "-output=out", folder=tmp_path)
    assert ended.code == 2 and "error: predict: broken.tar: " in ended.err  # named itself, and told after the rest
    assert "(2 unreadable inputs on the command line, listed in out/unreadable.tsv)" in ended.err
    names = [f"{images}/{number}.png" for number in range(1, 12)] + [f"{images}/z/12.png"]
    members = ["some.tar/b/10.png", "some.tar/a.png"]
    found = names + members + ["odd/caf\\xe9.png"] + members
    assert [row[0] for row in table(tmp_path / "out")[1:]] == found
    assert objects(tmp_path / "out")[14]["input"] == "odd/caf\udce9.png"
    for row, line in zip(table(tmp_path / "out")[1:], objects(tmp_path / "out")):
        # A table shows control characters; the other file has them as they are.
        assert row[1:] == [str(value).replace("\t", "\\t") for value in list(line.values())[1:]]
    listed = dict(table(tmp_path / "out", "unreadable.tsv"))
    assert list(listed) == ["path", "broken.tar", "odd/photo.heic", "odd/cut.png", "odd/notes.txt"]
    assert "pip install pillow-heif" in listed["odd/photo.heic"]
    assert "truncated" in listed["odd/cut.png"] and "not an image" in listed["odd/notes.txt"]
    assert "17 predicted" in ended.out and "4 could not be read" in ended.out
    assert "1 hidden" in ended.out and "1 .txt" in ended.out


def test_if_nothing_can_be_predicted_the_exit_code_is_2(weights, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no image")
    words = ["empty", "notes.txt"]
    message = refusal(predict(weights, *words, folder=tmp_path))
    assert "nothing was predicted" in message and words[0] in message
    assert [row[0] for row in table(tmp_path / "predictions", "unreadable.tsv")[1:]] == words


@pytest.mark.parametrize(
    "words, said",
    [
        (("DATA.BATCH_SIZ", "4"), "DATA.BATCH_SIZ (4) is not a known key: the closest is DATA.BATCH_SIZE"),
        (("DATA.CROP_PCT=2",), "command line: DATA.CROP_PCT is '2': expected a number > 0 and <= 1"),
        (("data.crop_pct=0.5",), "predict: input data.crop_pct=0.5: keys are in capitals: DATA.CROP_PCT"),
        (("--", "SEED"), "predict: input SEED: no such file or folder"),
        (("picturs",), "predict: input picturs: no such file or folder"),
        (("*.jpg",), "predict: input *.jpg: no file matches: write patterns without quotes"),
        (("-annotations=a.json",), "-annotations=a.json cannot be read: No such file or directory"),
        ((f"-annotations={__file__}",), "-annotations is for models that find boxes or keypoints; remove it"),
        (("https://me:word@host/a.png",), "predict: input https://***@host/a.png: URLs are not fetched: download"),
    ],
)
def test_what_is_no_input_is_refused_before_anything_is_written(weights, images, tmp_path, words, said):
    assert said in refusal(predict(weights, images, *words, folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_keys_after_the_inputs_change_the_prediction_and_dashes_make_an_input_of_a_key(weights, images, tmp_path):
    shutil.copy(images / "1.png", tmp_path / "SEED")
    words = ["DATA.CROP_PCT", "0.5", "-allow-changes", "TRAIN.BASE_LR=0.1", "SAVE", "there"]
    ended = well(predict(weights, images / "2.png", *words, "--", "SEED", folder=tmp_path))
    assert "TRAIN.BASE_LR 0.1 (command line): no effect: it is for training" in ended.out
    rows = objects(tmp_path / "there")
    assert [row["input"] for row in rows] == [str(images / "2.png"), "SEED"]
    options = {"DATA.CROP_PCT": 0.5, "allow_changes": True}
    expected = Predictor(weights, **options)([images / "2.png", tmp_path / "SEED"])
    assert_same(rows, [expected[0], {**expected[1], "input": "SEED"}])
    assert rows[0]["score"] != Predictor(weights)(images / "2.png")[0]["score"]
    other = well(predict(weights, images / "2.png", "-output=there", "--", "SEED", folder=tmp_path))
    assert f"output folder: there-2, as there contains predictions of {weights} with other settings" in other.out
    assert objects(tmp_path / "there") == rows and len(objects(tmp_path / "there-2")) == 2


def test_images_of_a_folder_that_cannot_be_read_are_counted_and_the_first_is_named(weights, tmp_path):
    (tmp_path / "some").mkdir()
    image(1).save(tmp_path / "some/a.png")
    (tmp_path / "some/b.png").write_bytes(b"no image")
    ended = well(predict(weights, "some", folder=tmp_path))
    assert "1 predicted" in ended.out and "1 could not be read" in ended.out
    assert "note: the first unreadable input: some/b.png: " in ended.out


def test_what_is_no_source_is_refused_in_one_line(weights, images, tmp_path):
    alone = tmp_path / "alone.pdparams"
    shutil.copy(weights, alone)
    with pytest.raises(UserError, match=r"neither an about\.yaml with settings, a run's config\.yaml nor .* -cfg=FILE"):
        Predictor(alone)
    with pytest.raises(UserError, match="no weights at"):
        Predictor(tmp_path / "gone")
    with pytest.raises(UserError, match="contains no model.pdparams"):
        Predictor(images)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "MODEL: {NAME: vit, PATCH_SIZE: 8, EMBED_DIM: 16, DEPTH: 1, NUM_HEADS: 2}\nDATA: {IMAGE_SIZE: 16}\n"
    )
    (row,) = Predictor(alone, recipe=str(recipe), class_names=NAMES)(images / "1.png")
    assert row == Predictor(weights)(images / "1.png")[0]


def test_the_same_command_goes_on_where_an_interrupted_one_has_ended(weights, images, tmp_path):
    require_continuation(weights, images, tmp_path, "SIGINT", 130)


def test_a_prediction_that_has_failed_or_is_of_other_inputs_says_what_to_do(weights, images, tmp_path):
    """The second attempt shows what is wrong, and not that the folder is of other inputs."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "MODEL: {NAME: vit, PATCH_SIZE: 8, EMBED_DIM: 24, DEPTH: 1, NUM_HEADS: 2}\nDATA: {IMAGE_SIZE: 16}"
    )
    (tmp_path / "kept").mkdir()
    for output in ("new/one", "kept"):
        words = [weights, images / "1.png", f"-cfg={recipe}", f"-output={output}"]
        assert "is of another network: MODEL.EMBED_DIM 16 there" in refusal(predict(*words, folder=tmp_path))
        assert not (tmp_path / "new").exists() and list((tmp_path / "kept").iterdir()) == []
    well(predict(weights, images / "2.png", "-output=kept", folder=tmp_path))
    before = (tmp_path / "kept" / "predictions.csv").read_bytes()
    assert "-restart" in well(predict(weights, images / "3.png", "-output=kept", folder=tmp_path)).out
    assert [row[0] for row in table(tmp_path / "kept-2")[1:]] == [str(images / "3.png")]
    assert (tmp_path / "kept" / "predictions.csv").read_bytes() == before
    assert not (tmp_path / "kept" / "unfinished").exists()
    well(predict(weights, images / "3.png", "-output=kept", "-restart", folder=tmp_path))
    assert [row[0] for row in table(tmp_path / "kept")[1:]] == [str(images / "3.png")]
