"""Records of samples for figures: sorted by their indices, or the reason why there are none."""

import contextlib
import pickle
from types import SimpleNamespace

import paddle
import pytest
from support.thread_ranks import ThreadRanks

from paddlevit_dist import all_gather
from paddlevit_dist.core.distributed import StopRequested
from paddlevit_dist.core.inference.figure_records import FigureRecorder
from paddlevit_dist.core.tasks.metrics import Metrics


def make_recorder(indices=(4, 1, 9)):
    task = SimpleNamespace(build_metrics=Metrics)
    return FigureRecorder(task, paddle.nn.Linear(1, 1), list(indices))


def test_records_of_all_batches_are_sorted_and_empty_ones_left_out():
    recorder = make_recorder()
    assert recorder.wants_records
    recorder.after_batch({}, lambda: ["four", None])
    recorder.after_batch({}, lambda: ["nine"])
    assert recorder.gather() == ([(4, "four"), (9, "nine")], [])
    unsorted = make_recorder()
    unsorted.after_batch({}, lambda: ["four", "one", "nine"])
    assert unsorted.gather()[0] == [(1, "one"), (4, "four"), (9, "nine")]


def test_a_batch_without_records_or_with_too_few_is_a_problem():
    recorder = make_recorder()
    recorder.after_batch({}, lambda: ["four"])
    recorder.after_batch({}, None)
    recorder.after_batch({}, lambda: ["one", "nine"])
    assert recorder.gather() == ([], ["eval_step returned no records, although step.keeps_records was set"])
    recorder = make_recorder()
    recorder.after_batch({}, lambda: ["four", "one"])
    records, (problem,) = recorder.gather()
    assert records == [] and "ValueError: eval_step returned 2 records for 3 samples" in problem


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("error, text", [(None, ""), (StopRequested(), "the run was stopped"), (KeyError("x"), "'x'")])
def test_an_evaluation_for_figures_leaves_the_model_as_it_was(is_training, error, text):
    recorder, seen = make_recorder(), []
    recorder.model.train() if is_training else recorder.model.eval()

    def batches(name, step):
        seen.append((name, type(step.metrics), step.keeps_records, recorder.model.training, paddle.is_grad_enabled()))
        yield {}, lambda: ["four", "one"]
        if error is not None:
            raise error
        yield {}, lambda: ["nine"]

    precision = SimpleNamespace(patch_forward=contextlib.nullcontext)
    recorder.evaluate(SimpleNamespace(batches=batches, precision=precision))
    assert seen == [("evaluation for the report", Metrics, True, False, False)]
    assert recorder.model.training is is_training
    records, problems = recorder.gather()
    if error is None:
        assert records == [(1, "one"), (4, "four"), (9, "nine")] and problems == []
    else:
        assert records == [] and text in problems[0]


def test_problems_and_records_of_all_ranks_reach_the_main_process():
    def gather_with(other, rank=0):
        def gather(number):
            if number != rank:
                return all_gather(other)
            recorder = make_recorder()
            recorder.after_batch({}, lambda: ["four", "one", "nine"])
            return recorder.gather()

        return ThreadRanks(2).run(gather)[rank]

    others = (pickle.dumps([(2, "two"), (8, "eight")]), None)
    ordered = [(1, "one"), (2, "two"), (4, "four"), (8, "eight"), (9, "nine")]
    assert gather_with(others) == (ordered, [])
    assert gather_with((None, "Traceback of rank 1")) == ([], ["Traceback of rank 1"])
    assert gather_with(others, rank=1) == ([], [])
