"""Multi30k by name: every split is present, and only the pinned files are read.

These fail when a test set is left out, when a file with other content is read, or when a message
leaves out the file or the way out. Downloads are faked; no network is used.
"""

import gzip
import hashlib
import io
import json
from pathlib import Path

import pytest

from ropewalk.lab.data import multi30k
from ropewalk.lab.data.corpus import CorpusError, load_corpus, overlap

MULTI30K = Path(__file__).parents[4] / "shared" / "data" / "multi30k"


def message(data="multi30k", **languages) -> str:
    with pytest.raises(CorpusError) as caught:
        load_corpus(data, **languages)
    text = str(caught.value)
    assert "\n" not in text
    return text


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache, still empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ropewalk" / "multi30k"


@pytest.fixture
def served(tmp_path, monkeypatch, cache):
    """A folder of small files that a server answers with, and the URLs that were asked for."""
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    contents = {
        name: json.dumps({"en": f"{word} en", "de": f"{word} de"}).encode() + b"\n"
        for word, name in zip("TVE", multi30k.HUB_FILES.values(), strict=True)
    }
    for side in ("de", "en"):
        contents[f"test_2017_flickr.{side}.gz"] = gzip.compress(f"W {side}\n".encode(), mtime=0)
    for name, content in contents.items():
        (folder / name).write_bytes(content)

    def answer(url, timeout):
        asked.append(url)
        return io.BytesIO((folder / url.rpartition("/")[2]).read_bytes())

    monkeypatch.setattr(multi30k, "SHA256", {name: digest(folder / name) for name in contents})
    monkeypatch.setattr(multi30k, "urlopen", answer)
    return folder, asked


def test_every_split_comes_by_name(served):
    """Fails if the 2017 test set is left out, or its sides are exchanged."""
    corpus = load_corpus("multi30k")
    assert corpus.name == "multi30k"
    assert corpus.splits == {
        "train": (("T de", "T en"),),
        "validation": (("V de", "V en"),),
        "test_2016_flickr": (("E de", "E en"),),
        "test_2017_flickr": (("W de", "W en"),),
    }
    assert corpus.test_splits == ("test_2016_flickr", "test_2017_flickr")
    turned = load_corpus("multi30k", source="en", target="de")
    assert turned.splits["test_2017_flickr"] == (("W en", "W de"),)
    assert "no text in field 'cs'" in message(target="cs")


def test_what_was_downloaded_is_not_downloaded_again(served):
    load_corpus("multi30k")
    hub = "https://huggingface.co/datasets/bentrevett/multi30k/resolve/main"
    web = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
    assert served[1] == [
        *(f"{hub}/{split}.jsonl" for split in ("train", "val", "test")),
        *(f"{web}/test_2017_flickr.{language}.gz" for language in ("de", "en")),
    ]
    load_corpus("multi30k")
    assert len(served[1]) == 5


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("val.jsonl", "https://huggingface.co/datasets/bentrevett/multi30k/resolve/main"),
        ("test_2017_flickr.en.gz", "https://raw.githubusercontent.com/multi30k/"),
    ],
)
def test_a_changed_file_is_refused(served, cache, name, origin):
    """Fails if the second side is not checked, or the cached file is not named."""
    load_corpus("multi30k")
    kept = cache / name
    known = digest(kept)
    kept.write_bytes(kept.read_bytes() + b"\n")
    text = message()
    assert text.startswith(f"{name} of {origin}")
    assert f"(SHA-256 {digest(kept)[:12]}..., expected {known[:12]}...); delete {kept}" in text
    assert text.endswith("or use a folder that contains the corpus")


def test_what_comes_in_place_of_the_file_is_not_kept(served, cache):
    """Fails if the page of a captive portal stays in the cache."""
    (served[0] / "test_2017_flickr.en.gz").write_bytes(b"<html>please log in</html>")
    assert "(the SHA-256 of the download is not the expected one); put" in message()
    assert not (cache / "test_2017_flickr.en.gz").exists()


def test_without_a_network_the_place_of_the_file_is_given(served, cache, monkeypatch):
    def unreachable(url, timeout):
        raise OSError("network is unreachable\nand more lines")

    monkeypatch.setattr(multi30k, "urlopen", unreachable)
    text = message()
    assert f"to {cache / 'train.jsonl'} (network is unreachable); put the file there" in text
    assert "or use a folder that contains train.de" in text
    assert not cache.exists()


def test_a_file_that_never_ends_is_not_kept(served, cache, monkeypatch):
    monkeypatch.setattr(multi30k, "urlopen", lambda url, timeout: io.BytesIO(bytes(2**25)))
    assert "(it has more than 16,777,216 bytes)" in message()
    assert not cache.exists()


needs_multi30k = pytest.mark.skipif(
    not MULTI30K.is_dir(), reason=f"the Multi30k corpus is not there: {MULTI30K}"
)


@needs_multi30k
def test_multi30k_from_a_folder():
    corpus = load_corpus(str(MULTI30K))
    assert {name: len(split) for name, split in corpus.splits.items()} == {
        "train": 29_000,
        "validation": 1_014,
        "test_2016_flickr": 1_000,
        "test_2017_flickr": 1_000,
    }
    assert corpus.notes == ()
    assert overlap(corpus)["test_2016_flickr"] == {"source": 0, "target": 0, "pairs": 0}


@needs_multi30k
@pytest.mark.parametrize("split", ["train", "test_2016_flickr"])
def test_the_hub_files_are_those_of_the_folder(split):
    """The folder's sentences, in the hub's format, have the pinned digests."""
    sides = [
        gzip.decompress((MULTI30K / f"{split}.{side}.gz").read_bytes()).decode().split("\n")[:-1]
        for side in ("en", "de")
    ]
    lines = [json.dumps({"en": en, "de": de}) + "\n" for en, de in zip(*sides, strict=True)]
    expected = multi30k.SHA256[multi30k.HUB_FILES[split]]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == expected


@needs_multi30k
@pytest.mark.parametrize("filename", ["test_2017_flickr.de.gz", "test_2017_flickr.en.gz"])
def test_the_fetched_files_are_those_of_the_folder(filename):
    assert digest(MULTI30K / filename) == multi30k.SHA256[filename]
