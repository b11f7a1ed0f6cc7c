"""Signatures of messages, and the secret's sources."""

import hashlib
import hmac
import os
import pickle

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import secret

LONG_ENOUGH = "0123456789abcdef"


@pytest.fixture(autouse=True)
def fresh(fresh_rank):
    """A process that has no secret yet."""


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def sent(data, purpose="all_gather", number=3, rank=1) -> bytes:
    room_and_message = memoryview(bytearray(secret.SIGNATURE_BYTES) + pickle.dumps(data))
    return bytes(secret.sign(room_and_message, purpose, number, rank))


def received(message: bytes, purpose="all_gather", number=3):
    """What another rank makes of a message that arrives as rank 1's."""
    return pickle.loads(secret.verify(memoryview(message), purpose, number, 1))


def test_a_signed_message_is_read(fresh):
    secret.use(bytes(32))
    assert received(sent([1, "two"])) == [1, "two"]


@pytest.mark.parametrize("other", [{"purpose": "reduce_dict"}, {"number": 4}, {"rank": 2}], ids=str)
def test_a_message_counts_for_no_other_purpose_meeting_or_rank(other, tmp_path):
    secret.use(bytes(32))
    with pytest.raises(UserError, match="arrived as rank 1's .* not signed"):
        received(sent(Trap(tmp_path / "executed"), **other))
    assert not (tmp_path / "executed").exists()


def test_nothing_of_a_stranger_is_unpickled(tmp_path):
    secret.use(b"a" * 32)
    others = sent(Trap(tmp_path / "executed"))
    secret.use(b"b" * 32)
    altered = bytearray(sent("fine"))
    altered[-3] ^= 1
    for message in (others, others[32:], b"", bytes(32) + others[32:], bytes(altered)):
        with pytest.raises(UserError, match="not signed"):
            received(message)
    assert not (tmp_path / "executed").exists()


def test_a_long_message_is_refused_wherever_it_was_altered():
    secret.use(bytes(32))
    data = os.urandom(2_500_000)
    message, part = sent(data), 1 << 20
    assert received(message) == data
    head, body = message[: secret.SIGNATURE_BYTES], message[secret.SIGNATURE_BYTES :]
    flipped = [
        body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in (0, part - 1, part, 2 * part, len(body) - 1)
    ]
    swapped = body[part : 2 * part] + body[:part] + body[2 * part :]
    digests = b"".join(hashlib.sha256(body[at : at + part]).digest() for at in range(0, len(body), part))
    for other in (*flipped, swapped, body[: 2 * part], body[part:], body + b"0", digests):
        with pytest.raises(UserError, match="not signed"):
            received(head + other)


def test_a_message_of_another_session_with_the_same_secret_is_refused():
    secret.use(bytes(32))
    secret.begin_session("one", "two")
    recorded, name = sent("fine"), secret.key_name("board")
    assert received(recorded) == "fine"
    secret.begin_session("on", "etwo")
    assert secret.key_name("board") != name
    with pytest.raises(UserError, match="not signed"):
        received(recorded)


def test_names_in_the_store_depend_on_the_secret():
    assert secret.key_name("board") == "board" and secret.fingerprint() == 1
    secret.use(b"a" * 32)
    name, shown = secret.key_name("board"), secret.fingerprint()
    assert "board" not in name and secret.key_name("bord") != name
    secret.use(b"b" * 32)
    assert secret.key_name("board") != name and secret.fingerprint() != shown > 1


def test_without_a_secret_messages_are_as_they_were():
    assert sent("fine") == pickle.dumps("fine") and received(pickle.dumps("fine")) == "fine"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_private_file_and_the_variable_give_the_same_secret(tmp_path, monkeypatch, encoding):
    monkeypatch.setenv(secret.VARIABLE, LONG_ENOUGH)
    by_variable = secret.read_user_secret()
    monkeypatch.delenv(secret.VARIABLE)
    path = tmp_path / "secret"
    path.write_text(LONG_ENOUGH + "\n", encoding)
    path.chmod(0o600)
    monkeypatch.setenv(secret.FILE_VARIABLE, str(path))
    assert secret.read_user_secret() == secret.create_for_workers() == by_variable and len(by_variable) == 32


def test_a_parent_without_a_given_secret_makes_another_each_time():
    assert secret.read_user_secret() is None and secret.create_for_workers() != secret.create_for_workers()


@pytest.mark.parametrize("mode, content, complaint", [
    (0o640, LONG_ENOUGH, "can be read by other users .mode 0640.: run chmod 600"),
    (0o604, LONG_ENOUGH, "can be read by other users"),
    (0o600, "short", "expected a secret of 16 to 4096 characters"),
    (0o600, "x" * 5000, "expected a secret of 16 to 4096 characters"),
    (0o600, "  \n", "expected a secret of 16 to 4096 characters"),
])  # fmt: skip
def test_files_that_are_no_secret(mode, content, complaint, tmp_path, monkeypatch):
    path = tmp_path / "secret"
    path.write_text(content)
    path.chmod(mode)
    monkeypatch.setenv(secret.FILE_VARIABLE, str(path))
    with pytest.raises(UserError, match=complaint):
        secret.read_user_secret()


def test_what_is_no_file_and_two_secrets_are_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, complaint in (("absent", "No such file"), ("pipe", "is not a file"), (".", "Is a directory|not a file")):
        monkeypatch.setenv(secret.FILE_VARIABLE, str(tmp_path / name))
        with pytest.raises(UserError, match=complaint):
            secret.read_user_secret()
    monkeypatch.setenv(secret.VARIABLE, LONG_ENOUGH)
    with pytest.raises(UserError, match="both"):
        secret.read_user_secret()


def mac(key, kind, *parts):
    """The HMAC of parts, of which all but the last are preceded by their length."""
    *heads, last = parts
    text = b"".join(len(part).to_bytes(8, "little") + part for part in heads) + last
    return hmac.new(key, kind.encode() + b"\0" + text, hashlib.sha256).digest()


def test_signatures_are_macs_of_what_a_message_is_for_and_holds():
    run = b"s" * 32
    secret.use(run)
    shown = hmac.new(run, b"proof\0fingerprint", hashlib.sha256).hexdigest()
    assert secret.proof("fingerprint") == shown and secret.fingerprint() == 2 + int(shown[:12], 16)
    assert secret.is_proof(shown, "fingerprint") and not secret.is_proof(shown[:-1], "fingerprint")
    assert secret.key_name("board") == mac(run, "name", b"board").hex()[:40]
    secret.begin_session("a", "bc", "d")
    key, part = mac(run, "session", b"a", b"bc", b"d"), 1 << 20
    assert secret.key_name("board") == mac(key, "name", b"board").hex()[:40]
    for size in (0, 3, part, part + 1):
        content = os.urandom(size)
        if size <= part:
            expected = mac(key, "message", b"reduce 4 2", content)
        else:
            digests = hashlib.sha256(content[:part]).digest() + hashlib.sha256(content[part:]).digest()
            expected = mac(key, "digests of a message's parts", b"reduce 4 2", digests)
        assert bytes(secret.sign(memoryview(bytearray(32) + content), "reduce", 4, 2)) == expected + content
    secret.use(run)
    assert secret.key_name("board") == mac(run, "name", b"board").hex()[:40]


def test_without_a_secret_nothing_is_proved_and_no_session_begins():
    secret.begin_session("a")
    assert secret.key_name("board") == "board" and secret.proof("a") == "" and secret.is_proof("", "a")
    assert not secret.is_proof("x", "a") and secret.get_run_secret() is None


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("source", [None, secret.VARIABLE, "parent"])
def test_missing_protection_is_told(monkeypatch, capsys, launched, source):
    monkeypatch.delenv("PADDLE_LOCAL_SIZE", raising=False)
    if launched:
        monkeypatch.setenv("PADDLE_LOCAL_SIZE", "2")
    if source == "parent":
        secret.use(bytes(32))
    elif source is not None:
        monkeypatch.setenv(source, LONG_ENOUGH)
    secret.print_missing_protection()
    note = ""
    if source is None:
        note = (
            "note: messages between ranks are not signed; set PADDLEVIT_DIST_SECRET_FILE or PADDLEVIT_DIST_SECRET to "
            "the same secret on all machines\n"
        )
    elif source == secret.VARIABLE and launched:
        note = (
            "note: Paddle's launcher has written PADDLEVIT_DIST_SECRET to files in its --log_dir that others can read; "
            "set PADDLEVIT_DIST_SECRET_FILE instead, and choose a new secret\n"
        )
    assert capsys.readouterr() == ("", note)


@pytest.mark.parametrize("size, is_refused", [(15, True), (16, False), (4096, False), (4097, True)])
def test_a_secret_has_16_to_4096_characters_in_a_file_too(tmp_path, monkeypatch, size, is_refused):
    path = tmp_path / "secret"
    path.write_text("x" * size + "\n")
    path.chmod(0o600)
    for name, value in ((secret.VARIABLE, "x" * size), (secret.FILE_VARIABLE, str(path))):
        monkeypatch.setenv(name, value)
        if is_refused:
            with pytest.raises(UserError, match="make one with `openssl rand -hex 32`$"):
                secret.read_user_secret()
        else:
            assert secret.read_user_secret() == hashlib.sha256(b"x" * size).digest()
        monkeypatch.delenv(name)
    for name in (secret.VARIABLE, secret.FILE_VARIABLE):
        monkeypatch.setenv(name, str(path))
    with pytest.raises(UserError, match="^both PADDLEVIT_DIST_SECRET and PADDLEVIT_DIST_SECRET_FILE are set"):
        secret.read_user_secret()


def test_ranks_with_other_secrets_are_described_by_what_they_have():
    rest = "set PADDLEVIT_DIST_SECRET or PADDLEVIT_DIST_SECRET_FILE to the same on all machines"
    assert secret.describe_mismatch(3, {2: 7, 1: 9}) == f"rank(s) [1, 2] have a secret, and rank 3 has none: {rest}"
    secret.use(bytes(32))
    assert secret.describe_mismatch(3, {2: 1, 1: 1}) == f"rank(s) [1, 2] have no secret, and rank 3 has one: {rest}"
    other = f"rank(s) [1, 2] have another secret than rank 3: {rest}"
    assert secret.describe_mismatch(3, {2: 1, 1: 9}) == secret.describe_mismatch(3, {2: 8, 1: 9}) == other


def test_the_secret_of_the_parent_counts_before_the_environments(monkeypatch):
    monkeypatch.setenv(secret.VARIABLE, LONG_ENOUGH)
    assert secret.get_run_secret() == secret.read_user_secret()
    monkeypatch.delenv(secret.VARIABLE)
    assert secret.get_run_secret() is not None  # it is read once
    secret.use(bytes(32))
    assert secret.get_run_secret() == bytes(32)
