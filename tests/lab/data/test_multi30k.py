"""Multi30k by name: every split is present, and only the pinned files are read.

These fail when a test set is left out, when a file with other content is read, or when a message
leaves out the file or the way out. Downloads are faked; no network is used.
"""

import builtins
import gzip
import hashlib
import io
import json
from pathlib import Path

import pytest

from ropewalk.lab.data import hub as hub_module
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
def hub(tmp_path, monkeypatch):
    """A hub of three small files; the download reads a folder."""
    for filename, word in [("train.jsonl", "T"), ("val.jsonl", "V"), ("test.jsonl", "E")]:
        line = json.dumps({"en": f"{word} en", "de": f"{word} de"})
        (tmp_path / filename).write_text(line + "\n", encoding="utf-8")
    sums = {
        split: (filename, digest(tmp_path / filename))
        for split, (filename, _) in multi30k.HUB_FILES.items()
    }
    monkeypatch.setattr(multi30k, "HUB_FILES", sums)
    monkeypatch.setattr(multi30k, "download", lambda repository, filename: tmp_path / filename)
    return tmp_path


@pytest.fixture
def web(tmp_path, monkeypatch, cache):
    """A server of the 2017 files that records its requests."""
    asked: list[str] = []
    files: dict[str, dict[str, tuple[str, str]]] = {}
    for split, sides in multi30k.WEB_FILES.items():
        files[split] = {}
        for language, (filename, _) in sides.items():
            (tmp_path / filename).write_bytes(gzip.compress(f"W {language}\n".encode(), mtime=0))
            files[split][language] = (filename, digest(tmp_path / filename))

    def answer(url, timeout):
        asked.append(url)
        return io.BytesIO((tmp_path / url.rpartition("/")[2]).read_bytes())

    monkeypatch.setattr(multi30k, "WEB_FILES", files)
    monkeypatch.setattr(hub_module, "urlopen", answer)
    return asked


def test_every_split_comes_by_name(hub, web):
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


def test_what_was_fetched_is_not_fetched_again(hub, web):
    load_corpus("multi30k")
    folder = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
    assert web == [f"{folder}/test_2017_flickr.{language}.gz" for language in ("de", "en")]
    load_corpus("multi30k")
    assert len(web) == 2


def test_a_changed_hub_file_is_refused(hub, web):
    known = digest(hub / "val.jsonl")
    with (hub / "val.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n")
    text = message()
    assert text.startswith(
        "val.jsonl of bentrevett/multi30k is not the file that this version expects (SHA-256 "
        f"{digest(hub / 'val.jsonl')[:12]}..., expected {known[:12]}...); delete "
    )


def test_a_changed_file_of_2017_is_refused(hub, web, cache):
    """Fails if the second side is not checked, or the cached file is not named."""
    load_corpus("multi30k")
    kept = cache / "test_2017_flickr.en.gz"
    known = digest(kept)
    kept.write_bytes(gzip.compress(b"another\n", mtime=0))
    text = message()
    assert text.startswith("test_2017_flickr.en.gz of https://raw.githubusercontent.com/multi30k/")
    assert f"(SHA-256 {digest(kept)[:12]}..., expected {known[:12]}...); delete {kept}" in text
    assert text.endswith("or use a folder that contains the corpus")


def test_what_comes_in_place_of_the_file_is_not_kept(hub, web, cache):
    """Fails if the page of a captive portal stays in the cache."""
    (hub / "test_2017_flickr.en.gz").write_bytes(b"<html>please log in</html>")
    assert "(the SHA-256 of the download is not the expected one); put" in message()
    assert not (cache / "test_2017_flickr.en.gz").exists()


def test_without_a_network_the_place_of_the_file_is_given(hub, web, cache, monkeypatch):
    def unreachable(url, timeout):
        raise OSError("network is unreachable\nand more lines")

    monkeypatch.setattr(hub_module, "urlopen", unreachable)
    text = message()
    assert f"to {cache / 'test_2017_flickr.de.gz'} (network is unreachable); put the file" in text
    assert not cache.exists()


def test_a_file_that_never_ends_is_not_kept(hub, web, cache, monkeypatch):
    monkeypatch.setattr(hub_module, "urlopen", lambda url, timeout: io.BytesIO(bytes(2**21)))
    assert "(it has more than 1,048,576 bytes)" in message()
    assert not cache.exists()


def test_without_huggingface_hub_the_pip_command_is_given(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **options):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert message().endswith("is not installed: pip install 'ropewalk[hub]'")


def test_without_a_network_the_way_out_is_given(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")

    def fail(*arguments, **options):
        raise OSError("no route to host. Try again.\nand many more lines")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    monkeypatch.setattr(hub_module, "check_network", lambda: None)
    text = message()
    assert "(no route to host); without a network, use a folder" in text


def test_without_a_network_the_client_is_not_asked_to_try_again(monkeypatch):
    """Fails if the client, which retries for minutes, is called while the hub is unreachable."""
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")
    asked = []

    def ask(*arguments, local_files_only=False, **options):
        asked.append(local_files_only)
        raise OSError("not there")

    def unreachable(*arguments):
        raise OSError("network is unreachable")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", ask)
    monkeypatch.setattr(hub_module, "getproxies", dict)
    monkeypatch.setattr(hub_module.socket, "create_connection", unreachable)
    assert "(network is unreachable)" in message()
    assert asked == [True]


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
@pytest.mark.parametrize(
    ("split", "name"), [("train", "train"), ("test_2016_flickr", "test_2016_flickr")]
)
def test_the_hub_files_are_those_of_the_folder(split, name):
    """The folder's sentences, in the hub's format, have the pinned digests."""
    sides = [
        gzip.decompress((MULTI30K / f"{name}.{language}.gz").read_bytes()).decode().split("\n")[:-1]
        for language in ("en", "de")
    ]
    lines = [json.dumps({"en": en, "de": de}) + "\n" for en, de in zip(*sides, strict=True)]
    _, expected = multi30k.HUB_FILES[split]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == expected


@needs_multi30k
@pytest.mark.parametrize("language", ["de", "en"])
def test_the_fetched_files_are_those_of_the_folder(language):
    filename, expected = multi30k.WEB_FILES["test_2017_flickr"][language]
    assert digest(MULTI30K / filename) == expected
