"""Publish a run in a folder for version control: numbers and figures, never corpus sentences.

`python -m ropewalk.lab.report.publish RUN_FOLDER FOLDER` writes the folder in the form that
`ropewalk.lab.published` describes, with the answers if the project generates the data. With a
README as third argument, the table between its marks `<!-- result: FOLDER -->` and `<!-- end -->`
is rewritten too. `--add` adds the run's cells to a published folder of the same comparison.
`--readme FOLDER… [--overview README]` rewrites the READMEs of published folders from their numbers,
for when the wording has changed; numbers and pictures stay as they are. With `--draw`, the pictures
are drawn again too. `--retest FOLDER… [--against NAME]` repeats the tests on published scores, and
rewrites what depends on them.

Answers are published only if the project generates the data. The file of a cell and a split has a
line for each item: the translations of the built-in phrases, in the file whose SHA-256 is in the
scores; or the words of a generated task's answer, `=` if it is right. No sentence of any other
corpus is published.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ropewalk.figures.interactive import without_nan
from ropewalk.figures.picture import Picture
from ropewalk.files import (
    MOST_DATA_BYTES,
    Facts,
    read_bytes,
    read_checked_json,
    read_json,
    write_bytes,
)
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.published import ANSWERS, read_answers, write_published
from ropewalk.lab.report.parts import other_versions, with_part
from ropewalk.lab.report.pictures import FORM, pictures_of, score_pictures
from ropewalk.lab.report.readme import FORMER_ATTENTION, pictures_in, readme, with_excerpt
from ropewalk.lab.report.verdicts import with_verdicts
from ropewalk.lab.results import (
    Attention,
    AttentionMaps,
    MetricFacts,
    Results,
    SplitScores,
    read_attention,
    read_results,
    read_summary,
)
from ropewalk.lab.tasks import CLASSES

BUILT_IN = "phrases"


def free_hypotheses(run: Path, results: Results) -> dict[str, bytes]:
    """Return the answers of a run that may be published: name in the archive -> content."""
    answers = {}
    for row in results.encodings:
        for cell in row.cells:
            folder = row.cell(cell.seed).folder(run)
            for split in results.splits:
                content = _content(folder, results, split)
                _check_scored(content, cell.scores[split], folder / split)
                if content is not None:
                    answers[f"{ANSWERS}/{row.slug}/seed-{cell.seed}.{split}.txt"] = content
    return answers


def _check_scored(content: bytes | None, scores: SplitScores, place: Path) -> None:
    wanted = scores.hypotheses_sha256
    if content is None or wanted is None or hashlib.sha256(content).hexdigest() == wanted:
        return
    raise ValueError(
        f"run must contain the translations that were scored, but {place} has changed since; run "
        f"the command of the run again"
    )


def _content(folder: Path, results: Results, split: str) -> bytes | None:
    if results.is_translation:
        path = folder / f"{split}.hypotheses.txt"
        # A user's own folder of this name has sentences of theirs.
        built_in = results.corpus.name == results.config.data == BUILT_IN
        return read_bytes(path, MOST_DATA_BYTES) if built_in and path.exists() else None
    path = folder / f"{split}.json"
    if results.task not in SEQUENCE_TASKS or not path.exists():
        return None
    held = read_checked_json(path, most_bytes=MOST_DATA_BYTES)
    if "predictions" not in held:
        return None
    words = SEQUENCE_TASKS[results.task].words
    pairs = zip(held["predictions"], held["statistics"]["exact"], strict=True)
    lines = ["=" if right else " ".join(words[i] for i in ids) for ids, right in pairs]
    return "".join(f"{line}\n" for line in lines).encode()


def publish(run: Path, folder: Path) -> None:
    """Write `results.json`, `encodings.zip`, figures and a README into `folder`.

    The same run gives the same bytes. Raises ValueError if the run has no `results.json`.
    """
    results = _results_of_run(run)
    write_published(folder, results.as_json(), free_hypotheses(run, results))
    rewrite_readme(folder, draw=True)


def add(run: Path, folder: Path) -> list[str]:
    """Add a run's cells to the published ones in `folder`, and rewrite what depends on them.

    Returns which packages had other versions. Raises ValueError that says what differs if the run
    is of another comparison; then nothing is written.
    """
    if not (folder / "results.json").exists():
        publish(run, folder)
        return []
    results, part = _published(folder), _results_of_run(run)
    there, here = results.as_json(), part.as_json()
    whole = with_part(there, here)
    readme(Results.model_validate(whole), [])  # an error is raised before anything is written
    write_published(folder, whole, read_answers(folder) | free_hypotheses(run, part))
    rewrite_readme(folder, draw=True)
    return other_versions(there, here)


def _results_of_run(run: Path) -> Results:
    """Return the published part of a run: its results, the data's digest and attention."""
    if not (run / "results.json").exists():
        raise ValueError(f"run must be a finished run's folder, got {run}: it has no results.json")
    facts: Facts = without_nan(read_results(run).as_json())
    corpus = run / "corpus.json"
    if corpus.exists():
        facts["data_digest"] = read_summary(corpus, "digest")["digest"]
    for imported in facts["config"].get("imports", ()):  # identified by its digest; its path stays
        imported["source"] = Path(imported["source"]).name  # private
    results = Results.model_validate(facts)
    if not (run / "attention.json").exists():
        return results
    maps = read_attention(run)
    rows = []
    for row in results.encodings:
        shown = _middle_attention(results, maps, row.slug)
        rows.append(row if shown is None else row.with_changes(attention=shown))
    return results.with_changes(encodings=tuple(rows))


def _draw(folder: Path) -> None:
    """Draw the pictures of a published folder.

    Its picture of attention stays if the weights of one of its encodings are not known.
    """
    drawn = pictures_of(read_results(folder))
    _write(folder, drawn)
    if "attention" in drawn:
        (folder / FORMER_ATTENTION).unlink(missing_ok=True)


def _write(folder: Path, drawn: Mapping[str, Picture]) -> None:
    for stem, picture in drawn.items():
        for name, content in picture.both(stem, FORM).items():
            write_bytes(folder / name, content)


def rewrite_readme(folder: Path, *, draw: bool = False) -> None:
    """Rewrite a published folder's README from its numbers; its pictures stay, unless `draw`.

    Raises ValueError if the folder has no comparison.
    """
    results = _published(folder)
    if draw:
        _draw(folder)
    text = readme(results, pictures_in(folder))
    write_bytes(folder / "README.md", text.encode())


def retest(folder: Path, against: Sequence[str] | None = None) -> None:
    """Repeat the tests on a published folder's scores; rewrite numbers, score figures and README.

    against: encodings to test against besides the first; if not given, those of last time. Raises
    ValueError if the folder has no comparison, or no encoding of such a name.
    """
    results = _published(folder)
    metrics = tuple(
        MetricFacts.model_validate(metric.facts()) for metric in CLASSES[results.task].metrics
    )
    judged = with_verdicts(
        results.with_changes(metrics=metrics), results.against if against is None else against
    )
    in_the_run = set(results.against) - set(results.tested_later)
    if later := tuple(name for name in judged.against if name not in in_the_run):
        judged = judged.with_changes(tested_later=later)
    elif results.tested_later:
        judged = judged.without("tested_later")
    write_published(folder, judged.as_json(), read_answers(folder))
    _write(folder, score_pictures(judged))
    rewrite_readme(folder)


def _published(folder: Path) -> Results:
    path = folder / "results.json"
    if not path.exists() or "ropewalk" not in read_json(path):
        raise ValueError(f"folder must contain a published comparison, got {folder}")
    return read_results(folder)


def _middle_attention(results: Results, maps: AttentionMaps, slug: str) -> Attention | None:
    """Return an encoding's self-attention on the middle example, or None without a model."""
    if slug not in maps.encodings or not maps.sentences:
        return None
    middle, own = len(maps.sentences) // 2, maps.encodings[slug]
    site = "encoder" if results.is_translation else "self"
    return Attention(
        seed=own.seed,
        index=maps.sentences[middle].index,
        weights=own.sentences[middle][site].weights,
    )


def write_excerpt(overview: Path, folder: str) -> None:
    """Rewrite a folder's headline and table between its marks in a README."""
    text = with_excerpt(overview.read_text("utf-8"), folder, read_results(Path(folder)))
    write_bytes(overview, text.encode())


def _rewrite_overview(overview: Path | None, folders: Sequence[str]) -> None:
    """Rewrite the excerpts of the folders that a README has marks for."""
    if overview is None:
        return
    text = overview.read_text("utf-8")
    for folder in folders:
        if f"<!-- result: {folder} -->" in text:
            write_excerpt(overview, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish a run, and write its table into a README if one is given."""
    program = "python -m ropewalk.lab.report.publish"
    parser = argparse.ArgumentParser(prog=program, description="Publish a run.")
    parser.add_argument("run", type=Path, nargs="?", help="folder of a finished run")
    parser.add_argument("folder", nargs="?", help="folder for results.json, figures and README")
    parser.add_argument("overview", type=Path, nargs="?", help="a README with marks for the table")
    parser.add_argument(
        "--add", action="store_true", help="add the run's cells to those in the folder"
    )
    parser.add_argument("--readme", nargs="+", metavar="FOLDER", help="rewrite these READMEs only")
    parser.add_argument("--draw", action="store_true", help="with --readme: draw pictures too")
    parser.add_argument(
        "--retest", nargs="+", metavar="FOLDER", help="repeat the tests on the scores in these"
    )
    parser.add_argument(
        "--against",
        action="append",
        metavar="NAME",
        help="with --retest: test against this encoding too",
    )
    parser.add_argument(
        "--overview",
        type=Path,
        dest="marked",
        metavar="README",
        help="with --readme and --retest: a README with marks for the table",
    )
    options = parser.parse_args(arguments)
    try:
        if options.draw and options.readme is None:
            raise ValueError("--draw needs --readme with folders")
        if options.readme is not None or options.retest is not None:
            if options.run is not None or options.add:
                raise ValueError(
                    "--readme and --retest take only their own folders, not a run or --add"
                )
            for folder in options.readme or ():
                rewrite_readme(Path(folder), draw=options.draw)
            for folder in options.retest or ():
                retest(Path(folder), options.against)
            _rewrite_overview(options.marked, [*(options.readme or ()), *(options.retest or ())])
            return
        if options.folder is None:
            raise ValueError("give a run and a folder, or --readme or --retest with folders")
        if options.add:
            for text in add(options.run, Path(options.folder)):
                print(f"warning: {text}", file=sys.stderr)
        else:
            publish(options.run, Path(options.folder))
        if options.overview is not None:
            write_excerpt(options.overview, options.folder)
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
