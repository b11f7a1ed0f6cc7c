"""What ranks record of their end, and which of several failures is taken for the cause."""

import json
import signal
import time

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.launch import failures
from paddlevit_dist.core.runtime.errors import DeviceFailure, OwnCodeError
from paddlevit_dist.core.runtime.signals import ProcessInterrupted


@pytest.fixture
def records(tmp_path, fresh_rank):
    """A folder in which this process records as rank 2."""
    failures.keep_records(tmp_path, 2)
    return tmp_path


@pytest.mark.parametrize(
    "code, kind, message",
    [
        (0, failures.FINISHED, ""),
        (-11, "killed", "ended by SIGSEGV after its work was complete"),
        (3, failures.EXIT, "ended with exit code 3 after its work was complete"),
    ],
)
def test_a_process_that_fails_after_its_work_is_told_with_its_end(records, code, kind, message):
    failures.record_finish()
    end = failures.describe_end(2, code, records)
    assert (end["kind"], end["message"], end["rank"]) == (kind, message, 2)


@pytest.mark.parametrize(
    "code, kind, number, message",
    [
        (1, failures.EXIT, None, "ended with exit code 1 before its work was complete"),
        (-15, "killed", 15, "ended by SIGTERM"),
        (-9, "killed", 9, "ended by SIGKILL (the system may have run out of memory: see dmesg)"),
    ],
)
def test_a_process_without_a_record_is_told_with_its_exit_code(tmp_path, code, kind, number, message):
    end = failures.describe_end(2, code, tmp_path)
    assert (end["kind"], end.get("signal"), end["rank"], end["message"]) == (kind, number, 2, message)
    assert failures.read(tmp_path, 2) is None


@pytest.mark.parametrize(
    "end, is_lost",
    [
        ({"kind": "killed", "signal": signal.SIGKILL}, True),
        ({"kind": "killed", "signal": signal.SIGABRT}, True),  # as gloo ends a rank that has lost another
        ({"kind": "killed", "signal": signal.SIGSEGV}, False),
        ({"kind": failures.STANDSTILL}, True),
        ({"kind": failures.STANDSTILL, "waits": True}, False),  # all ranks wait for each other
        ({"kind": failures.EXCEPTION, "message": "RuntimeError: Connection reset by peer"}, True),
        ({"kind": failures.EXCEPTION, "message": "KeyError: 'a'"}, False),
        ({"kind": failures.USER_ERROR, "message": "training has diverged"}, False),
        ({"kind": failures.EXIT, "message": "ended with exit code 1"}, False),
    ],
)
def test_a_lost_rank_is_told_from_one_that_fails_by_itself(end, is_lost):
    assert failures.is_lost(end) == is_lost


def test_a_process_that_ends_well_without_a_record_has_failed(tmp_path):
    end = failures.describe_end(1, 0, tmp_path)
    assert (end["kind"], end["message"]) == (failures.EXIT, "ended with exit code 0 before its work was complete")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_thread_ends_the_process_with_a_record_or_a_line(
    tmp_path, fresh_rank, exit_codes, simulated_time, capsys, is_recorded
):
    if is_recorded:
        failures.keep_records(tmp_path, 3)
    failures.end_process("no\ndisk")
    assert exit_codes == [1] and simulated_time.waits == ([20.0] if is_recorded else [])
    assert capsys.readouterr().err == ("" if is_recorded else "error: no\\ndisk\n")
    if is_recorded:
        record = failures.read(tmp_path, 3)
        assert (record["kind"], record["message"], record["rank"]) == (failures.EXCEPTION, "no\ndisk", 3)
        assert abs(record["time"] - time.time()) < 600


RECORDS = {
    "stopped": (Stopped("SIGTERM", "epoch 2 is saved"), {"reason": "SIGTERM", "saved": "epoch 2 is saved"}),
    "interrupted": (ProcessInterrupted(15, again=True), {"message": "interrupted", "number": 15, "again": True}),
    "user error": (UserError("no such file"), {"message": "no such file", "exit_code": 2}),
    "exit": (SystemExit(7), {"message": "sys.exit(7)", "exit_code": 2}),
    "exception": (ZeroDivisionError("by zero"), {"message": "ZeroDivisionError: by zero", "exit_code": 2}),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_an_error_is_recorded_by_its_kind(records, kind):
    error, facts = RECORDS[kind]
    failures.record_failure(error)
    record = failures.read(records, 2)
    assert record.items() >= {"kind": kind, "rank": 2, **facts}.items()
    if kind in ("user error", "exit", "exception"):
        assert record["traceback"].startswith(type(error).__name__) or type(error).__name__ in record["traceback"]
    assert failures.describe_end(2, 1, records) == record  # in place of the exit code
    assert json.loads((records / "rank_2.json").read_text()) == record


def test_an_exception_of_own_code_is_recorded_with_its_traceback(records):
    error = KeyError("x")
    OwnCodeError("sample 1: KeyError: 'x'", "own\n").attach(error)
    for each in (error, OwnCodeError("sample 1: KeyError: 'x'", "own\n")):
        failures.record_failure(each)
        record = failures.read(records, 2)
        assert (record["kind"], record["message"]) == (failures.USER_ERROR, "sample 1: KeyError: 'x'")
        assert record["own_traceback"] == "own\n"


def test_the_exit_code_of_a_device_failure_is_kept(records):
    failures.record_failure(DeviceFailure("the GPU is gone"))
    assert (failures.read(records, 2)["exit_code"], failures.read(records, 1)) == (1, None)


def test_without_a_folder_nothing_is_recorded(fresh_rank):
    with pytest.raises(AssertionError, match="call keep_records first"):
        failures.record_finish()


def end(kind, message="", **more):
    return {"kind": kind, "message": message, **more}


VICTIMS = [
    end("exception", "RuntimeError: gloo broke"),
    end("exception", "Connection reset by peer"),
    end("exception", "the TCP store"),
    end("exception", "a barrier was left"),
    end("exception", "timeout"),
    end("killed", signal=signal.SIGABRT),
]
CAUSES = [
    end("exception", "ValueError: shapes"),
    end("killed", signal=signal.SIGKILL),
    end("killed"),
    end("user error", "Connection refused"),
    end("exit", "timeout"),
    end("stopped", "timeout"),
    end("interrupted", "timeout"),
    end("standstill", "timeout"),
    {"kind": "exception"},
]


@pytest.mark.parametrize("record, is_victim", [(each, True) for each in VICTIMS] + [(each, False) for each in CAUSES])
def test_a_rank_that_lost_a_peer_is_not_the_cause(record, is_victim):
    assert failures.looks_like_a_lost_peer(record) is is_victim


def test_the_first_independent_failure_is_the_cause():
    ends = [
        {**VICTIMS[0], "time": 1.0, "rank": 0},
        {**CAUSES[0], "time": 5.0, "rank": 1},
        {**CAUSES[1], "time": 3.0, "rank": 2},
        {**VICTIMS[5], "time": 2.0, "rank": 3},
    ]
    assert failures.find_root_cause(ends)["rank"] == 2
    assert failures.find_root_cause([ends[3], ends[0]])["rank"] == 0


@pytest.mark.parametrize(
    "error, expected",
    [
        (RuntimeError("gloo broke"), True),
        (RuntimeError("shapes"), False),
        (UserError("timeout"), False),
        (ConnectionError("gloo"), False),
        (failures.PeerGone("rank 1"), True),
    ],
)
def test_an_echo_reports_only_that_another_rank_is_gone(error, expected):
    assert failures.is_echo(error) is expected


def test_a_users_mistake_is_told_without_a_type():
    assert [failures.reason(error) for error in (UserError("no file"), KeyError("a"))] == ["no file", "KeyError: 'a'"]
