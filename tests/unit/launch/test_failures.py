"""What is said of how a rank's process ended."""

import pytest

from paddlevit_dist.launch import failures


@pytest.mark.parametrize(
    "code, kind, message",
    [
        (0, failures.FINISHED, ""),
        (-11, "killed", "ended by SIGSEGV after its work was complete"),
        (3, failures.EXIT, "ended with exit code 3 after its work was complete"),
    ],
)
def test_a_process_that_fails_after_its_work_is_told_with_its_end(tmp_path, monkeypatch, code, kind, message):
    monkeypatch.setattr(failures, "_own_records", None)
    failures.keep_records(tmp_path, 0)
    failures.record_finish()
    end = failures.describe_end(0, code, tmp_path)
    assert (end["kind"], end["message"]) == (kind, message)
