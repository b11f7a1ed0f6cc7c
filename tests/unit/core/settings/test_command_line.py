"""Flags, overrides and help."""

import contextlib
import shlex
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.__main__ import main
from paddlevit_dist.core.commands import COMMANDS
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.environment import program, versions
from paddlevit_dist.core.settings import DEFAULT_RECIPE, help, load
from paddlevit_dist.core.settings.command_line import all_flags, format_words
from paddlevit_dist.core.settings.table import find_keys, leaves

MISSION = r"""
-cfg='./configs/vit_base_patch16_224.yaml' \
-dataset='imagenet2012' \
-batch_size=16 \
-data_path='/dataset/imagenet' \
-eval \
-pretrained='./vit_base_patch16_224'
"""

FLAGS = all_flags()
EXAMPLES = {  # a word for each kind of argument
    "FOLDER": "./out",
    "NAME": "mnist",
    "SPLIT": "val",
    "PATH": "./some/path",
    "PIXELS": "32",
    "N": "12",
    "FILE": "update.csv",
    "MODULE": "colorsys",
    "NAMES": "tensorboard",
    "KIND": "cpu",
    "SIZE": "[48, 64]",
    "SHARE": "0.25",
    "RUN": "output/boxes",
    "PERCENT": "99",
    "LIBRARY": "openvino",
}


def value(configuration, name):
    return leaves(configuration.values)[name]


def test_the_line_of_the_readme_word_for_word(write):
    write("configs/vit_base_patch16_224.yaml", "MODEL: {NAME: vit_base_patch16_224}")

    words = shlex.split(MISSION.replace("\\\n", ""))  # a shell joins the lines
    configuration = load(words)

    values = configuration.values
    assert values.MODEL.NAME == "vit_base_patch16_224"
    assert values.DATA.DATASET == "imagenet2012"
    assert values.DATA.BATCH_SIZE == values.DATA.BATCH_SIZE_EVAL == 16
    assert values.DATA.DATA_PATH == "/dataset/imagenet"
    assert values.EVAL is True
    assert values.MODEL.PRETRAINED == "./vit_base_patch16_224"
    assert configuration.notices == []
    assert configuration.sources["MODEL.NAME"] == "configs/vit_base_patch16_224.yaml"
    assert configuration.argv == words


@pytest.mark.parametrize("name", [name for name, flag in FLAGS.items() if flag.argument and flag.key])
def test_each_flag_sets_its_key_in_all_four_spellings(name, tmp_path):
    (tmp_path / "net.onnx").touch()
    key, word = FLAGS[name].key, EXAMPLES[FLAGS[name].argument]
    expected = find_keys()[key].parse(word)
    recipes = dict.fromkeys(("max_detections", "window", "least_score"), ["-cfg=detr_shapes"])
    recipes |= {"largest_component": ["-cfg=volume_unet3d_phantoms"], "detector": ["-cfg=heatmap_figures"]}
    recipes |= {"runtime": ["-eval", f"EXPORTED={tmp_path / 'net'}"]}
    others = {**recipes, "per_sample": ["-eval", "-pretrained=x"]}.get(name, [])

    for spelling in ([f"-{name}={word}"], [f"-{name}", word], [f"--{name}={word}"], [f"--{name}", word]):
        configuration = load([*others, *spelling])
        assert value(configuration, key) == expected
        assert configuration.sources[key] == "command line"


@pytest.mark.parametrize("word, sides", [("48", [48, 48]), ("48x64", [48, 64]), ("[48, 64]", [48, 64])])
def test_a_flag_of_two_tasks_sets_the_key_of_the_runs_task(word, sides):
    boxes = load(["-cfg=detr_shapes", f"-window={word}"])
    assert boxes.values.DETECTION.WINDOW == sides and boxes.notices == []
    masks = load([f"-window={word}", "-cfg=segformer_b0_shapes", "SEGMENTATION.SCALES", "[1.0]"]).values.SEGMENTATION
    assert (masks.PROTOCOL, masks.CROP, masks.STRIDE) == ("slide", sides, None)
    stepped = load(["-cfg=segformer_b0_shapes", f"-window={word}", "SEGMENTATION.STRIDE", "[40, 8]"]).values
    assert stepped.SEGMENTATION.STRIDE == [40, 8] and stepped.SEGMENTATION.PROTOCOL == "slide"
    with pytest.raises(
        UserError, match="-window: DETECTION.WINDOW is read by tasks detection, .* not by classification"
    ):
        load([f"-window={word}"])


@pytest.mark.parametrize("word", ["8x", "x8", "8x8x8", "-8", "eight"])
def test_a_size_is_pixels_or_height_and_width(word):
    with pytest.raises(UserError, match=f"-window is '{word}': expected pixels such as 224, or HEIGHTxWIDTH such as"):
        load(["-cfg=detr_shapes", f"-window={word}"])


def test_switches(write):
    configuration = load(["-eval", "--amp", "-pretrained=x", "-show_config"])

    assert configuration.values.EVAL is True and configuration.values.AMP is True and configuration.show is True
    assert configuration.notices == ["AMP True (-amp): no effect: it is for training, and EVAL True (-eval)"]
    assert load(["-show_config"]).values == load([]).values


def test_paddlevits_flags_are_all_there():
    theirs = (
        "cfg dataset data_path output batch_size batch_size_eval image_size accum_iter pretrained resume last_epoch"
    )
    ours = (
        "num_classes ngpus epochs stop_after_epoch stop_after_seconds seed num_workers show_config recompute profile "
        "allow_changes version selftest import split group log_to exclude_leaked per_sample seeds device "
        "max_detections window least_score largest_component detector runtime interval"
    )
    assert set(FLAGS) == {*theirs.split(), "eval", "amp", *ours.split(), "h"}


def test_batch_size_is_for_evaluation_too_unless_that_is_given(load_text):
    yaml = "DATA: {BATCH_SIZE_EVAL: 8}"

    assert load_text(yaml, "-batch_size=16").values.DATA.BATCH_SIZE_EVAL == 16
    assert load_text(yaml, "-batch_size_eval=4", "-batch_size=16").values.DATA.BATCH_SIZE_EVAL == 4
    found = load_text(yaml, "-batch_size=auto").values.DATA  # the file's batch times its accumulation stays
    assert found.FIND_BATCH_SIZE and (found.BATCH_SIZE, found.BATCH_SIZE_EVAL) == (256, 8)
    overridden = load_text(yaml, "-batch_size=16", "DATA.BATCH_SIZE_EVAL", "2")
    assert overridden.values.DATA.BATCH_SIZE_EVAL == 2 and overridden.notices == []
    assert load_text(yaml).values.DATA.BATCH_SIZE_EVAL == 8


def test_resume_auto_and_paths_are_passed_as_they_are():
    assert load(["-resume=auto"]).values.MODEL.RESUME == "auto"
    assert load(["-data_path=/a=b c"]).values.DATA.DATA_PATH == "/a=b c"
    assert load(["-output", "007"]).values.SAVE == "007"


def test_negative_numbers_are_values():
    assert load(["-cfg=vit_digits"]).values.NGPUS == -1  # all devices, unless told otherwise
    assert load(["-ngpus", "-1"]).values.NGPUS == -1
    assert load(["NGPUS", "-1"]).values.NGPUS == -1


@pytest.mark.parametrize(
    "words, name, expected",
    [
        ("TRAIN.BASE_LR 3e-4", "TRAIN.BASE_LR", 3e-4),
        ("TRAIN.BASE_LR=3e-4", "TRAIN.BASE_LR", 3e-4),
        ("TRAIN.OPTIMIZER.BETAS '(0.9, 0.95)'", "TRAIN.OPTIMIZER.BETAS", (0.9, 0.95)),
        ("DATA.IMAGENET_MEAN [0.1,0.2,0.3]", "DATA.IMAGENET_MEAN", [0.1, 0.2, 0.3]),
        ("CPU_TUNING false", "CPU_TUNING", False),
        ("MODEL.QKV_BIAS None", "MODEL.QKV_BIAS", None),
        ("TRAIN.GRAD_CLIP none -seed 3", "TRAIN.GRAD_CLIP", None),
        ("SAVE true", "SAVE", "true"),
        ("TRAIN.OPTIMIZER.NAME=sgd", "TRAIN.OPTIMIZER.NAME", "SGD"),
    ],
)
def test_overrides(words, name, expected):
    configuration = load(shlex.split(words))

    assert value(configuration, name) == expected and configuration.sources[name] == "command line"


def test_overrides_win_over_flags_over_files_over_defaults(load_text):
    configuration = load_text("TRAIN: {NUM_EPOCHS: 5, BASE_LR: 0.1}", "TRAIN.BASE_LR", "0.2", "-epochs=6")

    assert configuration.values.TRAIN.BASE_LR == 0.2 and configuration.values.TRAIN.NUM_EPOCHS == 6


def test_what_is_given_twice_is_told():
    assert load(["-seed=1", "-seed=2"]).values.SEED == 2
    assert load(["-seed=1", "-seed=2"]).notices == ["-seed is given 2 times: the last one, '2', is used"]
    both = load(["SEED", "3", "-seed=1"])
    assert both.values.SEED == 3
    assert both.notices == ["SEED is given more than once: the last override, '3', is used"]
    assert load(["-amp", "-amp"]).notices == ["-amp is given 2 times"]
    imports = load(["-import=colorsys", "-import", "fractions"])
    assert imports.notices == [] and imports.values.IMPORTS == ["colorsys", "fractions"]


def test_dictionaries_of_sections_are_their_keys():
    words = format_words({"TRAIN": {"BASE_LR": 0.1, "OPTIMIZER": {"NAME": "SGD"}}, "MODEL.OPTIONS": {"width": 3}})
    assert words == ["TRAIN.BASE_LR=0.1", "TRAIN.OPTIMIZER.NAME=SGD", "MODEL.OPTIONS={width: 3}"]


def test_arguments_of_programs_are_words():
    options = {"batch_size": 3, "amp": True, "eval": False, "seed": None, "pretrained": Path("a b")}
    options |= {"TRAIN.GRAD_CLIP": None, "DATA.CROP_SIZE": (48, 64), "log_to": ["tensorboard", "mine"]}
    words = ["-batch_size=3", "-amp", "-pretrained=a b", "TRAIN.GRAD_CLIP=None", "DATA.CROP_SIZE=[48, 64]"]
    assert format_words(options) == [*words, "-log_to=[tensorboard, mine]"]


@pytest.mark.parametrize(
    "words, message",
    [
        ("-data=x", "-data is not a known flag: write -data_path=PATH"),
        ("cfg=x", "command line: cfg ('x') is not a known key: write -cfg=x"),
        (
            "finetune_folder=my_data",
            "command line: finetune_folder ('my_data') is not a known key: write -cfg=finetune_folder",
        ),
        ("mine.yaml=my_data", "command line: mine.yaml ('my_data') is not a known key: write -cfg=mine.yaml"),
        ("data=x", "command line: data ('x') is not a known key: write -data_path=x"),
        ("lr=0.1", "command line: lr (0.1) is not a known key: write TRAIN.BASE_LR 0.1"),
        ("batchsize 16", "command line: batchsize (16) is not a known key: the closest is DATA.BATCH_SIZE"),
        (
            "warmup_epoch 3 SEED 1",
            "command line: warmup_epoch (3) is not a known key: the closest is TRAIN.WARMUP_EPOCHS",
        ),
        ("TRAIN.LR 0.1", "command line: TRAIN.LR (0.1) is not a known key: the closest is TRAIN.BASE_LR"),
        ("MODEL.CROP_PCT 1", "command line: MODEL.CROP_PCT (1) is not a known key: here, CROP_PCT is DATA.CROP_PCT"),
        *(
            (f"{key} 1", f"command line: {key} (1) is not a known key: the closest is {closest}")
            for key, closest in (
                ("TRAIN.LEARNING_RATE", "TRAIN.BASE_LR"),
                ("LEARNING_RATE", "TRAIN.BASE_LR"),
                ("MODEL.DROPRATE", "MODEL.DROPOUT"),
                ("DATA.SHAPES.TRAIN_COUNT", "DATA.SHAPES.TRAIN"),
                ("DATA.SHAPES.OBJECTS", "DATA.SHAPES.OBJECTS_PER_IMAGE"),
                ("HEATMAPS.SIGMAS", "HEATMAPS.SIGMA"),
                ("DATA.EPOCHS", "DATA.NO_AUGMENT_EPOCHS; here, EPOCHS is TRAIN.NUM_EPOCHS"),
            )
        ),
        (
            "DETECTION.QUERIES 9",  # MODEL.NUM_QUERIES is another section's
            "command line: DETECTION.QUERIES (9) is not a known key: "
            f"'{program('train')} -cfg=RECIPE -h keys' lists all",
        ),
        (
            "MODEL.LEARNING_RATE 1",
            "command line: MODEL.LEARNING_RATE (1) is not a known key: here, LEARNING_RATE is TRAIN.BASE_LR",
        ),
        ("TRAIN.EPOCHS 3", "command line: TRAIN.EPOCHS (3) is not a known key: the closest is TRAIN.NUM_EPOCHS"),
        ("-batchsize 3", "-batchsize is not a known flag: did you mean '-batch_size'?"),
        ("-size=64", "-size is not a known flag: write -image_size=SIZE"),
        ("--Pretrained=x", "--Pretrained is not a known flag: write -pretrained=PATH"),
        ("-seed", "-seed needs a value: -seed=N"),
        ("-seed -eval", "-seed needs a value: -seed=N"),
        (
            "-cfg=",
            f"-cfg needs a value: a YAML file or the name of a recipe; '{program('inspect recipes')}' lists them",
        ),
        ("-import=", "-import needs a value: a module, my_project.things, or a file, my_things.py"),
        (
            "-data_path=",
            "command line: DATA.DATA_PATH is empty: is a shell variable not set? Remove DATA.DATA_PATH, or set it to "
            "None",
        ),
        ("EVAL=[", "command line: EVAL is '[': expected true or false"),
        ("-eval=true", "-eval takes no value: write -eval alone"),
        ("-batch_size=many", "-batch_size: DATA.BATCH_SIZE is 'many': expected a whole number >= 1"),
        ("-batch_size=", "-batch_size: DATA.BATCH_SIZE is '': expected a whole number >= 1"),
        ("-batch_size=0", "-batch_size: DATA.BATCH_SIZE is '0': expected a whole number >= 1"),
        ("-ngpus=0", "-ngpus: NGPUS is '0': expected a whole number >= 1 or -1"),
        ("-seed 2147483648", "-seed: SEED is '2147483648': expected a whole number >= 0 and <= 2147483647"),
        (
            "-stop_after_epoch=0",
            "-stop_after_epoch: TRAIN.STOP_AFTER_EPOCH is '0': expected a whole number >= 1, or None",
        ),
        ("-output=", "-output: SAVE is '': expected text"),
        ("EVAL yess", "command line: EVAL is 'yess': expected true or false"),
        ("TRAIN.BASELR 3", "command line: TRAIN.BASELR (3) is not a known key: the closest is TRAIN.BASE_LR"),
        ("BASE_LR=3", "command line: BASE_LR (3) is not a known key: the closest is TRAIN.BASE_LR"),
        ("train.base_lr 3", "command line: train.base_lr (3) is not a known key: the closest is TRAIN.BASE_LR"),
        ("SEED", "command line: SEED needs a value: write SEED=VALUE"),
        (
            "vit_digits",
            "command line: 'vit_digits' is neither a flag nor a KEY with its VALUE: did you mean '-cfg=vit_digits'?",
        ),
        ("-output=x.yaml", "-output=x.yaml must be a folder: did you mean '-cfg=x.yaml'?"),
        ("-cfg = vit_digits", "-cfg: no spaces are allowed around '=': write -cfg=vit_digits"),
        ("SEED = 3", "SEED: no spaces are allowed around '=': write SEED=3"),
        ("x.yaml", "command line: 'x.yaml' is neither a flag nor a KEY with its VALUE: did you mean '-cfg=x.yaml'?"),
        ("eval", "command line: 'eval' is neither a flag nor a KEY with its VALUE: did you mean '-eval'?"),
        ("BASE x.yaml", "command line: BASE belongs in a YAML file: name the file with -cfg=FILE"),
    ],
)
def test_mistakes_are_named(refuse, words, message):
    assert refuse(load, shlex.split(words)) == message


@pytest.mark.parametrize("more", ["", " SEED 3", " -eval"])
def test_a_word_that_may_be_a_run_is_named_as_one(refuse, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "done" / "checkpoints").mkdir(parents=True)
    (tmp_path / "done" / "config.yaml").write_text("SEED: 1\n")
    start, listed = "command line: ", f"'{program('inspect recipes')}' lists the recipes"
    messages = {
        "nothere": f"there is no run or recipe named nothere; {listed}",
        "runs/a": "there is no file or folder runs/a; expected a run's folder, a flag, or a KEY with its VALUE",
        "photos": "photos is a folder, but not of a run: it needs config.yaml and checkpoints",
        "done": "done is a run: to continue it, write -resume=done, or to repeat it -cfg=done/config.yaml",
    }
    found = {word: refuse(load, shlex.split(word + more)) for word in messages}
    assert found == {word: start + message for word, message in messages.items()}


def test_sections_in_small_letters_are_named(refuse, tmp_path):
    (tmp_path / "low.yaml").write_text("train:\n  base_lr: 3e-4\n")
    said = refuse(load, [f"-cfg={tmp_path / 'low.yaml'}"])
    assert said.endswith("low.yaml:1: train is not a known section: sections and keys are in capitals: TRAIN")


def test_a_flag_without_likeness_lists_all(refuse):
    message = refuse(load, ["-zzz"])

    assert message.startswith("-zzz is not a known flag: valid flags: -cfg, ")
    assert all(f"-{name}" in message for name in FLAGS)


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("words", ["-version", "--version", "version", "train -version", "train -eval --version"])
def test_versions_are_told_by_each_spelling(capsys, words):
    with contextlib.suppress(SystemExit):
        assert main(words.split()) == 0
    assert capsys.readouterr().out == f"{versions()}\n"


@pytest.mark.usefixtures("own_handlers")
def test_a_group_of_commands_lists_its_own(capsys):
    assert main(["prepare"]) == 0
    shown = capsys.readouterr().out
    assert [name in shown for name in COMMANDS] == [name.startswith("prepare ") for name in COMMANDS]


def test_the_home_folder_alone_is_a_path(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert load(["-data_path=~"]).values.DATA.DATA_PATH == "/home/me"


@pytest.mark.parametrize("word", ["-h", "--help", "-help", "--h"])
def test_help_is_printed_and_ends(capsys, word):
    with pytest.raises(SystemExit) as ended:
        load(["-nonsense", word])

    printed = capsys.readouterr()
    assert ended.value.code == 0 and printed.err == "" and printed.out == help.help_text() + "\n"


@pytest.mark.parametrize("command", help.ABOUT)
@pytest.mark.parametrize("entry", ["paddlevit-dist", "/x/paddlevit_dist/__main__.py", "main_multi_gpu.py"])
def test_help_fits_a_screen_and_has_three_examples_of_its_command(command_line, command, entry):
    command_line(entry)
    lines = help.help_text(["-h"], command).splitlines()
    assert len(lines) <= 48
    lines = "\n".join(lines).replace("\\\n   ", "").splitlines()  # as a shell joins them
    prefix = f"  {program(command)}"
    examples = [line[len(prefix) :] for line in lines if line.startswith(prefix)]

    assert lines[0].startswith(f"usage: {program(command)} [")
    assert len(examples) == 3
    rows = [line for line in lines if not line.startswith(prefix)]
    elsewhere = {"prediction": "predict", "exported": "evaluate"}
    shown = [name for name, flag in FLAGS.items() if elsewhere.get(flag.group, command) == command]
    assert ("runtime" in shown) == (command == "evaluate")
    assert [name for name in shown if not any(f" -{name}{end}" in row for row in rows for end in ("=", " "))] == []
    assert sum(row[33:34].strip() != "" for row in rows) >= len(shown), "a flag has a line"
    for example in examples:
        words = [word.replace("output/mine", "-pretrained=x") for word in shlex.split(example) if word != "-json"]
        load([*(["-eval"] if command == "evaluate" else []), *words], DEFAULT_RECIPE)


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("entry", ["paddlevit-dist", "/x/paddlevit_dist/__main__.py", "main_multi_gpu.py"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_of_every_command_is_at_most_eighty_wide(command_line, capsys, command, entry):
    command_line(entry)

    with contextlib.suppress(SystemExit):
        main([*command.split(), "-h"])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 4 and [line for line in lines if len(line) > 80] == []
    for number, line in enumerate(lines):
        assert not line.endswith("\\") or lines[number + 1].startswith("    ")


def test_help_of_the_main_job_with_eval_is_that_of_evaluations():
    assert help.help_text(["-eval", "-h"]) == help.help_text(["-h"], "evaluate") != help.help_text()


def rows_of_help(*words):
    """First word -> the text of its row, for keys in their order, from help of at most 80 columns."""
    lines = help.help_text(["-h", *words]).splitlines()
    assert max(map(len, lines)) <= 80
    rows, last = {}, ""
    for line in lines:
        if line.startswith("   ") and last:  # goes on
            rows[last] += f" {line.strip()}"
        elif line.startswith("  "):
            last = line.split()[0]
            rows[last] = line.strip()
    return rows


def test_help_names_every_key_with_its_flag_and_default():
    rows = rows_of_help("all")

    for key in find_keys().values():
        if key.name != "BASE":
            default = list(key.default) if isinstance(key.default, tuple) else key.default
            assert rows[key.name].endswith(f"default {default})") and key.meaning in rows[key.name]
    assert rows["DATA.IMAGE_SIZE"].endswith("(-image_size, default 224)")


@pytest.mark.parametrize(
    "words, task",
    [
        ("", "classification"),
        ("-nonsense -cfg=nowhere.yaml", "classification"),
        ("-cfg=x.yaml", "pointgroup"),
        ("-cfg x.yaml TASK semantic", "semantic_segmentation"),
        ("-dataset=synthetic_landmarks", "landmarks"),
        ("-dataset=CIFAR-10", "classification"),
    ],
)
def test_help_has_the_keys_of_the_chosen_task_first(write, words, task):
    write("x.yaml", "TASK: pointgroup")
    rows, own = rows_of_help("keys", *words.split()), set(find_keys(task))
    shown = [word for word in rows if word in find_keys()]

    assert set(shown) == own - {"BASE"}
    assert shown[0] not in set.intersection(*(set(find_keys(other)) for other in REGISTRY.task_tables))
    all_keys = [word for word in rows_of_help("all", *words.split()) if word in find_keys()]
    assert all_keys[: len(shown)] == shown and set(all_keys) == set(find_keys()) - {"BASE"}
