"""Every code block in docs/ and README.md runs as written.

Python blocks of a page run in order in one namespace, `pycon` blocks as doctests in the same
namespace, shell blocks in order in one empty folder. A test fails if a block raises, if a printed
value differs, or if a command does not exit with 0.
"""

import doctest
import re
from pathlib import Path

import pytest
import torch
from scripts import run_shell

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for page in (ROOT / "docs").glob("*.md")
    if page.name != "adding-an-encoding.md"  # tests/test_docs.py runs it, and checks its numbers
)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "pycon", "sh", "text", "json", "yaml", "mermaid"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each code block, in order."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def with_language(pages: list[Path], *languages: str) -> list[Path]:
    return [page for page in pages if any(name in languages for name, _ in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_names_its_language(page):
    fences = [line for line in page.read_text("utf-8").splitlines() if line.startswith("```")]
    assert len(fences) == 2 * len(blocks(page))
    assert {name for name, _ in blocks(page)} <= LANGUAGES


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    with_language([*PAGES, ROOT / "README.md"], "python", "pycon"),
    ids=lambda page: page.stem,
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")  # as in a clone
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    namespace = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, f"{page.name}", "exec"), namespace)
        elif language == "pycon":
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            test = doctest.DocTestParser().get_doctest(text, namespace, page.name, None, None)
            test.globs = namespace  # names stay for the blocks after it
            report: list[str] = []
            failed = doctest.DocTestRunner(optionflags=flags).run(
                test, out=report.append, clear_globs=False
            )
            assert not failed.failed, "".join(report)


@pytest.mark.slow
@pytest.mark.parametrize("page", with_language(PAGES, "sh"), ids=lambda page: page.stem)
def test_shell_blocks_run(page, tmp_path):
    run_shell("\n".join(text for language, text in blocks(page) if language == "sh"), tmp_path)
