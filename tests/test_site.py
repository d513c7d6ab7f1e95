"""The site of the documentation: every page is in it, and every public name is on a page.

These fail if a page of docs/ is not in the navigation, if a public name is on no reference page,
if a link names no file, or if what a page loads from the network goes unnoticed. `.ci/run` builds
the site, for which the tests' environment has no tools.
"""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from chromium import chromium

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PUBLIC = runpy.run_path(str(ROOT / "tests" / "test_docstring_examples.py"))["PUBLIC"]
BUILD = runpy.run_path(str(ROOT / "docs" / "build.py"))


def nav_pages(entries) -> set[str]:
    """Return the pages of a navigation, however deep."""
    if isinstance(entries, str):
        return {entries}
    values = entries.values() if isinstance(entries, dict) else entries
    return set().union(*map(nav_pages, values))


def test_the_navigation_has_every_page():
    pages = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    assert not [page for page in pages if not (ROOT / page).is_file()]
    written = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    assert written <= pages


def test_every_public_name_is_on_a_reference_page():
    """`ropewalk.rotate` is also a module's name, so its page names the function's own place.

    A function with two public names, such as `patch`, is on one page.
    """
    text = "".join(
        page.read_text("utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    )
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    own = {f"{value.__module__}.{value.__name__}": name for name, value in PUBLIC.items()}
    assert sorted(own.get(name, name) for name in shown) == sorted(own.values())


def test_every_link_of_the_repository_names_a_file():
    found = BUILD["pages_and_files"]()
    assert ROOT / "benchmarks" / "README.md" in found
    assert ROOT / "docs" / "encodings.md" in found
    assert ROOT / "results" / "claims.md" in found
    assert ROOT / "docs" / "pictures" / "error-and-speed-dark.svg" in found  # by HTML's srcset


def test_a_link_to_no_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(BUILD["linked_files"].__globals__, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("[here](page.md#top), [there](https://example.org), `[code](x.md)`", "utf-8")
    assert BUILD["linked_files"](page) == [page]
    page.write_text("[gone](gone.md)", "utf-8")
    with pytest.raises(ValueError, match=r"page\.md: links must name files, got .*gone\.md"):
        BUILD["linked_files"](page)


def test_what_a_page_loads_from_the_network_is_found(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="https://a.org">a</a><img src="b.png"><script src="//c.org/c.js"></script>'
        '<link rel="stylesheet" href="https://d.org/d.css"><link rel="canonical" href="https://e">',
        "utf-8",
    )
    assert BUILD["loaded_from_network"](page) == ["//c.org/c.js", "https://d.org/d.css"]


def test_arguments_in_docstrings_become_a_list(monkeypatch):
    griffe = SimpleNamespace(Class=int, Extension=object, Function=str, Object=object)
    monkeypatch.setitem(sys.modules, "griffe", griffe)
    as_markdown = runpy.run_path(str(ROOT / "docs" / "docstrings.py"))["as_markdown"]
    text = "Rotate.\n\nx: queries\n    or keys.\nSource: a paper.\n\nExample:\n    >>> 1\n    1"
    assert as_markdown(text, {"x"}) == (
        "Rotate.\n\n- `x`: queries\n    or keys.\n\nSource: a paper.\n\nExamples:\n    >>> 1\n    1"
    )


@pytest.mark.slow  # starts a browser
def test_scripts_of_the_site_work_in_a_page_that_is_opened_as_a_file(tmp_path):
    """The filter hides rows and names, and says how many rows are left; a worker answers."""
    rows = "<tr><td>llama, phi<td>half<tr><td>gemma3, phi3, gemma<td>half<tr><td>gemma2<td>all"
    scripts = [(DOCS / name).read_text("utf-8") for name in ("site.js", "iframe-worker.js")]
    (tmp_path / "page.html").write_text(
        "<article><table><tbody><tr><td>above</table><div class=filter data-label=Show></div>"
        f"<table><tbody>{rows}</table></article><script>{'</script><script>'.join(scripts)}</script>"
    )
    (tmp_path / "worker.js").write_text("onmessage = ({ data }) => postMessage(data + 1)")
    with chromium() as browser:
        page = browser.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.get_by_label("Show").fill("HALF gemma")
        assert page.get_by_role("status").text_content() == "1 of 3 rows"
        shown = page.locator("tr:visible")
        assert shown.all_inner_texts() == ["above", "gemma3, gemma, …\thalf"]
        page.get_by_label("Show").fill("")
        assert shown.all_inner_texts()[2] == "gemma3, phi3, gemma\thalf"
        ask = "new Promise(then => { const w = new Worker('worker.js'); w.postMessage(41); "
        assert page.evaluate(ask + "w.onmessage = event => then(event.data) })") == 42
