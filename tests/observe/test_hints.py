"""When a run says what to do about its wait for data."""

from __future__ import annotations

from paddlevit_dist.observe.hints import DataWaitHint


def hints(shares, seconds=4.0, workers=2, processes=1, cores=8):
    hint = DataWaitHint(workers, processes, cores, lambda: ["DATA.DECODER fast"])
    return [hint.look(share, seconds) for share in shares]


def test_a_tenth_of_the_time_is_told_once():
    said = hints([0.5] * 12)
    assert [report for report, line in enumerate(said) if line] == [4]  # 3 reports x 2 s: more than 5 s
    assert said[4] == (
        "hint: 50% of the time is spent waiting for data (more than 10%): try -num_workers=7 (now 2 loader "
        "processes, on 8 cores); DATA.DECODER fast"
    )


def test_the_start_of_the_loader_processes_and_short_waits_are_not():
    assert not any(hints([1.0, 1.0] + [0.05] * 50))
    assert not any(hints([0.5] * 10, seconds=0.5))  # 4 s in all


def test_with_all_cores_in_use_no_more_processes_are_advised():
    (said,) = filter(None, hints([0.5] * 12, workers=3, processes=2))
    assert "3 loader processes per training process and 2 training processes already share 8 cores" in said
