"""Signatures of messages, and the secret's sources."""

import hashlib
import os
import pickle

import pytest

from paddlevit_dist.launch import secret
from paddlevit_dist.runtime.errors import UserError

LONG_ENOUGH = "0123456789abcdef"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A process that has no secret yet."""
    for name in (secret.VARIABLE, secret.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(secret, "_run_secret", None)
    monkeypatch.setattr(secret, "_session_key", None)


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
    message, part = sent(data), secret._PART_BYTES
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


def test_a_private_file_and_the_variable_give_the_same_secret(tmp_path, monkeypatch):
    monkeypatch.setenv(secret.VARIABLE, LONG_ENOUGH)
    by_variable = secret.read_user_secret()
    monkeypatch.delenv(secret.VARIABLE)
    path = tmp_path / "secret"
    path.write_text(LONG_ENOUGH + "\n")
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
