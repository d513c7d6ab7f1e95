"""Documents of real text: read from pages, and held out completely by a rule.

These fail when a line or a document is in two splits, when the order of documents changes a split,
and when the text of a page contains navigation or lacks a paragraph.
"""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_text.html_text import text_of
from real_text.splits import LONG, split_documents, without_repeats

LINES = st.sampled_from([f"{i} {'long ' * 20}line" for i in range(30)] + ["short", ""])
DOCUMENTS = st.dictionaries(
    st.text(st.sampled_from("abcdef"), min_size=1, max_size=4),
    st.lists(LINES, min_size=1, max_size=6).map(lambda lines: "x\n" + "\n".join(lines) + "\n"),
    min_size=3,
    max_size=25,
)


def long_lines(documents):
    lines = (line.strip() for text in documents.values() for line in text.split("\n"))
    return {line for line in lines if len(line) >= LONG}


@settings(max_examples=60)
@given(DOCUMENTS, st.randoms())
def test_splits_are_disjoint_whole_and_the_same_in_any_order(documents, random):
    if len(set(documents.values())) < 3:
        with pytest.raises(ValueError, match="three splits"):
            split_documents(documents)
        return
    shuffled = list(documents.items())
    random.shuffle(shuffled)
    try:
        splits = split_documents(documents)
    except ValueError:  # two long documents may be test and validation, with none left
        assert len(set(documents.values())) < 25
        return
    assert split_documents(dict(shuffled)) == splits
    held = [text for split in splits.values() for text in split.values()]
    assert sorted(held) == sorted(set(documents.values()))
    for split in splits.values():
        assert all(documents[name] == text for name, text in split.items())


@settings(max_examples=60)
@given(st.lists(DOCUMENTS, min_size=3, max_size=3))
def test_no_long_line_is_in_two_splits(parts):
    splits = dict(zip(("train", "validation", "test"), parts, strict=True))
    kept, left_out = without_repeats(splits)
    lines = {split: long_lines(documents) for split, documents in kept.items()}
    assert not lines["train"] & (lines["validation"] | lines["test"])
    assert not lines["validation"] & lines["test"]
    assert kept["test"] == splits["test"]
    assert (left_out == 0) == (kept == splits)


PAGE = """<!DOCTYPE html><html><head><title>No</title><script>no()</script></head><body>
<div class="docnav"><a href="x">no</a></div><div role="main"><h1>Head<a class="headerlink"
href="#h">¶</a></h1><p>One &amp; two,
  <em>three</em>.<br/>Four.</p><pre><span></span>if x:
    y = 1</pre><table><tr><td>a</td><td>b</td></tr></table><p>open <ul><li>item</ul>
<nav class="contents">no</nav></div><p>no</p></body></html>"""


def test_a_page_gives_its_paragraphs_and_no_navigation():
    text = text_of(PAGE, ("role", "main"), frozenset(["headerlink"]))
    assert text.split("\n\n") == [
        "Head", "One & two, three.", "Four.", "if x:\n    y = 1", "a b", "open", "item",
    ]  # fmt: skip


@settings(max_examples=150)
@given(st.text(st.sampled_from("<>/!-&;ap div=\"'x\n"), max_size=80))
def test_any_page_is_read(page):
    assert isinstance(text_of(f"<body>{page}", ("", "body"), frozenset()), str)


def test_documents_are_held_out_in_the_order_of_a_hash_of_their_names():
    documents = {f"{i:02d}": f"document {i:02d}\n" for i in range(40)}
    splits = split_documents(documents)
    ordered = sorted(documents, key=lambda name: hashlib.sha256(name.encode()).digest())
    assert [sorted(ordered[:2]), sorted(ordered[2:4])] == [
        list(splits[split]) for split in ("test", "validation")
    ]
