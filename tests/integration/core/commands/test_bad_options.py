"""Options and values that cannot work: one line that names them and the fix, and nothing is written."""

import sys

import pytest
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import DIGITS, contents, refusal, refused


def words(value):
    """Name of a case: the arguments, not what is expected of them."""
    return " ".join(value) if value[0].startswith("-") or "." in value[0] or value[0] == "TASK" else ""


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["TRAIN.BSE_LR", "1"], ["TRAIN.BSE_LR", "TRAIN.BASE_LR"]),
        (["-batchsize=3"], ["-batchsize", "'-batch_size'"]),
        (["-batch_size=0"], ["-batch_size", "DATA.BATCH_SIZE", "'0'", ">= 1"]),
        (["TRAIN.BASE_LR", "-1"], ["TRAIN.BASE_LR", "'-1'", "> 0"]),
        (["TRAIN.LR_SCHEDULER.NAME", "cosin"], ["TRAIN.LR_SCHEDULER.NAME", "'cosin'", "cosine, constant, step, poly"]),
        (["-epochs=many"], ["-epochs", "'many'", "whole number"]),
        (["-epochs"], ["-epochs", "-epochs=N"]),
        (["-image_size=100000"], ["-image_size", "DATA.IMAGE_SIZE", "100000", ">= 1 and <= 10000"]),
        (["DATA.PREFETCH", "1e300"], ["DATA.PREFETCH", "'1e300'", ">= 1; numbers beyond 2147483647"]),
        (["-cfg=recipe.yaml"], ["-cfg", "recipe.yaml"]),
        (["-eval"], ["-eval", "-pretrained=PATH"]),
        (["TRAIN.WARMUP_EPOCHS", "1"], ["TRAIN.WARMUP_EPOCHS 1", "fewer than TRAIN.NUM_EPOCHS 1"]),
        (["TRAIN.DISTILLATION_TYPE", "firm"], ["TRAIN.DISTILLATION_TYPE", "'firm'", "one of none, soft, hard"]),
    ],
    ids=words,
)
def test_a_wrong_option_ends_the_run_before_anything_is_made(arguments, expected, tmp_path):
    message = refused(f"-output={tmp_path / 'output'}", *DIGITS, *arguments)
    assert all(part in message for part in expected), message
    assert not (tmp_path / "output").exists()


def test_a_wrong_value_in_a_file_is_named_with_its_line(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("DATA:\n  BATCH_SIZE: 8\nTRAIN:\n  BASE_LR: fast\n")
    message = refused(f"-cfg={recipe}", f"-output={tmp_path / 'output'}")
    assert f"{recipe}:4: TRAIN.BASE_LR is 'fast': expected a number > 0" in message


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["TRAIN.DISTILLATION_TYPE", "hard"], ["TRAIN.DISTILLATION_TYPE hard", "needs TRAIN.TEACHER_MODEL"]),
        (
            ["TRAIN.DISTILLATION_TYPE", "hard", "TRAIN.TEACHER_MODEL", "./regnety_160"],
            ["./regnety_160 is neither a registered model, nor a run or weights, nor an exported model"],
        ),
        (["TRAIN.FREEZE", "[blocs.*]"], ["TRAIN.FREEZE blocs.*", "matches no parameter", "'blocks'"]),
        (["-dataset=digit"], ["'digit'", "'digits'", "fashion_mnist, folder, hub"]),
        (["TASK", "classify"], ["'classify'", "valid names: classification"]),
        (["MODEL.NAME", "vit_base_patch16_225"], ["'vit_base_patch16_225'", "did you mean 'vit_base_patch16_224'"]),
        (["-num_classes=5"], ["labels 0 to 9", "MODEL.NUM_CLASSES", "-num_classes", "5", "set it to 10"]),
        (["-batch_size=2000"], ["DATA.BATCH_SIZE 2000", "only 1437", "lower -batch_size"]),
        (["-accum_iter=50"], ["TRAIN.ACCUM_ITER 50", "3200 samples", "only 1437", "-accum_iter"]),
        (["TRAIN.WARMUP_STEPS", "22"], ["TRAIN.WARMUP_STEPS", "22 updates", "shorten"]),
        (["MODEL.NUM_HEADS", "3"], ["EMBED_DIM 16", "NUM_HEADS 3"]),
        (["MODEL.MLP_RATIO", "[1, 2]"], ["MODEL.MLP_RATIO [1.0, 2.0]: vit takes one number"]),
        (["MODEL.NAME", "convnext_tiny", "MODEL.DIMS", "3"], ["MODEL.DIMS 3", "such as [96, 192, 384, 768]"]),
        (["MODEL.NAME", "convnext_tiny", "MODEL.DIMS", "[3]"], ["MODEL.DEPTHS [3, 3, 9, 3], MODEL.DIMS [3]"]),
        (["-image_size=20"], ["20", "8", "16 or 24"]),
        (["TRAIN.BATCH_NORM_MOMENTUM", "0.98"], ["TRAIN.BATCH_NORM_MOMENTUM 0.98", "vit has no batch norm"]),
    ],
    ids=words,
)
def test_a_value_that_does_not_fit_data_or_model_leaves_no_record_behind(arguments, expected, tmp_path):
    message = refused(f"-output={tmp_path}", *DIGITS, *arguments)
    assert all(part in message for part in expected), message
    assert contents(tmp_path) == {}


def test_a_network_that_no_machine_can_hold_ends_in_a_line(tmp_path):
    """The limit stands for the machine's memory: a kernel that promises more than there is ends a process instead."""
    limited = ["bash", "-c", 'ulimit -v 67108864 && exec "$@"', "bash", sys.executable, str(ROOT / "main_multi_gpu.py")]
    words = [f"-output={tmp_path}", *DIGITS, "MODEL.EMBED_DIM", "1000000", "MODEL.PATCH_SIZE", "4"]
    assert "too little memory or too few open files" in refusal(run_command([*limited, *words]))


def test_a_name_that_is_too_long_for_a_file_ends_in_a_line(tmp_path):
    assert " cannot be read: File name too long" in refused(f"-output={tmp_path}", *DIGITS, f"-pretrained={'n' * 300}")


def test_a_batch_that_a_thread_is_late_with_ends_in_a_line(tmp_path):
    late = run_main(f"-output={tmp_path}", *DIGITS, "DATA.LOADER_TIMEOUT_SECONDS", "1e-9")
    assert late.code == 1 and late.err.startswith("error: no batch arrived for 1e-09 s"), late.err


@pytest.mark.parametrize("output", ["file", "file/folder"], ids=["is a file", "is below a file"])
def test_an_output_folder_that_cannot_be_made_is_named(output, tmp_path):
    (tmp_path / "file").write_text("precious")
    message = refused(f"-output={tmp_path / output}", *DIGITS)
    assert f"-output={tmp_path / output} (SAVE) cannot be written" in message
    assert "choose another folder" in message
    assert (tmp_path / "file").read_text() == "precious"
