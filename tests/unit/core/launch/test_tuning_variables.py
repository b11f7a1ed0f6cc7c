"""The variables of a tuned process: which are added, what applies them, and that they are put back."""

import os
import resource
import sys
import warnings
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.launch import tuning
from paddlevit_dist.core.runtime.processor import KERNELS

QUIET = {"GLOG_minloglevel", "PYTHONWARNINGS"}
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": "67108864"}
PLAIN = "PADDLEVIT_DIST_PLAIN_LAYERS"


@pytest.fixture(autouse=True)
def usual(machine):
    """A machine with 6 cores of a processor that needs other kernels, and no GPU."""
    machine.cores, machine.gpus, machine.libc = 6, 0, "glibc"
    machine.cpu = {"vendor": "AuthenticAMD", "flags": ["avx2"]}


def added(processes=1, tuned=True, **current):
    variables = tuning.environment(processes, tuned, current)
    assert variables.keys() >= QUIET
    return {name: value for name, value in variables.items() if name not in QUIET}


def test_a_tuned_process_has_threads_malloc_kernels_and_copies():
    threads = {"PADDLEVIT_DIST_THREADS": "3", "KMP_BLOCKTIME": "1", "OPENBLAS_NUM_THREADS": "1"}
    common = {**MALLOC, KERNELS: "5", "FLAGS_use_stride_kernel": "0"}
    assert added(2) == {"FLAGS_paddle_num_threads": "3", **threads, **common}
    assert added(4) == added(60) == {"FLAGS_paddle_num_threads": "1", "OMP_NUM_THREADS": "1", **common}
    assert added(2, OMP_NUM_THREADS="2") == {"FLAGS_paddle_num_threads": "3", **common}
    assert added(2, False) == {"FLAGS_paddle_num_threads": "3", PLAIN: "1"}


def test_another_machine_gets_what_it_can_use(machine):
    machine.gpus, machine.libc, machine.cpu = 2, "musl", {"vendor": "", "flags": []}
    assert added(2) == {"FLAGS_paddle_num_threads": "3"}


@pytest.mark.parametrize(
    "limits, target",
    [
        ((1024, 4096), 4096),
        ((1024, 1 << 20), 65536),
        ((1024, resource.RLIM_INFINITY), 65536),
        ((4096, 4096), None),
        ((1 << 17, 1 << 20), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_of_open_files_is_raised(monkeypatch, limits, target):
    calls = []
    names = {"getrlimit": lambda kind: limits, "setrlimit": lambda *words: calls.append(words)}
    for name, function in names.items():
        monkeypatch.setattr(resource, name, function)
    tuning.raise_open_files()
    assert calls == ([] if target is None else [(resource.RLIMIT_NOFILE, (target, limits[1]))])


def test_a_process_that_adds_its_own_gets_none_of_ours():
    current = {"A": "1", "B": "2", "C": "3", "PADDLEVIT_DIST_ENVIRONMENT": "A,C"}
    assert tuning.without_tuning(current) == {"B": "2"}
    assert tuning.without_tuning({"A": "1"}) == {"A": "1"}


def test_threads_are_set_after_an_import_and_hidden_from_children(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("PADDLEVIT_DIST_THREADS", raising=False)
    tuning.use_threads()
    tuning.hide_omp_threads_from_children()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    monkeypatch.setenv("PADDLEVIT_DIST_THREADS", "3")
    tuning.use_threads()
    assert os.environ["OMP_NUM_THREADS"] == "3"
    tuning.hide_omp_threads_from_children()
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_settings_name_what_is_in_force(monkeypatch):
    for name in ("FLAGS_paddle_num_threads", "KMP_BLOCKTIME", KERNELS, "FLAGS_use_stride_kernel", PLAIN, *MALLOC):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv(PLAIN, "1")
    monkeypatch.setenv("PADDLEVIT_DIST_ENVIRONMENT", PLAIN)
    assert tuning.settings() == {"OMP_NUM_THREADS": "2", PLAIN: "1", "set_by_us": PLAIN}


@pytest.mark.parametrize("answer, takes_effect", [(1, True), (0, False)])
def test_malloc_is_set_by_calls_while_no_library_has_read_the_variables(libraries, answer, takes_effect):
    calls = []
    libraries[None] = SimpleNamespace(mallopt=lambda *words: calls.append(words) or answer)
    assert not tuning.take_effect(MALLOC) and not calls  # NumPy is loaded
    variables = {**MALLOC, "PYTHONWARNINGS": "error::UserWarning,ignore::FutureWarning", "A": "1"}
    with warnings.catch_warnings():
        warnings.resetwarnings()
        assert tuning.take_effect(variables, readers=["a_module_that_is_not_loaded"]) is takes_effect
        added = {(action, kind) for action, _, kind, _, _ in warnings.filters}
    if takes_effect:
        assert sorted(calls) == [(-4, 0), (-2, 64 << 20), (-1, -1)]
        assert added == {("error", UserWarning), ("ignore", FutureWarning)}
    else:
        assert len(calls) == 1 and not added


def test_one_thread_computes_inside_the_block_and_all_afterwards(monkeypatch):
    calls = []
    openmp = SimpleNamespace(omp_get_max_threads=lambda: 6, omp_set_num_threads=lambda n: calls.append(("omp", n)))
    mkl = SimpleNamespace(MKL_Set_Num_Threads_Local=lambda n: calls.append(("mkl", n)) or 4)
    monkeypatch.setattr(tuning, "find_loaded", {tuning.OPENMP: [openmp], tuning.MKL: [mkl]}.__getitem__)
    with tuning.one_thread_here():
        assert calls == [("omp", 1), ("mkl", 1)]
    assert calls[2:] == [("omp", 6), ("mkl", 4)]


def test_a_call_sets_the_variables_and_puts_all_back(monkeypatch, own_environment):
    for name in (*MALLOC, "PADDLEVIT_DIST_THREADS", "OMP_NUM_THREADS", "PADDLEVIT_DIST_ENVIRONMENT", KERNELS):
        monkeypatch.delenv(name, raising=False)
    import paddle

    before, views = dict(os.environ), paddle.get_flags(["FLAGS_use_stride_kernel"])
    assert "paddle" in sys.modules
    with tuning.environment_for_call(2, True) as (note,):
        assert note.startswith("note: Paddle was imported before this call: ")
        assert os.environ["PADDLEVIT_DIST_THREADS"] == "3" and os.environ[KERNELS] == "5"
        marked = os.environ["PADDLEVIT_DIST_ENVIRONMENT"].split(",")
        assert {"PADDLEVIT_DIST_THREADS", KERNELS} <= set(marked) and marked == sorted(marked)
        assert paddle.get_flags(["FLAGS_use_stride_kernel"]) == {"FLAGS_use_stride_kernel": False}
    assert dict(os.environ) == before and paddle.get_flags(["FLAGS_use_stride_kernel"]) == views
    paddle.set_flags({"FLAGS_use_stride_kernel": True})
    with tuning.environment_for_call(2, False) as notes:
        assert notes == [] and os.environ[PLAIN] == "1"
        assert paddle.get_flags(["FLAGS_use_stride_kernel"]) == {"FLAGS_use_stride_kernel": True}
    paddle.set_flags(views)
    for name in (KERNELS, "PADDLEVIT_DIST_KERNELS"):  # by ``create_model``
        monkeypatch.setenv(name, "5")
    with tuning.environment_for_call(2, False):
        assert KERNELS not in os.environ
    assert os.environ[KERNELS] == "5"


@pytest.fixture
def untouched(monkeypatch, own_environment):
    for name in (KERNELS, "PADDLEVIT_DIST_KERNELS", "PADDLEVIT_DIST_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("tuned", [True, False])
def test_a_command_replaces_the_kernels_of_a_program(untouched, tuned):
    tuning.choose_kernels()
    assert os.environ[KERNELS] == "5"
    tuning.forget_kernels()
    assert KERNELS not in os.environ
    assert (KERNELS in tuning.environment(1, tuned, os.environ)) is tuned


def test_kernels_that_somebody_else_has_set_stay(untouched, monkeypatch, machine):
    tuning.choose_kernels()
    os.environ[KERNELS] = "7"  # by the user, since
    tuning.forget_kernels()
    tuning.choose_kernels()
    assert os.environ[KERNELS] == "7" and "PADDLEVIT_DIST_KERNELS" not in os.environ
    monkeypatch.delenv(KERNELS)
    monkeypatch.setenv("PADDLEVIT_DIST_ENVIRONMENT", "")  # a run without tuning
    tuning.choose_kernels()
    monkeypatch.delenv("PADDLEVIT_DIST_ENVIRONMENT")
    machine.cpu = {"vendor": "GenuineIntel", "flags": ["avx2"]}
    tuning.choose_kernels()
    assert KERNELS not in os.environ
