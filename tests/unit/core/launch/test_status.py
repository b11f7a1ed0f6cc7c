"""What ranks and their parent read in the memory that they share."""

import os

import pytest

from paddlevit_dist.core.launch import status


@pytest.fixture
def publish_as(fresh_status):
    """Return a function by which this process becomes a rank."""
    pages = status.new_pages(2)

    def publish(rank: int) -> None:
        fresh_status()
        status.publish(pages, rank)

    return pages, publish


def test_every_rank_reads_the_number_that_rank_0_posts(publish_as):
    pages, publish = publish_as
    seen = []
    for number in (0, 7, 2 * 10**12 + 1, -4):
        publish(0)
        if number:
            status.shared_number().post(number)
        publish(1)
        seen.append((number, status.shared_number().posted()))
    assert all(posted == number for number, posted in seen)
    status.note("x" * 1000)  # longer than a page
    assert status.shared_number().posted() == -4
    assert [status.read(pages, rank).text for rank in (0, 1)] == ["starting", "x" * 488] and len(pages) == 3 * 512


def test_a_process_without_a_parent_shares_no_number(fresh_status):
    assert status.shared_number() is None


def test_a_note_is_read_with_its_detail_and_whether_it_waits(publish_as):
    pages, publish = publish_as
    assert status.read(pages, 1) == (0, 0, False, "starting")
    publish(1)
    first = status.read(pages, 1)
    assert first == status.get_status() == (1, os.getpid(), False, "starting") and status.read(pages, 0).process == 0
    status.note("in epoch 3, which has a long text")
    status.set_detail("in its forward pass")
    assert status.read(pages, 1) == (3, os.getpid(), False, "in epoch 3, which has a long text: in its forward pass")
    with status.during("saving"):
        assert status.read(pages, 1)[2:] == (False, "in epoch 3, which has a long text: saving")
        with status.waiting_for_device():
            assert status.read(pages, 1)[2:] == (True, "in epoch 3, which has a long text: waiting for its device")
        assert status.read(pages, 1)[2:] == (False, "in epoch 3, which has a long text: saving")
    assert status.read(pages, 1).text.endswith(": in its forward pass")
    before = status.read(pages, 1)
    status.move()
    assert status.read(pages, 1) == (before.moves + 1, *before[1:])
    with status.waiting_for_ranks():
        assert status.read(pages, 1).waits
    assert not status.read(pages, 1).waits
    status.set_detail("waits", may_wait=True)
    assert status.read(pages, 1).waits
    status.note("next")
    assert status.read(pages, 1)[2:] == (False, "next")  # no rest of the longer text
    assert status.read(pages, 0).text == status.NOT_STARTED


def test_a_note_fits_its_page(publish_as):
    pages, publish = publish_as
    publish(0)
    status.note("\u00e9" * 300)
    assert status.read(pages, 0).text == "\u00e9" * 244  # 512 bytes less 24 of the head
    status.note("a" + "\u00e9" * 300)
    assert status.read(pages, 0).text == "a" + "\u00e9" * 243 + "\ufffd"
    assert status.read(pages, 1) == (0, 0, False, "starting")
