"""Errors of requests for remote files: which are worth another attempt, and what they mean."""

import asyncio
import errno
import importlib
import sys
import textwrap

_LONGEST_REASON = 300  # characters of an error's text
_LONGEST_WISH = 60.0  # of a server's Retry-After that is followed, in seconds
_WORTH_REPEATING = (408, 425, 429)  # of the answers 4xx: too slow, too early, too many
_MISSING = (403, 404)  # S3 answers 403 for a missing file to those who may not list
_FINAL_OF_SYSTEM = (errno.EINVAL, errno.EPERM, errno.ENOSYS)  # as which s3fs raises other refusals
_FINAL_OF_BOTOCORE = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ParamValidationError")
_FINAL_OF_AIOHTTP = ("InvalidURL", "TooManyRedirects", "ClientConnectorCertificateError")


def network_errors() -> tuple[type[BaseException], ...]:
    """Return the types that mean a failed request: of the system, and of the packages that are in use."""
    aiohttp, botocore = importlib.import_module("aiohttp"), sys.modules.get("botocore.exceptions")
    of_s3 = (botocore.BotoCoreError,) if botocore is not None else ()  # s3fs imports it
    return (OSError, asyncio.TimeoutError, aiohttp.ClientError, *of_s3)


def find_status(error: BaseException) -> int | None:
    """Return the status that a server has answered; None if it sent none.

    aiohttp also gives a status to answers that are not HTTP, which have a cause, and to endless redirects: 0.
    """
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and status and error.__cause__ is None else None


def is_missing(error: BaseException) -> bool:
    """Return whether a file does not exist, or not for this user."""
    return find_status(error) in _MISSING or isinstance(error, FileNotFoundError | PermissionError)


def is_final(error: BaseException) -> bool:
    """Return whether another attempt cannot help: the request is refused, or cannot be made."""
    if is_missing(error):
        return True
    status = find_status(error)
    if status is not None:
        return 400 <= status < 500 and status not in _WORTH_REPEATING
    names = {kind.__name__ for kind in type(error).__mro__}
    is_refused = type(error) is OSError and error.errno in _FINAL_OF_SYSTEM
    return is_refused or not names.isdisjoint((*_FINAL_OF_BOTOCORE, *_FINAL_OF_AIOHTTP))


def give_reason(error: BaseException) -> str:
    """Return in one line why a request has failed."""
    status = find_status(error)
    if status is not None:
        meaning = {403: "it does not exist or may not be read: ", 404: "it does not exist: "}.get(status, "")
        return f"{meaning}the server answers {status} {getattr(error, 'message', '')}".rstrip()
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if isinstance(error, PermissionError):
        return f"it does not exist or may not be read: {' '.join(str(error).split())}"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    text = getattr(error, "message", str(error))
    if not isinstance(text, str):  # aiohttp: what has arrived of the answer
        return type(error).__name__
    return textwrap.shorten(text, _LONGEST_REASON, placeholder=" ...") or type(error).__name__


def find_wish(error: BaseException) -> float:
    """Return after how many seconds a server wants to be asked again (Retry-After); 0 if it does not say so."""
    wish = (getattr(error, "headers", None) or {}).get("Retry-After", "")
    return min(float(wish), _LONGEST_WISH) if wish.isdecimal() else 0.0
