"""Readers of WikiText-2 and enwik8, on small archives of the same form.

These fail when an article is lost or cut, when a split is not the published one, and when a damaged
archive raises anything but a ValueError.
"""

import io
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_text import archives
from real_text import folder as folder_module
from real_text.catalogue import ENWIK8, WIKITEXT_2, RealText
from real_text.debian_packages import pinned_to, without_apt
from real_text.folder import fetch
from ropewalk.lab.data.texts import load_texts


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


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_zip_is_a_value_error_or_is_read(data):
    whole = zipped({f"wikitext-2-raw/wiki.{k}.raw": wiki(0, 4) for k in ("train", "valid", "test")})
    place = data.draw(st.integers(0, len(whole) - 1))
    junk = data.draw(st.binary(min_size=1, max_size=8))
    with suppress(ValueError):
        WIKITEXT_2.read(whole[:place] + junk + whole[place + len(junk) :])
    with pytest.raises(ValueError, match="not a complete zip archive"):
        WIKITEXT_2.read(whole[:place])
