"""``ropewalk compare``."""

from __future__ import annotations

import sys

from ropewalk.cli.common import (
    GOES_ON,
    Against,
    Attention,
    ConfigFile,
    Data,
    Encodings,
    Imports,
    Jobs,
    Note,
    Out,
    Preset,
    Seeds,
    Settings,
    Sweep,
    TaskName,
    config_of,
    errors,
    names_of,
    new_console,
    path_of,
)
from ropewalk.cli.usage import whole_number


def compare(
    settings: Settings = None,
    task: TaskName = None,
    preset: Preset = "default",
    encodings: Encodings = None,
    seeds: Seeds = None,
    data: Data = None,
    attention: Attention = None,
    config: ConfigFile = None,
    imports: Imports = None,
    sweep: Sweep = None,
    out: Out = None,
    jobs: Jobs = None,
    against: Against = None,
    note: Note = None,
) -> None:
    """Train the same model with each encoding and each seed on a task, score and report.

    With --task all, a folder for each task and a summary of all. What is finished in a run folder
    is kept; what was interrupted goes on where it stopped. With --sweep, each encoding is trained
    with every setting and the first seed, and keeps the one of the lowest validation loss; settings
    of decoding are chosen on validation data too, by all seeds.
    """
    with errors() as interruption:
        from ropewalk.lab.compare import compare as run_comparison
        from ropewalk.lab.presets import tasks_of
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.report.terminal import print_summary, print_table
        from ropewalk.lab.run import default_folder

        at_once = whole_number("--jobs", jobs)
        options = {"encodings": encodings, "seeds": seeds, "data": data, "attention": attention}
        chosen = [
            config_of(preset, config, settings, None, imports, sweep, task=name, **options)
            for name in tasks_of(task)
        ]
        folder = path_of("--out", out)
        console = new_console()
        found = []
        for each in chosen:
            run = folder or default_folder(each)
            if len(chosen) > 1:
                run = (folder / each.task) if folder else run
                console.print(f"\n{each.task}", style="bold", highlight=False)
            interruption.message = GOES_ON
            with Watcher(console) as watcher:
                results = run_comparison(
                    each,
                    run,
                    jobs=at_once,
                    command=["ropewalk", *sys.argv[1:]],
                    note=note,
                    against=names_of(against),
                    watch=watcher.watch,
                    stage=watcher.stage,
                )
            print_table(console, results)
            console.print(f"\nReport: {run / 'report.html'}", highlight=False)
            found.append(results)
        if len(found) > 1:
            print_summary(console, found)
