"""``-split=NAME`` is for evaluations."""

from support.processes import run_main
from support.trainings.runs import refusal, refused


def test_a_split_is_for_an_evaluation():
    assert (
        refusal(run_main("-split=test"))
        == "DATA.SPLIT test (-split): training evaluates on val; add -eval or remove -split"
    )
    message = refused("-eval", "-pretrained=x", "-split=../val")
    assert message.endswith("expected the name of a split, such as test")
