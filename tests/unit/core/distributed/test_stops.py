"""Requests to stop and to save, and the step after which all ranks do: two ranks, each in turn in this process."""

import contextlib

import pytest
from support.forced_device import forced_device
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.distributed import stops, world
from paddlevit_dist.core.launch import status
from paddlevit_dist.core.runtime import signals


class Board:
    """What the ranks' channels share."""

    def __init__(self) -> None:
        self.number = self.stops = self.saves = self.reads = self.looks = 0

    def post(self, number):
        self.number = number

    def posted(self):
        self.looks += 1
        return self.number

    def send_request(self, stop):
        self.stops += stop
        self.saves += not stop

    def count_requests(self):
        self.reads += 1
        return self.stops, self.saves


class Ranks:
    """Lets this process act as one rank after the other."""

    def __init__(self, monkeypatch, time, board: Board) -> None:
        self.patch, self.time, self.board, self.size = monkeypatch, time, board, 3
        self.group = {rank: stops._GroupState() for rank in range(3)}
        self.stop = dict.fromkeys(range(3))
        self.save = dict.fromkeys(range(3), False)
        self.patch.setattr(stops, "get_channel", lambda: board)
        self.patch.setattr(status, "shared_number", lambda: None)
        self.patch.setattr(signals, "has_parent", lambda: False)

    def be(self, rank: int) -> None:
        self.patch.setattr(world, "place", lambda: (rank, self.size))
        self.patch.setattr(stops, "_group", self.group[rank])
        self.patch.setattr(signals, "stop_reason", lambda: self.stop[rank])
        self.patch.setattr(signals, "save_requested", lambda: self.save[rank])
        self.patch.setattr(signals, "request_save", lambda: self.save.update({rank: True}))
        self.patch.setattr(signals, "clear_save_request", lambda: self.save.update({rank: False}))

    def ask(self, rank: int) -> bool:
        self.be(rank)
        self.time.now += 1.5
        return stops.stop_requested()


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def ranks(monkeypatch, simulated_time, board) -> Ranks:
    return Ranks(monkeypatch, simulated_time, board)


def test_a_request_of_one_rank_reaches_all_and_is_sent_once(ranks, board):
    assert [ranks.ask(rank) for rank in range(3)] == [False] * 3 and board.stops == 0
    ranks.stop[1] = "SIGTERM"
    assert [ranks.ask(rank) for rank in (0, 1, 0, 1, 2)] == [False, True, True, True, True]
    assert (board.stops, board.saves) == (1, 0)
    assert stops.reason() == "another rank was"
    ranks.be(1)
    assert stops.reason() == "SIGTERM"


def test_a_request_to_save_goes_to_rank_0_and_is_taken_once(ranks, board):
    ranks.save[2] = True
    ranks.ask(2)
    assert not ranks.save[2] and (board.stops, board.saves) == (0, 1)
    ranks.ask(1)
    assert not ranks.save[1]
    ranks.ask(0)
    assert ranks.save[0] and board.saves == 1
    ranks.save[0] = False
    ranks.ask(0)
    assert not ranks.save[0]
    ranks.save[2] = True
    ranks.ask(2)
    assert [ranks.ask(0), ranks.save[0]] == [False, True]


def test_the_store_is_read_once_a_second_but_a_request_is_sent_at_once(ranks, board):
    ranks.ask(1)
    ranks.time.now += 0.99
    ranks.stop[1] = "SIGINT"
    assert stops.stop_requested() and (board.reads, board.stops) == (1, 1)
    ranks.time.now += 0.02
    stops.stop_requested()
    assert board.reads == 2


@pytest.mark.parametrize("alone", ["one process", "with a parent"])
def test_without_other_programs_nothing_is_exchanged(ranks, board, monkeypatch, alone):
    if alone == "one process":
        ranks.size = 1
    else:
        monkeypatch.setattr(signals, "has_parent", lambda: True)
    ranks.stop[0], ranks.save[1] = "SIGTERM", True
    assert ranks.ask(0) and not ranks.ask(1)
    assert (board.reads, board.stops, board.saves) == (0, 0, 0) and ranks.save[1]


def test_any_rank_that_leaves_counts(fresh_rank):
    for leaves in (True, False):
        leaving = ThreadRanks(3).run(lambda rank, leaves=leaves: stops.any_rank_stopping(leaves and rank == 1))
        assert leaving == [leaves] * 3


# The announced step


def make_points(ranks, is_ahead: bool = False) -> list:
    """Those of two ranks, on a GPU if one is to be ahead."""
    points = []
    with forced_device() if is_ahead else contextlib.nullcontext():
        for rank in range(2):
            ranks.be(rank)
            points.append(stops.SyncPoint())
    return points


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("stop", [True, False])
def test_all_ranks_reach_the_announced_step(ranks, board, ahead, stop):
    board.number = 13
    main, other = make_points(ranks, ahead == 2)
    ranks.be(0)
    assert not any(main.reached(update) for update in range(9)) and board.number < 0
    assert main.announce(4, stop=stop)
    for rank, point in ((0, main), (1, other)):
        ranks.be(rank)
        assert [update for update in range(4, 9) if point.reached(update)] == [4 + ahead]
        assert not point.reached(4 + ahead + 1) and not point.should_stop(4 + ahead + 1)
        assert point.reached(4 + ahead) and point.should_stop(4 + ahead) is stop


@pytest.mark.parametrize("ahead", [1, 2])
def test_an_announcement_that_some_rank_may_not_have_seen_is_not_replaced(ranks, ahead):
    main, _ = make_points(ranks, ahead == 2)
    ranks.be(0)
    assert main.announce(0) and main.reached(ahead)
    assert not main.announce(2 * ahead - 1, stop=True) and main.reached(ahead)
    assert main.announce(2 * ahead) and main.reached(3 * ahead)


def test_rank_0_announces_what_it_is_asked_for_and_forgets_a_save_that_it_announced(ranks, board):
    main, other = make_points(ranks)
    ranks.be(0)
    ranks.save[0] = True
    main.poll(0)
    assert main.reached(1) and not main.should_stop(1) and not ranks.save[0]
    ranks.save[0] = True
    main.poll(1 - 1)  # the first announcement is not seen by all yet
    assert ranks.save[0] and main.reached(1)
    ranks.be(1)
    ranks.stop[1], ranks.time.now = "SIGTERM", ranks.time.now + 2
    other.poll(3)
    assert other.reached(1) and not other.reached(4)
    ranks.be(0)
    main.poll(2)
    assert main.reached(3) and main.should_stop(3) and ranks.save[0]


def test_one_process_stops_by_itself(ranks, board):
    ranks.size = 1
    (main, _) = make_points(ranks)
    ranks.be(0)
    assert not main.should_stop(3)
    ranks.stop[0] = "SIGTERM"
    assert main.should_stop(3) and board.number == 0


def test_ranks_of_one_parent_share_the_number_in_memory(ranks, board, monkeypatch):
    memory = Board()
    monkeypatch.setattr(status, "shared_number", lambda: memory)
    main, other = make_points(ranks)
    ranks.be(0)
    main.announce(6)
    assert main.reached(7) and memory.looks == 0  # rank 0 knows what it has posted
    ranks.be(1)
    assert other.reached(7) and memory.number == 14 and board.number == 0
