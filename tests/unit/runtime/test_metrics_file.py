"""The lines of metrics.jsonl, also of a run that was killed."""

from paddlevit_dist.runtime.metrics_file import recorded_events


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
