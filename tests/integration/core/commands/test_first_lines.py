"""What a run prints first: which data, which model, which devices, and which of these are guesses."""

import pytest
from support.trainings.runs import PLAIN, TINY, last_line, refused, run_main, well, write_images

from paddlevit_dist.core.settings.names import suggest_recipe


def test_without_arguments_it_is_the_digits_example(tmp_path):
    ended = well(run_main(f"-output={tmp_path / 'output'}", "-epochs=1", "-ngpus=1"))
    lines = ended.out.splitlines()
    assert lines[0] == "data: digits (no -data_path: it comes with the package)"
    assert lines[1].startswith("  train 1,437 images: 0 136, 1 154, ")
    assert lines[2].startswith("  val 360 images: 0 42, 1 28, ")
    assert lines[3] == "model: vit"
    assert lines[4].startswith("devices: 1 CPU process; effective batch 32 = 32 per process x 1 process(es)")
    assert "shortened in proportion, from 5 of 40 to 0.125 of 1" in ended.out
    assert "training 303,658 parameters, 44 updates per epoch; 29 of 1,437 images are skipped in each" in ended.out
    assert last_line(ended).startswith("top-1 ")
    log = [line.split(" ", 2)[2] for line in (tmp_path / "output" / "log.txt").read_text().splitlines()]
    assert [line for line in log if not line.startswith("epoch ")] == [
        line for line in lines if not line.startswith("epoch ")
    ]
    (shown,), (logged,) = ([line for line in all_lines if " training: " in line] for all_lines in (lines, log))
    assert len(shown) <= 80 and " data wait " in logged and set(shown.split()) <= set(logged.split()) | {"wait"}


def test_a_data_set_that_nothing_names_is_recognized_and_told(tmp_path):
    images = write_images(tmp_path / "pictures")
    arguments = [PLAIN, *TINY, f"-data_path={images}", "-batch_size=4", "-num_workers=0", "-epochs=1"]
    ended = well(run_main(f"-output={tmp_path / 'output'}", *arguments))
    assert ended.out.splitlines()[:3] == [
        f"data: folder ({images})",
        "  train 16 images: ant 5, bee 8, cow 3",
        "  val 8 images: ant 3, bee 4, cow 1",
    ]
    assert "dataset: folder, since " in ended.out


def test_a_path_that_a_recipes_embedded_data_set_would_not_read_is_looked_at(tmp_path):
    images = write_images(tmp_path / "pictures")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"BASE: {PLAIN.partition('=')[2]}\nDATA: {{DATASET: digits}}\n")
    arguments = [f"-cfg={recipe}", *TINY, f"-data_path={images}", "-batch_size=4", "-num_workers=0", "-epochs=1"]
    ended = well(run_main(f"-output={tmp_path / 'output'}", *arguments))
    assert ended.out.splitlines()[0] == f"data: folder ({images})"
    assert f"dataset: folder instead of digits ({recipe}:2), which reads no path, since " in ended.out
    message = refused(f"-output={tmp_path / 'output'}", *arguments, "-dataset=digits")
    assert "digits comes with the package and reads no path" in message


def test_a_path_where_nothing_is_recognized_stops_the_run(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    message = refused(f"-output={tmp_path / 'output'}", PLAIN, f"-data_path={tmp_path}")
    assert str(tmp_path) in message and "-dataset=NAME" in message
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    "dataset, room",
    [
        ("folder", "folder"),
        ("imagenet2012", "images"),
        ("scenes", "points"),
        ("landmarks", "volumes"),
        ("digits", "digits"),
        ("MNIST", "mnist"),
        ("coco", "coco"),
        ("yolo", "yolo"),
    ],
)
def test_data_without_a_recipe_is_an_error_that_names_one(dataset, room, tmp_path):
    message = refused(f"-output={tmp_path / 'output'}", f"-dataset={dataset}")
    assert f"-cfg={suggest_recipe(room)}" in message


def test_an_empty_path_is_a_shell_variable_that_is_not_set(tmp_path):
    message = refused(f"-output={tmp_path / 'output'}", PLAIN, "-data_path=")
    assert "DATA.DATA_PATH is empty: is a shell variable not set?" in message


def test_data_of_another_kind_than_the_recipe_is_refused(tmp_path):
    message = refused(f"-output={tmp_path / 'output'}", PLAIN, "-dataset=scenes", f"-data_path={tmp_path}")
    assert "is for points" in message and "for images" in message and suggest_recipe("points") in message


def test_a_recipes_warm_up_in_updates_is_shortened_to_the_data(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"BASE: {PLAIN.partition('=')[2]}\nTRAIN: {{WARMUP_STEPS: 10000, NUM_EPOCHS: 300}}\n")
    arguments = [f"-cfg={recipe}", *TINY, "-dataset=digits", "DATA.IMAGE_CHANNELS", "1", "-batch_size=64"]
    ended = well(run_main(f"-output={tmp_path / 'output'}", *arguments, "-epochs=1", "-num_workers=0"))
    # 1,437 // 64 = 22 updates; 10000 x 1 / 300 = 33 does not fit either, so a tenth of the run
    assert f"TRAIN.WARMUP_STEPS 10000 ({recipe}) is not shorter than the run of 22 updates: shortened to 2" in ended.out


@pytest.mark.parametrize("words", [["-show_config"], []], ids=["shown", "started"])
def test_an_unknown_model_is_told_with_the_three_nearest(words, tmp_path):
    message = refused(f"-output={tmp_path / 'output'}", PLAIN, "MODEL.NAME", "resnett160", *words)
    assert "model 'resnett160' is not known: did you mean " in message
    assert message.partition("?")[0].count("'") == 8 and len(message) < 250
