"""Functions compiled on first call: without numba, without a cache, and with a damaged one."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.core.runtime import compiled as module
from paddlevit_dist.core.runtime.compiled import compiled


def divide(a, b):
    return a / b


@pytest.fixture
def compiler(monkeypatch):
    """In the place of numba; ``made`` are the options of what it has compiled, ``broken`` those that fail."""
    state = SimpleNamespace(made=[], broken=[], has_folder=True)

    def njit(**options):
        if options.get("cache") and not state.has_folder:
            raise RuntimeError("no locator available")
        state.made.append(options)

        def decorate(plain):
            def call(*arguments):
                if options in state.broken:
                    raise ValueError("damaged")
                return plain(*arguments)

            call.stats = SimpleNamespace(cache_path=state.folder)
            return call

        return decorate

    state.folder = None
    monkeypatch.setattr(module, "has_numba", lambda: True)
    monkeypatch.setattr(module, "_numba", lambda: SimpleNamespace(njit=njit))
    return state


def test_a_function_is_compiled_once_at_its_first_call(compiler):
    function = compiled(needs_numba=False, fastmath=True)(divide)
    assert compiler.made == [] and (function.__name__, function.__wrapped__) == ("divide", divide)
    assert [function(6, 3), function(8, 2)] == [2, 4] and function.dispatcher()(6, 2) == 3
    assert compiler.made == [{"cache": True, "nogil": True, "fastmath": True}]
    assert compiled(divide)(6, 2) == 3 and compiler.made[1] == {"cache": True, "nogil": True}


def test_without_a_folder_for_the_cache_it_is_compiled_each_time(compiler):
    compiler.has_folder = False
    function = compiled(divide, parallel=True)
    assert function(6, 3) == 2 and compiler.made == [{"nogil": True, "parallel": True}]
    with pytest.raises(ZeroDivisionError):
        function(1, 0)  # its own error: there is no cache that may be damaged
    assert len(compiler.made) == 1


@pytest.mark.parametrize("can_remove", [True, False])
def test_a_damaged_cache_is_removed_and_told(compiler, tmp_path, capsys, can_remove):
    line, compiler.folder = divide.__code__.co_firstlineno, str(tmp_path)
    own = [tmp_path / f"test.divide-{line}.py311.{suffix}" for suffix in ("1.nbc", "nbi")]
    others = [tmp_path / f"test.divide-{line + 1}.py311.nbi", tmp_path / f"test.divide-{line}.py311.nbx"]
    for path in (*own, *others):
        path.touch()
    if not can_remove:
        own[0].unlink()
        own[0].mkdir()
    compiler.broken = [{"cache": True, "nogil": True, "boundscheck": False}]
    if can_remove:  # it is compiled with a cache again
        compiler.broken, first = [], compiler.broken
        state = iter([first, []])
        function = compiled(divide, boundscheck=False)
        compiler.broken = next(state)
        function.dispatcher()
        compiler.broken = list(first)
        original = module.remove_file

        def remove(file: Path) -> bool:
            compiler.broken = []
            return original(file)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "remove_file", remove)
            assert function(6, 3) == 2
    else:
        function = compiled(divide, boundscheck=False)
        assert function(6, 3) == 2
    assert compiler.made[1:] == [{"cache": can_remove, "nogil": True, "boundscheck": False}]
    text = f"note: the compiled code of divide in {tmp_path} cannot be used: compiling it again\n"
    assert capsys.readouterr().err == text and function(8, 2) == 4 and len(compiler.made) == 2
    assert [path.exists() for path in own] == [not can_remove, False] and all(path.exists() for path in others)
    with pytest.raises(ZeroDivisionError):
        function(1, 0)


def test_without_numba_some_functions_run_in_python_and_a_note_says_so(monkeypatch, capsys):
    monkeypatch.setattr(module, "has_numba", lambda: False)
    module.note_python.cache_clear()
    function = compiled(needs_numba=False)(divide)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [function(np.float64(1.0), np.float64(0.0)), function(6, 3)] == [np.inf, 2]
    compiled(divide, needs_numba=False)(1, 1)
    module.note_python.cache_clear()
    note = "note: without numba, loops run in Python, about 100 times slower: pip install numba\n"
    assert capsys.readouterr().err == note
    monkeypatch.setattr(module, "_numba", lambda: (_ for _ in ()).throw(ModuleNotFoundError("numba")))
    with pytest.raises(ModuleNotFoundError):
        compiled(divide)(1, 1)


def test_a_file_that_another_process_has_removed_is_gone(tmp_path):
    assert module.remove_file(tmp_path / "none") and not module.remove_file(tmp_path)
    assert module._cached_files(SimpleNamespace(stats=SimpleNamespace()), divide) == []


def test_what_numba_compiles_now_is_known(monkeypatch):
    from numba.core import event

    module._numba()
    compiling = []
    steps = [("a", event.start_event), ("b", event.start_event), ("b", event.end_event), ("a", event.end_event)]
    for name, step in steps:
        step("numba:compile", data={"dispatcher": SimpleNamespace(__name__=name)})
        compiling.append(list(module.being_compiled))
    assert compiling == [["a"], ["a", "b"], ["a"], []]


@pytest.mark.parametrize("spec", [None, "numba"])
def test_numba_is_looked_for_once(module_specs, spec):
    module.has_numba.cache_clear()
    module_specs["numba"] = spec
    assert module.has_numba() is (spec is not None)
    module.has_numba.cache_clear()
