"""What ranks and their parent read in the memory that they share."""

import pytest

from paddlevit_dist.launch import status


@pytest.fixture
def publish_as(monkeypatch):
    """Return a function by which this process becomes a rank."""
    pages = status.new_pages(2)

    def publish(rank: int) -> None:
        monkeypatch.setattr(status, "_notes", status._StatusNotes())
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
    assert [status.read(pages, rank).text[:8] for rank in (0, 1)] == ["starting", "xxxxxxxx"]


def test_a_process_without_a_parent_shares_no_number(monkeypatch):
    monkeypatch.setattr(status, "_notes", status._StatusNotes())
    assert status.shared_number() is None
