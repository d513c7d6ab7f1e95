"""`ropewalk train`."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.messages import RESUMABLE, errors, new_console
from ropewalk.cli.options import (
    Attention,
    ConfigFile,
    Data,
    Imports,
    LauncherArgs,
    LauncherName,
    Out,
    Preset,
    Settings,
    TaskName,
    config_of,
    path_of,
)

OneEncoding = Annotated[
    str | None,
    typer.Option(
        "--encodings",
        "--encoding",
        metavar="NAME",
        help="One encoding, such as rotary(theta=1e6); see ropewalk encodings.  [default: rotary]",
    ),
]
OneSeed = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        "--seed",
        metavar="N",
        help="Seed of parameters, data order and dropout.  [default: 1]",
    ),
]


def train(
    settings: Settings = None,
    encodings: OneEncoding = None,
    seeds: OneSeed = None,
    task: TaskName = None,
    preset: Preset = "default",
    data: Data = None,
    attention: Attention = None,
    config: ConfigFile = None,
    imports: Imports = None,
    out: Out = None,
    launcher: LauncherName = "local",
    launcher_args: LauncherArgs = None,
) -> None:
    """Train one model, or resume it; score it and print its path."""
    with errors() as interruption:
        from ropewalk.lab.running.launcher_arguments import make_launcher
        from ropewalk.lab.running.progress import Watcher
        from ropewalk.lab.running.run_folder import default_folder
        from ropewalk.lab.running.scheduler import train_one
        from ropewalk.lab.training.process_group import is_first_process

        fallback = {"encodings": "rotary", "seeds": 1}
        options = {"encodings": encodings, "seeds": seeds, "data": data, "attention": attention}
        chosen = config_of(preset, config, settings, fallback, imports, None, task=task, **options)
        run = path_of("--out", out) or default_folder(chosen)
        started_by = make_launcher(launcher, launcher_args, run)
        interruption.message = RESUMABLE
        with Watcher(new_console()) as watcher:
            path = train_one(chosen, run, watcher.watch, started_by, watcher.progress)
        if is_first_process():  # of those that torchrun started
            print(path)
