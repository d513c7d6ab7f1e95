"""``ropewalk train``."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.common import (
    Attention,
    ConfigFile,
    Data,
    Imports,
    Out,
    Preset,
    Settings,
    TaskName,
    config_of,
    errors,
    new_console,
)


def train(
    settings: Settings = None,
    encoding: Annotated[
        str | None, typer.Option(help="Such as rotary(theta=1e6); rotary if not given.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of parameters, data order and dropout; 1 if not given.")
    ] = None,
    task: TaskName = None,
    preset: Preset = "default",
    data: Data = None,
    attention: Attention = None,
    config: ConfigFile = None,
    imports: Imports = None,
    out: Out = None,
) -> None:
    """Train one model, or go on with it, and print where it is."""
    with errors():
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.run import default_folder, train_one

        options = {"task": task, "data": data, "attention": attention}
        chosen = config_of(
            preset,
            config,
            settings,
            fallback={"encodings": "rotary", "seeds": 1},
            imports=imports,
            encodings=encoding,
            seeds=seed,
            **options,
        )
        with Watcher(new_console()) as watcher:
            print(train_one(chosen, out or default_folder(chosen), watcher.watch))
