"""Fetched real texts: verified by digest, the same anywhere, written completely or not at all.

These fail when a file with another digest is read, when two fetches differ, and when a failure
leaves a partial folder behind.
"""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import fetch_text
import pytest
from published_readme import TEXTS

from real_text import folder as folder_module
from real_text import obtain
from real_text.catalogue import HANDBOOK, KJV, PYTHON_DOCS, REAL_TEXTS, RealText
from real_text.debian_packages import bible_data, deb, pinned_to, without_apt
from real_text.folder import fetch
from real_text.kjv import BOOKS
from ropewalk.lab.data.texts import load_texts


def python_package():
    root, pages = "usr/share/doc/python3.11/html/", {}
    for i in range(12):
        body = f"<h1>Page {i}</h1>" + f"<p>Words of page {i} and of nothing else.</p>" * 30
        html = f"<html><body><div role=main>{body}</div></body></html>"
        pages[f"{root}library/m{i}.html"] = html.encode()
    pages[f"{root}genindex.html"] = pages[f"{root}library/m0.html"]
    return deb({**pages, "usr/share/doc/python3.11-doc/copyright": b"PSF\n"})


def handbook_package():
    root, pages, names = "usr/share/doc/debian-handbook/html/en-US/", {}, ["index.html"]
    for i in range(5):
        names += [f"chapter{i}.html", f"sect{i}.html"]
    for name, following in zip(names, [*names[1:], ""], strict=True):
        up = f"chapter{name[4]}.html" if name.startswith("sect") else "index.html"
        links = f'<link rel="up" href="{up}" /><link rel="next" href="{following}" />'
        pages[root + name] = (
            f"<html><head>{links}</head><body>" + f"<p>Here is {name}.</p>" * 40 + "</body></html>"
        ).encode()
    return deb({**pages, "usr/share/doc/debian-handbook/copyright": b"GPL\n"})


def bible_package():
    verses = "".join(f"{code}1:{v} Verse {v} of {code}.\n" for code in BOOKS for v in range(1, 9))
    data = bible_data(verses.encode(), 4_096)
    return deb({"usr/lib/bible.data": data, "usr/share/doc/bible-kjv-text/copyright": b"PD\n"})


PACKAGES = ((KJV, bible_package()), (HANDBOOK, handbook_package()), (PYTHON_DOCS, python_package()))


@pytest.fixture
def debs(tmp_path, monkeypatch):
    """A folder of small packages in place of the real ones, with the catalog's names."""
    folder = tmp_path / "debs"
    folder.mkdir()
    parts = [pinned_to(part, content) for part, content in PACKAGES]
    for part, (_, content) in zip(parts, PACKAGES, strict=True):
        (folder / part.file.name).write_bytes(content)
    texts = {"debian-texts": RealText("debian-texts", tuple(parts), "")}
    texts |= {part.name: RealText(part.name, (part,), "") for part in parts}
    monkeypatch.setattr(folder_module, "REAL_TEXTS", texts)
    return folder


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_fetched_folder_is_what_data_takes(debs, tmp_path):
    sizes = fetch("debian-texts", tmp_path / "out", debs)
    texts = load_texts(str(tmp_path / "out"))
    assert list(texts.splits) == ["train", "validation", "test"]
    assert all(sizes.values())
    counts = [len(split) for split in texts.splits.values()]
    assert sum(counts) == 66 + 5 + 12
    files = tree(tmp_path / "out")
    assert sum(path.endswith(".txt") for path in files) == sum(counts)
    for line in files["SHA256SUMS"].decode().splitlines():
        digest, path = line.split("  ")
        assert hashlib.sha256(files[path]).hexdigest() == digest
    readme = files["README.md"].decode()
    assert all(
        part.file.sha256 in readme for part in folder_module.REAL_TEXTS["debian-texts"].parts
    )
    assert files["COPYRIGHT-kjv"] == b"PD\n"


def test_another_text_in_the_place_is_not_taken_for_this_one(debs, tmp_path):
    """Fails if a text without a recorded digest accepts the folder of another text."""
    fetch("kjv", tmp_path / "out", debs)
    with pytest.raises(ValueError, match="does not contain debian-handbook according to"):
        fetch("debian-handbook", tmp_path / "out", debs)


def test_a_folder_without_a_split_is_not_whole(debs, tmp_path):
    fetch("kjv", tmp_path / "out", debs)
    lines = (tmp_path / "out" / "SHA256SUMS").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "  test/" not in line]
    (tmp_path / "out" / "SHA256SUMS").write_text("".join(kept), "utf-8")
    for path in (tmp_path / "out" / "test").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="SHA256SUMS lacks a split"):
        fetch("kjv", tmp_path / "out", debs)


def test_two_fetches_give_the_same_bytes_and_parts_keep_their_splits(debs, tmp_path):
    fetch("debian-texts", tmp_path / "one", debs)
    fetch("debian-texts", tmp_path / "two", debs)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    fetch("kjv", tmp_path / "kjv", debs)
    books = {path for path in tree(tmp_path / "one") if "/kjv-" in path}
    assert books == {path for path in tree(tmp_path / "kjv") if path.endswith(".txt")}


def test_a_handbook_chapter_has_its_sections(debs, tmp_path):
    fetch("debian-handbook", tmp_path / "out", debs)
    chapter = next(text for path, text in tree(tmp_path / "out").items() if "03-chapter2" in path)
    assert chapter.startswith(b"Here is chapter2.html.\n\n")
    assert chapter.endswith(b"Here is sect2.html.\n")


def test_what_is_there_is_looked_over_and_not_written_again(debs, tmp_path):
    out = tmp_path / "out"
    sizes = fetch("kjv", out, debs)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert fetch("kjv", out, tmp_path / "nothing") == sizes
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    changed = next((out / "test").iterdir())
    changed.write_bytes(changed.read_bytes() + b"!")
    with pytest.raises(
        ValueError, match=r"was changed after the fetch; remove it, or name another with --out"
    ):
        fetch("kjv", out, debs)
    changed.unlink()
    with pytest.raises(
        ValueError, match=r"is not complete: SHA256SUMS and the folder differ in test/"
    ):
        fetch("kjv", out, debs)


@pytest.mark.parametrize("there", ["folder", "file"])
def test_another_thing_in_the_place_is_left_alone(debs, tmp_path, there):
    out = tmp_path / "out"
    out.mkdir() if there == "folder" else out.write_text("mine")
    with pytest.raises(
        ValueError, match=r"--out must name a folder that does not exist yet, got .*out"
    ):
        fetch("kjv", out, debs)
    assert out.exists()


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"NAME must be one of debian-texts, .*; did you mean 'kjv'"
    ):
        fetch("kvj", Path("out"))


@pytest.mark.parametrize("damage", ["other", "longer", "missing"])
def test_a_file_that_is_not_the_one_known_is_refused(debs, tmp_path, damage):
    path = debs / KJV.file.name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + b"!" if damage == "other" else content + b"!")
    with pytest.raises(ValueError, match=r"bible-kjv-text_4\.38_all\.deb.*get .*snapshot") as error:
        fetch("debian-texts", tmp_path / "out", debs)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["debs"]


def test_a_text_that_comes_out_otherwise_is_refused(debs, tmp_path):
    texts = folder_module.REAL_TEXTS
    texts["kjv"] = replace(texts["kjv"], digest="0" * 64)
    with pytest.raises(ValueError, match=r"text of kjv has SHA-256 .* must be 000000000000"):
        fetch("kjv", tmp_path / "out", debs)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_nothing(debs, tmp_path, monkeypatch, kind):
    write, written = Path.write_bytes, []

    def stops(path, content):
        written.append(path)
        if len(written) > 20:
            raise kind("stop")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", stops)
    with pytest.raises(kind):
        fetch("kjv", tmp_path / "out", debs)
    assert [path.name for path in tmp_path.iterdir()] == ["debs"]


def test_a_package_comes_from_the_pool_or_else_from_the_snapshot(debs, tmp_path, monkeypatch):
    content = (debs / KJV.file.name).read_bytes()
    pool, snapshot = KJV.file.urls
    asked = without_apt(monkeypatch, {pool: b"another", snapshot: content})
    fetch("kjv", tmp_path / "out")
    assert asked == [pool, snapshot]
    assert pool.endswith("/pool/main/b/bible-kjv/bible-kjv-text_4.38_all.deb")


def test_where_nothing_has_it_one_line_says_why_and_the_way_out(debs, tmp_path, monkeypatch):
    without_apt(monkeypatch, {KJV.file.urls[0]: b"another"})
    with pytest.raises(ValueError, match=r"has SHA-256 .*no network.* --from FOLDER$") as error:
        fetch("kjv", tmp_path / "out")
    assert "\n" not in str(error.value)


def test_the_texts_of_committed_results_can_be_fetched():
    assert TEXTS.keys() <= REAL_TEXTS.keys()


def test_the_script_reports_one_line(tmp_path, debs, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fetch_text.py", "kjv", "--from", str(debs)])
    fetch_text.main()
    assert capsys.readouterr().out.startswith("kjv written: train 0.0")
    assert load_texts("kjv").name == "kjv"
    fetch_text.main()
    assert capsys.readouterr().out.startswith("kjv already exists and is complete: train 0.0")
    monkeypatch.setattr(sys, "argv", ["fetch_text.py", "kvj"])
    with pytest.raises(SystemExit, match=r"^fetch_text: NAME must be one of debian-texts, kjv, "):
        fetch_text.main()


@pytest.mark.skipif(os.name == "nt", reason="a script stands for apt-get")
@pytest.mark.parametrize("works", [True, False])
def test_apt_get_is_asked_first_where_it_is(debs, tmp_path, monkeypatch, works):
    tools = tmp_path / "tools"
    tools.mkdir()
    script = tools / "apt-get"
    copy = f'cp "{debs / KJV.file.name}" .'
    script.write_text(
        f'#!/bin/sh\ntest "$1 $2" = "download bible-kjv-text=4.38" || exit 3\n'
        f"{copy if works else 'echo E: Version not found >&2; exit 100'}\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    which = obtain.shutil.which
    asked = without_apt(monkeypatch, {})
    monkeypatch.setattr(obtain.shutil, "which", which)
    if works:
        assert fetch("kjv", tmp_path / "out")["train"] > 0
        assert asked == []
    else:
        with pytest.raises(ValueError, match=r"apt-get: Version not found; https:"):
            fetch("kjv", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("part", [KJV, HANDBOOK, PYTHON_DOCS], ids=lambda part: part.name)
def test_the_real_packages_give_the_text_that_is_known(part, tmp_path):
    given = os.environ.get("ROPEWALK_DEBS")
    if not given or not (Path(given) / part.file.name).exists():
        pytest.skip(f"name a folder that holds {part.file.name} in ROPEWALK_DEBS")
    fetch(part.name, tmp_path / "out", Path(given))
    texts = load_texts(str(tmp_path / "out"))
    assert sum(len(text) for split in texts.splits.values() for text in split) > 1_000_000
