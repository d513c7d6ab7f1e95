"""The documents match the code.

This fails if the page of encodings was edited by hand or a class's docstring changed without it, if
the encoding of the guide does not work as described, or if its file and its commands do not run
from another folder.
"""

import doctest
import re
import runpy
from pathlib import Path

import pytest
import torch
from scripts import run_shell
from tiny_tasks import translation_config

from ropewalk.encodings import REGISTRY, StackShape, build
from ropewalk.lab.running.encoding_probe import check_encodings
from ropewalk.model import Attention

DOCS = Path(__file__).parent.parent / "docs"
GUIDE = (DOCS / "adding-an-encoding.md").read_text("utf-8")
(FILE,) = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", GUIDE, flags=re.DOTALL)


def test_the_page_of_encodings_is_written_from_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))  # for its import of tables.py
    page = runpy.run_path(str(DOCS / "encodings.py"))["page"]()
    assert (DOCS / "encodings.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("name", REGISTRY)
def test_every_encoding_says_what_it_is(name):
    """Fails if an encoding's docstring lacks what a user needs to choose one."""
    text = " ".join((REGISTRY[name].__doc__ or "").split())
    assert "Source:" in text
    if name != "none":
        assert re.search(r"\bActs? on\b", text)
        assert "relative" in text or "absolute" in text
        assert "cache" in text
        assert re.search(r"\b[Cc]osts?\b", text), "what does it cost?"


class TestTheGuide:
    @pytest.fixture
    def attention(self, monkeypatch):
        monkeypatch.setitem(REGISTRY, "gaussian", None)  # so that it is removed after the test
        exec(FILE, {})
        shape = StackShape(1, heads=2, kv_heads=2, head_dim=4, width=8, causal=True)
        return Attention(8, 2, encoding=build("gaussian(width=3)", shape).for_layer(0))

    def test_it_is_short(self):
        """Fails if adding an encoding takes 30 lines."""
        code = FILE.splitlines()
        assert len([line for line in code if line.strip()]) < 30

    def test_it_is_its_formula(self, attention):
        """Fails if the bias has the wrong sign, or is not added to scaled scores."""
        torch.manual_seed(0)
        x = torch.randn(1, 6, 8)
        p = attention(x, causal=True, need_probabilities=True).probabilities
        q = attention.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
        k = attention.key_value(x).chunk(2, -1)[0].unflatten(-1, (2, 4)).transpose(1, 2)
        for head in range(2):
            for i in range(6):
                scores = [
                    float((q[0, head, i] @ k[0, head, j]).detach()) / 2 - (j - i) ** 2 / 18
                    for j in range(i + 1)
                ]
                expected = torch.tensor(scores).softmax(0)
                torch.testing.assert_close(p[0, head, i, : i + 1], expected)

    def test_both_encodings_decode_on_a_cache(self, monkeypatch):
        """Fails if the guide's promise about caches is wrong."""
        monkeypatch.setitem(REGISTRY, "gaussian", None)  # so that it is removed after the test
        namespace = {}
        test = doctest.DocTestParser().get_doctest(GUIDE, namespace, "guide", None, 0)
        assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
        monkeypatch.setitem(REGISTRY, "turned", test.globs["Turned"])
        exec(FILE, {})
        names = ("turned(cross=True)", "gaussian(width=3)")
        check_encodings([translation_config(encodings=names)])

    @pytest.mark.slow  # trains from the command line
    def test_it_runs_as_it_stands_from_outside(self, tmp_path):
        """Fails if the file is not found from another folder, or by the processes of the cells."""
        (tmp_path / "gaussian.py").write_text(FILE, encoding="utf-8")
        assert "gaussian(width=8)" in run_shell(COMMANDS, tmp_path)
        assert (tmp_path / "runs" / "gaussian" / "report.html").exists()
