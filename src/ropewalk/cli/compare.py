"""`ropewalk compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ropewalk.cli import options
from ropewalk.cli.messages import RESUMABLE, errors, new_console

if TYPE_CHECKING:
    from ropewalk.lab.config import Config
    from ropewalk.lab.results import Results


def compare(
    settings: options.Settings = None,
    task: options.TaskName = None,
    preset: options.Preset = "default",
    encodings: options.Encodings = None,
    seeds: options.Seeds = None,
    data: options.Data = None,
    attention: options.Attention = None,
    config: options.ConfigFile = None,
    imports: options.Imports = None,
    sweep: options.Sweep = None,
    out: options.Out = None,
    jobs: options.Jobs = None,
    launcher: options.LauncherName = "local",
    launcher_args: options.LauncherArgs = None,
    against: options.Against = None,
    note: options.Note = None,
) -> None:
    """Train the same model with each encoding and compare scores.

    Every encoding is trained with every seed. After an interruption, the same command continues and
    skips finished parts. --task all runs every task, each in its own folder, and prints a summary.

    With --sweep, each encoding is trained with every combination of values, always with the first
    seed. It keeps the combination with the lowest validation loss. Values of decoding fields, such
    as beam, are chosen after training, by the mean validation score of all seeds.
    """
    with errors() as interruption:
        from ropewalk.lab.presets import tasks_of
        from ropewalk.lab.report.terminal import print_summary
        from ropewalk.lab.running.launcher_arguments import make_launcher
        from ropewalk.lab.running.run_folder import default_folder

        fields = {"encodings": encodings, "seeds": seeds, "data": data, "attention": attention}
        configs = [
            options.config_of(preset, config, settings, None, imports, sweep, task=name, **fields)
            for name in tasks_of(task)
        ]
        folder = options.path_of("--out", out)
        console = new_console()
        finished = []
        for each in configs:
            run = folder or default_folder(each)
            if len(configs) > 1:
                run = (folder / each.task) if folder else run
                console.print(f"\n{each.task}", style="bold", highlight=False)
            started_by = make_launcher(launcher, launcher_args, run)
            interruption.message = RESUMABLE
            results = run_and_print(
                console,
                each,
                run,
                jobs=jobs,
                launcher=started_by,
                note=note,
                against=options.names_of(against),
            )
            if results is not None:
                finished.append(results)
        if len(finished) > 1:
            print_summary(console, finished)


def run_and_print(console: Console, config: Config, run: Path, **given: Any) -> Results | None:
    """Compare, print the table and return the results; None in other processes of torchrun."""
    from ropewalk.lab.report.terminal import print_table
    from ropewalk.lab.running.compare import compare as run_comparison
    from ropewalk.lab.running.progress import Watcher

    with Watcher(console) as watcher:
        results = run_comparison(
            config,
            run,
            command=["ropewalk", *sys.argv[1:]],
            watch=watcher.watch,
            stage=watcher.stage,
            progress=watcher.progress,
            **given,
        )
    if results is not None:
        print_table(console, results)
        next_steps = [f"ropewalk explore {shlex.quote(str(run))}"]
        models = sorted(run.glob("cells/**/model.safetensors"))
        if config.task == "translation" and models:
            next_steps.append(f"ropewalk translate {shlex.quote(str(models[0].parent))}")
        console.print(f"\nReport: {run / 'report.html'}", highlight=False)
        console.print(f"Next: {', '.join(next_steps)}", highlight=False)
    return results
