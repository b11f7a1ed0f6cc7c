"""Losses of several labels against a teacher, by their formulas in float64."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.multi_label.losses import teacher_loss

STUDENT = np.array([[0.5, -1.0, 2.0], [-0.25, 3.0, -2.0]])
TEACHER = np.array([[1.5, -0.5, 0.0], [1e-9, -4.0, 2.0]])


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_a_teacher_teaches_its_probabilities_or_decisions(kind):
    found = float(teacher_loss(kind, paddle.to_tensor(STUDENT), paddle.to_tensor(TEACHER)))
    own, taught = (1 / (1 + np.exp(-logits)) for logits in (STUDENT, TEACHER))
    if kind == "hard":
        decided = np.array([[1, 0, 0], [1, 0, 1]])
        expected = -(decided * np.log(own) + (1 - decided) * np.log(1 - own)).sum()
    else:
        expected = (taught * np.log(taught / own) + (1 - taught) * np.log((1 - taught) / (1 - own))).sum()
    assert found == pytest.approx(expected, rel=1e-6)
