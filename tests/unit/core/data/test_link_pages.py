"""Listings of folders, as web servers write them."""

import html
from urllib.parse import quote

import pytest

from paddlevit_dist.core.data.link_pages import list_links

NAMES = [
    "plain.tar",
    "red fox.tar",
    "a#b",
    "a?b",
    "50%25.tar",
    "100%",
    "a+b",
    "a&b",
    "猫.tar",
    "it's",
    "httpd.tar",
    "a:b",
    "a;b",
]
BASE = "http://host:8000/my%20data/"
ABSOLUTE = "/my%20data/"
# What Apache leaves as it is, and what nginx leaves.
APACHE, NGINX = "$-_.+!*'(),:@&=/~", "-_.~"


def page(links):
    return "<html><body>" + "".join(f'<li><A class="x" HREF="{link}">a name</A></li>' for link in links) + "</body>"


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("before", ["", "./", ABSOLUTE, BASE, "https://host/my data/", "//host:8000/my%20data/"])
@pytest.mark.parametrize("safe", [APACHE, NGINX, "/"])
def test_names_are_those_of_the_disk(safe, before, is_folder):
    if before == "" and safe == APACHE:
        before = "./"  # for a:b, as Apache writes it
    links = [before + html.escape(quote(name, safe) + "/" * is_folder) for name in NAMES]
    assert list_links(page(links), BASE) == NAMES


def test_other_links_are_not_names():
    links = [
        "../",
        "/",
        "?C=N;O=D",
        "#top",
        "http://other/my%20data/x.tar",
        "/else/x.tar",
        "sub/x.tar",
        "mailto:me",
        "http://[x",
        "",
        "a.tar",
    ]
    assert list_links(page(links), BASE) == ["a.tar"]
    assert list_links(page(links), BASE.rstrip("/") + "/?token=1") == ["a.tar"]
    assert list_links(page(["/a.tar"]), "http://host") == list_links(page(["a.tar"]), "http://host/") == ["a.tar"]
    assert list_links("\0<a href='a.tar'><a href=b.tar><a>c.tar", BASE) == ["a.tar", "b.tar"]


def test_names_that_are_not_utf_8_are_spelled_as_the_file_system_spells_them():
    assert list_links(page(["caf%E9.tar"]), BASE) == [b"caf\xe9.tar".decode("utf-8", "surrogateescape")]
