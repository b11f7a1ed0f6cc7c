"""What a task says if it says nothing itself."""

import dataclasses

import pytest

from paddlevit_dist.core.tasks.score_report import UNKNOWN, ResultSource, ScoreReport
from paddlevit_dist.core.tasks.step_types import EvaluationStep, ExportParts, LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task


def test_a_plain_task_counts_samples_and_has_no_settings():
    task = Task("config")
    assert (task.config, task.notices, task.best_metric) == ("config", [], ("loss", False))
    assert (task.signature(), task.signature(range(3))) == ({}, {"samples": 3})


def test_traits_claim_nothing():
    traits = TaskTraits()
    assert (traits.sample_name, traits.batch_norm, traits.empty_cache_freq) == ("samples", "local", 0)
    assert not (traits.supports_to_static or traits.fixed_shapes or traits.communicates_in_step)
    with pytest.raises(dataclasses.FrozenInstanceError):
        traits.sample_name = "images"
    assert (traits.normalizers_per_sample, traits.normalizer_names, traits.selftest_overrides) == (None, (), {})


def test_progress_is_counted_from_the_start_of_any_epoch():
    third = [StepPosition(3, update, 20, epochs_left=2) for update in (8, 10, 11)]  # 5 epochs of 4 updates
    assert [each.compute_progress(3) for each in third] == pytest.approx([0, 1 / 6, 1 / 4])
    assert third[1].compute_progress() == 0.5 and StepPosition(2, 4, 20, 0, 3).compute_progress(3) == -1 / 3


def test_values_between_engine_and_task_have_neutral_defaults():
    assert LossTerm(2.0, 4).weight == 1.0 and StepPosition(1, 0, 10)[3:] == (0, None, 0.0)
    assert EvaluationStep("metrics") == ("metrics", None, None, False)
    report = ScoreReport("", (), "image", {}, (), (), [], "", "", {})
    assert report.more_is_better is True and report.origin is UNKNOWN and str(ResultSource("a", "val")) == "a (val)"
    assert ExportParts(3, {})[2:4] == (None, "images") and ExportParts(3, {}).sizes_name is None
