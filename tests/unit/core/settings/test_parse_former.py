"""Keys that were removed: configurations of older runs have them, with the value that is used today."""

from copy import deepcopy

import pytest
import yaml
from support.processes import ROOT
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.compatibility import compare, facts_from_settings, to_plain_settings
from paddlevit_dist.core.inference.trained import build_configuration
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import Key, StoredSettings, dump_yaml, load
from paddlevit_dist.core.settings.custom_keys import as_tables
from paddlevit_dist.core.settings.key_tables import known_tables
from paddlevit_dist.core.settings.table import comparable_leaves, find_keys, get_value, index_former, leaves, put
from paddlevit_dist.core.tasks.task_factory import make_task

OLDER = ROOT / "tests" / "support" / "files" / "config_with_former_keys.yaml"  # of a run of detrpose_figures
POSES = f"-cfg={ROOT / 'configs' / 'detrpose_figures.yaml'}"
HEATMAPS = f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}"
DETR = f"-cfg={ROOT / 'configs' / 'detr_shapes.yaml'}"
SCENES = f"-cfg={ROOT / 'configs' / 'pointgroup_scannet.yaml'}"


def read_older(**poses):
    """Settings of the older run, with other values of keys of POSES."""
    content = yaml.safe_load(OLDER.read_text(encoding="utf-8"))
    return {**content, "POSES": {**content["POSES"], **poses}}


def test_the_configuration_of_an_older_run_is_that_of_its_recipe_today():
    stored = leaves(yaml.safe_load(OLDER.read_text(encoding="utf-8")))
    former = index_former(known_tables("keypoint_detection"))
    assert set(stored) - set(find_keys("keypoint_detection")) == set(former) and len(former) == 8
    older, today = load([f"-cfg={OLDER}"]), load([POSES])
    assert leaves(older.values) == leaves(today.values) and older.values.MODEL.OPTIONS == {"denoising": 3}
    line = OLDER.read_text(encoding="utf-8").splitlines().index("  DENOISING: 3") + 1
    assert older.notices == [f"{OLDER}:{line}: POSES.DENOISING is called MODEL.OPTIONS.denoising here"]


@pytest.mark.parametrize("recipe", [POSES, HEATMAPS, SCENES, DETR])
def test_a_former_key_with_its_default_is_silent_in_a_file_and_on_the_command_line(write, recipe):
    plain = load([recipe]).values
    former = index_former(known_tables(plain.TASK))
    assert len(former) > 1 and not set(former) & set(find_keys())
    words = [word for name, key in former.items() for word in (name, str(key.default))]
    typed = load([recipe, *words])
    content = CfgNode(yaml.safe_load(dump_yaml(plain)))
    for name, key in former.items():
        put(content, name, key.default)
    stored = load([f"-cfg={write('config.yaml', content.dump())}"])
    assert typed.notices == stored.notices == [] and leaves(typed.values) == leaves(stored.values) == leaves(plain)


def test_another_value_is_refused_with_what_to_write(write):
    file = write("mine.yaml", "TASK: keypoint_detection\nPOSES:\n  OKS_LOSS_WEIGHT: 8\n")
    end = "POSES.OKS_LOSS_WEIGHT is {}, but this key was removed: it is 4, as the authors'; remove it"
    for words, origin, value in (
        ([f"-cfg={file}"], f"{file}:3", "8"),
        ([POSES, "POSES.OKS_LOSS_WEIGHT=often"], "command line", "'often'"),
    ):
        with pytest.raises(UserError) as refused:
            load(words)
        assert str(refused.value) == f"{origin}: {end.format(value)}"


def test_the_value_of_a_replaced_key_is_that_of_the_other_one():
    both = load([HEATMAPS, "HEATMAPS.DECODER", "simple", "MODEL.OPTIONS.width", "8"])
    assert both.values.MODEL.OPTIONS == {"decoder": "simple", "width": 8}
    assert both.notices == ["command line: HEATMAPS.DECODER is called MODEL.OPTIONS.decoder here"]


@pytest.mark.parametrize(
    ("recipe", "setting", "told"),
    [
        (SCENES, "POINTS.INSTANCES.WIDTH=0", "MODEL.OPTIONS.width is 0: expected a whole number >= 1"),
        (SCENES, "MODEL.OPTIONS.repeats=many", "MODEL.OPTIONS.repeats is 'many': expected a whole number >= 1"),
        (POSES, "POSES.DENOISING=-2", "MODEL.OPTIONS.denoising is -2: expected a whole number >= 0"),
        (DETR, "MODEL.DECODER_LAYERS=0", "MODEL.OPTIONS.decoder_layers is 0: expected a whole number >= 1"),
        (HEATMAPS, "HEATMAPS.DECODER=new", "option decoder 'new' is not known: expected classic or simple"),
    ],
)
def test_the_other_key_refuses_what_the_former_one_refused(recipe, setting, told):
    with pytest.raises(UserError) as refused:
        make_task(load([recipe, setting]).values).build_model(2)
    assert str(refused.value) == told


def test_an_evaluation_ignores_what_was_for_training():
    older = read_older(OKS_LOSS_WEIGHT=8.0)
    assert build_configuration("model.pdparams", older).values.MODEL.OPTIONS == {"denoising": 3}
    with pytest.raises(UserError, match=r"^settings of a run: POSES.OKS_LOSS_WEIGHT is 8.0, but this key was removed"):
        load([], stored=StoredSettings(older, "settings of a run"))


@pytest.mark.parametrize(
    ("poses", "words", "expected"),
    [
        ({}, [], []),
        ({"OKS_LOSS_WEIGHT": 8.0}, [], [("POSES.OKS_LOSS_WEIGHT", 8.0, 4.0)]),
        ({"DENOISING": 5}, [], [("MODEL.OPTIONS", {"denoising": 5}, {"denoising": 3})]),
        ({"DENOISING": 5}, ["MODEL.OPTIONS.denoising", "5"], []),
    ],
)
def test_a_resumed_run_is_compared_with_what_it_had(poses, words, expected):
    before = read_older(**poses)
    given = deepcopy(before)
    now = to_plain_settings(load([POSES, *words]).values)
    changes = compare("resume", facts_from_settings(before), facts_from_settings(now))
    assert [(each.name, each.before, each.now) for each in changes] == expected
    assert before == given


def test_a_users_key_has_another_name_than_a_former_one():
    (table,) = as_tables(Key("HEATMAPS.DECODERS", 1, "int", "mine"), "model mine", known_tables("keypoint_heatmaps"))
    assert [key.name for key in table.keys] == ["HEATMAPS.DECODERS"]
    with pytest.raises(UserError, match="^model mine: key HEATMAPS.DECODER exists already: decoder of the network: "):
        as_tables(Key("HEATMAPS.DECODER", 1, "int", "mine"), "model mine", known_tables("keypoint_heatmaps"))


# What each document of the file was trained with, in today's words, and what is said of its former keys.
_LITTLE = (
    "-ngpus=1 -batch_size=2 DATA.NUM_WORKERS 0 SAVE_FREQ 1 REPORT_FREQ 1 REPORT false -epochs=2 -stop_after_epoch=1 "
)
_LITTLE += "TRAIN.WARMUP_EPOCHS 0 TRAIN.WARMUP_STEPS none DATA.GLOBAL_BATCH_SIZE none -output=./output "
_DRAWN = "DATA.SHAPES.TRAIN 4 DATA.SHAPES.VAL 2 "
OF_TASKS = {
    "minkunet14_synthetic_rooms": (
        "POINTS.ROOMS.TRAIN 4 POINTS.ROOMS.VAL 1 TRAIN.DICE_WEIGHT 0.25 TRAIN.SMOOTHING 0.1",
        {
            "POINTS.LOVASZ_WEIGHT": "TRAIN.LOVASZ_WEIGHT",
            "POINTS.DICE_WEIGHT": "TRAIN.DICE_WEIGHT",
            "POINTS.LABEL_SMOOTHING": "TRAIN.SMOOTHING",
        },
    ),
    "segformer_b0_shapes": (
        f"{_DRAWN} TRAIN.DICE_WEIGHT 0.5",
        {
            "SEGMENTATION.DICE_WEIGHT": "TRAIN.DICE_WEIGHT",
            "SEGMENTATION.LOVASZ_WEIGHT": "TRAIN.LOVASZ_WEIGHT",
        },
    ),
    "mink_classifier_solids": (
        "SHAPES.SOLIDS.TRAIN 8 SHAPES.SOLIDS.VAL 4 TRAIN.SMOOTHING 0.2",
        {"SHAPES.LABEL_SMOOTHING": "TRAIN.SMOOTHING"},
    ),
    "detr_shapes": (f"{_DRAWN} TRAIN.COLOR_JITTER 0.3", {"DATA.COLOR_JITTER": "TRAIN.COLOR_JITTER"}),
    "heatmap_figures": (f"{_DRAWN} TRAIN.COLOR_JITTER 0.2", {"DATA.COLOR_JITTER": "TRAIN.COLOR_JITTER"}),
}
STORED = dict(
    zip(OF_TASKS, (ROOT / "tests/support/files/configs_with_keys_of_tasks.yaml").read_text("utf-8").split("---\n")[1:])
)


@pytest.mark.parametrize("recipe", OF_TASKS)
def test_an_older_run_whose_task_had_a_key_of_its_own_loads_resumes_and_compares(write, recipe):
    words, renamed = OF_TASKS[recipe]
    file = write("config.yaml", STORED[recipe])
    older, today = load([f"-cfg={file}"]), load([f"-cfg={ROOT}/configs/{recipe}.yaml", *(_LITTLE + words).split()])
    assert leaves(older.values) == leaves(today.values)
    assert [line.partition(": ")[2] for line in older.notices] == [
        f"{a} is called {b} here" for a, b in renamed.items()
    ]
    stored, now = yaml.safe_load(STORED[recipe]), to_plain_settings(today.values)
    assert compare("resume", facts_from_settings(stored), facts_from_settings(now)) == []
    before, after = comparable_leaves(stored), comparable_leaves(now)
    assert before == {name: value for name, value in after.items() if name in before}  # there are newer keys
    assert build_configuration("model.pdparams", stored).values.TRAIN == today.values.TRAIN
    for former, name in renamed.items():
        section, last = former.split(".")
        for value in (0.0, 0.75):
            other = {**stored, section: {**stored[section], last: value}}
            (change,) = compare("resume", facts_from_settings(other), facts_from_settings(now))
            assert change[:3] == (name, value, get_value(today.values, name)) and change.kind == "course"


def test_a_former_key_with_its_default_replaces_another_value_of_an_earlier_file(write):
    file = write("mine.yaml", "BASE: segformer_b0_shapes\nSEGMENTATION: {LOVASZ_WEIGHT: 0, DICE_WEIGHT: 0.0}\n")
    for words in ([f"-cfg={file}"], ["-cfg=segformer_b0_shapes", "SEGMENTATION.LOVASZ_WEIGHT", "0"]):
        changed = load(words)
        assert changed.values.TRAIN.LOVASZ_WEIGHT == 0.0
        assert len(changed.notices) == 1 and "LOVASZ_WEIGHT is called TRAIN.LOVASZ_WEIGHT here" in changed.notices[0]
    wide = [SCENES, "MODEL.OPTIONS", "{width: 24, repeats: 3}", "POINTS.INSTANCES.WIDTH", "16"]
    assert load(wide).values.MODEL.OPTIONS == {"width": 16, "repeats": 3}


def test_a_stored_default_of_another_tasks_former_key_changes_nothing(write, monkeypatch):
    """Older runs of a user's task have the keys of all tasks."""
    monkeypatch.setitem(REGISTRY.tasks, "of_a_user", object)
    text = "TRAIN: {SMOOTHING: 0.1}\nSHAPES: {LABEL_SMOOTHING: 0.0}\nPOINTS: {DICE_WEIGHT: 0.5}\n"
    text += "SEGMENTATION: {DICE_WEIGHT: 0.0}\n"
    file = write("config.yaml", text)
    train = load([f"-cfg={file}", "TASK", "of_a_user"]).values.TRAIN
    assert (train.SMOOTHING, train.DICE_WEIGHT) == (0.1, 0.5)
    found = comparable_leaves({**yaml.safe_load(text), "TASK": "of_a_user"})
    assert (found["TRAIN.SMOOTHING"], found["TRAIN.DICE_WEIGHT"]) == (0.1, 0.5)
