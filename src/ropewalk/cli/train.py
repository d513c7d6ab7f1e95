"""`ropewalk train`."""

from __future__ import annotations

from typing import Annotated

from ropewalk.cli import options
from ropewalk.cli.messages import RESUMABLE, errors, new_console
from ropewalk.cli.options import option

OneEncoding = Annotated[
    str | None,
    option(
        "NAME",
        "One encoding, such as rotary(theta=1e6); see ropewalk encodings.  [default: rotary]",
        "--encodings",
        "--encoding",
    ),
]
OneSeed = Annotated[
    str | None,
    option("N", "Seed of parameters, data order and dropout.  [default: 1]", "--seeds", "--seed"),
]


def train(
    settings: options.Settings = None,
    encodings: OneEncoding = None,
    seeds: OneSeed = None,
    task: options.TaskName = None,
    preset: options.Preset = "default",
    data: options.Data = None,
    attention: options.Attention = None,
    config: options.ConfigFile = None,
    imports: options.Imports = None,
    out: options.Out = None,
    launcher: options.LauncherName = "local",
    launcher_args: options.LauncherArgs = None,
) -> None:
    """Train one model, or resume it; score it and print its path."""
    with errors() as interruption:
        from ropewalk.lab.running.launcher_arguments import make_launcher
        from ropewalk.lab.running.progress import Watcher
        from ropewalk.lab.running.run_folder import default_folder
        from ropewalk.lab.running.scheduler import train_one
        from ropewalk.lab.training.process_group import is_first_process

        fallback = {"encodings": "rotary", "seeds": 1}
        fields = {"encodings": encodings, "seeds": seeds, "data": data, "attention": attention}
        chosen = options.config_of(
            preset, config, settings, fallback, imports, None, task=task, **fields
        )
        run = options.path_of("--out", out) or default_folder(chosen)
        started_by = make_launcher(launcher, launcher_args, run)
        interruption.message = RESUMABLE
        with Watcher(new_console()) as watcher:
            path = train_one(chosen, run, watcher.watch, started_by, watcher.progress)
        if is_first_process():  # of those that torchrun started
            print(path)
