"""Extensions add what is asked for."""

from paddlevit_dist.extension import FOLDERS, Extension, extensions


def test_what_an_extension_adds_is_asked_for():
    known = {name for name in vars(Extension) if not name.startswith("_")}
    assert [type(one).__module__ for one in extensions()] == [f"paddlevit_dist.{folder}" for folder in FOLDERS]
    for one in extensions():
        own = {name for name in vars(type(one)) if not name.startswith("_")}
        assert own and own <= known, (one, own - known)
        assert bool(one.commands) == ("run_command" in own) and bool(one.job_key) == ("run_job" in own)
