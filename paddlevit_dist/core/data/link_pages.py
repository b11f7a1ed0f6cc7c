"""Names of files and folders in the listings of web servers: all of them, spelled as on the server's disk."""

import contextlib
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit


class _Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def list_links(page: str, address: str) -> list[str]:
    """Return the names, not quoted, to which ``page`` links, the listing of the folder at ``address``."""
    base, names = urlsplit(address), []
    for link in _Links(page).found:
        with contextlib.suppress(ValueError):  # not an address
            target = urlsplit(urljoin(address, link))
            folder, _, name = target.path.rstrip("/").rpartition("/")
            if target.hostname == base.hostname and unquote(folder) == unquote(base.path.rstrip("/")) and name:
                names.append(unquote(name, errors="surrogateescape"))
    return names
