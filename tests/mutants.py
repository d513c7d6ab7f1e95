"""Mutation testing: would the tests notice a change of the code?

    pip install mutmut==3.8.1
    python tests/mutants.py OUT [FILE ...]

copies the working tree to OUT, changes each function of the files (of all `FILES` by default) in
small ways, one at a time, and runs the tests that cover the function. Strings, annotations and what
is raised stay as they are. A file takes up to half an hour on two cores. A row for each file is
printed, then the change of each mutant that no test noticed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROTARY = ("frequencies", "tables", "rotate", "scaling", "axes", "positions")
SCORING = ("bleu", "significance")
FILES = [f"rotary/{name}.py" for name in ROTARY] + [f"lab/scoring/{name}.py" for name in SCORING]
#: Not the tests that ask other libraries: they take minutes.
TESTS = {
    "rotary": [
        "tests/rotary",
        "tests/test_checks.py",
        "--ignore=tests/rotary/config",
        *(f"--ignore=tests/rotary/test_{name}.py" for name in ("diffusers", "vision_towers")),
    ],
    "lab": ["tests/lab/scoring"],
}
OPTIONS = ["-o", "addopts=--import-mode=importlib", "-n", "0", "-m", "not slow"]
OPTIONS += ["--hypothesis-profile=suite"]
CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["{file}"]
also_copy = {copied}
pytest_add_cli_args = {options}
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
"""
#: mutmut's own command, without mutants of strings and of what is raised.
DRIVER = """
import libcst
from mutmut.mutation import file_mutation, mutators
file_mutation.mutation_operators = [
    each for each in mutators.mutation_operators if each[1] is not mutators.operator_string
]
visitor = file_mutation.MutationVisitor
skips = visitor._skip_node_and_children
visitor._skip_node_and_children = lambda self, node: (
    isinstance(node, libcst.Raise | libcst.FormattedString) or skips(self, node)
)
from mutmut.__main__ import cli
cli()
"""


def mutmut(copy: Path, *words: str) -> str:
    """Run mutmut in a copy of the repository, and return what it says."""
    command = [sys.executable, "-c", DRIVER, *words]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mutants: mutmut {words[0]} failed\n{done.stdout[-3000:]}{done.stderr}")
    return done.stdout


def copy_repository(copy: Path) -> None:
    """Copy what git knows, and the compiled kernels."""
    known = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(known, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    compiled = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.so")]
    for name in (*names.splitlines(), *compiled):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)


def mutate(out: Path, file: str) -> tuple[int, list[str]]:
    """Return how many mutants a file has, and the changes that no test noticed."""
    copy = out / file.replace("/", "-").removesuffix(".py")
    copy.mkdir()
    copy_repository(copy)
    beside = sorted(path.name for path in copy.iterdir() if path.name not in ("src", "tests"))
    path = f"src/ropewalk/{file}"
    tests = TESTS[file.split("/")[0]]
    config = CONFIG.format(
        file=path, copied=json.dumps(beside), options=json.dumps(OPTIONS), tests=json.dumps(tests)
    )
    with (copy / "pyproject.toml").open("a", encoding="utf-8") as pyproject:
        pyproject.write(config)
    mutmut(copy, "run")
    results = json.loads((copy / "mutants" / f"{path}.meta").read_text("utf-8"))
    codes = results["exit_code_by_key"]
    alive = [name for name, code in codes.items() if code in (0, 33)]  # 33: no test covers it
    return len(codes), [changed(mutmut(copy, "show", name)) for name in alive]


def changed(diff: str) -> str:
    """Return the changed lines of a diff, without its head."""
    lines = [line for line in diff.splitlines() if line[:1] in ("-", "+", "@")]
    return "\n".join(line for line in lines if line[:3] not in ("---", "+++"))


def main() -> None:
    """Mutate the files of the command line."""
    parser = argparse.ArgumentParser(description="Which changes of the code do tests notice?")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that is made")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)}")
    asked = parser.parse_args()
    if unknown := set(asked.files) - set(FILES):
        parser.error(f"FILE must be one of {', '.join(FILES)}, got {unknown.pop()!r}")
    out, files = asked.out, asked.files or FILES
    try:
        out.mkdir(parents=True)
    except OSError as error:
        parser.error(f"OUT must be a new folder: {error}")
    survivors = []
    print("| file | mutants | noticed | % |\n| --- | --- | --- | --- |")
    for file in files:
        count, alive = mutate(out, file)
        noticed = count - len(alive)
        print(f"| {file} | {count} | {noticed} | {100 * noticed / count:.1f} |", flush=True)
        survivors += [f"{file}\n{change}" for change in alive]
    print("", *survivors, sep="\n\n")


if __name__ == "__main__":
    main()
