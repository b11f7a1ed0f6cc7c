"""Requests for remote files, without a network: how long they are repeated, what is final, and what S3 is asked."""

import asyncio
import contextlib
import errno
import os
import pickle
import sys
from types import ModuleType, SimpleNamespace

import pytest
from support.hosts.s3_folder import SentBody

from paddlevit_dist import StorageOutage, UserError
from paddlevit_dist.core.data import remote_folder, request_errors
from paddlevit_dist.core.data.remote_folder import RangeRequest, RemoteFile, RemoteFolder, RemoteReader

aiohttp = pytest.importorskip("aiohttp")


class Answered(Exception):
    """An error with the status of an answer."""

    def __init__(self, status, message="", headers=None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Its time is moved on by what sleeps. ``pauses`` are how long, in seconds."""

    def __init__(self):
        super().__init__()
        self.now, self.pauses = 50.0, []

    def time(self):
        return self.now

    def call_later(self, delay, callback, *arguments, context=None):
        self.pauses.append(delay)
        self.now += delay
        return self.call_soon(callback, *arguments, context=context)


@pytest.fixture
def clock():
    with contextlib.closing(SimulatedLoop()) as loop:
        yield loop


def ask(loop, folder, errors):
    """Await requests that raise these errors in turn, then one that is answered."""
    left = iter(errors)

    async def once() -> str:
        for error in left:
            raise error
        return "answer"

    return loop.run_until_complete(folder._with_retries("http://a/b", "read", once))


def test_pauses_double_up_to_a_limit_and_end_after_500_first_ones(clock, capsys):
    folder = RemoteFolder("http://a", first_pause_seconds=2.0)
    with pytest.raises(StorageOutage) as failed:
        ask(clock, folder, (ConnectionResetError(f"no {number}") for number in range(100)))
    assert clock.pauses == [4.0 / 2, 4.0, 8.0, 16.0, 32.0, 64.0, *[120.0] * 7, 34.0]
    assert str(failed.value) == "http://a/b cannot be read in 15 attempts within 1000 s: no 14"
    assert isinstance(failed.value.__cause__, ConnectionResetError)
    told = "note: http://a/b cannot be read: no 0; requests that fail are repeated for 1000 s (not shown again)\n"
    assert capsys.readouterr().err == told
    assert ask(clock, folder, [OSError("again")]) == "answer" and capsys.readouterr().err == ""
    assert (RemoteFolder("http://a").first_pause_seconds, RemoteFolder("http://a").timeout_seconds) == (0.5, 60.0)


def test_a_server_says_when_it_wants_to_be_asked_again(clock, capsys):
    folder = RemoteFolder("http://a")
    errors = [aiohttp.ClientResponseError(None, (), status=503, headers=sent) for sent in (
        {"Retry-After": "7"}, {"Retry-After": "61"}, {"Retry-After": "soon"}, {"Retry-After": "1"}, None, {},
    )]  # fmt: skip
    assert ask(clock, folder, errors) == "answer"
    assert clock.pauses == [7.0, 60.0, 2.0, 4.0, 8.0, 16.0]


def test_what_is_final_is_asked_for_once_and_other_errors_pass_through(clock):
    folder = RemoteFolder("http://a")
    with pytest.raises(UserError, match=r"^http://a/b cannot be read: it does not exist$"):
        ask(clock, folder, [FileNotFoundError()])
    with pytest.raises(ZeroDivisionError):
        ask(clock, folder, [ZeroDivisionError()])
    assert clock.pauses == []


class NoCredentialsError(Exception):
    """Named as botocore's."""


OTHERS = ["PartialCredentialsError", "ProfileNotFound", "ParamValidationError"]  # of botocore
OTHERS += ["TooManyRedirects", "ClientConnectorCertificateError"]  # of aiohttp


class InvalidURL(ValueError):
    """Named as aiohttp's."""


class Derived(InvalidURL):
    """Of a class of a package that derives from one that is known."""


def caused(error):
    error.__cause__ = ValueError()
    return error


@pytest.mark.parametrize(
    "error, status, is_missing, is_final",
    [
        *((Answered(status), status, status in (403, 404), True) for status in (400, 401, 403, 404, 410, 416, 499)),
        *((Answered(status), status, False, False) for status in (399, 408, 425, 429, 500, 503)),
        (Answered(0), None, False, False),
        (Answered("404"), None, False, False),
        (caused(Answered(404)), None, False, False),
        (FileNotFoundError(), None, True, True),
        (PermissionError(), None, True, True),
        *((OSError(number, "x"), None, False, True) for number in (errno.EINVAL, errno.ENOSYS)),
        (OSError(None, "x"), None, False, False),
        (OSError(errno.EIO, "x"), None, False, False),
        (ConnectionError(errno.EINVAL, "x"), None, False, False),
        *((kind(), None, False, True) for kind in (NoCredentialsError, InvalidURL, Derived)),
        *((type(name, (Exception,), {})(), None, False, True) for name in OTHERS),
        (ValueError(), None, False, False),
    ],
)
def test_other_attempts_help_against_some_errors_only(error, status, is_missing, is_final):
    assert request_errors.find_status(error) == status
    assert (request_errors.is_missing(error), request_errors.is_final(error)) == (is_missing, is_final)


@pytest.mark.parametrize(
    "error, reason",
    [
        (Answered(404, "Not Found"), "it does not exist: the server answers 404 Not Found"),
        (Answered(403), "it does not exist or may not be read: the server answers 403"),
        (Answered(410, "Gone"), "the server answers 410 Gone"),
        (FileNotFoundError(2, "x"), "it does not exist"),
        (PermissionError("a\n  b"), "it does not exist or may not be read: a b"),
        (asyncio.TimeoutError(), "no answer in time"),
        (ValueError("a\n  b"), "a b"),
        (ValueError(), "ValueError"),
        (ValueError("a " * 149 + "b"), "a " * 149 + "b"),
        (ValueError("a " * 151), "a " * 147 + "a ..."),
        (Answered(0, ["what", "arrived"]), "Answered"),
        (Answered(0, "refused"), "refused"),
    ],
)
def test_reasons_are_one_line(error, reason):
    assert request_errors.give_reason(error) == reason


def test_headers_of_answers():
    def answer(**headers):
        return SimpleNamespace(headers={name.replace("_", "-"): value for name, value in headers.items()})

    tags = [answer(ETag="a", Last_Modified="b"), answer(ETag="", Last_Modified="b"), answer()]
    assert [remote_folder.find_tag(each) for each in tags] == ["a", "b", ""]
    encodings = [
        answer(),
        answer(Content_Encoding=""),
        answer(Content_Encoding="IDENTITY"),
        answer(Content_Encoding="br"),
    ]
    assert [remote_folder.is_compressed(each) for each in encodings] == [False, False, False, True]
    assert remote_folder.parse_range(" BYTES 3-5/70 ", "x") == (3, 5, 70)
    for sent in (None, "", "bytes 3-5", "bytes 3-5/*", "x bytes 3-5/70"):
        with pytest.raises(UserError, match=r"^x: the server sends whole files only \(no byte ranges\); copy the data"):
            remote_folder.parse_range(sent, "x")


def test_a_request_has_no_limit_in_all_but_one_without_a_byte():
    expected = aiohttp.ClientTimeout(total=None, sock_connect=7.0, sock_read=7.0)
    assert RemoteFolder("http://a", timeout_seconds=7.0)._make_timeout() == expected


class System:
    """A file system of fsspec that notes what it is asked."""

    def __init__(self, **answers):
        import fsspec.asyn

        self.loop, self.answers, self.calls = fsspec.asyn.get_loop(), answers, []

    def split_path(self, address):
        return *address.removeprefix("s3://").split("/", 1), None

    def __getattr__(self, name):
        async def call(*words, **named):
            self.calls.append((name, words, named))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def s3(monkeypatch):
    """Return a function that makes a folder of S3 with a system of these answers."""
    monkeypatch.setitem(sys.modules, "s3fs", ModuleType("s3fs"))

    def make(**answers):
        folder = RemoteFolder("S3://bucket/folder/")
        folder._system, folder._process = System(**answers), os.getpid()
        return folder, folder._system.calls

    return make


def test_a_folder_of_s3_is_listed_afresh_with_sizes_and_tags(s3):
    entries = [
        {"name": "bucket/folder/a.bin", "type": "file", "size": 0, "ETag": '"x"'},
        {"name": "bucket/folder/b.bin", "type": "file", "size": 7},
        {"name": "bucket/folder/c.bin", "type": "file", "size": None},
        {"name": "bucket/folder/d.bin", "type": "other", "size": 9},
        {"name": "bucket/folder/e/", "type": "directory", "size": 0},
    ]
    folder, calls = s3(_ls=entries)
    files = {"a.bin": RemoteFile(0, '"x"'), "b.bin": RemoteFile(7, "")}
    assert folder.list_files("sub") == {**files, "c.bin": None, "d.bin": None, "e": None}
    assert calls == [("_ls", ("S3://bucket/folder/sub/",), {"detail": True, "refresh": True})]
    assert folder.list_files() and calls[1][1] == ("S3://bucket/folder/",)
    with pytest.raises(FileNotFoundError, match=r"^S3://bucket/folder/ cannot be listed: it does not exist$"):
        s3(_ls=FileNotFoundError())[0].list_files()


@pytest.mark.parametrize("now", ['"x"', '"y"'])
def test_parts_of_s3_without_a_tag_are_of_the_file_with_the_tag_that_s3_tells(s3, now):
    received = {"Body": SentBody(b"abc"), "ContentRange": "bytes 4-6/70", "LastModified": "Mon"}
    folder, calls = s3(_info={"type": "file", "size": 70, "ETag": now}, _call_s3=received)
    request = RangeRequest("a", RemoteFile(70, '"x"'), 4, 3)
    if now == '"x"':
        assert folder.read_ranges([request]) == [b"abc"]
    else:
        with pytest.raises(UserError, match='^S3://bucket/folder/a has changed since it was opened: .* with tag "y"'):
            folder.read_ranges([request])
    assert [name for name, _, _ in calls] == ["_call_s3", "_info"]


@pytest.mark.parametrize(
    "more, tag", [({"ETag": "x", "LastModified": 5}, "x"), ({"LastModified": 5}, "5"), ({"LastModified": None}, "")]
)
def test_a_file_of_s3_is_examined_and_read(s3, more, tag):
    received = {"Body": SentBody(b"abc"), "ContentRange": "bytes 4-6/70", **more}
    folder, calls = s3(_info={"type": "file", "size": 70, **more}, _cat_file=b"whole", _call_s3=received)
    assert folder.examine(["a b"]) == [RemoteFile(70, tag)] and folder.read("a b") == b"whole"
    requests = [RangeRequest("x/y", RemoteFile(70, tag), 4, 3), RangeRequest("x/y", RemoteFile(70, tag), 9, 0)]
    assert folder.read_ranges(requests) == [b"abc", b""]
    named = {"Bucket": "S3:", "Key": "/bucket/folder/x/y", "Range": "bytes=4-6"}
    address = "S3://bucket/folder/a b"
    assert calls == [("_info", (address,), {}), ("_cat_file", (address,), {}), ("_call_s3", ("get_object",), named)]
    with pytest.raises(UserError, match="cannot be read: it does not exist"):
        s3(_info={"type": "directory"})[0].examine(["a"])


def test_a_folder_is_pickled_as_its_address(s3):
    folder, _ = s3()
    copy = pickle.loads(pickle.dumps(folder))
    assert (copy.address, copy._is_s3, copy._system, copy._process) == ("S3://bucket/folder", True, None, 0)
    assert (copy._join(""), copy._join("a")) == ("S3://bucket/folder", "S3://bucket/folder/a")
    with pytest.raises(UserError, match=r"^data path ftp://a: expected a folder of this machine, or s3://, http:// or"):
        RemoteFolder("ftp://a")


def test_a_reader_moves_as_a_file_does():
    asked = []
    folder = SimpleNamespace(read_ranges=lambda requests: asked.extend(requests) or [bytes(range(requests[0].size))])
    file = RemoteFile(10, "tag")
    reader = RemoteReader(folder, "a", file)
    assert reader.readable() and reader.seekable()
    moves = [(4, os.SEEK_SET), (3, os.SEEK_CUR), (-2, os.SEEK_END), (5, os.SEEK_END)]
    assert [(reader.seek(*move), reader.tell()) for move in moves] == [(4, 4), (7, 7), (8, 8), (15, 15)]
    buffer = bytearray(b"xxxx")
    assert reader.readinto(buffer) == 0 and buffer == b"xxxx" and reader.tell() == 15
    assert reader.seek(7) == 7 and reader.readinto(buffer) == 3 and buffer == b"\0\1\2x" and reader.tell() == 10
    assert asked == [RangeRequest("a", file, 15, 0), RangeRequest("a", file, 7, 3)]


def test_at_most_32_requests_are_made_at_once(s3):
    folder, _ = s3()
    state = SimpleNamespace(running=0, most=0)

    async def ask() -> int:
        state.running += 1
        state.most = max(state.most, state.running)
        await asyncio.sleep(0)
        state.running -= 1
        return state.most

    assert len(folder._run([ask() for _ in range(40)])) == 40 and state.most == 32


def test_one_request_that_fails_ends_the_others(s3):
    folder, _ = s3()
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(600.0)
        except asyncio.CancelledError:
            ended.append(1)
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        folder._run([wait(), fail(), wait()])
    assert ended == [1, 1]


@pytest.mark.parametrize(
    "address, module", [("s3://bucket/data", "s3fs"), ("http://host/data", "fsspec"), ("https://host/data", "aiohttp")]
)
def test_a_library_that_is_missing_is_named(address, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"^data path {address} needs {module}, which is not installed: pip install "):
        remote_folder.RemoteFolder(address)
