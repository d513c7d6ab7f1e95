"""Readers of archives: Debian packages, the Bible's own compression, WikiText-2 and enwik8.

These fail when a file is read differently than it was packed, when an article is lost or cut, when
damaged bytes raise anything but a ValueError, and when a link or a path in an archive is followed.
"""

import io
import lzma
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_text import archives
from real_text import deb as deb_module
from real_text import folder as folder_module
from real_text.catalogue import ENWIK8, WIKITEXT_2, RealText
from real_text.deb import members, read_deb
from real_text.debian_packages import (
    ar,
    bible_data,
    compress,
    deb,
    pinned_to,
    tar_xz,
    without_apt,
)
from real_text.folder import fetch
from real_text.kjv import BOOKS, decompress, read_bible, unpack
from ropewalk.lab.data.texts import load_texts

NAMES = st.text(st.sampled_from("abcz.-0"), min_size=1, max_size=12).filter(
    lambda name: name.strip(".") == name
)
PACKAGE = deb({"usr/share/doc/a": b"first\n" * 50, "usr/lib/b": b"\x00\xff" * 9})


def outcome(read, *arguments):
    """The result of a reader, or the message of its ValueError."""
    try:
        return read(*arguments)
    except ValueError as error:
        return str(error)


@settings(max_examples=40)
@given(st.dictionaries(NAMES, st.binary(max_size=60), max_size=5))
def test_any_ar_archive_is_read_back(contents):
    assert members(ar(contents.items())) == contents


@settings(max_examples=40)
@given(st.dictionaries(NAMES, st.binary(max_size=200), max_size=5))
def test_any_files_of_a_package_are_read_back(contents):
    wanted = {path for path in contents if len(path) % 2}
    assert read_deb(deb(contents), wanted.__contains__) == {k: contents[k] for k in wanted}


@given(st.integers(0, len(PACKAGE) - 1))
def test_a_package_that_is_cut_short_is_an_error(length):
    with pytest.raises(ValueError, match=r"begin like|complete Debian|truncated|must contain"):
        read_deb(PACKAGE[:length], lambda _: True)


@settings(max_examples=200)
@given(st.binary(max_size=600))
def test_a_tar_of_any_bytes_is_read_or_is_a_value_error(content):
    package = ar([("data.tar.xz", lzma.compress(content))])
    found = outcome(read_deb, package, lambda _: True)
    assert isinstance(found, dict) or "damaged" in found


@given(st.binary(max_size=200).filter(lambda content: not content.startswith(b"!<arch>")))
def test_bytes_that_are_no_package_are_refused(content):
    with pytest.raises(ValueError, match="not a Debian package"):
        read_deb(content, lambda _: True)


def test_a_package_packed_with_zstd_is_refused_with_a_word():
    with pytest.raises(ValueError, match=r"must contain data\.tar\.xz, got 'data\.tar\.zst'"):
        read_deb(deb({}, data="data.tar.zst"), lambda _: True)


def test_links_are_not_followed_and_paths_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = deb({"../../outside": b"x", "/etc/motd": b"y"}, [("usr/link", "/etc/passwd")])
    assert "usr/link" not in read_deb(package, lambda _: True)
    assert not list(tmp_path.iterdir())


def test_a_package_that_unpacks_to_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(deb_module, "MOST_UNPACKED", 5_000)
    package = ar([("data.tar.xz", tar_xz({"a": bytes(6_000)}))])
    with pytest.raises(ValueError, match="unpacks to more than 5,000 bytes"):
        read_deb(package, lambda _: True)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([b"in the ", b"beginning ", b"and God ", b"x"]), max_size=400),
    st.binary(max_size=900),
)
def test_what_compress_wrote_is_unpacked(words, noise):
    text = b"".join(words) + noise
    assert unpack(compress(text), len(text)) == text


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_codes_unpack_within_bounds_or_are_a_value_error(codes):
    found = outcome(unpack, codes, 500)
    assert "damaged" in found if isinstance(found, str) else len(found) <= 500


def test_the_windows_of_a_text_are_joined():
    text = b"".join(b"Ge1:%d In the beginning %d.\n" % (i, i * i) for i in range(900))
    assert decompress(bible_data(text, 4_096)) == text


def bible_text():
    return "".join(f"{code}{c}:{v} Verse {v}.\n" for code in BOOKS for c in (1, 2) for v in (1, 2))


def test_books_have_their_chapters_and_verses():
    books = read_bible(bible_data(b"Holy Bible\n" + bible_text().encode(), 4_096))
    assert list(books) == list(BOOKS.values())
    assert len(books) == 66
    assert books["1 Kings"] == (
        "1 Kings 1\n\nVerse 1.\nVerse 2.\n\n1 Kings 2\n\nVerse 1.\nVerse 2.\n"
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"EC02Compressed Data File", bible_data(b"Xy1:1 No book.\n", 4_096), bible_data(b"", 1)],
)
def test_another_file_is_no_bible(content):
    with pytest.raises(ValueError, match=r"bible\.data must"):
        read_bible(content)


def zipped(members):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return held.getvalue()


def wiki(first, count):
    return "".join(
        f" \n = Title {i} = \n \n Words . \n \n = = Part = = \n \n More {i} . \n"
        for i in range(first, first + count)
    )


def test_wikitext_is_its_articles_in_the_published_splits(tmp_path, monkeypatch):
    texts = {"train": wiki(0, 7), "valid": wiki(10, 2), "test": wiki(20, 3)}
    content = zipped({f"wikitext-2-raw/wiki.{k}.raw": v for k, v in texts.items()})
    part = pinned_to(WIKITEXT_2, content)
    text = RealText("wikitext-2", (part,), "")
    monkeypatch.setattr(folder_module, "REAL_TEXTS", {"wikitext-2": text})
    without_apt(monkeypatch, {part.file.urls[0]: content})
    fetch("wikitext-2", tmp_path / "out")
    splits = load_texts(str(tmp_path / "out")).splits
    assert [len(split) for split in splits.values()] == [7, 2, 3]
    assert splits["test"][2] == "= Title 22 = \n \n Words . \n \n = = Part = = \n \n More 22 ."


@pytest.mark.parametrize("cuts", [(900, 1_500), (5, 10), (900, 9_999)])
def test_enwik8_is_cut_between_pages(monkeypatch, cuts):
    monkeypatch.setattr(archives, "ENWIK8_CUTS", cuts)
    pages = "".join(f"  <page>\n    <title>ä {i}</title>\n  </page>\n" for i in range(60))
    content = zipped({"enwik8": f"<mediawiki>\n{pages}".encode()[:-1]})
    if cuts != (900, 1_500):
        with pytest.raises(ValueError, match="must have pages after byte"):
            ENWIK8.read(content)
        return
    splits, notice = ENWIK8.read(content)
    held = [splits[split]["pages"] for split in ("train", "validation", "test")]
    assert sum(text.count("<page>") for text in held) == 60
    assert all(text.rstrip().endswith("</page>") for text in held)
    assert b"Creative Commons" in notice


WIKI = zipped({f"wikitext-2-raw/wiki.{k}.raw": wiki(0, 4) for k in ("train", "valid", "test")})
READERS = {
    "package": (lambda content: read_deb(content, lambda _: True), PACKAGE, ""),
    "bible": (read_bible, bible_data(bible_text().encode(), 2_048), "bible.data"),
    "zip": (WIKITEXT_2.read, WIKI, ""),
}


@pytest.mark.parametrize(("read", "whole", "named"), READERS.values(), ids=READERS)
@settings(max_examples=150)
@given(data=st.data())
def test_what_is_damaged_is_read_or_is_a_value_error_in_one_line(read, whole, named, data):
    place = data.draw(st.integers(0, len(whole) - 1))
    junk = data.draw(st.binary(min_size=1, max_size=8))
    found = outcome(read, whole[:place] + junk + whole[place + len(junk) :])
    assert not isinstance(found, str) or (named in found and "\n" not in found)


@given(st.integers(0, len(WIKI) - 1))
def test_a_zip_that_is_cut_short_is_an_error(length):
    with pytest.raises(ValueError, match="not a complete zip archive"):
        WIKITEXT_2.read(WIKI[:length])
