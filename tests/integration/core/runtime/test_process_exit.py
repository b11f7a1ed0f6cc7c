"""When a process ends without destructors, and what runs before: seen from outside, in processes without Paddle."""

import sys

import pytest
from support.processes import run_command

BEGIN = """
import atexit, os, sys, threading
from paddlevit_dist.core.runtime import process_exit

class KeptLibrary:
    def __del__(self, write=os.write):
        write(1, b"destructor, ")

def end_late():
    threading.main_thread().join()
    os.write(1, b"thread, ")

kept = KeptLibrary()
atexit.register(os.write, 1, b"handler, ")
sys.stdout.write("buffered, ")
waiting = threading.Thread(target=threading.Event().wait, daemon=True)
ended = threading.Thread(target=str)
for each in (waiting, ended, threading.Thread(target=end_late)):
    each.start()
ended.join()
"""


@pytest.mark.parametrize(
    "lines, code, expected",
    [
        (["process_exit.leave_running(ended)"], 0, "thread, handler, destructor, "),
        (["process_exit.note_group()"], 3, "thread, handler, "),
        (["process_exit.leave_running(each) for each in (ended, waiting)"], 3, ""),
        (["process_exit.note_group()", "process_exit.leave_running(waiting)"], 3, ""),
    ],
    ids=["plain", "of a group", "inside a library", "of a group inside a library"],
)
def test_a_process_in_danger_ends_without_destructors_and_perhaps_at_once(lines, code, expected):
    program = BEGIN + "\n".join([*(f"[{line}]" for line in lines), "process_exit.end_if_in_danger(3)"])
    ended = run_command([sys.executable, "-c", program], is_copy=False, PYTHONUNBUFFERED="")
    assert (ended.code, ended.out.replace("buffered, ", "")) == (code, expected) and "buffered" in ended.out, ended.err
