"""A service that watches trainings and does not answer; what others keep is read back at night."""

import socket

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.logging.callbacks import CallbackList
from paddlevit_dist.core.logging.services import MlflowLog
from paddlevit_dist.core.settings import default_config
from paddlevit_dist.core.tasks.callback import RunFacts

SECRET = "hf_abcdefghijkl"


def test_a_service_that_is_away_is_told_in_one_line_and_asked_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as nobody:  # a port where nobody listens
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{SECRET}@127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(UserError, match="LOG_TO mlflow: .*refused.*remove mlflow from LOG_TO") as refusal:
            MlflowLog().start(RunFacts(tmp_path, default_config("classification"), True, 1, 10))
    assert SECRET not in str(refusal.value)

    class Away(MlflowLog):
        def begin(self, run, run_id):
            return "1"

        def scalars(self, values, step, seconds):
            raise LookupError(f"https://me:{SECRET}@api.example.org is away")

    lines: list[str] = []
    callbacks = CallbackList([Away()], lines.append)
    callbacks.start(RunFacts(tmp_path, default_config("classification"), True, 1, 10))
    for update in (1, 2):
        callbacks.report(update, {"loss": 1.0})
    (line,) = lines
    assert line.startswith(
        "callback Away is disabled from here on, the run continues: in report, OSError: LookupError: "
    )
    assert "https://***@api.example.org is away" in line
