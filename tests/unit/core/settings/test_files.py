"""YAML files: BASE, sources, numbers that PyYAML reads as strings, and everything that can be wrong with a file."""

import os
import tracemalloc

import pytest

from paddlevit_dist import StorageOutage, UserError
from paddlevit_dist.core.settings import StoredSettings, load


def test_later_files_win_and_each_value_knows_its_source(write):
    write("configs/_base_/data.yaml", "DATA: {IMAGE_SIZE: 32, BATCH_SIZE: 8}")
    write("configs/_base_/train.yaml", "DATA: {BATCH_SIZE: 9}\nTRAIN: {BASE_LR: 3e-3, NUM_EPOCHS: 7}")
    write("configs/x.yaml", "BASE: [_base_/data.yaml, _base_/train.yaml]\nTRAIN: {NUM_EPOCHS: 8}")

    configuration = load(["-cfg=./configs/x.yaml"])

    assert configuration.values.DATA.IMAGE_SIZE == 32
    assert configuration.values.DATA.BATCH_SIZE == 9
    assert configuration.values.TRAIN.BASE_LR == 0.003
    assert configuration.values.TRAIN.NUM_EPOCHS == 8
    assert configuration.values.BASE == []
    assert configuration.sources["DATA.IMAGE_SIZE"] == "configs/_base_/data.yaml"
    assert configuration.sources["DATA.BATCH_SIZE"] == "configs/_base_/train.yaml"
    assert configuration.sources["TRAIN.NUM_EPOCHS"] == "configs/x.yaml"
    assert configuration.sources["SEED"] == "default"


def test_two_files_may_share_a_base(write):
    write("shared.yaml", "SEED: 1")
    write("left.yaml", "BASE: shared.yaml\nSEED: 2")
    write("right.yaml", "BASE: shared.yaml")
    write("x.yaml", "BASE: [left.yaml, right.yaml]")

    assert load(["-cfg=x.yaml"]).values.SEED == 1


@pytest.mark.parametrize("base", ["['']", "''", "[]", "None", "null", "~", ""])
def test_an_empty_base_is_no_base(load_text, base):
    assert load_text(f"BASE: {base}\nSEED: 4").values.SEED == 4


def test_paddlevits_way_of_writing(load_text):
    values = load_text(
        """\
        BASE: ['']
        DATA:
            IMAGE_SIZE: 224
            CROP_PCT: 1.0
            DATA_PATH: None
        MODEL:
            TYPE: vit
            NAME: vit_base_patch16_224
            MLP_RATIO: 4
            QKV_BIAS: true
            ATTN_HEAD_SIZE: None  # from the width
            PRETRAINED:
        TRAIN:
            WARMUP_EPOCHS: 32
            WEIGHT_DECAY: 1e-8
            BASE_LR: 3e-3
            WARMUP_START_LR: 1e-6
            GRAD_CLIP: None
            LINEAR_SCALED_LR: None
            OPTIMIZER:
                NAME: 'AdamW'
                EPS: 1e-3
                BETAS: (0.9, 0.999)

        VALIDATE_FREQ: 1
        """
    ).values

    assert values.TRAIN.BASE_LR == 0.003 and values.TRAIN.WEIGHT_DECAY == 1e-8 and values.TRAIN.WARMUP_START_LR == 1e-6
    assert values.TRAIN.OPTIMIZER.BETAS == (0.9, 0.999) and values.TRAIN.OPTIMIZER.EPS == 1e-3
    assert values.MODEL.MLP_RATIO == 4.0 and isinstance(values.MODEL.MLP_RATIO, float)
    assert values.MODEL.QKV_BIAS is True
    assert values.DATA.DATA_PATH is values.MODEL.ATTN_HEAD_SIZE is values.MODEL.PRETRAINED is None
    assert values.TRAIN.GRAD_CLIP is values.TRAIN.LINEAR_SCALED_LR is None


def test_anchors_merge_keys_and_empty_sections(load_text):
    values = load_text(
        """\
        DATA:
        TRAIN: &train {NUM_EPOCHS: 3, BASE_LR: 0.1}
        """
    ).values
    assert values.TRAIN.NUM_EPOCHS == 3

    values = load_text(
        """\
        TRAIN:
          LR_SCHEDULER: {<<: {GAMMA: 0.5, POWER: 2}, GAMMA: 0.25}
        """
    ).values
    assert values.TRAIN.LR_SCHEDULER.GAMMA == 0.25 and values.TRAIN.LR_SCHEDULER.POWER == 2.0


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "TRAIN:\n  BASE_RL: 3e-3",
            "x.yaml:2: TRAIN.BASE_RL ('3e-3') is not a known key: the closest is TRAIN.BASE_LR",
        ),
        ("SEEED: 3", "x.yaml:1: SEEED (3) is not a known key: the closest is SEED"),
        (
            "SCHEDULER:\n  GAMMA: 3",
            "x.yaml:1: SCHEDULER (a section) is not a known key: the closest is TRAIN.LR_SCHEDULER",
        ),
        ('"two\\nlines": 3', "x.yaml:1: 'two\\nlines' (3) is not a known key: "),
        ("1: 3", "x.yaml:1: 1 (3) is not a known key: "),
        ("TRAIN:\n  BASE_LR: fast", "x.yaml:2: TRAIN.BASE_LR is 'fast': expected a number > 0"),
        ("TRAIN:\n  BASE_LR: -1", "x.yaml:2: TRAIN.BASE_LR is -1: expected a number > 0"),
        ("TRAIN:\n  BASE_LR:", "x.yaml:2: TRAIN.BASE_LR is None: expected a number > 0"),
        ("TRAIN:\n  BASE_LR: .nan", "x.yaml:2: TRAIN.BASE_LR is nan: expected a number > 0"),
        ("TRAIN:\n  NUM_EPOCHS: 1.5", "x.yaml:2: TRAIN.NUM_EPOCHS is 1.5: expected a whole number >= 1"),
        ('DATA:\n  CACHE_FOLDER: "a\\0b"', "x.yaml:2: DATA.CACHE_FOLDER is 'a\\x00b': expected text"),
        (
            "DATA:\n  PREFETCH: 4294967296",
            "x.yaml:2: DATA.PREFETCH is 4294967296: expected a whole number >= 1; numbers beyond ",
        ),
        ("TRAIN:\n  NUM_EPOCHS: {a: 1}", "x.yaml:2: TRAIN.NUM_EPOCHS is {'a': 1}: expected a whole number >= 1"),
        ("EVAL: 'maybe'", "x.yaml:1: EVAL is 'maybe': expected true or false"),
        ("SAVE: 2024-01-01", "x.yaml:1: SAVE is datetime.date(2024, 1, 1): expected text"),
        (
            "DATA: {CROP_SCALE: [1]}",
            "x.yaml:1: DATA.CROP_SCALE is [1]: expected a list of 2 numbers, each > 0 and <= 1",
        ),
        (
            "TRAIN: {OPTIMIZER: {NAME: Adagrad}}",
            "x.yaml:1: TRAIN.OPTIMIZER.NAME is 'Adagrad': expected one of AdamW, Adam, SGD, Lion, LAMB, Muon",
        ),
        ("TRAIN: 3", "x.yaml:1: TRAIN is 3: expected keys below it, such as TRAIN.LAST_EPOCH"),
        (
            "TRAIN: {OPTIMIZER: SGD}",
            "x.yaml:1: TRAIN.OPTIMIZER is 'SGD': expected keys below it, such as TRAIN.OPTIMIZER.NAME",
        ),
        ("SEED: 1\nEVAL: false\nSEED: 1", "x.yaml:3: SEED is already set at line 1: keep one"),
        ("DATA:\n  IMAGE_SIZE: 1\n  IMAGE_SIZE: 2", "x.yaml:3: DATA.IMAGE_SIZE is already set at line 2: keep one"),
        ("SEED: [1, {A: [2]}, {B: 3, C: 4,\n B: 5}]", "x.yaml:2: SEED.B is already set at line 1: keep one"),
        ("DATA: {IMAGE_SIZE: 1}\nDATA: {BATCH_SIZE: 2}", "x.yaml:2: DATA is already set at line 1: keep one"),
        ("DATA: {IMAGE_SIZE: 1}\nDATA.IMAGE_SIZE: 2", "x.yaml:2: DATA.IMAGE_SIZE is already set at x.yaml:1: keep one"),
        ("- SEED: 1", "x.yaml contains [{'SEED': 1}]: expected a mapping such as 'TRAIN:' with keys below it"),
        ("just words", "x.yaml contains 'just words': expected a mapping such as 'TRAIN:' with keys below it"),
        ("# nothing", "x.yaml is empty: expected a mapping such as 'TRAIN:' with keys below it"),
        ("SEED: 1\nDATA: [1, 2", "x.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("SEED: 1\n\tEVAL: true", "x.yaml:2: not valid YAML: "),
        ("SEED: 1\n---\nSEED: 2", "x.yaml:2: not valid YAML: "),
        ("SEED: !!python/object/apply:os.getcwd []", "x.yaml:1: not valid YAML: could not determine a constructor"),
        ("? [1, 2]\n: 3", "x.yaml:1: not valid YAML: found unhashable key"),
        ("SEED: 2001-13-40", "x.yaml:1: not valid YAML: '2001-13-40' is not timestamp"),
        ("SAVE: \x01", "x.yaml: not valid YAML: "),
        ("[" * 5000, "x.yaml:1: not valid YAML: nested too deeply"),
        ("DATA: &a\n  DATA: *a", "x.yaml:2: not valid YAML: the value of *a contains itself"),
        ("SEED: &a [*a]", "x.yaml:1: not valid YAML: the value of *a contains itself"),
        ("BASE: 3", "x.yaml:1: BASE is 3: expected the name of a YAML file or a list of names"),
        ("BASE: [a, [b]]", "x.yaml:1: BASE is ['a', ['b']]: expected the name of a YAML file or a list of names"),
        ("BASE: y.yaml", "x.yaml:1: BASE names 'y.yaml': there is no file y.yaml: did you mean 'x.yaml'?"),
        ("BASE: x.yaml", "x.yaml:1: BASE is circular: x.yaml -> x.yaml"),
    ],
)
def test_mistakes_name_file_line_key_and_what_was_expected(refuse, load_text, text, message):
    assert refuse(load_text, text).startswith(message)


def test_files_that_are_not_there(refuse, write):
    write("configs/vit_base_patch16_224.yaml", "SEED: 1")

    assert refuse(load, ["-cfg=./configs/vit_base_patch16_22.yaml"]) == (
        "-cfg: there is no file configs/vit_base_patch16_22.yaml: did you mean 'configs/vit_base_patch16_224.yaml'?"
    )
    assert refuse(load, ["-cfg=nowhere/x.yaml"]) == "-cfg: there is no file nowhere/x.yaml"
    assert refuse(load, ["-cfg=configs"]) == "-cfg: configs is a folder: expected a YAML file"


def test_bytes_that_are_no_text(refuse, write, tmp_path):
    write("x.yaml", "")
    (tmp_path / "x.yaml").write_bytes(b"SEED: \xff")

    assert refuse(load, ["-cfg=x.yaml"]).startswith("x.yaml: not valid YAML: ")


def test_what_is_no_file_and_files_that_cannot_be_read_are_told(refuse, write, tmp_path):
    write("x.yaml", "SEED: 1\nBASE: y.yaml")
    (tmp_path / "y.yaml").mkdir()
    assert refuse(load, ["-cfg=x.yaml"]) == "x.yaml:2: BASE names 'y.yaml': y.yaml is a folder: expected a YAML file"
    os.mkfifo(tmp_path / "pipe.yaml")  # such as -cfg=<(...) in a shell
    (tmp_path / "gone.yaml").symlink_to("nowhere.yaml")
    for name in ("pipe.yaml", "gone.yaml"):
        line = refuse(load, [f"-cfg={name}"])
        assert line == f"-cfg: {name} is a pipe, a device or a link to no file: expected a YAML file"


def test_a_file_on_a_disk_with_errors_is_named(simulated_time, write, tmp_path):
    write("x.yaml", "SEED: 1\nBASE: y.yaml")
    (tmp_path / "y.yaml").symlink_to("/proc/self/mem")
    with pytest.raises(StorageOutage, match=r"^y\.yaml cannot be reached: Input/output error, asked again for 3\d s"):
        load(["-cfg=x.yaml"])


def test_a_circle_is_shown_as_it_goes(refuse, write):
    write("a.yaml", "BASE: sub/b.yaml")
    write("sub/b.yaml", "SEED: 1\nBASE: ../c.yaml")
    write("c.yaml", "BASE: ['', sub/../a.yaml]")

    message = refuse(load, ["-cfg=a.yaml"])

    assert message == "c.yaml:1: BASE is circular: a.yaml -> sub/b.yaml -> c.yaml -> a.yaml"


def test_a_mistake_in_a_base_is_told_though_it_is_overridden(refuse, write):
    write("base.yaml", "SEED: x")
    write("x.yaml", "BASE: base.yaml\nSEED: 1")

    assert refuse(load, ["-cfg=x.yaml"]).startswith("base.yaml:1: SEED is 'x': expected a whole number >= 0")


def test_a_long_value_is_shortened_in_messages(refuse, load_text):
    message = refuse(load_text, f"SEED: {'x' * 100000}")

    assert len(message) < 300 and message.endswith("expected a whole number >= 0 and <= 2147483647")


def test_many_aliases_cost_nothing(refuse, load_text):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]

    expected = "x.yaml:6: not valid YAML: more than 250,000 values with its aliases expanded"
    assert expected in refuse(load_text, "\n".join(lines))


def test_merges_that_double_one_another_take_no_memory(refuse, load_text):
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12))]
    text = "\n".join(lines)
    assert len(text) < 700  # 31 billion entries when merged
    tracemalloc.start()
    try:
        assert "not valid YAML: more than 250,000 values with its aliases expanded" in refuse(load_text, text)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value, reason",
    [
        ("1" * 5000, "a number of 5,000 characters"),
        ("1:" * 300 + "1.5", "a number of 603 characters"),
        ("!!bool maybe", "'maybe' is not bool"),
        ("{" * 300 + "}" * 300, "nested too deeply"),
    ],
)
def test_values_that_pyyaml_itself_stumbles_over_are_one_line(refuse, load_text, value, reason):
    assert refuse(load_text, f"SEED: {value}").startswith(f"x.yaml:1: not valid YAML: {reason}")


@pytest.mark.parametrize("word, epochs", [("0040", 40), ("010", 10), ("1_000", 1000), ("+0_7", 7), ("08", 8)])
def test_a_number_is_what_a_reader_sees_and_the_same_on_the_command_line(tmp_path, word, epochs):
    (tmp_path / "run.yaml").write_text(f"TRAIN: {{NUM_EPOCHS: {word}, LR_SCHEDULER: {{MILESTONES: [{word}]}}}}")
    train = load([f"-cfg={tmp_path / 'run.yaml'}"]).values.TRAIN
    assert (train.NUM_EPOCHS, train.LR_SCHEDULER.MILESTONES) == (epochs, [epochs])
    assert load(["TRAIN.NUM_EPOCHS", word]).values.TRAIN.NUM_EPOCHS == epochs


@pytest.mark.parametrize("word", ["0x10", "0o40", "0b11", "1:30", "yes", "1:30.5"])
def test_numbers_to_other_bases_and_words_are_refused_in_one_line(tmp_path, word):
    (tmp_path / "run.yaml").write_text(f"TRAIN:\n  NUM_EPOCHS: {word}\n")
    shown = "True" if word == "yes" else f"'{word}'"
    for arguments, place in (([f"-cfg={tmp_path / 'run.yaml'}"], "run.yaml:2"), (["TRAIN.NUM_EPOCHS", word], "line")):
        with pytest.raises(UserError, match="NUM_EPOCHS.* expected a whole number") as caught:
            load(arguments)
        assert place in str(caught.value) and (shown in str(caught.value) or f"'{word}'" in str(caught.value))


@pytest.mark.parametrize("content", [{"TASK": [[1]]}, {"MODEL": {"NAME": {"a": 1}}}])
def test_names_in_stored_settings_are_texts(content):
    with pytest.raises(UserError, match=r"^about.yaml: (TASK|MODEL.NAME) is .*: expected text"):
        load([], is_trusted=False, stored=StoredSettings(content, "about.yaml"))
