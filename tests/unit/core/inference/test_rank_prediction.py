"""The progress of a prediction is reported where no bar is shown."""

import contextlib
import io
import threading

import pytest

from paddlevit_dist.core.inference import rank_prediction
from paddlevit_dist.core.launch import status


class RecordedTerminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("is_main, is_shown", [(True, False), (True, True), (False, True)])
def test_progress_is_told_every_ten_seconds_where_no_bar_is_shown(
    monkeypatch, capsys, act_as, simulated_time, is_main, is_shown
):
    monkeypatch.setenv("TERM", "xterm" if is_shown else "dumb")
    simulated_time.now = 100.0
    act_as(int(not is_main), 2)
    lefts, places, terminal = [], [], RecordedTerminal()
    with contextlib.redirect_stderr(terminal), rank_prediction.SharedProgress(4001) as progress:
        assert progress.bar.is_shown == (is_main and is_shown)
        for seconds, inputs in ((104, 100), (110, 400), (115, 1), (125, 499), (140, 5000)):
            simulated_time.now = float(seconds)
            progress.count(inputs)
            lefts.append(progress.bar.left)
            places.append(status.get_status().text)
    expected = [
        "predicted 1,000 of 4,001, 100.0 a second, 30 s left",
        "predicted 2,000 of 4,001, 80.0 a second, 25 s left",
        "predicted 4,001 of 4,001, 100.0 a second, 0 s left",
    ]
    assert capsys.readouterr().out.splitlines() == (expected if is_main and not is_shown else [])
    assert ("predicting" in terminal.getvalue()) == (is_main and is_shown) and not progress.bar.is_shown
    assert lefts == [4001 - done for done in (200, 1000, 1002, 2000, 4001)]
    assert places == [f"predicting, {n:,} of 4,001 done" for n in (200, 1000, 1002, 2000, 4001)]
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
