"""Flags and keys change what is predicted with stored weights, but neither the network nor its input."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import yaml
from support.refusals import refusal_of
from support.registrations import forgotten
from support.trainings import small_detections
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor, UserError, register_task
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.compatibility import RunFact
from paddlevit_dist.core.inference import changed_keys
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.core.settings.table import COMMAND_LINE, KeySetting
from paddlevit_dist.core.tasks import Task
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Restorable


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("classifier"), ["cat", "ant", "bee"]))


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    return str(small_detections.write_weights(tmp_path_factory.mktemp("detector") / "new"))


def opened(source: str, *words: str, recipe: str | None = None):
    """What the command predict makes of the words, and its lines."""
    said: list[str] = []
    return open_source(source, "predict", words=words, recipe=recipe, log=said.append), said


def test_a_key_its_flag_and_the_argument_of_a_program_are_one(detector):
    scores = sorted(row["score"] for row in Predictor(detector, least_score=0.0)([np.zeros((20, 30, 3), np.uint8)]))
    middle = (scores[4] + scores[5]) / 2
    rows = [
        Predictor(detector, **options)([np.zeros((20, 30, 3), np.uint8)])
        for options in ({"least_score": middle}, {"DETECTION.SCORE_THRESHOLD": middle})
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 5
    words = ("-least_score=0.2", "-window=16x12"), ("DETECTION.SCORE_THRESHOLD=0.2", "DETECTION.WINDOW=[16, 12]")
    flags, keys = (opened(detector, *each)[0] for each in words)
    assert flags.config == keys.config and flags.digests() == keys.digests()
    assert flags.digests() != opened(detector)[0].digests()
    assert Predictor(detector, window=(16, 12), least_score=0.2)._source.digests() == keys.digests()


@pytest.mark.parametrize(
    "words, said",
    [
        (
            ["TRAIN.TF32=false", "MODEL.EMBED_DIM=24", "MODEL.DEPTH=2"],
            "is of another network: MODEL.EMBED_DIM 16 there, 24 here; MODEL.DEPTH 1 there, 2 here; remove the change, "
            "or add -allow_changes",
        ),
        (["MODEL.NAME=resnet18"], "is of another network: MODEL.NAME vit there, resnet18 here"),
        (["TASK=detection"], "is of another network: TASK classification there, detection here"),
        (["-image_size=32"], "was trained with different preprocessing: DATA.IMAGE_SIZE 16 there, 32 here"),
        (["-least_score=0.2"], "DETECTION.SCORE_THRESHOLD is read by tasks detection, "),
        (["DATA.CROP_PC=0.5"], "DATA.CROP_PC (0.5) is not a known key: the closest is DATA.CROP_PCT"),
        (["-pretrained=other"], "predict: MODEL.PRETRAINED (-pretrained) cannot change"),
        (["MODEL.RESUME=auto"], "predict: MODEL.RESUME (-resume) cannot change"),
        (["EVAL=false"], "predict: EVAL (-eval) cannot change"),
    ],
)
def test_what_the_weights_do_not_fit_is_refused_in_one_line(classifier, words, said):
    assert said in refusal_of(opened, classifier, *words)


def test_words_correct_settings_of_earlier_versions_that_are_refused_by_now(tmp_path):
    points = {"CROP": "block", "FEATURES": ["height"]}
    stored = {"TASK": "semantic_segmentation", "MODEL": {"NAME": "minkunet_tutorial"}, "POINTS": points}
    about = {"settings": stored, "data": {"val": {"classes": ["ground", "tree"]}}}
    (tmp_path / "about.yaml").write_text(yaml.safe_dump(about))
    paddle.save({"one": paddle.ones([1])}, str(tmp_path / "weights.pdparams"))
    with pytest.raises(UserError, match="set POINTS.FRAGMENT_SIZE_M 6"):
        opened(str(tmp_path / "weights.pdparams"))
    source, _ = opened(str(tmp_path / "weights.pdparams"), "POINTS.FRAGMENT_SIZE_M=6")
    assert source.config.POINTS.FRAGMENT_SIZE_M == source.settings["POINTS.FRAGMENT_SIZE_M"] == 6


def test_another_input_is_allowed_if_it_is_wanted(classifier):
    source, said = opened(classifier, "DATA.IMAGE_SIZE=32", "-allow_changes")
    assert source.config.DATA.IMAGE_SIZE == 32 and said == []
    (row,) = Predictor(classifier, **{"DATA.IMAGE_SIZE": 32, "allow_changes": True})([np.zeros((9, 9, 3), np.uint8)])
    assert row["class"] in ("ant", "bee", "cat")


def test_keys_that_a_prediction_does_not_read_are_named(classifier):
    plain, said = opened(classifier)
    assert said == []
    words = ["TRAIN.BASE_LR=0.1", "-per_sample=a.csv", "EVALUATION.INTERVAL=off", "DATA.BATCH_SIZE_EVAL=3"]
    source, said = opened(classifier, *words)
    assert sorted(said) == [
        "EVALUATION.INTERVAL False (command line): no effect: predict does not read it",
        "PER_SAMPLE a.csv (-per_sample): no effect: predict does not read it",
        "TRAIN.BASE_LR 0.1 (command line): no effect: it is for training",
    ]
    assert source.config.DATA.BATCH_SIZE_EVAL == 3


def test_a_prediction_with_other_keys_is_another_one_and_on_another_machine_the_same(classifier):
    plain = opened(classifier)[0].digests()
    assert opened(classifier, "WATCHDOG_SECONDS=77", "-data_path=elsewhere")[0].digests() == plain
    assert opened(classifier, "EVAL_AMP=true")[0].digests() != plain


def test_keys_complete_a_recipe_of_weights_that_store_none(classifier, tmp_path):
    (tmp_path / "vit.yaml").write_text("MODEL: {NAME: vit, PATCH_SIZE: 8, DEPTH: 1, NUM_HEADS: 2}\n")
    recipe, words = str(tmp_path / "vit.yaml"), ["MODEL.EMBED_DIM=16", "-image_size=16"]
    source, said = opened(classifier, *words, recipe=recipe)
    assert source.config.MODEL.EMBED_DIM == 16 and said == []
    options = {"MODEL.EMBED_DIM": 16, "image_size": 16}
    image = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    (row,), (stored,) = Predictor(classifier, recipe=recipe, **options)([image]), Predictor(classifier)([image])
    assert row["class"] == stored["class"] and row["score"] == pytest.approx(stored["score"], abs=1e-6)


def test_flags_of_the_command_itself_are_no_options_of_a_program(classifier):
    with pytest.raises(UserError, match="Predictor: cfg: only the command has this flag"):
        Predictor(classifier, cfg="vit_digits")


def test_facts_of_the_training_data_take_the_place_of_keys():
    """As a spacing of the weights, which a key that is not read cannot change."""

    class Fixed(Task):
        build_dataset = collate = build_model = train_step = build_metrics = eval_step = None

    class Measured(Fixed, Restorable):
        def __init__(self, config):
            super().__init__(config)
            self.size = config.DATA.IMAGE_SIZE

        def load_meta(self, meta):
            self.size = meta.input["size"]

        def signature(self, samples=None):
            return {"size": self.size}

    learned = CheckpointMeta(3, None, {"size": 24}, {})
    with forgotten():
        for name, made, expected in (("measured", Measured, {"size": RunFact("input", 24)}), ("fixed", Fixed, {})):
            register_task(name, made)
            for size in (16, 32):
                config = settings.load([f"TASK={name}", f"DATA.IMAGE_SIZE={size}"]).values
                assert changed_keys.list_input_facts(config, learned) == expected


def test_lines_of_the_configuration_about_given_words_are_kept(classifier):
    notices = ["TRAIN.BASE_LR 0.1 (-lr): is not used", "-size 3: is odd", "DATA.IMAGE_SIZE 3: is odd", "-sizes: no"]
    given = [
        KeySetting("TRAIN.BASE_LR", 0.1, COMMAND_LINE, "-lr"),
        KeySetting("DATA.IMAGE_SIZE", 3, COMMAND_LINE, "-size"),
        KeySetting("TRAIN.NUM_EPOCHS", 16, "a.yaml", "a.yaml:3"),
    ]
    values = opened(classifier)[0].config
    loaded = SimpleNamespace(settings={each.name: each for each in given}, values=values, notices=notices)
    lines = changed_keys.find_ignored_words("predict", loaded)
    assert lines == ["TRAIN.BASE_LR 0.1 (-lr): no effect: it is for training", *notices[1:3]]


def test_an_export_reads_no_batches_and_a_home_folder_is_the_same_weights(classifier, monkeypatch):
    said: list[str] = []
    open_source(classifier, "export", words=["DATA.BATCH_SIZE_EVAL=3"], log=said.append)
    assert said == ["DATA.BATCH_SIZE_EVAL 3 (command line): no effect: export does not read it"]
    open_source(classifier, "predict", words=["IMPORTS=[]"], log=said.append)
    assert len(said) == 1  # imports are read
    monkeypatch.setenv("HOME", "/home/me")
    model = SimpleNamespace(PRETRAINED="/home/me/w", RESUME=None)
    changed_keys.require_prediction_keys("predict", "~/w", SimpleNamespace(MODEL=model, EVAL=True))


def test_changed_keys_are_those_on_which_results_depend(classifier):
    stored = opened(classifier)[0].config
    words = ["EVAL_AMP=true", "WATCHDOG_SECONDS=77", "-data_path=elsewhere", "DATA.CROP_PCT=0.5", "-allow_changes"]
    words += ["DATA.NUM_WORKERS=0", "EVALUATION.INTERVAL=off"]
    config = opened(classifier, *words)[0].config
    assert changed_keys.find_changed_keys(stored, config) == {"EVAL_AMP": True, "DATA.CROP_PCT": 0.5}


def test_an_export_reads_the_data_only_for_int8(classifier):
    words = ["DATA.DATA_PATH=.", "EVALUATION.RESAMPLES=500", "AMP_LEVEL=O2"]
    for command, expected in (("export", words), ("export -precision=int8", words[2:])):
        said: list[str] = []
        open_source(classifier, command, words=words, log=said.append)
        assert {line.partition(" ")[0] for line in said} == {word.partition("=")[0] for word in expected}
