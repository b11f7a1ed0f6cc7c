"""Keys of ``export`` change what is stored with the weights, as its options do."""

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.trainings.trained import network, write_weights

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.extensions.export import command
from paddlevit_dist.extensions.export.differences import OutputDifference
from paddlevit_dist.extensions.export.trained_models import load_trained_model


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("weights"), ["bee", "ant"]))


def test_a_key_of_the_input_is_in_the_description(source):
    words = ["DATA.CROP_PCT=0.5", "-allow_changes", "-batch_size_eval=3"]
    said: list[str] = []
    trained = load_trained_model(source, words=words, log=said.append)
    assert said == ["DATA.BATCH_SIZE_EVAL 3 (-batch_size_eval): no effect: export does not read it"]
    stored = load_trained_model(source).about
    changed = ["crop_pct", "preprocessing", "settings"]
    assert [name for name in stored if trained.about[name] != stored[name]] == changed
    assert trained.about["settings"]["DATA"]["CROP_PCT"] == 0.5
    assert trained.about["crop_pct"] == 0.5 and trained.about["preprocessing"]["resize_shorter_side"] == 32


def test_the_size_may_be_an_option_and_a_key_with_allowed_changes(source):
    by_option = load_trained_model(source, image_size=32).about
    by_key = load_trained_model(source, words=["DATA.IMAGE_SIZE=32", "-allow_changes"]).about
    assert by_option == by_key and by_key["input_shape"] == [None, 3, 32, 32]
    both = load_trained_model(source, image_size=32, words=["DATA.CROP_PCT=0.5", "-allow_changes"]).about
    assert (both["input_shape"], both["crop_pct"]) == (by_key["input_shape"], 0.5)


@pytest.mark.parametrize(
    "options, words, said",
    [
        ({}, ["DATA.CROP_PCT=0.5"], "was trained with different preprocessing: DATA.CROP_PCT 0.875 there, 0.5 here"),
        (
            {"image_size": 32},
            ["MODEL.DEPTH=2"],
            "is of another network: MODEL.DEPTH 1 there, 2 here; remove the change",
        ),
        ({}, ["MODEL.DEPTH=2", "-allow_changes"], "it lacks blocks.1."),
        (
            {"name": "vit"},
            ["DATA.CROP_PCT=0.5"],
            "-model=vit builds a network without a run's keys; remove one of both",
        ),
    ],
)
def test_keys_that_the_weights_do_not_fit_are_refused_in_one_line(source, options, words, said):
    assert said in refusal_of(load_trained_model, source, words=words, **options)


def test_weights_of_a_run_are_described_with_the_classes_that_they_name(source, tmp_path, monkeypatch):
    trained = load_trained_model(source)
    about = trained.about
    assert (about["task"], about["model"], about["weights"]) == ("classification", "vit", source)
    assert (about["num_classes"], about["input_shape"]) == (len(about["classes"]), [None, 3, 16, 16])
    assert about["classes"] == list(open_source(source, "export").learned.class_names)
    assert about["report"].startswith("loaded ") and not trained.model.training and trained.parts is not None
    assert "note" not in about
    monkeypatch.setattr("paddlevit_dist.core.tasks.model.Model.merge_branches", lambda model: "branches are merged")
    assert load_trained_model(source).about == {**about, "note": "branches are merged"}
    more = str(write_weights(tmp_path / "more", ["bee", "ant"], "MODEL.NUM_CLASSES=3", num_classes=3))
    described = load_trained_model(more).about
    assert described["num_classes"] == 3 and described["classes"] == ["bee", "ant", "2"]


def test_weights_of_others_are_described_without_a_run(source, tmp_path):
    state = paddle.load(source)
    file = str(tmp_path / "own.pdparams")
    paddle.save({"student": state, "teacher": {name: 2 * value for name, value in state.items()}}, file)
    variant = "vit_small_patch16_224"
    with pytest.raises(
        UserError, match="^export: -data_path=x: -model=vit_small.* builds a network without a run's keys"
    ):
        load_trained_model(file, variant, words=["-data_path=x"])
    with pytest.raises(UserError, match="model 'vit_small_patch16_224' has no option 'pol': did you mean 'pool'"):
        load_trained_model(file, variant, part="teacher", words=["MODEL.OPTIONS.pol=average"])
    with pytest.raises(UserError, match="own.pdparams has no classifier for resnet18: is it a checkpoint of another"):
        load_trained_model(file, "resnet18", part="teacher")


SMALL = "MODEL.OPTIONS={patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}"


@pytest.mark.parametrize("channels", [1, 4])
def test_weights_of_others_are_exported_with_their_channels(tmp_path, monkeypatch, channels):
    model, file, exported = network(2, channels=channels), str(tmp_path / "own.pdparams"), []
    other = {name: 2 * value for name, value in model.state_dict().items()}
    paddle.save({"student": other, "teacher": model.state_dict()}, file)
    monkeypatch.setattr(command, "export", lambda *given: exported.append(given) or OutputDifference(0.0, 1.0))
    words = ["-model=vit", "-image_size=16", f"-in_channels={channels}", "-part=teacher", SMALL]
    command.run([file, str(tmp_path / "net.pdmodel"), *words])
    (((trained, *others),),) = [exported]
    assert others == [str(tmp_path / "net"), "paddle", "float32", "logits", None]
    about = trained.about
    assert (about["input_shape"], about["num_classes"]) == ([None, channels, 16, 16], 2) and "mean" not in about
    images = paddle.rand([2, channels, 16, 16])
    np.testing.assert_array_equal(trained.model(images).numpy(), model(images).numpy())
    for given in (None, channels + 1):
        with pytest.raises(UserError, match="patch_embed.proj.weight"):
            load_trained_model(file, "vit", 16, given, "teacher", [SMALL])


def test_a_run_is_exported_with_other_channels_only_if_its_weights_have_them(source, tmp_path):
    gray = str(write_weights(tmp_path / "gray", ["bee", "ant"], "DATA.IMAGE_CHANNELS=1", channels=1))
    assert load_trained_model(gray).about["input_shape"] == [None, 1, 16, 16]
    assert load_trained_model(gray, in_channels=1).about["input_shape"] == [None, 1, 16, 16]
    with pytest.raises(UserError, match="DATA.IMAGE_CHANNELS"):
        load_trained_model(source, in_channels=1)
