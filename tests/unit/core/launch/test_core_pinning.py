"""Which cores the processes of a machine get, for invented machines."""

import os

import pytest

from paddlevit_dist.core.launch import core_pinning, devices
from paddlevit_dist.core.launch.core_pinning import CoreShare, divide, local_rank, pin, read_cores


def write_machine(folder, sockets: int, cores: int) -> set[int]:
    """Describe a machine of two threads a core, numbered as Linux does: first one thread of each core."""
    total = sockets * cores
    for thread in range(2 * total):
        topology = folder / f"cpu{thread}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{thread % total // cores}\n")
        (topology / "core_id").write_text(f"{thread % cores}\n")
    return set(range(2 * total))


def test_threads_of_a_core_stay_together_and_cores_of_a_socket_follow_one_another(tmp_path):
    available = write_machine(tmp_path, sockets=2, cores=3)
    cores = read_cores(available, tmp_path)
    assert cores == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    assert read_cores(available - {0, 1, 7, 11}, tmp_path) == [[6], [2, 8], [3, 9], [4, 10], [5]]
    with pytest.raises(OSError):
        read_cores({99}, tmp_path)


@pytest.mark.parametrize("num_cores", [2, 3, 7, 16, 64])
@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("on_cpu", [False, True])
def test_no_process_has_a_core_of_another_and_all_cores_are_given(num_cores, processes, on_cpu):
    if num_cores < processes:
        return
    cores = [[number, 100 + number] for number in range(num_cores)]
    shares = divide(cores, processes, on_cpu)
    given = [set(share.own) | set(share.loaders) for share in shares]
    assert len(shares) == processes
    assert set().union(*given) == {thread for core in cores for thread in core}
    assert sum(map(len, given)) == 2 * num_cores
    assert max(map(len, given)) - min(map(len, given)) <= 2
    for share, threads in zip(shares, given):
        assert {thread % 100 for thread in share.own} == {*range(share.own[0], share.own[0] + len(share.own) // 2)}
        if on_cpu or len(threads) == 2:
            assert share.loaders == share.own
        else:
            assert not set(share.own) & set(share.loaders) and len(share.own) == 2 * min(4, len(threads) // 4)


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, (0, 1)),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2"}, (1, 2)),  # by dist.spawn
        (  # by Paddle's launcher, on the second of two machines
            {
                "PADDLE_TRAINER_ID": "5",
                "PADDLE_TRAINERS_NUM": "8",
                "PADDLE_LOCAL_RANK": "1",
                "PADDLE_LOCAL_SIZE": "4",
            },
            (1, 4),
        ),
    ],
)
def test_the_processes_of_this_machine_are_counted(variables, expected):
    assert local_rank(variables) == expected


def test_a_single_process_is_not_pinned_and_says_so_if_asked():
    before, cores = os.sched_getaffinity(0), devices.cpu_cores()
    assert pin(None) == ""
    for requested in ("auto", "always"):
        line = f"TRAIN.PIN_CORES {requested}: cores are not pinned: this is the only process of this machine"
        assert pin(requested) == line
    assert os.sched_getaffinity(0) == before and devices.cpu_cores() == cores


def test_why_one_of_several_processes_is_not_pinned_is_told(monkeypatch):
    monkeypatch.setenv("PADDLE_LOCAL_SIZE", "1000000")
    before, reason = os.sched_getaffinity(0), "TRAIN.PIN_CORES {}: cores are not pinned: {}"
    number = len(read_cores(before))
    few = f"1000000 processes need 1000000 cores, these are {number}"
    assert pin("always") == reason.format("always", few)
    on_cpu = "processes compute on CPUs, where the system shares the cores out"
    assert pin("auto") == reason.format("auto", on_cpu)
    if len(before) > 1:
        os.sched_setaffinity(0, {min(before)})
        try:
            told = pin("always")
        finally:
            os.sched_setaffinity(0, before)
        assert told == reason.format("always", "the launcher has given each process separate cores")
    assert os.sched_getaffinity(0) == before and core_pinning.count_usable() is None


@pytest.mark.parametrize("error", [PermissionError, AttributeError])
def test_a_process_that_may_not_be_pinned_says_so_and_goes_on(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(core_pinning, "_choose", lambda *_: (CoreShare([0], [0]), ""))
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    before = os.sched_getaffinity(0)
    assert error.__name__ in pin("always")
    assert os.sched_getaffinity(0) == before and core_pinning.count_usable() is None
    monkeypatch.undo()
    core_pinning.use_loader_cores()
    assert os.sched_getaffinity(0) == before
