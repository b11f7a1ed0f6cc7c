"""Meters of two processes have the scores and intervals of one."""

from support.processes import run_workers, succeeded
from support.samples.metered_samples import BATCH, KINDS, SAMPLES, close, make_meter, plain

from paddlevit_dist.core.data.sampler import EvaluationSampler
from paddlevit_dist.core.distributed import rank, world_size


def of_this_rank(kinds: list) -> list:
    own = EvaluationSampler(range(SAMPLES), BATCH, rank=rank(), world_size=world_size()).indices()
    return [plain(make_meter(kind, own).compute()) for kind in kinds]


def test_two_processes_have_the_scores_and_intervals_of_one():
    ranks = succeeded(run_workers("nightly.core.library.test_meters:of_this_rank", list(KINDS))).results
    assert len(ranks) == 2
    for kind, *of_ranks in zip(KINDS, *ranks):
        expected = plain(make_meter(kind, range(SAMPLES)).compute())
        for found in of_ranks:
            close(found, expected)
