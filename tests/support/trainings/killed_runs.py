"""Trainings that are killed at a chosen moment, in the test's own process."""

from typing import Any

import pytest


class Killed(BaseException):
    """Ends a run in place of a signal."""


def kill_in_evaluation(trainer: Any, monkeypatch: Any, number: int) -> None:
    """Train until the ``number``-th evaluation begins."""
    monkeypatch.setattr(trainer.evaluator, "check_metrics", lambda epoch: None)  # builds them, too
    begun = []
    original = trainer.task.build_metrics

    def build_metrics() -> Any:
        begun.append(None)
        if len(begun) == number:
            raise Killed
        return original()

    monkeypatch.setattr(trainer.task, "build_metrics", build_metrics)
    with pytest.raises(Killed):
        trainer.train()
