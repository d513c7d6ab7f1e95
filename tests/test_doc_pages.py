"""Every code block in docs/ and README.md runs as written.

Python blocks of a page run in order in one namespace, `pycon` blocks as doctests in the same
namespace, shell blocks in order in one empty folder: commands of ropewalk and Python scripts in
this process, which has imported torch, and so do the cells that they train. A test fails if a
block raises, if a printed value differs, or if a command does not exit with 0.
"""

import doctest
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch
from cells_here import run_cells_here
from scripts import run_shell

from ropewalk.explorer import encodings_room, stretch_room
from ropewalk.lab.data import corpus
from ropewalk.lab.data.phrases import read_phrases
from ropewalk.lab.running import compare, scheduler

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for page in (ROOT / "docs").glob("*.md")
    if page.name != "adding-an-encoding.md"  # tests/test_docs.py runs it, and checks its numbers
)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A line of a shell block that is nothing but a command of ropewalk, which the next may continue
#: and which may read words from `echo`, or a script of this folder.
COMMAND = re.compile(
    r'^(?:echo "(.*)" \| )?(ropewalk (?:[^|<>\n\\]|\\\n)+|python \w+\.py)$', re.MULTILINE
)
#: Sizes of trainings in the pages, and those that show here that the blocks run.
SMALLER = {
    "examples=100 test": "examples=4 width=32 heads=2 feed_forward=64 test",  # frequency-usage
    "examples=200 epochs": "examples=20 width=32 heads=2 feed_forward=64 epochs",  # many-machines
    "STEPS = 128, 600": "STEPS = 128, 20",  # measure-a-longer-context
    "--rounds 6": "--rounds 2",  # time-your-model
    'tales["train"]': 'tales["train"][:20]',
    "--text tales.txt\n": "--text tales.txt --passages 2\n",
}
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


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_the_first_example_that_rotates_names_the_axes(page):
    """With as many heads as positions, no code can notice another order."""
    rotating = [text for _, text in blocks(page) if re.search(r"\b(rope|rotate)\(", text)]
    assert not rotating or re.search(r"# .*\((B, H, S, |B, S, H, |D,)", rotating[0]), rotating[0]


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
def test_shell_blocks_run(page, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in (compare, scheduler):
        monkeypatch.setattr(module, "run_cells", run_cells_here)
    few = {
        name: pairs[: 20 if name != "train" else 2_000] for name, pairs in read_phrases().items()
    }
    monkeypatch.setattr(corpus, "read_phrases", lambda: few)
    monkeypatch.setattr(encodings_room, "encodings_data", dict)  # tests of the explorer export all
    monkeypatch.setattr(stretch_room, "stretch_data", dict)
    script = "\n".join(text for language, text in blocks(page) if language == "sh")
    for usual, smaller in SMALLER.items():
        script = script.replace(usual, smaller)
    others, *found = COMMAND.split(script)
    for echoed, line, after in zip(*[iter(["", "", others, *found])] * 3, strict=True):
        program, *words = shlex.split((line or "true").replace("\\\n", " "))
        if program == "python":
            monkeypatch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        elif program == "ropewalk":
            given = io.TextIOWrapper(io.BytesIO(f"{echoed or ''}\n".encode()))
            monkeypatch.setattr(sys, "stdin", given)
            status, _, err = command(*words)
            assert status == 0, err
        if after.strip():
            run_shell(after, tmp_path)
