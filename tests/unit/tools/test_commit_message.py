"""``tools/commit_message.py`` accepts a message that says what one commit does and why, and names each fault."""

import importlib.util

import pytest
from support.processes import ROOT

_spec = importlib.util.spec_from_file_location("commit_message", ROOT / "tools" / "commit_message.py")
commit_message = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(commit_message)

WHY = "\n\nUsers could not tell which file was read.\n"


@pytest.mark.parametrize(
    "message",
    [
        f"Lower size limits{WHY}",
        f"Embed the figures of a report{WHY}",
        f"Process rows in order{WHY}# Please enter the commit message\n",
        f"Add a hook for messages{WHY}# ------------------------ >8 ------------------------\ndiff --git a/x b/x\n",
        'Revert "The key of a sample is compared as the number that it is"',
        "Merge branch 'user'",
        "fixup! Lower size limits",
    ],
)
def test_a_message_that_says_what_and_why_passes(message):
    assert commit_message.find_faults(message) == []


@pytest.mark.parametrize(
    "subject, fault",
    [
        ("Bars follow what was cut", "begin the subject"),
        ("What lacks weights points to the list of names, whatever its task", "begin the subject"),
        ("A line fits", "begin the subject"),
        ("FineCriterion has no method of one call", "begin the subject"),
        ("compare: a page of two runs", "begin the subject"),
        ("Fixed the order of rows", "begin the subject"),
        ("Reading costs less", "begin the subject"),
        ("Whether weights are fetched is asked in one place", "begin the subject"),
        ("Make files smaller; drop a row", "describe one change"),
        ("Lower size limits.", "end the subject without a period"),
        (f"Lower {'size ' * 13}limit", "cut the subject to 72 characters: it has 76"),
    ],
)
def test_a_fault_of_the_subject_is_named(subject, fault):
    (found,) = commit_message.find_faults(subject + WHY)
    assert found.startswith(fault)


def test_several_faults_are_each_named():
    subject = "DETR and RT-DETR share their base's build; pairs are read from the sums; one look for images"
    assert len(commit_message.find_faults(f"{subject}\nnot blank")) == 4
    assert commit_message.find_faults("")[0].startswith("begin the subject")


@pytest.mark.parametrize("body", ["", "\n\nSigned-off-by: Somebody\n", "\n\n# a comment\n"])
def test_a_body_is_required(body):
    assert commit_message.find_faults(f"Lower size limits{body}") == ["say in a body why the change is made"]


def test_the_hook_fails_with_a_line_for_each_fault(tmp_path, capsys):
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text("Lower size limits.\n")
    assert commit_message.main(str(path)) == 1
    assert capsys.readouterr().err.count("commit message: ") == 2
    path.write_text(f"Lower size limits{WHY}")
    assert commit_message.main(str(path)) == 0
