"""A rank that stands still ends the run, which names it, its place and its state."""

import os
import zlib  # noqa: F401 - before Paddle, whose library has another, as in the package

from integration.core.launch.standing_still import ending, stands_at, start
from support.forks import start_child

from paddlevit_dist.core.launch import status


def test_a_stopped_rank_ends_the_run_with_its_number_and_place(tmp_path):
    words = [str(tmp_path / "run"), "1", "in its forward pass"]
    stands_at(ending(start("stopped", *words)), 1, words[-1])


# ---- what a watcher sees -----------------------------------------------------------------------------------------


def test_pages_show_the_last_place_of_each_rank():
    pages = status.new_pages(3)
    assert [status.read(pages, number).text for number in range(3)] == [status.NOT_STARTED] * 3

    def stop_in_a_place():
        status.publish(pages, 1)
        status.note("in a place with a long name " + "ä" * 600)
        status.note("in a place")
        with status.during("doing something"), status.waiting_for_ranks():
            os._exit(0)

    pid = start_child(stop_in_a_place)
    os.waitpid(pid, 0)
    place = status.read(pages, 1)
    assert (place.text, place.waits, place.process) == ("in a place: doing something", True, pid)
    assert status.read(pages, 2).text == status.NOT_STARTED
