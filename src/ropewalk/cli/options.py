"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Preset = Annotated[
    str,
    typer.Option(
        metavar="PRESET",
        help="default or quick; for translation, also multi30k-cpu, multi30k-base or annotated.",
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="Task to train and score; see ropewalk tasks.  [default: translation]",
    ),
]
Encodings = Annotated[
    str | None,
    typer.Option(
        "--encodings",
        "--encoding",
        metavar="NAME,…",
        help="Encodings, with arguments in parentheses, as in sinusoidal,rotary(theta=1e6); see "
        "ropewalk encodings.  [default: the preset's]",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        "--seed",
        metavar="N,…",
        help="Seeds of parameters, data order and dropout.  [default: the preset's]",
    ),
]
Attention = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="softmax, or linear attention: performer or elu.  [default: softmax]",
    ),
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="PATH", help="YAML or JSON file of fields that override the preset's."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="translation: phrases (built-in), multi30k, a folder (of train.de, train.en, …), two "
        "files as SOURCE,TARGET, one .csv or .tsv file, or a Hugging Face data set as "
        "hf:NAME:CONFIG@COMMIT; masked-lm and causal-lm: tales (built-in), your text files, a "
        "folder of text files, or hf:NAME:CONFIG@COMMIT.  "
        "[default: the preset's]",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py|MODULE",
        help="Python file or installed module that registers your own encodings; may be repeated. "
        "Its code is executed: import only what you trust.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Output folder.  [default: runs/PRESET for translation, or runs/TASK-PRESET]",
    ),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE,VALUE,…",
        help="Values to try; each encoding keeps those that are best on validation data. May be "
        "repeated: all combinations are tried.",
    ),
]
Jobs = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Maximum number of models (an encoding has one per seed) trained or queued at once.  "
        "[default: one per core; 1 on a GPU; 1000 with slurm or ray]",
    ),
]
LauncherName = Annotated[
    str,
    typer.Option(
        "--launcher",
        metavar="NAME",
        help="Where models are trained: local (this machine), slurm or ray. A run can be continued "
        "with another launcher.",
    ),
]
LauncherArgs = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,…",
        help="Arguments of the launcher, such as partition=gpu,gpus=1 for slurm, or gpus=0.5 for "
        "ray.",
    ),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Test every encoding against encoding NAME too; by default, only against the first "
        "encoding. May be repeated.",
    ),
]
Note = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Remark that is saved with the results.")
]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, …")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FIELD=VALUE",
        help="Fields of the config, as in width=256; see ropewalk fields.",
    ),
]
TypePairing = Annotated[
    str | None,
    typer.Option(
        "--pairing",
        metavar="PAIRING",
        help="half or interleaved, for a model type that is not known.",
    ),
]
