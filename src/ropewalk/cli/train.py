"""``ropewalk train``."""

from __future__ import annotations

from typing import Any

from ropewalk.cli.common import (
    GOES_ON,
    Attention,
    ConfigFile,
    Data,
    Encodings,
    Imports,
    Out,
    Preset,
    Seeds,
    Settings,
    TaskName,
    config_of,
    errors,
    new_console,
    path_of,
)


def train(
    settings: Settings = None,
    encodings: Encodings = None,
    seeds: Seeds = None,
    task: TaskName = None,
    preset: Preset = "default",
    data: Data = None,
    attention: Attention = None,
    config: ConfigFile = None,
    imports: Imports = None,
    out: Out = None,
) -> None:
    """Train one model, or go on with it, and print where it is.

    Options are compare's; --encodings (rotary if not given) and --seeds (1) name one each.
    """
    with errors() as interruption:
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.run import default_folder, train_one

        options: dict[str, Any] = {"task": task, "data": data, "attention": attention}
        chosen = config_of(
            preset,
            config,
            settings,
            fallback={"encodings": "rotary", "seeds": 1},
            imports=imports,
            encodings=encodings,
            seeds=seeds,
            **options,
        )
        run = path_of("--out", out) or default_folder(chosen)
        interruption.message = GOES_ON
        with Watcher(new_console()) as watcher:
            print(train_one(chosen, run, watcher.watch))
