"""The merged configuration: frozen, described, written and read back."""

import pickle
from pathlib import Path

import pytest
import yaml

import paddlevit_dist
from paddlevit_dist import UserError
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.engine.settings import resolve_epochs, resolve_process_batch
from paddlevit_dist.core.settings import dump_yaml, load
from paddlevit_dist.core.settings.yaml_output import describe

ROOT = Path(paddlevit_dist.__file__).parents[1]


def test_values_are_frozen():
    configuration = load([])

    with pytest.raises(AttributeError):
        configuration.values.SEED = 1
    with pytest.raises(AttributeError):
        configuration.values.TRAIN.BASE_LR = 1
    with pytest.raises(AttributeError):
        configuration.show = True


def test_it_travels_to_other_processes():
    configuration = load(["-seed=3"])

    copy = pickle.loads(pickle.dumps(configuration))

    assert copy == configuration and copy.values.is_frozen()


ROUND_TRIPS = [
    [],
    ["-batch_size=4", "-seed=2147483647", "TRAIN.BASE_LR", "3e-4", "TRAIN.OPTIMIZER.BETAS", "(0.8, 0.9)"],
    ["-eval", "-pretrained=./a b/x: y # z", "-amp", "-ngpus=2"],
    ["-data_path=/däten/數據", "-output= '\"\\ ", "-resume=~x"],
    ["-data_path=two\nlines\tand a tab", "-output=2024-01-01", "-dataset=null", "-pretrained=" + "long " * 100],
    [
        "DATA.IMAGE_CHANNELS=1",
        "TRAIN.LR_SCHEDULER.NAME=step",
        "TRAIN.LR_SCHEDULER.MILESTONES=3,5",
        "MODEL.QKV_BIAS=off",
    ],
    ["TRAIN.BASE_LR=1e-7", "TRAIN.OPTIMIZER.EPS=1e-300", "DATA.CROP_PCT=0.1", "MODEL.DEPTH=3", "-output=1e-3"],
]


@pytest.mark.parametrize("words", ROUND_TRIPS)
def test_written_yaml_loads_back_to_equal_values(write, words):
    configuration = load(words)
    text = dump_yaml(configuration.values)

    again = load([f"-cfg={write('merged.yaml', text)}"])

    assert again.values == configuration.values
    assert repr(again.values) == repr(configuration.values)  # types too: 1 is not 1.0, a tuple no list
    assert again.notices == []
    assert dump_yaml(again.values) == text


def test_passwords_and_tokens_of_addresses_are_neither_written_nor_shown():
    address = "https://me:secret@example.org/w.pdparams?token=hidden&v=1#sha256=" + 64 * "0"
    configuration = load(["-cfg=vit_digits", f"-pretrained={address}", "-show_config"])
    assert configuration.values.MODEL.PRETRAINED == address
    for text in (
        dump_yaml(configuration.values),
        configuration.describe(),
        str(to_plain_settings(configuration.values)),
    ):
        assert "https://***@example.org/w.pdparams?token=***&v=***#sha256=" in text
        assert "secret" not in text and "hidden" not in text


def test_what_is_imported_to_show_a_configuration_is_said_before(tmp_path, capsys):
    (tmp_path / "my_module_of_code.py").write_text("import sys\nprint('it runs', file=sys.stderr)\n")
    (tmp_path / "mine.yaml").write_text(f"BASE: vit_digits\nIMPORTS: [{tmp_path}/my_module_of_code.py]\n")
    load([f"-cfg={tmp_path}/mine.yaml", "-show_config"])
    first, second = capsys.readouterr().err.splitlines()
    assert "my_module_of_code.py, as IMPORTS of" in first and "runs its code" in first
    assert second == "it runs"


def test_modules_to_import_are_a_list_of_names(load_text):
    with pytest.raises(UserError, match=r"^x.yaml:1: IMPORTS is \{.a.: 1\}: expected "):
        load_text("IMPORTS: {a: 1}")


def test_the_last_task_counts_and_its_keys_are_known(load_text):
    configuration = load_text("TASK: classification", "TASK", "detection", "DETECTION.FLIP", "true")
    assert (configuration.values.TASK, configuration.values.DETECTION.FLIP) == ("detection", True)


def test_the_epochs_of_a_recipe_are_those_of_its_last_file(write):
    write("base.yaml", "TRAIN: {NUM_EPOCHS: 7}")
    write("x.yaml", "BASE: base.yaml\nTRAIN: {NUM_EPOCHS: 9}")
    assert load(["-cfg=x.yaml", "-epochs=3"]).recipe_epochs == 9
    assert load(["-epochs=3"]).recipe_epochs == load([]).values.TRAIN.NUM_EPOCHS


def test_the_description_is_yaml_with_the_source_behind_each_value(load_text):
    configuration = load_text("TRAIN: {BASE_LR: 3e-3}", "-seed=3", "-data_path=" + "long/" * 30)

    text = configuration.describe()

    lines = {line.split(":")[0].strip(): line for line in text.splitlines()}
    assert lines["BASE_LR"].endswith("# x.yaml") and lines["BASE_LR"].strip().startswith("BASE_LR: 0.003 ")
    assert lines["SEED"].endswith("# command line")
    assert lines["EVAL"].endswith("# default")
    texts = [line.partition("  # ")[0] for line in text.splitlines() if "  # " in line.lstrip()]
    assert len({len(text) for text in texts if len(text.rstrip()) <= 40}) == 1 and len(texts) > 150
    assert yaml.safe_load(text) == yaml.safe_load(dump_yaml(configuration.values))
    assert "BASE:" not in text


def test_a_value_that_follows_from_others_is_not_called_the_default(load_text):
    """32 images an update are not the default of 256, and nobody has written them."""
    text = "DATA: {GLOBAL_BATCH_SIZE: 32}\nTRAIN: {NUM_SAMPLES: 3000, EPOCH_LIMITS: [2, 50]}"
    configuration = load_text(text, "-image_size=32")

    def told(described):
        lines = (" ".join(line.split()) for line in described.describe().splitlines())
        return {line.split(":")[0]: line.partition("# ")[2] for line in lines if "# " in line}

    sources = told(configuration)
    assert sources["BATCH_SIZE"] == sources["NUM_EPOCHS"] == "follows from other keys"
    assert sources["GLOBAL_BATCH_SIZE"] == "x.yaml" and sources["BATCH_SIZE_EVAL"] == "default"
    assert told(resolve_process_batch(configuration, 2))["BATCH_SIZE"] == "DATA.GLOBAL_BATCH_SIZE"
    fitted = resolve_epochs(configuration, 2, 300, "images")
    assert (fitted.values.TRAIN.NUM_EPOCHS, told(fitted)["NUM_EPOCHS"]) == (10, "TRAIN.NUM_SAMPLES")
    assert told(load_text(text, "-batch_size=8"))["BATCH_SIZE"] == "command line"


def test_the_description_keeps_to_eighty_columns_but_for_values_that_are_wider(write, tmp_path):
    name = write(f"{'folders/' * 8}recipe_of_that_name.yaml", "TRAIN: {BASE_LR: 3e-3}\nVOLUMES: {CROP_SIZE: [9, 9, 9]}")
    words = [f"-cfg={tmp_path / name}", "TASK", "landmarks", "-data_path=" + "l" * 80, "VOLUMES.LANDMARKS", "ear," * 16]

    configuration = load(words)
    lines = configuration.describe().splitlines()

    assert [line for line in lines if len(line) > 80] == [
        f"  DATA_PATH: {'l' * 80}",
        f"  LANDMARKS: [{', '.join(['ear'] * 16)}]",
    ]
    assert "  # command line" in lines[lines.index(f"  DATA_PATH: {'l' * 80}") - 1]
    assert all(
        line.endswith("/recipe_of_that_name.yaml") for line in lines if "CROP_SIZE:" in line or "BASE_LR:" in line
    )
    assert yaml.safe_load("\n".join(lines)) == yaml.safe_load(dump_yaml(configuration.values))


def test_a_source_is_cut_at_its_start_by_as_much_as_does_not_fit():
    configuration = load(["-cfg=vit_digits", "-data_path=" + "l" * 80])
    for length in (20, 40, 41, 69, 70):
        source = "".join(chr(ord("a") + place % 26) for place in range(length))
        lines = describe(configuration.values, dict.fromkeys(configuration.sources, source)).splitlines()
        seed, path = (
            next(n for n, line in enumerate(lines) if line.strip().startswith(key)) for key in ("SEED:", "DATA_PATH")
        )
        written, _, shown = lines[seed].partition("# ")
        left = 80 - len("SEED: 0  # ")
        assert written.split() == ["SEED:", "0"] and shown == (
            source if length <= left else f"...{source[length - left + 3 :]}"
        )
        assert len(lines[seed]) <= 80 and lines[path - 1].strip() == "# " + (
            source if length <= 40 else f"...{source[length - 37 :]}"
        )
