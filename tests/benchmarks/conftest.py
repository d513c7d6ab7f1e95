"""A script of the benchmarks runs to its end, with a corpus that is small enough."""

import json

import pytest
import torch


@pytest.fixture
def run_script(tmp_path):
    """Run a script, and give torch its threads back: the results that it writes to `out.json`."""

    def run(script, *words):
        threads = torch.get_num_threads()
        try:
            script.main([*words, "--out", str(tmp_path / "out.json")])
        finally:
            torch.set_num_threads(threads)
        return json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))

    return run


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("train", "val", "test"):
        for language in ("de", "en"):
            lines = [f"{language} {name} {'wort ' * (1 + i % 4)}{i}\n" for i in range(6)]
            (folder / f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
    return folder
