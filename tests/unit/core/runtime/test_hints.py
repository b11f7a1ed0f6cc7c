"""Guesses at names that are not known."""

import pytest

from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.hints import describe_path, find_similar, fix_dash, looks_like_path, suggest


@pytest.mark.parametrize(
    ("name", "valid", "found"),
    [
        ("Batch-Size", ["batch_size_eval", "batch_size"], "batch_size"),
        ("batchsize", ["batch_size_eval", "batch_size"], "batch_size"),
        ("dinov2", REGISTRY.models, "linear_dinov2_base"),  # the shortest of those with this word
        ("vit_base", ["vit_base_patch16_224", "vit_tiny_patch16_224"], "vit_base_patch16_224"),
        ("patch16_base", ["deit_base", "vit_base_patch16_224"], "vit_base_patch16_224"),
        ("batch_size_per_gpu", ["size", "batch_size"], "batch_size"),
        ("all_conv_narow", ["all_conv", "all_conv_narrow"], "all_conv_narrow"),  # a typing mistake in the longer name
        ("widht", ["height", "with", "width"], "width"),
    ],
)
def test_spelling_comes_before_words_and_words_before_letters(name, valid, found):
    assert find_similar(name, valid, 3)[0] == found


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("freeze", ["resume"]),
        ("project", ["profile"]),
        ("yolov8n", REGISTRY.models),
        ("to", ["total"]),
        ("", ["a"]),
        ("a", []),
    ],
)
def test_less_than_seven_tenths_of_equal_letters_are_no_guess(name, valid):
    assert find_similar(name, valid) == [] and suggest(name, valid) == ""


def test_only_the_asked_number_of_names_is_returned():
    names = [f"run-{number}" for number in range(5)]
    assert find_similar("run", names, 2) == names[:2] and suggest("rum-4", names) == "did you mean 'run-4'? "


def test_a_path_is_called_a_path_there_or_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert [looks_like_path(name) for name in ("mine", "out/a", "./a", "~/a", "vit")] == [True] * 4 + [False]
    assert describe_path("mine") == "mine is a folder" and describe_path("out/a") == "there is no file or folder out/a"


def test_a_pasted_dash_is_a_hyphen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dash in ("–", "—", "−", "–-", "―"):
        assert fix_dash(f"{dash}epochs=3") == "-epochs=3"
    (tmp_path / "–mine").touch()
    assert [fix_dash(word) for word in ("-epochs", "--epochs", "a–b", "–1", "–", "–mine")] == [""] * 6
