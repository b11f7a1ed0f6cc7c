"""Words of ``evaluate`` that name a run or an exported model, and of ``train`` that resume a run."""

import re
import shutil

import pytest
from support.hosts.paddlevit_clone import write_family
from support.refusals import refusal_of

from paddlevit_dist.core.commands.run_folder import expand_run
from paddlevit_dist.core.runtime.errors import UserError
from paddlevit_dist.core.settings import load


def expand_evaluated(words):
    expanded, lines, stored, _ = expand_run(["-eval", *words])
    assert stored is None
    return expanded[1:], lines


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a current folder with the settings of a run and an empty checkpoint."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out/mine/checkpoints/epoch_0001").mkdir(parents=True)
    (tmp_path / "out/mine/config.yaml").write_text("SAVE: out/mine\nMODEL: {NAME: vit, DEPTH: 3}\n")
    (tmp_path / "out/mine/model.onnx").touch()
    return tmp_path


def test_a_word_alone_is_an_exported_model_and_values_of_flags_and_keys_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "5.onnx").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/model.onnx").touch()
    for model in ("5.onnx", "folder/model", "5"):
        words = ["-batch_size", "5", model, "-amp", "DATA.DATA_PATH", "a/b", "-output=c/d", "SEED=5"]
        expanded, lines = expand_evaluated(words)
        assert expanded == [*words[:2], f"EXPORTED={model}", *words[3:]]
        assert lines == [f"evaluating the exported model {model}"]
    assert expand_evaluated(["KEY", "5.onnx", "none"]) == (["KEY", "5.onnx", "none"], [])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_runs_folder_stands_for_its_settings_weights_and_output(folder, place):
    words = ["-split=test", "SEED=5"]
    expanded, lines = expand_evaluated([*words[:place], "out/mine", *words[place:]])
    values = load(["-eval", *expanded], "vit_digits").values
    assert (values.MODEL.DEPTH, values.MODEL.PRETRAINED, values.SAVE) == (3, "out/mine", "out/mine")
    assert (values.DATA.SPLIT, values.SEED) == ("test", 5)
    assert lines == ["evaluating the run out/mine: settings of out/mine/config.yaml, its best weights"]


def test_a_checkpoint_has_the_settings_of_its_run_and_an_export_inside_it_is_one(folder):
    expanded, lines = expand_evaluated(["out/mine/checkpoints/epoch_0001", "-output=there"])
    values = load(["-eval", *expanded], "vit_digits").values
    assert (values.MODEL.DEPTH, values.SAVE) == (3, "there")
    assert values.MODEL.PRETRAINED == "out/mine/checkpoints/epoch_0001" and lines[0].endswith("/epoch_0001")
    assert expand_evaluated(["out/mine/model.onnx"])[0] == ["EXPORTED=out/mine/model.onnx"]


def test_an_exported_model_has_data_and_settings_of_its_run(folder):
    weights = folder / "out/mine/checkpoints/best/model.pdparams"
    (folder / "net.onnx").touch()
    (folder / "net.about.yaml").write_text(f"weights: {weights}\n")
    expanded, lines = expand_evaluated(["net.onnx", "-data_path=other"])
    config = folder / "out/mine/config.yaml"
    assert expanded == [f"-cfg={config}", "EXPORTED=net.onnx", "-data_path=other"]
    told = f"evaluating the exported model net.onnx: data and settings of {config}, which it was exported from"
    assert lines == [told]
    changed = "{NAME: vit, NUM_CLASSES: 3, DEPTH: 4, EMBED_DIM: 8}"
    (folder / "net.about.yaml").write_text(f"weights: {weights}\nsettings: {{SAVE: x, EVAL: true, MODEL: {changed}}}\n")
    expanded, lines = expand_evaluated(["net.onnx"])
    assert expanded == [f"-cfg={config}", "MODEL.DEPTH=4", "EXPORTED=net.onnx"]
    assert lines == [told, "settings of net.about.yaml that differ: MODEL.DEPTH=4"]
    config.write_text(config.read_text() + "IMPORTS: []\nDATA: {DATA_PATH: mine}\n")
    code = "IMPORTS: [theirs.py], DATA: {DATA_PATH: /etc}"
    (folder / "net.about.yaml").write_text(f"weights: {weights}\nsettings: {{{code}, MODEL: {changed}}}\n")
    assert expand_evaluated(["net.onnx"])[0] == expanded  # a stranger's file names no code and no path
    cloned = f"weights: {weights}\nsettings: {{MODEL: {{NAME: 'paddlevit:/a/b/c/d.yaml'}}}}\n"
    (folder / "net.about.yaml").write_text(cloned)
    assert "do not run the code" in refusal_of(expand_evaluated, ["net.onnx"])
    (folder / "net.about.yaml").write_text(f"weights: {weights}\nsettings: {{MODEL: {changed}}}\n")
    assert expand_evaluated(["net.onnx", "MODEL.DEPTH", "5"])[0] == [
        f"-cfg={config}",
        "EXPORTED=net.onnx",
        "MODEL.DEPTH",
        "5",
    ]
    (folder / "net.about.yaml").write_text(f"weights: {weights}\n")
    for named in ("-cfg=vit_mnist", "-dataset=mnist"):  # by the words
        assert expand_evaluated(["net.onnx", named])[0] == ["EXPORTED=net.onnx", named]
    shutil.move("out/mine", "moved")
    line = f"net.onnx was exported from {weights}, which is not in the folder of a run here: name recipe and data"
    assert refusal_of(expand_evaluated, ["net.onnx"]).startswith(line)


def load_alone(*words):
    """Load what an evaluation of a file without its run is, and the lines that say so."""
    expanded, lines, stored, is_trusted = expand_run(["-eval", *words])
    assert not is_trusted
    return load(expanded, "vit_digits", is_trusted, stored=stored).values, lines


_ALONE = """settings: {SAVE: elsewhere/run, EVAL: false, ALLOW_CHANGES: true, TASK: classification, IMPORTS: [gone.py],
  DATA: {DATASET: digits, CACHE_FOLDER: elsewhere, SPLIT: train, IMAGE_CHANNELS: 1, IMAGE_SIZE: 16},
  MODEL: {NAME: vit, DEPTH: 3, PRETRAINED: base.pdparams, RESUME: elsewhere/run}}
"""


@pytest.mark.parametrize("word", ["net.pdparams", "net.safetensors", "weights", "net.onnx", "nets/net"])
def test_weights_and_exported_files_without_their_run_have_the_settings_beside_them(tmp_path, monkeypatch, word):
    monkeypatch.chdir(tmp_path)
    for folder in ("weights", "nets"):
        (tmp_path / folder).mkdir()
    for name in ("net.pdparams", "net.safetensors", "weights/model.safetensors", "net.onnx", "nets/net.onnx"):
        (tmp_path / name).write_bytes(b"")
        (tmp_path / name).with_name("about.yaml").write_text("settings: {MODEL: {NAME: other}}\n")
        (tmp_path / name).with_suffix(".about.yaml").write_text(f"weights: gone/model.pdparams\n{_ALONE}")
    values, lines = load_alone(word, "-batch_size=6")
    exported = "net.onnx" in word or word == "nets/net"
    assert (values.EXPORTED, values.MODEL.PRETRAINED) == ((word, None) if exported else (None, word))
    assert (values.MODEL.NAME, values.MODEL.DEPTH, values.MODEL.RESUME) == ("vit", 3, None)
    assert (values.EVAL, values.ALLOW_CHANGES, values.DATA.CACHE_FOLDER) == (True, False, None)
    assert values.SAVE == "./output" and (values.DATA.SPLIT, values.DATA.BATCH_SIZE) == ("train", 6)
    assert len(lines) == 1 and lines[0].startswith("evaluating the ") and word in lines[0]
    named, _, stored, is_trusted = expand_run(["-eval", word, "-cfg=vit_digits"])
    assert stored is None and is_trusted and "-cfg=vit_digits" in named and len(named) == 3
    if exported:
        values, _ = load_alone(word, "-dataset=folder", "-data_path=.")
        assert (values.DATA.DATASET, values.MODEL.DEPTH) == ("folder", 3)
    else:
        assert "both name weights: remove one" in refusal_of(load_alone, word, "-pretrained=x")


def test_weights_without_settings_are_told_and_their_code_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.pdparams").touch()
    assert "the model of net.pdparams is unknown: " in refusal_of(load_alone, "net.pdparams")
    (tmp_path / "about.yaml").write_text(_ALONE.replace("NAME: vit", "NAME: of_mine"))
    (tmp_path / "gone.py").write_text("open('ran', 'w').close()\n")
    told = "MODEL.NAME 'of_mine' is not known: these weights were trained with your own code: add -import=gone.py"
    assert told in refusal_of(load_alone, "net.pdparams")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "about.yaml").write_text(_ALONE)
    load_alone("net.pdparams")
    assert not (tmp_path / "ran").exists()
    load_alone("net.pdparams", "-import=gone.py")  # the user's own word
    assert (tmp_path / "ran").exists()


def load_run(*words):
    """Load a command's settings as the command does."""
    expanded, _, stored, is_trusted = expand_run(words)
    return load(expanded, "vit_digits", is_trusted, stored=stored)


@pytest.fixture
def theirs(folder, request):
    """The name of a module that writes the file ``ran``; another in each test, as a process imports one once."""
    name = re.sub(r"\W", "_", request.node.name) + ".py"
    (folder / name).write_text("open('ran', 'w').close()\n")
    return name


@pytest.mark.parametrize("words", [["-eval", "out/mine"], ["-resume=out/mine"], ["-eval", "net.onnx"]])
def test_code_that_only_a_runs_settings_name_is_not_run(folder, theirs, words):
    (folder / "net.onnx").touch()
    (folder / "net.about.yaml").write_text("weights: out/mine/checkpoints/epoch_0001\n")
    config = folder / "out/mine/config.yaml"
    config.write_text(f"SAVE: out/mine\nIMPORTS: [{theirs}]\nMODEL: {{NAME: of_theirs}}\n")
    message = refusal_of(load_run, *words)
    assert message.startswith("MODEL.NAME 'of_theirs' is not known: ") and message.endswith(f"add -import={theirs}")
    config.write_text(f"SAVE: out/mine\nIMPORTS: [{theirs}]\nMODEL: {{NAME: vit}}\n")
    if "-eval" in words:
        (notice,) = [notice for notice in load_run(*words).notices if theirs in notice]
    else:  # a run must not go on as another one
        notice = refusal_of(load_run, *words)
    assert f"config.yaml:2: IMPORTS has {theirs}" in notice and notice.endswith(f"add -import={theirs}")
    assert not (folder / "ran").exists()
    assert not any(theirs in notice for notice in load_run(*words, f"-import={theirs}").notices)
    assert (folder / "ran").exists()


@pytest.mark.parametrize("words", [["-eval", "out/mine"], ["-resume=out/mine"], ["-eval", "net.onnx"]])
def test_a_clone_that_only_a_runs_settings_name_is_not_run(folder, words):
    (folder / "net.onnx").touch()
    (folder / "net.about.yaml").write_text("weights: out/mine/checkpoints/epoch_0001\n")
    file = write_family(folder, "made_up")
    (folder / "out/mine/config.yaml").write_text(f"SAVE: out/mine\nMODEL: {{NAME: 'paddlevit:{file}'}}\n")
    assert "do not run the code" in refusal_of(load_run, *words)


def test_code_that_a_named_file_imports_is_run(folder, theirs):
    (folder / "out/mine/config.yaml").write_text(f"SAVE: out/mine\nIMPORTS: [{theirs}]\n")
    load_run("-resume=out/mine", "-cfg=out/mine/config.yaml")
    assert (folder / "ran").exists()


@pytest.mark.parametrize("words", [[], ["-data_path=my_data"], ["-cfg=vit_digits", "SEED", "5"]])
def test_a_path_that_is_missing_is_told_before_what_its_data_lack(folder, words):
    assert refusal_of(expand_evaluated, ["out/gone", *words]).startswith("out/gone does not exist; expected a run's")
    assert "-wrong is not a known flag" in refusal_of(expand_evaluated, ["out/gone", "-wrong"])


def test_a_run_that_is_missing_is_told_with_those_of_a_like_name(folder):
    shutil.copytree("out/mine", "top_one")
    (folder / "top_on2").mkdir()  # no run
    with pytest.raises(UserError, match=r"^top_on is not a run's folder; did you mean top_one\?$"):
        expand_evaluated(["top_on", "-split=test", "SEED", "5"])
    assert expand_evaluated(["nothing"]) == (["nothing"], [])


def test_a_missing_checkpoint_of_a_run_is_left_to_the_search_for_weights(folder):
    expanded, lines = expand_evaluated(["out/mine/checkpoints/bst"])
    assert "-pretrained=out/mine/checkpoints/bst" in expanded and lines[0].endswith("weights out/mine/checkpoints/bst")


def test_a_moved_run_writes_to_its_new_folder_alone(folder):
    shutil.move("out/mine", "moved")
    values = load(["-eval", *expand_evaluated(["moved"])[0]], "vit_digits").values
    assert (values.SAVE, values.DATA.CACHE_FOLDER) == ("moved", None)


def test_a_run_beside_other_settings_or_weights_and_a_folder_of_seeds_are_refused(folder):
    for word in ("-cfg=vit_digits", "-pretrained=x.pdparams"):
        with pytest.raises(UserError, match=rf"out/mine is a run, .*: remove {word}, or"):
            expand_evaluated(["out/mine", word])
    (folder / "out/seeds.json").touch()
    for expand in (lambda: expand_evaluated(["out"]), lambda: expand_run(["-resume=out"])):
        with pytest.raises(UserError, match="^out holds the runs of several seeds: name one of them: out/mine$"):
            expand()


def test_resuming_a_run_takes_its_settings_unless_a_file_of_settings_is_named(folder):
    values = load(expand_run(["-epochs=7", "--resume", "out/mine"])[0], "vit_digits").values
    assert (values.MODEL.DEPTH, values.MODEL.RESUME, values.SAVE, values.TRAIN.NUM_EPOCHS) == (
        3, "out/mine", "out/mine", 7,
    )  # fmt: skip
    for words in (["-resume=out/mine", "-cfg=vit_digits"], ["-resume=auto"], ["-resume=x.pdparams"], ["-h", "resume"]):
        assert expand_run(words) == (words, [], None, True)


def test_what_ended_or_allowed_a_run_does_not_hold_for_the_next_command(folder):
    stopped = "STOP_AFTER_SECONDS: 9\nALLOW_CHANGES: true\nTRAIN: {STOP_AFTER_EPOCH: 2, NUM_EPOCHS: 4}\n"
    with (folder / "out/mine/config.yaml").open("a") as file:
        file.write(stopped)
    values = load(expand_run(["-resume=out/mine", "-stop_after_epoch=3"])[0], "vit_digits").values
    assert (values.TRAIN.STOP_AFTER_EPOCH, values.STOP_AFTER_SECONDS, values.ALLOW_CHANGES) == (3, None, False)
    assert load(expand_run(["-resume=out/mine"])[0], "vit_digits").values.TRAIN.STOP_AFTER_EPOCH is None


@pytest.mark.parametrize("words", [["out/mine"], ["-resume=out/mine"]])
def test_a_run_that_started_from_weights_and_was_resumed_is_evaluated_by_its_own(folder, words):
    started = "SAVE: out/mine\nMODEL: {NAME: vit, RESUME: out/mine/checkpoints/epoch_0001, PRETRAINED: base.pdparams}\n"
    (folder / "out/mine/config.yaml").write_text(started)
    values = load(expand_run(["-eval", *words])[0], "vit_digits").values
    assert [values.MODEL.PRETRAINED, values.MODEL.RESUME].count(None) == 1
    assert "out/mine" in (values.MODEL.PRETRAINED, values.MODEL.RESUME)
