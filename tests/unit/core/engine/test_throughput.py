"""Throughput and the time left, by a clock that the test sets."""

from types import SimpleNamespace

import pytest

from paddlevit_dist.core.engine.throughput import EtaEstimator, ThroughputMeter, format_duration


@pytest.fixture
def clock() -> list[float]:
    return [50.0]


def test_an_interval_has_its_rate_its_wait_and_its_seconds(clock):
    loader = SimpleNamespace(seconds_waited=99.0)
    meter = ThroughputMeter(loader, lambda: clock[0])
    assert loader.seconds_waited == 0.0
    for _ in range(6):
        meter.count_update()
    clock[0], loader.seconds_waited = 54.0, 1.0
    assert meter.finish(10) == (15.0, 0.25, 4.0)
    meter.count_update()
    clock[0], loader.seconds_waited = 56.0, 0.5
    assert meter.finish(30) == (15.0, 0.25, 2.0)
    assert (meter.updates, meter.waited, meter.estimate_epoch_seconds(), loader.seconds_waited) == (7, 1.5, 6.0, 0.0)


def test_an_interval_without_time_is_a_billionth_of_a_second(clock):
    meter = ThroughputMeter(SimpleNamespace(seconds_waited=0.0), lambda: clock[0])
    assert meter.finish(8) == (0.0, 0.0, 1e-9)


@pytest.mark.parametrize(
    "seconds, text",
    [
        *((0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (89, "1 min"), (91, "2 min"), (3569, "59 min")),
        *((3571, "1 h 0 min"), (3720, "1 h 2 min"), (172_769, "47 h 59 min"), (172_771, "2 d 0 h")),
        (3 * 86_400 + 5 * 3600 + 59 * 60, "3 d 5 h"),
    ],
)
def test_durations_are_told_in_units_of_their_size(seconds, text):
    assert format_duration(seconds) == text


def test_a_resumed_epoch_counts_on(clock):
    meter = ThroughputMeter(SimpleNamespace(seconds_waited=0.0), lambda: clock[0])
    for second in (1.0, 3.0, 4.0):
        meter.count_update()
        clock[0] = 50.0 + second
        meter._loader.seconds_waited += 0.25
        if second == 3.0:
            meter.finish(8)
    state = meter.state_dict()
    assert state == {
        **{"updates": 3, "reported": 2, "seconds": 4.0, "unreported": 1.0},
        **{"waited": 0.5, "unreported_wait": 0.25},
    }
    clock[0] = 700.0
    other = ThroughputMeter(SimpleNamespace(seconds_waited=0.0), lambda: clock[0])
    other.load_state_dict(state)
    assert other.state_dict() == state and other.estimate_epoch_seconds() == 4.0
    clock[0] += 1.0
    assert other.finish(8) == (4.0, 0.125, 2.0) and other.waited == 0.75


def test_what_is_left_has_steps_at_their_pace_and_evaluations_as_the_last_one(clock):
    left = EtaEstimator(10, 3, lambda: clock[0])
    clock[0] += 4.0
    assert left.estimate_seconds(2) == 8.0  # as if one step were done
    for _ in range(4):
        left.count_update()
    assert left.seconds() == 6.0 and left.text() == "6 s left"
    left.pause()
    clock[0] += 5.0
    left.count_evaluation()
    clock[0] += 100.0
    left.resume()
    clock[0] += 2.0
    assert left.estimate_seconds(1) == 1.5 and left.seconds() == 6 * 1.5 + 2 * 5.0
    left.pause()
    left.resume()
    assert left.estimate_seconds(1) == 1.5  # of all that was trained, not since the last pause
    for _ in range(20):
        left.count_update()
    for _ in range(4):
        left.count_evaluation()
    assert left.seconds() == 0.0
