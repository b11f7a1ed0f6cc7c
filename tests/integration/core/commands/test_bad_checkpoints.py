"""Checkpoints that are missing, damaged or from another run: one line with the fix, and nothing is lost."""

import json
import os
import pickle
import re
import sys

import pytest
from PIL import Image
from support.processes import run_command
from support.trainings.runs import DIGITS, MAIN, PLAIN, contents, refusal, refused, run_main, well


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


WAYS = {
    "weights": ["-pretrained={}"],
    "evaluation": ["-eval", "-pretrained={}"],
    "resume": ["-resume={}"],
}


def flags(way: str, path) -> list:
    return [flag.format(path) for flag in WAYS[way]]


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_is_not_there(way, output, tmp_path):
    images = [PLAIN, "-dataset=folder", f"-data_path={tmp_path / 'no data'}"]  # which would be looked at later
    message = refused(f"-output={output}", *images, *flags(way, tmp_path / "none"))
    assert str(tmp_path / "none") in message
    assert "no such file or folder" in message or "does not exist" in message or "no weights at" in message
    assert contents(output) == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_truncated_file_of_weights(way, trained, output, tmp_path):
    whole = (trained.last / "model.pdparams").read_bytes()
    (tmp_path / "part.pdparams").write_bytes(whole[: len(whole) // 2])
    message = refused(f"-output={output}", *DIGITS, *flags(way, tmp_path / "part"))
    assert f"{tmp_path / 'part.pdparams'} is damaged" in message
    assert "copy or download it again" in message
    assert contents(output) == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_run_leaves_no_folder_that_it_has_made(way, trained, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine.txt").write_text("of somebody")
    options = flags(way, trained.last) + ["-allow_changes", "MODEL.EMBED_DIM", "32"]
    for output in (tmp_path / "output" / "of" / "it", kept):
        refused(f"-output={output}", *DIGITS, *options)
    assert not (tmp_path / "output").exists() and (kept / "mine.txt").exists()


COMMANDS = {
    "weights": [str(MAIN), *DIGITS, "-pretrained={run}", "-output={out}"],
    "evaluate": [str(MAIN), *DIGITS, "-eval", "-pretrained={run}", "-output={out}"],
    "predict": ["-m", "paddlevit_dist", "predict", "{run}", "{image}", "-output={out}"],
    "export": ["-m", "paddlevit_dist", "export", "{run}", "{out}"],
    "convert": ["-m", "paddlevit_dist", "convert", "{run}", "{out}.pdparams"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_flipped_bit_in_a_checkpoint_of_a_run_is_found_whatever_reads_it(command, copy, output, tmp_path):
    file = copy / "checkpoints" / "best" / "model.pdparams"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 64  # within a number
    file.write_bytes(content)
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    places = {"run": copy, "out": output, "image": tmp_path / "image.png"}
    message = refusal(run_command([sys.executable, *(word.format(**places) for word in COMMANDS[command])]))
    assert f"{file} has changed since it was written (SHA-256 differs): the checkpoint is damaged" in message


@pytest.mark.parametrize("way", WAYS)
def test_weights_of_another_architecture(way, trained, output):
    message = refused(f"-output={output}", *DIGITS, *flags(way, trained.last), "MODEL.EMBED_DIM", "32")
    if way == "evaluation":
        assert "is of another network: MODEL.EMBED_DIM 16 there, 32 here" in message
    elif way == "resume":
        assert "MODEL.EMBED_DIM 16 -> 32" in message and "-resume=" in message.rpartition(": ")[2]
    else:
        assert "model.pdparams" in message and "cls_token" in message
        assert "(1, 1, 16)" in message and "(1, 1, 32)" in message
        assert message.endswith("It is from a run with MODEL.NAME vit: use that run's MODEL settings")
    assert contents(output) == {}


def test_an_evaluation_with_another_number_of_classes_says_which(trained, output):
    arguments = [f"-output={output}", *DIGITS, "-eval", f"-pretrained={trained.last}", "-num_classes=12"]
    message = refused(*arguments)
    assert "has 10 classes and the model 12: set MODEL.NUM_CLASSES to 10" in message
    assert "architecture" not in message


def test_a_file_of_weights_that_would_run_code_does_not(output, tmp_path):
    class Code:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "code.pdparams").write_bytes(pickle.dumps({"weight": Code()}, protocol=2))
    message = refused(f"-output={output}", *DIGITS, f"-pretrained={tmp_path / 'code'}")
    assert str(tmp_path / "code.pdparams") in message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_folder_that_already_holds_a_run_is_left_as_it_was(processes, copy):
    before = contents(copy)
    message = refused(f"-output={copy}", *DIGITS, "-seed=99", f"-ngpus={processes}")
    assert f"-output={copy} already holds a run" in message
    assert "-resume=auto" in message
    assert contents(copy) == before


def test_a_resume_with_another_optimizer_leaves_the_run_as_it_was(copy):
    before = contents(copy)
    message = refused(
        f"-output={copy}", *DIGITS, "-epochs=9", "-resume=auto", "-allow_changes", "TRAIN.OPTIMIZER.NAME", "SGD"
    )
    assert f"-resume={copy / 'checkpoints' / 'epoch_0005'}" in message
    assert "optimizer state does not fit" in message and "TRAIN.OPTIMIZER" in message
    assert contents(copy) == before


def test_a_resume_with_only_damaged_checkpoints_names_the_damage(copy):
    for file in (copy / "checkpoints").glob("epoch_*/optimizer.npz"):
        file.write_bytes(file.read_bytes()[:-1])
    message = refused(f"-output={copy}", *DIGITS, "-epochs=9", f"-resume={copy}")
    assert f"-resume={copy}" in message and "damaged" in message


def test_a_resume_passes_over_a_damaged_checkpoint_and_says_so(copy, trained):
    file = copy / "checkpoints" / "epoch_0005" / "model.pdparams"
    file.write_bytes(file.read_bytes()[:-1])
    ended = well(run_main(*trained.arguments, f"-output={copy}", "-resume=auto"))
    assert f"damaged checkpoint skipped: {file}" in ended.out
    files = [run / "checkpoints" / "epoch_0005" / "state.json" for run in (copy, trained.output)]
    states = [json.loads(file.read_text()) for file in files]
    for state in states:
        state["extra"]["training_means"].pop("pace")  # seconds, which differ from run to run
    assert states[0] == states[1]


def test_resume_auto_in_an_empty_folder_starts_afresh_and_says_so(output):
    ended = well(run_main(f"-output={output}", *DIGITS, "-resume=auto"))
    assert f"-resume=auto: no checkpoint in {output / 'checkpoints'}, starting from scratch" in ended.out.splitlines()
    assert (output / "checkpoints" / "epoch_0001").is_dir()


@pytest.mark.parametrize(
    "batch, said",
    [
        ("64", "nor were the 4 before"),
        ("1437", "'loss' is inf in the evaluation of epoch 1"),
    ],
    ids=["loss", "metric"],
)
def test_a_diverging_training_leaves_nothing_saved_that_is_not_finite(batch, said, output):
    message = refused(f"-output={output}", *DIGITS, f"-batch_size={batch}", "TRAIN.BASE_LR", "1e20")
    assert said in message and "lower TRAIN.BASE_LR" in message
    assert not list((output / "checkpoints").glob("*"))
    record = output / "metrics.jsonl"
    assert not record.exists() or not re.search(r": -?(NaN|Infinity)", record.read_text())
