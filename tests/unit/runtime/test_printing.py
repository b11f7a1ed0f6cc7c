"""Names from files and errors of libraries are shown so that they cannot pass for anything else."""

import pytest
from support.hosts.foreign import EVIL, SHOWN

from paddlevit_dist.runtime import printing
from paddlevit_dist.runtime.errors import UserError, WorkerFailure, run_and_report


@pytest.mark.parametrize("text, shown", [
    ("Stra\u00dfe \u732b \U0001f431 a\u00a0b", "Stra\u00dfe \u732b \U0001f431 a\u00a0b"),
    (EVIL, SHOWN),
    ("\udce9.png", "\\xe9.png"),
    ("\ud800", "\\ud800"),
    ("a\u2028b\u2029c\x85d\x7f\0", "a\\u2028b\\u2029c\\x85d\\x7f\\x00"),
    ("\u2066\u200f\ufeff\U000e0041", "\\u2066\\u200f\\ufeff\\U000e0041"),
])  # fmt: skip
def test_what_a_terminal_would_obey_is_escaped(text, shown):
    assert printing.one_line(text) == shown


@pytest.mark.parametrize("text, shown", [
    ("https://me:word@host/a.pth cannot", "https://***@host/a.pth cannot"),
    ("'HTTPS://token@host:80/a?x=1&sig=ab%3D#sha256=00'", "'HTTPS://***@host:80/a?x=***&sig=***#sha256=00'"),
    ("https://host/a@b?flag and s3://k:v@x", "https://host/a@b?flag and s3://***@x"),
    ("me:word@host is no address", "me:word@host is no address"),
])  # fmt: skip
def test_credentials_in_addresses_are_hidden(text, shown):
    assert printing.without_credentials(text) == printing.one_line(text) == shown


def raised(error: BaseException):
    def function() -> None:
        raise error

    return function


def test_the_line_that_says_how_a_run_ended_is_one_line_and_the_last(capsys):
    assert run_and_report(raised(UserError(f"{EVIL} cannot be read"))) == 2
    assert capsys.readouterr().err == f"error: {SHOWN} cannot be read\n"
    trace = f"Traceback ...\n  read()\nValueError: {EVIL}\n"
    assert run_and_report(raised(WorkerFailure(1, "ValueError: first\nerror: second", trace))) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "error: rank 1 failed: ValueError: first"
    assert [line for line in said if line.startswith("error:")] == said[-1:]
    assert "  error: second" in said and "  error: all is well\\t\\x9b1A" in said
