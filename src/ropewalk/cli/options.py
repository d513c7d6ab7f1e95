"""Options and arguments that several commands share, and the paths and config they describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

import typer

from ropewalk.checks import check_word, needs, shown
from ropewalk.files import open_now

if TYPE_CHECKING:
    import torch

    from ropewalk.encodings import ImportedSource
    from ropewalk.lab.config import Config

MOST_PATH_BYTES = 4_096  # the limit of Linux
PICTURES = (".png", ".svg")


def option(metavar: str, text: str, *names: str, **rules: Any) -> Any:
    """Declare an option with a value; without names, it has that of its parameter."""
    return typer.Option(*names, metavar=metavar, help=text, **rules)


def flag(names: str, text: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(names, help=text)


def argument(metavar: str, text: str, **rules: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=text, **rules)


Preset = Annotated[
    str,
    option(
        "PRESET",
        "default or quick; for translation, also multi30k-cpu, multi30k-base or annotated.",
    ),
]
TaskName = Annotated[
    str | None,
    option("TASK", "Task to train and score; see ropewalk tasks.  [default: translation]"),
]
Encodings = Annotated[
    str | None,
    option(
        "NAME,…",
        "Encodings, with arguments in parentheses, as in sinusoidal,rotary(theta=1e6); see "
        "ropewalk encodings.  [default: the preset's]",
        "--encodings",
        "--encoding",
    ),
]
Seeds = Annotated[
    str | None,
    option(
        "N,…",
        "Seeds of parameters, data order and dropout.  [default: the preset's]",
        "--seeds",
        "--seed",
    ),
]
Attention = Annotated[
    str | None,
    option("KIND", "softmax, or linear attention: performer or elu.  [default: softmax]"),
]
ConfigFile = Annotated[
    str | None, option("PATH", "YAML or JSON file of fields that override the preset's.")
]
Data = Annotated[
    str | None,
    option(
        "DATA",
        "translation: phrases (built-in), multi30k, a folder (of train.de, train.en, …), two "
        "files as SOURCE,TARGET, one .csv or .tsv file, or a Hugging Face data set as "
        "hf:NAME:CONFIG@COMMIT; masked-lm and causal-lm: tales (built-in), your text files, a "
        "folder of text files, or hf:NAME:CONFIG@COMMIT.  "
        "[default: the preset's]",
    ),
]
Imports = Annotated[
    list[str] | None,
    option(
        "FILE.py|MODULE",
        "Python file or installed module that registers your own encodings; may be repeated. "
        "Its code is executed: import only what you trust.",
        "--import",
    ),
]
Out = Annotated[
    str | None,
    option("FOLDER", "Output folder.  [default: runs/PRESET for translation, or runs/TASK-PRESET]"),
]
Sweep = Annotated[
    list[str] | None,
    option(
        "FIELD=VALUE,VALUE,…",
        "Values to try; each encoding keeps those that are best on validation data. May be "
        "repeated: all combinations are tried.",
    ),
]
Jobs = Annotated[
    int | None,
    option(
        "N",
        "Maximum number of models (an encoding has one per seed) trained or queued at once.  "
        "[default: one per core; 1 on a GPU; 1000 with slurm or ray]",
        min=1,
    ),
]
LauncherName = Annotated[
    str,
    option(
        "NAME",
        "Where models are trained: local (this machine), slurm or ray. A run can be continued "
        "with another launcher.",
    ),
]
LauncherArgs = Annotated[
    str | None,
    option(
        "NAME=VALUE,…",
        "Arguments of the launcher, such as partition=gpu,gpus=1 for slurm, or gpus=0.5 for ray.",
    ),
]
Against = Annotated[
    list[str] | None,
    option(
        "NAME",
        "Test every encoding against encoding NAME too; by default, only against the first "
        "encoding. May be repeated.",
    ),
]
Note = Annotated[str | None, option("TEXT", "Remark that is saved with the results.")]
Device = Annotated[str, option("DEVICE", "auto, cpu, cuda, …")]
Settings = Annotated[
    list[str] | None,
    argument("FIELD=VALUE", "Fields of the config, as in width=256; see ropewalk fields."),
]
TypePairing = Annotated[
    str | None, option("PAIRING", "half or interleaved, for a model type that is not known.")
]
Size = Annotated[
    int | None, option("N", "Latent pixels (pixels / 8 in most VAEs) or frames.", min=1)
]
AsJson = Annotated[bool, flag("--json", "Print JSON.")]


@overload
def path_of(option: str, text: str) -> Path: ...
@overload
def path_of(option: str, text: str | None) -> Path | None: ...
def path_of(option: str, text: str | None) -> Path | None:
    """Return a path from the command line. Raises ValueError if no system could open it."""
    if text is None:
        return None
    if not text:
        raise ValueError(
            f"{option} must name a path, got an empty one; use . for the working directory"
        )
    size = len(os.fsencode(text))
    if size > MOST_PATH_BYTES:
        raise ValueError(
            f"{option} must be a path of at most {MOST_PATH_BYTES:,} bytes, got {size:,}: "
            f"{shown(text)}; use a shorter path"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{option} must be valid UTF-8, got {shown(text)}; use another path"
        ) from None
    return Path(text)


def config_of_pipe(source: Any) -> Any:
    """Return the config in a pipe, or in standard input for "-"; any other source as it is."""
    piped = source is not None and os.path.exists(source) and Path(source).is_fifo()
    if not piped and str(source) != "-":
        return source
    from ropewalk.rotary.config.config_json import MAX_BYTES, parse_config

    if not piped:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with open_now(source) as file:
            os.set_blocking(file.fileno(), True)
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"config must have at most {MAX_BYTES:,} bytes, got more in {source}")
    try:
        return parse_config(content.decode("utf-8"), str(source))
    except UnicodeDecodeError as error:
        raise ValueError(f"config must be UTF-8, got byte {error.start} in {source}") from None


def target_of(option: str, text: str | None, endings: Sequence[str]) -> Path | None:
    """Return the path of a file to write. Raises if it could not be written, before any work."""
    path = path_of(option, text)
    if path is None:
        return None
    if path.suffix not in endings:
        raise ValueError(f"{option} must end in {' or '.join(endings)}, got {text!r}")
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"{option} must be a file in a folder that can be written, got {path}")
    if option == "--figure" and find_spec("matplotlib") is None:
        raise ImportError(needs(option, ModuleNotFoundError(name="matplotlib")))
    return path


def leave_out(when: str, options: Mapping[str, object]) -> None:
    """Raise ValueError that names the first of these options that was given."""
    for option, value in options.items():
        if value is not None and value is not False:
            raise ValueError(f"{option} must be left out {when}")


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype that --dtype names."""
    from ropewalk.bench.bench_options import DTYPES

    check_word("--dtype", name, DTYPES)
    return DTYPES[name]


def import_all(sources: list[str] | None) -> list[ImportedSource]:
    """Import every --import source; its encodings are then in the registry."""
    from ropewalk.encodings import import_encodings

    for source in sources or []:
        path_of("--import", source)
    return [import_encodings(source) for source in sources or []]


def names_of(texts: list[str] | None) -> list[str]:
    """Return names of encodings as the config writes them: without white space."""
    return ["".join(text.split()) for text in texts or ()]


def config_of(
    preset: str,
    file: str | None,
    settings: list[str] | None,
    fallback: Mapping[str, Any] | None = None,
    imports: list[str] | None = None,
    sweep: list[str] | None = None,
    **options: Any,
) -> Config:
    """Return the config that options, a file and `field=value` settings describe."""
    from ropewalk.lab.config_sources import make_config, read_settings, read_sweep
    from ropewalk.machine import pick_device

    options = {name: value for name, value in options.items() if value is not None}
    given = read_settings(settings or [], {**options, "preset": preset}) | options
    for part in str(given.get("data", "")).split(","):  # may be files, separated by commas
        path_of("--data", part or None)
    if imports:
        given["imports"] = import_all(imports)
    if sweep:
        swept = read_sweep(sweep)
        for name in ("sweep", *swept):
            if name in given:
                raise ValueError(
                    f"{shown(name)} must be given once, got a value and --sweep; remove one of them"
                )
        given["sweep"] = swept
    config = make_config(preset, path_of("--config", file), given, fallback)
    pick_device(config.device)  # fails here, before any work on the data
    return config
