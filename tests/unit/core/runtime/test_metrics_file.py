"""The lines of metrics.jsonl, also of a run that was killed, and what they say of evaluations."""

import pytest

from paddlevit_dist.core.runtime.metrics_file import find_best_evaluation, get_interval, is_number, recorded_events


def test_events_are_read_and_other_lines_are_unreadable(tmp_path):
    assert list(recorded_events(tmp_path)) == []
    other = [b'{"kind": 3}', b"[1]", b'{"a": 1}', b"\xff{", b'{"kind": "cut']
    lines = [b'{"kind": "train", "loss": 1.5}', b"", b"  ", *other]
    (tmp_path / "metrics.jsonl").write_bytes(b"\r\n".join(lines) + b"\n")
    first, *unreadable = recorded_events(tmp_path)
    assert first == {"kind": "train", "loss": 1.5}
    texts = ['{"kind": 3}', "[1]", '{"a": 1}', "\\xff{", '{"kind": "cut']
    assert unreadable == [{"kind": "unreadable", "text": text} for text in texts]


def test_a_line_without_end_is_read_in_parts(tmp_path):
    longest = 4 * 1024**2
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * (2 * longest + 4) + b"\n")
    assert [len(event["text"]) for event in recorded_events(tmp_path)] == [longest, longest, 4]


@pytest.mark.parametrize(
    "value, is_one",
    [(0, True), (-1.5, True), (9.9e299, True), (1e300, False), (-1e300, False), (True, False), ("1", False)],
)
def test_a_number_can_be_drawn(value, is_one):
    assert is_number(value) == is_one
    assert not any(map(is_number, (None, float("nan"), float("inf"), [1])))


def evaluation(epoch, value, **more):
    return {"kind": "evaluation", "epoch": epoch, "best": "AP", "AP": value, **more}


def test_the_best_evaluation_is_that_of_the_linked_epoch_or_else_the_last():
    first, second, last = evaluation(1, 0.2), evaluation(2, 0.3), evaluation(4, 0.4)
    plain = {"kind": "evaluation", "epoch": 3, "AP": 0.1}
    others = [evaluation(5, 0.9, superseded=True), evaluation("6", 0.9), evaluation(7, "0.9"), evaluation(8, 1, best=1)]
    others += [{**evaluation(9, 0.5), "kind": "training"}]
    events = [first, second, plain, last, *others]
    for linked, expected in ((None, last), (2, second), (4, last), (3, last), (5, last), (1, first)):
        assert find_best_evaluation(events, linked) == expected
    assert find_best_evaluation([plain, *others], 5) is None


@pytest.mark.parametrize(
    "about, is_known",
    [
        ({"AP": [0.1, 0.3], "percent": 95}, True),
        ({"AP": [0.1, 0.3]}, False),
        ({"AP": [0.1, 0.3], "percent": "95"}, False),
        ({"AP": [0.1, None], "percent": 95}, False),
        ({"AP": [0.1], "percent": 95}, False),
        ({"AP": [0.1, 0.2, 0.3], "percent": 95}, False),
        ({"AP": 0.1, "percent": 95}, False),
        ({"AP50": [0.1, 0.3], "percent": 95}, False),
        ([0.1, 0.3], False),
        (None, False),
    ],
)
def test_an_interval_has_two_ends_and_a_percentage(about, is_known):
    expected = {"interval": (0.1, 0.3), "percent": 95} if is_known else {}
    assert get_interval({"interval": about, "AP": 0.2}, "AP") == expected
