"""A signal while images at an address are awaited: one line, at once, and nothing of asyncio's.

Each wait with one of both signals; at night with the other one.
"""

import shutil
import signal
import sys
import time

import pytest
from support.files.shard_writer import write_shards
from support.hosts.range_server import RangeServer
from support.processes import ended_by_itself, start_command, wait_until
from support.trainings.runs import IMAGES, MAIN
from support.trainings.trained import write_weights

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")
SECONDS = 60.0
RUN = [*IMAGES, "-dataset=tar", "-epochs=2"]


@pytest.fixture
def server(tmp_path):
    write_shards(tmp_path / "data", "train", range(24))
    write_shards(tmp_path / "data", "val", range(100, 106))
    with RangeServer(tmp_path / "data") as server:
        yield server


def stop(command, server, number, is_awaited):
    """The end of a command that gets a signal once the server is asked for something that it does not answer."""
    process = start_command(command)
    wait_until(is_awaited, "nothing was asked for", SECONDS, process)
    time.sleep(0.3)
    process.send_signal(number)
    ended = ended_by_itself(process, SECONDS)  # the server waits longer
    for noise in ("Traceback", "Task was destroyed", "Exception ignored", "never awaited", "never retrieved"):
        assert noise not in ended.err + ended.out
    return ended


def asked(server, method, ending):
    return lambda: any(key.startswith(method) and key.endswith(ending) for key in server.requests)


BEGINNINGS = {"listing that fails": signal.SIGINT, "headers": signal.SIGTERM}
COMMANDS = {"inspect data": signal.SIGTERM, "evaluate": signal.SIGINT}


@pytest.mark.parametrize("what, number", BEGINNINGS.items())
def test_a_training_that_has_not_begun(what, number, server, tmp_path):
    require_end_before_the_beginning(what, number, server, tmp_path)


def require_end_before_the_beginning(what, number, server, tmp_path):
    if what == "headers":
        server.pause_seconds = 99.0
    else:
        server.refusals = 9999
    words = [*RUN, f"-data_path={server.address()}", f"-output={tmp_path / 'run'}"]
    awaited = asked(server, "GET", ".tar") if what == "headers" else asked(server, "GET", "/")
    ended = stop([sys.executable, str(MAIN), *words], server, number, awaited)
    assert ended.code == 75, ended.err
    assert ended.err.strip().splitlines()[-1].startswith("stopped: asked to stop (")


def test_a_training_whose_images_are_checked(server, tmp_path):
    sizes = []

    def alter(code, headers, body):
        sizes.append(len(body))
        server.pause_seconds = 99.0 if sum(size < 2500 for size in sizes) > 12 else 0.0  # images; headers are longer
        return code, headers, body

    server.alter = alter
    words = [*RUN, f"-data_path={server.address()}", f"-output={tmp_path / 'run'}"]
    ended = stop([sys.executable, str(MAIN), *words], server, signal.SIGTERM, lambda: server.pause_seconds)
    assert ended.code == 75, ended.err


def test_a_training_that_waits_for_images(server, tmp_path):
    require_end_of_a_wait_for_images(2, server, tmp_path)


def require_end_of_a_wait_for_images(workers, server, tmp_path):
    output = tmp_path / "run"

    def is_awaited():
        if not server.pause_seconds and (output / "metrics.jsonl").exists():  # after an epoch
            server.pause_seconds = 99.0
            server.requests.clear()
            shutil.rmtree(next(output.rglob("images")))
        return server.pause_seconds and server.requests

    words = [*RUN, "-epochs=500", f"-data_path={server.address()}", f"-output={output}", f"-num_workers={workers}"]
    ended = stop([sys.executable, str(MAIN), *words], server, signal.SIGTERM, is_awaited)
    assert ended.code == 75, ended.err
    assert "saved" in ended.err.strip().splitlines()[-1]


@pytest.mark.parametrize("command, number", COMMANDS.items())
def test_other_commands(command, number, server, tmp_path):
    require_end_of_a_command(command, number, server, tmp_path)


def require_end_of_a_command(command, number, server, tmp_path):
    path = f"-data_path={server.address()}"
    if command == "evaluate":
        weights = write_weights(tmp_path / "run", ["ant", "bee", "cow"])
        places = [f"-pretrained={weights}", f"-output={tmp_path / 'look'}"]
        words = ["evaluate", *IMAGES, "-dataset=tar", path, *places, "DATA.CACHE_FOLDER", str(tmp_path / "new")]
    else:
        words = ["inspect", "data", *RUN, path, f"-output={tmp_path / 'look'}"]
    server.requests.clear()
    server.pause_seconds = 99.0
    ended = stop([sys.executable, "-m", "paddlevit_dist", *words], server, number, asked(server, "GET", ".tar"))
    assert ended.code == 128 + number, ended.err
    expected = "interrupted" if number == signal.SIGINT else "interrupted (SIGTERM)"
    assert ended.err.strip().splitlines()[-1] == expected
