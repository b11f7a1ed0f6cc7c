"""Callbacks that a run cannot have are told before it."""

import pytest
from support.trainings.runs import DIGITS, refused

from paddlevit_dist import Callback, UserError, register_callback
from paddlevit_dist.core.logging.callbacks import find_callbacks


class Wants(Callback):
    requires = {"no_such_module": "no-such-package"}


def test_a_missing_package_and_an_unknown_name_are_told_before_the_run(tmp_path):
    register_callback("wants", Wants)
    with pytest.raises(UserError, match="LOG_TO wants: not installed; python -m pip install no-such-package"):
        find_callbacks(["wants"])
    assert "callback 'tensorbord' is not known: did you mean 'tensorboard'" in refused(
        *DIGITS, f"-output={tmp_path / 'a'}", "-log_to=tensorbord"
    )
