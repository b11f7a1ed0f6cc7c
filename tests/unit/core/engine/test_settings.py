"""Values that follow from others while settings are merged: whose batch and epochs count, and shorter warm-ups."""

import pytest
from support.key_pages import check_effects, check_rows
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.engine import settings as engine_settings
from paddlevit_dist.core.engine.settings import (
    effective_batch_size,
    resolve_epochs,
    resolve_process_batch,
    shorten_warmups,
)
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.table import find_keys

DIGITS = "-cfg=vit_digits"


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a configuration file and returns the word that names it."""

    def write_file(text: str, name: str = "own.yaml") -> str:
        (tmp_path / name).write_text(text)
        return f"-cfg={tmp_path / name}"

    return write_file


def test_published_start_weights_of_a_recipe_are_not_what_another_run_evaluates(write):
    published, model = "deit_tiny_patch16_224.fb_in1k", "MODEL: {{PRETRAINED: {}, PRETRAINED_REQUIRED: {}}}\n"
    recipe, run = write(model.format(published, "true")), ["-eval", "-resume=auto"]
    assert load([recipe]).values.MODEL.PRETRAINED == published
    assert load([recipe, *run]).values.MODEL.PRETRAINED is None
    kept = [
        [write(f"EVAL: true\nBASE: {recipe[5:]}", "named.yaml"), f"-pretrained={published}"],
        [write(f"EVAL: true\n{model.format(published, 'true')}", "evaluates.yaml")],
        [write(model.format(published, "false"), "optional.yaml"), "-eval"],
    ]
    assert [load(words).values.MODEL.PRETRAINED for words in kept] == [published] * 3
    file = write(model.format("weights.npz", "true"), "file.yaml")
    assert load([file, "-eval"]).values.MODEL.PRETRAINED == "weights.npz"


def test_each_default_of_an_optimizer_counts_unless_its_key_was_set(monkeypatch):
    monkeypatch.setitem(engine_settings.OPTIMIZER_DEFAULTS, "LAMB", {"EPS": 0.5, "MOMENTUM": 0.25, "BETAS": (0.1, 0.2)})
    optimizer = load(["TRAIN.OPTIMIZER.NAME", "LAMB"]).values.TRAIN.OPTIMIZER
    assert (optimizer.EPS, optimizer.MOMENTUM, optimizer.BETAS) == (0.5, 0.25, (0.1, 0.2))
    optimizer = load(["TRAIN.OPTIMIZER.NAME", "LAMB", "TRAIN.OPTIMIZER.EPS", "0.75"]).values.TRAIN.OPTIMIZER
    assert (optimizer.EPS, optimizer.MOMENTUM, optimizer.BETAS) == (0.75, 0.25, (0.1, 0.2))


def test_the_later_of_two_sources_counts_and_within_one_the_derived_value(write):
    both = write(
        "DATA: {BATCH_SIZE: 6, GLOBAL_BATCH_SIZE: 64}\nTRAIN: {NUM_EPOCHS: 3, NUM_SAMPLES: 500, ACCUM_ITER: 4}"
    )
    values = load([both]).values
    assert (values.DATA.BATCH_SIZE, values.DATA.GLOBAL_BATCH_SIZE) == (16, 64)
    assert (values.TRAIN.NUM_EPOCHS, values.TRAIN.NUM_SAMPLES) == (max(values.TRAIN.EPOCH_LIMITS), 500)
    run = load([both, "-batch_size=5", "-epochs=7"])
    assert (run.values.DATA.BATCH_SIZE, run.values.DATA.GLOBAL_BATCH_SIZE) == (5, None)
    assert (run.values.TRAIN.NUM_EPOCHS, run.values.TRAIN.NUM_SAMPLES) == (7, None)
    assert [notice for notice in run.notices if "replaces" in notice] == [
        "DATA.BATCH_SIZE 5 (-batch_size) replaces DATA.GLOBAL_BATCH_SIZE 64",
        "TRAIN.NUM_EPOCHS 7 (-epochs) replaces TRAIN.NUM_SAMPLES 500",
    ]
    evaluation = load([both, "-batch_size=5", "-eval", "-pretrained=x"])
    assert not any("replaces" in notice for notice in evaluation.notices)
    neither = write("DATA: {GLOBAL_BATCH_SIZE: null}", "neither.yaml")
    assert not any("replaces" in notice for notice in load([neither, "-batch_size=5"]).notices)
    few = write("DATA: {GLOBAL_BATCH_SIZE: 3}\nTRAIN: {ACCUM_ITER: 4}", "few.yaml")
    assert load([few]).values.DATA.BATCH_SIZE == 1


def test_a_recipe_s_warm_up_is_cut_in_proportion_to_its_epochs(write):
    recipe = write("TRAIN: {NUM_EPOCHS: 60, WARMUP_EPOCHS: 12}")
    run = load([recipe, "-epochs=5"])
    assert run.values.TRAIN.WARMUP_EPOCHS == 1.0
    name = recipe.removeprefix("-cfg=")
    assert [notice for notice in run.notices if "shortened" in notice] == [
        f"TRAIN.WARMUP_EPOCHS 12 ({name}:1) is not shorter than the run, TRAIN.NUM_EPOCHS 5 (-epochs): shortened in "
        "proportion, from 12 of 60 to 1 of 5"
    ]
    assert load([recipe, "-epochs=12"]).values.TRAIN.WARMUP_EPOCHS == 2.4
    assert load([recipe, "-epochs=13"]).values.TRAIN.WARMUP_EPOCHS == 12.0
    assert load([recipe, "-epochs=7"]).values.TRAIN.WARMUP_EPOCHS == 1.4
    thirds = write("TRAIN: {NUM_EPOCHS: 9, WARMUP_EPOCHS: 4}", "thirds.yaml")
    assert load([thirds, "-epochs=3"]).values.TRAIN.WARMUP_EPOCHS == 1.3333
    by_samples = write("TRAIN: {NUM_SAMPLES: 900, EPOCH_LIMITS: [20, 80], WARMUP_EPOCHS: 4}", "samples.yaml")
    assert load([by_samples, "-epochs=3"]).values.TRAIN.WARMUP_EPOCHS == 0.6  # 3 of the fewest epochs, 20
    never = write("TRAIN: {NUM_EPOCHS: 9, WARMUP_EPOCHS: 9}", "never.yaml")  # wrong before it was shortened
    message = refusal_of(load, [never, "-epochs=3"])
    expected = (
        f"TRAIN.WARMUP_EPOCHS 9 ({never.removeprefix('-cfg=')}:1): expected fewer than TRAIN.NUM_EPOCHS 3 (-epochs)"
    )
    assert message == expected


@pytest.mark.parametrize(
    ("epochs", "samples", "updates", "steps"),
    [
        *((60, 200, "1,500", 40), (41, 8, "41", 40), (6, 64, "48", 40), (60, 6, "0", 40)),
        *((40, 8, "40", 4), (6, 40, "30", 3), (5, 64, "40", 3), (3, 64, "24", 2), (1, 64, "8", 0)),
    ],
)
def test_a_recipe_s_warm_up_steps_are_at_most_a_tenth_of_a_short_run(write, epochs, samples, updates, steps):
    file = write("TRAIN: {NUM_EPOCHS: 60, WARMUP_STEPS: 40, ACCUM_ITER: 2}\nDATA: {BATCH_SIZE: 1}")
    run = load([file, f"-epochs={epochs}"])
    assert effective_batch_size(run.values, 4) == 8
    found = shorten_warmups(run, 4, {"train": range(samples)})
    assert found.values.TRAIN.WARMUP_STEPS == steps
    told = f"is not shorter than the run of {updates} updates: {f'shortened to {steps}' if steps else 'no warm-up'}"
    assert [notice.endswith(told) for notice in found.notices if "WARMUP_STEPS" in notice] == [True] * (steps < 40)


def test_stated_warm_up_steps_stay():
    run = load([DIGITS, "TRAIN.WARMUP_STEPS", "90", "TRAIN.WARMUP_EPOCHS", "0", "-epochs=1", "-batch_size=4"])
    assert shorten_warmups(run, 1, {"train": range(8)}) is run


def test_what_a_recipe_counts_in_epochs_is_shortened_with_the_run(write):
    rate = "LR_SCHEDULER: {NAME: step, MILESTONES: [16, 22]}"
    detector = f"TASK: detection\nTRAIN: {{NUM_EPOCHS: 26, {rate}}}\nDATA: {{NO_AUGMENT_EPOCHS: 13}}"
    recipe = write(detector)

    def parts(*words):
        run = load([*words])
        told = [notice.split()[0] for notice in run.notices if "shortened in proportion" in notice]
        return run.values.TRAIN.LR_SCHEDULER.MILESTONES, run.values.DATA.NO_AUGMENT_EPOCHS, told

    assert parts(recipe) == ([16, 22], 13, [])
    assert parts(recipe, "-epochs=23") == ([16, 22], 13, [])
    assert parts(recipe, "-epochs=22") == ([13, 18], 13, ["TRAIN.LR_SCHEDULER.MILESTONES"])
    both = ["TRAIN.LR_SCHEDULER.MILESTONES", "DATA.NO_AUGMENT_EPOCHS"]
    assert parts(recipe, "-epochs=12") == ([7, 10], 6, both)
    assert parts(recipe, "-epochs=1") == ([1], 0, both)
    own = write(f"BASE: {recipe.removeprefix('-cfg=')}\nTASK: detection\nTRAIN: {{NUM_EPOCHS: 4}}", "mine.yaml")
    assert parts(own) == ([2, 3], 2, both)
    chosen = parts(recipe, "-epochs=12", "TRAIN.LR_SCHEDULER.MILESTONES", "[9,13]", "DATA.NO_AUGMENT_EPOCHS", "12")
    assert chosen == ([9, 13], 12, [])
    assert parts(recipe, "-epochs=12", "-eval", "-pretrained=x")[2] == []


def test_each_key_of_epochs_is_declared():
    """A key that is forgotten is silently as long as in the recipe: new ones are added here, or say why not."""
    counted = {name for name, row in find_keys().items() if row.counts == "epochs"}
    lengths = {"TRAIN.NUM_EPOCHS", "TRAIN.STOP_AFTER_EPOCH", "TRAIN.LAST_EPOCH", "TRAIN.EPOCH_LIMITS", "KEEP_EPOCHS"}
    named = {name for name in find_keys() if "EPOCH" in name.rpartition(".")[2]}
    assert named - lengths == counted - {"TRAIN.LR_SCHEDULER.MILESTONES"}


@pytest.mark.parametrize(
    ("samples", "words", "steps", "told"),
    [
        (1600, [], (40, 80), []),
        (968, [], (40, 80), []),
        (960, [], (40, 12), ["BACKBONE_WARMUP_STEPS 80 after the 40"]),
        (320, [], (4, 4), ["WARMUP_STEPS 40", "BACKBONE_WARMUP_STEPS 80 after the 4"]),
        (32, [], (0, None), ["WARMUP_STEPS 40", "BACKBONE_WARMUP_STEPS 80"]),
        (960, ["TRAIN.BACKBONE_WARMUP_STEPS", "90"], (40, 90), ["BACKBONE_WARMUP_STEPS 90 after the 40"]),
    ],
)
def test_both_warm_ups_end_before_the_run(write, samples, words, steps, told):
    file = write(
        "TASK: image_segmentation\nDATA: {BATCH_SIZE: 4}\n"
        "TRAIN: {NUM_EPOCHS: 1, WARMUP_STEPS: 40, BACKBONE_WARMUP_STEPS: 80, ACCUM_ITER: 2}"
    )
    run = load([file, *words])
    found = shorten_warmups(run, 1, {"train": range(samples)})
    train = found.values.TRAIN
    assert (train.WARMUP_STEPS, train.BACKBONE_WARMUP_STEPS) == steps
    lines = [notice for notice in found.notices if "WARMUP_STEPS" in notice]
    assert len(lines) == len(told)
    assert all(line.startswith(f"TRAIN.{start} ") for line, start in zip(lines, told)), lines
    earlier = {"WARMUP_STEPS": 40, "BACKBONE_WARMUP_STEPS": train.BACKBONE_WARMUP_STEPS if words else 80}
    assert shorten_warmups(run, 1, {"train": range(samples)}, earlier) is run  # a resumed run keeps its own


def test_a_batch_over_processes_is_told_if_it_is_not_the_one_asked_for(write):
    run = load([write("DATA: {GLOBAL_BATCH_SIZE: 50}\nTRAIN: {ACCUM_ITER: 2}")])
    found = resolve_process_batch(run, 3)
    assert found.values.DATA.BATCH_SIZE == 8 and "DATA.GLOBAL_BATCH_SIZE 50: an update takes 48" in found.notices
    assert "an update takes" not in "\n".join(resolve_process_batch(run, 5).notices)
    few = resolve_process_batch(run, 1, 199)
    assert few.values.DATA.BATCH_SIZE == 24
    told = "DATA.GLOBAL_BATCH_SIZE 50: an update takes 48, since there are only 199 training samples"
    assert told in few.notices
    assert resolve_process_batch(load([DIGITS, "-batch_size=4"]), 3).values.DATA.BATCH_SIZE == 4


def test_epochs_that_follow_from_samples_are_told_with_their_updates(write):
    words = "TRAIN: {NUM_SAMPLES: 1000, EPOCH_LIMITS: [2, 9], PATIENCE: 8, ACCUM_ITER: 2}\nDATA: {BATCH_SIZE: 5}"
    run = load([write(words)])
    found = resolve_epochs(run, 3, 300, "scenes")
    assert found.values.TRAIN.NUM_EPOCHS == 4
    first, second = found.notices[-2:]
    assert first == (
        "300 training scenes: 4 epochs, 40 updates (TRAIN.NUM_SAMPLES 1,000, EPOCH_LIMITS 2 to 9); "
        "-epochs=N sets another"
    )
    assert second.startswith("TRAIN.PATIENCE 8: no effect: ") and second.endswith(" end before: TRAIN.NUM_EPOCHS 4")
    again = resolve_epochs(run, 3, 300, "scenes", 6)
    assert again.values.TRAIN.NUM_EPOCHS == 6
    assert "300 training scenes: 6 epochs, 60 updates (as before); -epochs=N sets another" in again.notices


def test_a_batch_has_a_sample_and_patience_that_can_end_the_run_is_not_told(write):
    text = "TRAIN: {NUM_SAMPLES: 1000, EPOCH_LIMITS: [2, 9], PATIENCE: 2, ACCUM_ITER: 2}\nDATA: {GLOBAL_BATCH_SIZE: 6}"
    run = resolve_process_batch(load([write(text)]), 4)
    assert run.values.DATA.BATCH_SIZE == 1
    assert "PATIENCE" not in "\n".join(resolve_epochs(run, 4, 100, "images").notices)


@pytest.mark.parametrize(
    "words, told",
    [
        (
            "NESTEROV True",
            "TRAIN.OPTIMIZER.NESTEROV True .* and TRAIN.OPTIMIZER.DAMPENING 0.5 .*: SGD takes one",
        ),
        (
            "WARMUP_MOMENTUM 0.5",
            "TRAIN.OPTIMIZER.WARMUP_MOMENTUM 0.5 .* and TRAIN.OPTIMIZER.DAMPENING 0.5 .*: SGD",
        ),
        ("NESTEROV False", None),
    ],
)
def test_sgd_takes_one_of_two_ways_of_momentum(words, told):
    name, value = words.split()
    given = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.OPTIMIZER.DAMPENING", "0.5", f"TRAIN.OPTIMIZER.{name}", value]
    if told is None:
        load(given)
    else:
        with pytest.raises(UserError, match=told):
            load(given)


@pytest.mark.parametrize("words, joined", [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_words_are_joined_as_in_a_sentence(words, joined):
    assert engine_settings.join_words(words) == joined


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("core.engine")


def test_what_another_value_changes_is_as_listed():
    check_effects("core.engine")
