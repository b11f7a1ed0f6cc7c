"""Error messages for files that cannot be read or must not be."""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
import zipfile
import zlib
from typing import Iterator

from ..errors import UserError

# What reading a damaged file may raise. Our own errors would be among them too: each reader's tests therefore read
# intact files, none of which may be called damaged.
_SPOILT = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,  # also NotImplementedError and RecursionError; an archive that claims to be encrypted
    TypeError,
    ValueError,
    json.JSONDecodeError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class RefusedError(Exception):
    """The file asks for something that weights do not need."""


@contextlib.contextmanager
def reading(name: str, kind: str, advice: str = "save it again with paddle.save") -> Iterator[None]:
    """Turn what goes wrong inside into one line about the file ``name``.

    Args:
        kind: what the file was expected to be, such as "paddle.save file".
        advice: what the author of a refused file can do.

    Raises:
        UserError: the file is unreadable, damaged or refused.
    """
    try:
        yield
    except RefusedError as refusal:
        raise UserError(
            f"{name} is refused: {refusal}, which weights do not need; nothing was executed. "
            f"Take the file from a source you trust and {advice}"
        ) from None
    except zipfile.BadZipFile as error:
        raise _damaged(name, kind, error) from error
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from error
    except _SPOILT as error:
        raise _damaged(name, kind, error) from error


def _damaged(name: str, kind: str, error: BaseException) -> UserError:
    text = " ".join(str(error).split())
    shown = (text if text.isprintable() else ascii(text))[:160] or type(error).__name__
    return UserError(f"{name} is damaged or is not a {kind}: {shown}; copy or download it again")
