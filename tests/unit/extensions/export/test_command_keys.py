"""Keys of ``export`` change what is stored with the weights, as its options do."""

import paddle
import pytest
from support.refusals import refusal_of
from support.trainings.trained import write_weights

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.extensions.export.command import load_trained_model


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("weights"), ["bee", "ant"]))


def test_a_key_of_the_input_is_in_the_description(source):
    words = ["DATA.CROP_PCT=0.5", "-allow_changes", "-batch_size_eval=3"]
    said: list[str] = []
    trained = load_trained_model(source, words=words, log=said.append)
    assert said == ["DATA.BATCH_SIZE_EVAL 3 (-batch_size_eval): no effect: export does not read it"]
    stored = load_trained_model(source).about
    assert [name for name in stored if trained.about[name] != stored[name]] == ["crop_pct", "preprocessing"]
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
