"""A run that is silently busy reports where it is."""

import threading

from paddlevit_dist.core.engine.throughput import EtaEstimator, format_duration
from paddlevit_dist.core.logging.progress import QUIET_SECONDS, Heartbeat
from paddlevit_dist.core.runtime.compiled import being_compiled


def test_a_quiet_run_says_where_it_is_until_it_ends():
    said, twice = [], threading.Event()

    def say(line):
        said.append(line)
        if len(said) == 2:
            twice.set()

    with Heartbeat(say, quiet_seconds=0.0, poll_seconds=0.01).at("reading") as heartbeat:
        assert twice.wait(60)
        (thread,) = (each for each in threading.enumerate() if each.name == "heartbeat")
        assert thread.daemon  # does not keep the process from ending
        heartbeat.at("training")
        twice.clear()
        said.clear()
        assert twice.wait(60)
        assert said[-1].startswith("still training (")
        being_compiled.append("find_nearest")
        try:
            for _ in range(2):  # a line that was begun before may be the first
                twice.clear()
                said.clear()
                assert twice.wait(60)
        finally:
            being_compiled.pop()
    assert said[-1].startswith("still compiling, once (")
    number = len(said)
    assert not any(thread.name == "heartbeat" for thread in threading.enumerate())
    assert len(said) == number


def test_a_rank_that_does_not_speak_starts_no_thread():
    with Heartbeat(print, shown=False, quiet_seconds=0.0, poll_seconds=0.01).at("reading"):
        assert not any(thread.name == "heartbeat" for thread in threading.enumerate())


def test_a_line_comes_within_thirty_seconds():
    assert QUIET_SECONDS + 2 <= 30


def test_what_is_left_follows_from_the_pace():
    clock = [0.0]
    remaining = EtaEstimator(updates=100, evaluations=2, clock=lambda: clock[0])
    for _ in range(20):
        clock[0] += 0.5
        remaining.count_update()
    assert remaining.seconds() == 40.0  # 80 updates of half a second; nothing is known of evaluations yet
    remaining.pause()
    clock[0] += 30.0
    remaining.count_evaluation()
    remaining.resume()
    assert remaining.seconds() == 40.0 + 30.0
    assert remaining.text() == "1 min left"


def test_durations_are_in_units_that_people_use():
    assert [format_duration(s) for s in (0.4, 59, 61, 3599, 7800, 300000)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h 0 min",
        "2 h 10 min",
        "3 d 11 h",
    ]
