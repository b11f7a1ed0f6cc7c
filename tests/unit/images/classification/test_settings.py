"""Keys of classification that contradict others, or have no effect beside them: each message in whole."""

import shlex

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.settings import load

SCALES = (
    "expected at least one number, each at least DATA.CROP_PCT 0.875, as a crop cannot exceed its image (with "
    "DATA.CROP_MODE border it can)"
)


@pytest.mark.parametrize(
    "words, message",
    [
        ("DATA.TEST_SCALES 1,1", "DATA.TEST_SCALES [1.0, 1.0] (word): expected each only once"),
        (
            "DATA.TEST_VIEWS mirrored,five_crops,mirrored",
            "DATA.TEST_VIEWS ['mirrored', 'five_crops', 'mirrored'] (word): expected each only once",
        ),
        ("-eval -pretrained=x DATA.TEST_SCALES []", f"DATA.TEST_SCALES [] (word): {SCALES}"),
        ("DATA.TEST_SCALES 1.5,0.8,1 DATA.CROP_PCT 0.875", f"DATA.TEST_SCALES [1.5, 0.8, 1.0] (word): {SCALES}"),
        ("DATA.TEST_SCALES [] DATA.CROP_MODE border", f"DATA.TEST_SCALES [] (word): {SCALES}"),
        (
            "DATA.BATCH_SIZE 1 TRAIN.CUTMIX_MINMAX [0.2,0.8]",
            "TRAIN.CUTMIX_MINMAX [0.2, 0.8] (word): images are mixed with others of their batch, but DATA.BATCH_SIZE 1 "
            "(word)",
        ),
        (
            "DATA.ALBUMENTATIONS steps.yaml DATA.DECODER fast",
            "DATA.DECODER fast (word): it reads only the pixels of a crop, but DATA.ALBUMENTATIONS steps.yaml (word) "
            "augments whole images before: set DATA.DECODER exact",
        ),
        (
            "DATA.CLASS_BALANCED true TRAIN.CLASS_WEIGHTS [1,2]",
            "DATA.CLASS_BALANCED True (word) and TRAIN.CLASS_WEIGHTS [1.0, 2.0] (word): both correct for rare classes; "
            "keep one",
        ),
    ],
)
def test_contradictions_name_both_sides(words, message):
    assert refusal_of(load, shlex.split(words)) == message.replace("(word)", "(command line)")


@pytest.mark.parametrize(
    "words",
    [
        "DATA.TEST_SCALES 0.875,1 DATA.CROP_PCT 0.875",
        "DATA.TEST_SCALES 0.8,1 DATA.CROP_PCT 0.875 DATA.CROP_MODE border",
        "DATA.BATCH_SIZE 1 TRAIN.CUTMIX_ALPHA 1 TRAIN.MIXUP_PROB 0",
        "TRAIN.MIXUP_ALPHA 0.8 TRAIN.MIXUP_PROB 0 TRAIN.MIXUP_MODE pair",  # turned off where it is set
        "TRAIN.MIXUP_ALPHA 1 TRAIN.CUTMIX_MINMAX [0.2,0.8] TRAIN.MIXUP_SWITCH_PROB 0.3",
        "TRAIN.AUTO_AUGMENT 3a TRAIN.COLOR_JITTER 0.3",
        "TRAIN.RAND_AUGMENT true TRAIN.RAND_AUGMENT_LAYERS 3 TRAIN.RAND_AUGMENT_MAGNITUDE 5",
        "-dataset=digits DATA.CROP_PCT 0.9 DATA.HORIZONTAL_FLIP 0 DATA.GLYPH_DISTORTION 0.5",
        "-dataset=cifar10 DATA.CROP_SCALE [0.2,0.9] DATA.HORIZONTAL_FLIP 0.3",
        "-dataset=table -data_path=/data DATA.TABLE.FOLD 3",
        "-dataset=imagenet2012 -data_path=http://127.0.0.1:1/tars DATA.REMOTE_CACHE_GIGABYTES 5",
        "TRAIN.DISTILLATION_TYPE hard TRAIN.TEACHER_MODEL resnet50 TRAIN.TEACHER_WEIGHTS x",
    ],
)
def test_what_fits_together_is_silent(words):
    assert load(shlex.split(words)).notices == []


GLYPHS = "glyphs are neither cropped nor mirrored: DATA.DATASET digits (-dataset)"


@pytest.mark.parametrize(
    "words, unused, reason",
    [
        (
            "-eval -pretrained=x TRAIN.CUTMIX_MINMAX [0.8,0.2]",
            ["TRAIN.CUTMIX_MINMAX [0.8, 0.2]"],
            "it is for training, and EVAL True (-eval)",
        ),
        (
            "TRAIN.MIXUP_ALPHA 0.8 TRAIN.MIXUP_SWITCH_PROB 0.3",
            ["TRAIN.MIXUP_SWITCH_PROB 0.3"],
            "it is for mixup with cutmix, and TRAIN.CUTMIX_ALPHA 0.0 (default)",
        ),
        (
            "TRAIN.CUTMIX_MINMAX [0.2,0.8] TRAIN.MIXUP_SWITCH_PROB 0.3",
            ["TRAIN.MIXUP_SWITCH_PROB 0.3"],
            "it is for mixup with cutmix, and TRAIN.MIXUP_ALPHA 0.0 (default)",
        ),
        (
            "TRAIN.CUTMIX_ALPHA 1 TRAIN.CUTMIX_MINMAX [0.2,0.8]",
            ["TRAIN.CUTMIX_ALPHA 1.0"],
            "TRAIN.CUTMIX_MINMAX [0.2, 0.8] (word) replaces it",
        ),
        (
            "TRAIN.MIXUP_MODE pair TRAIN.MIXUP_SWITCH_PROB 0.3 TRAIN.MIXUP_PROB 0.9",
            ["TRAIN.MIXUP_PROB 0.9", "TRAIN.MIXUP_SWITCH_PROB 0.3", "TRAIN.MIXUP_MODE pair"],
            "none of TRAIN.MIXUP_ALPHA, TRAIN.CUTMIX_ALPHA, TRAIN.CUTMIX_MINMAX is set",
        ),
        (
            "TRAIN.DISTILLATION_ALPHA 0.3 TRAIN.TEACHER_WEIGHTS x TRAIN.TEACHER_MODEL resnet50",
            ["TRAIN.DISTILLATION_ALPHA 0.3", "TRAIN.TEACHER_MODEL resnet50", "TRAIN.TEACHER_WEIGHTS x"],
            "there is no teacher: TRAIN.DISTILLATION_TYPE none (default)",
        ),
        (
            "-dataset=digits DATA.TABLE.FOLD 3",
            ["DATA.TABLE.FOLD 3"],
            "it is for table and hub, and DATA.DATASET digits (-dataset)",
        ),
        (
            "-dataset=imagenet2012 DATA.DATA_PATH /data DATA.REMOTE_CACHE_GIGABYTES 5",
            ["DATA.REMOTE_CACHE_GIGABYTES 5.0"],
            "images of this machine are not copied: DATA.DATA_PATH /data (word)",
        ),
        (
            "TRAIN.RANDOM_ERASE_COUNT 2 TRAIN.RANDOM_ERASE_MODE const",
            ["TRAIN.RANDOM_ERASE_MODE const", "TRAIN.RANDOM_ERASE_COUNT 2"],
            "nothing is erased: TRAIN.RANDOM_ERASE_PROB 0.0 (default)",
        ),
        (
            "TRAIN.RAND_AUGMENT true TRAIN.AUTO_AUGMENT v0 TRAIN.COLOR_JITTER 0.3",
            ["TRAIN.AUTO_AUGMENT v0", "TRAIN.COLOR_JITTER 0.3"],
            "TRAIN.RAND_AUGMENT True (word) replaces it",
        ),
        (
            "TRAIN.RAND_AUGMENT rand-m9 TRAIN.RAND_AUGMENT_MAGNITUDE 3 TRAIN.RAND_AUGMENT_LAYERS 3",
            ["TRAIN.RAND_AUGMENT_LAYERS 3", "TRAIN.RAND_AUGMENT_MAGNITUDE 3"],
            "TRAIN.RAND_AUGMENT rand-m9 (word) contains it",
        ),
        (
            "TRAIN.RAND_AUGMENT_MAGNITUDE 3 TRAIN.RAND_AUGMENT_LAYERS 3",
            ["TRAIN.RAND_AUGMENT_LAYERS 3", "TRAIN.RAND_AUGMENT_MAGNITUDE 3"],
            "it is for RandAugment, and TRAIN.RAND_AUGMENT False (default)",
        ),
        (
            "TRAIN.AUTO_AUGMENT v0 TRAIN.COLOR_JITTER 0.3",
            ["TRAIN.COLOR_JITTER 0.3"],
            "TRAIN.AUTO_AUGMENT v0 (word) replaces it",
        ),
        (
            "-dataset=digits DATA.CROP_SCALE [0.2,0.9] DATA.HORIZONTAL_FLIP 0.5 DATA.TEST_VIEWS mirrored",
            ["DATA.CROP_SCALE [0.2, 0.9]", "DATA.TEST_VIEWS ['mirrored']", "DATA.HORIZONTAL_FLIP 0.5"],
            GLYPHS,
        ),
        (
            "-dataset=cifar10 DATA.GLYPH_DISTORTION 0.3",
            ["DATA.GLYPH_DISTORTION 0.3"],
            "it is for digits, mnist, fashion_mnist, multi_digits, and DATA.DATASET cifar10 (-dataset)",
        ),
    ],
)
def test_keys_without_effect_are_told_with_their_reason(words, unused, reason):
    expected = [f"{key} (word): no effect: {reason}".replace("(word)", "(command line)") for key in unused]
    assert sorted(load(shlex.split(words)).notices) == sorted(expected)


def test_what_a_file_mixes_is_told_where_the_command_line_turns_it_off(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("TRAIN: {MIXUP_ALPHA: 0.8, MIXUP_MODE: pair, CUTMIX_ALPHA: 0.5}\n")
    found = load([f"-cfg={file}", "TRAIN.MIXUP_PROB", "0"]).notices
    keys = ("TRAIN.MIXUP_ALPHA 0.8", "TRAIN.CUTMIX_ALPHA 0.5", "TRAIN.MIXUP_MODE pair")
    reason = "no effect: no image is mixed: TRAIN.MIXUP_PROB 0.0 (command line)"
    assert sorted(found) == sorted(f"{key} ({file}:1): {reason}" for key in keys)


OTHER = "no effect: it is for the other probe, and TASK"


@pytest.mark.parametrize(
    "task, lines",
    [
        (
            "knn_probe",
            [
                f"PROBE.LEARNING_RATES [0.1] (command line): {OTHER} knn_probe",
                f"PROBE.LEARNING_RATE 0.1 (command line): {OTHER} knn_probe",
            ],
        ),
        (
            "linear_probe",
            [
                f"PROBE.KNN_K [5] (command line): {OTHER} linear_probe",
                "DATA.HORIZONTAL_FLIP 0.5 (command line): no effect: features are computed once, with the evaluation "
                "transform: TASK linear_probe",
            ],
        ),
    ],
)
def test_a_probe_does_not_read_what_is_for_the_other_one_or_for_training(task, lines):
    words = ["PROBE.LEARNING_RATES", "0.1", "PROBE.LEARNING_RATE", "0.1", "PROBE.KNN_K", "5"]
    words += ["DATA.HORIZONTAL_FLIP", "0.5"] if task == "linear_probe" else []
    found = load([f"-cfg=probe_{task.partition('_')[0]}", *words]).notices
    assert sorted(line.rpartition(" (")[0] for line in found) == sorted(lines)  # without the recipe's line
