"""A corpus that is small enough for a script of the benchmarks to run to its end."""

import pytest


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("train", "val", "test"):
        for language in ("de", "en"):
            lines = [f"{language} {name} {'wort ' * (1 + i % 4)}{i}\n" for i in range(6)]
            (folder / f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
    return folder
