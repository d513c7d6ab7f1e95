"""The command line: it parses, calls and prints."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

if TYPE_CHECKING:
    from ropewalk.lab.config import Config

try:
    import typer
    from rich.console import Console
except ImportError:
    print("the command line needs the extra 'lab': pip install 'ropewalk[lab]'", file=sys.stderr)
    sys.exit(2)

app = typer.Typer(
    help="Rotary position embeddings: train, compare and translate with each position encoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Preset = Annotated[
    str,
    typer.Option(
        help="quick or default; of translation also multi30k-cpu, multi30k-base and annotated."
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="translation, masked-lm, causal-lm, copy, reverse, sort, addition, recall, passkey or "
        "count; compare also takes all.",
    ),
]
Attention = Annotated[
    str | None, typer.Option(help="softmax, or linear attention: performer or elu.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML or JSON file of fields, over the preset's.")
]
Data = Annotated[
    str | None,
    typer.Option(
        help="phrases, multi30k, a folder of train.de, train.en, …, or SOURCE,TARGET; of language "
        "modelling tales, text files or a folder of them."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Run folder; runs/PRESET or runs/TASK-PRESET if not given."),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FIELD=VALUE]...", help="Any field of the config, as in width=256."),
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from ropewalk import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def compare(
    settings: Settings = None,
    task: TaskName = None,
    preset: Preset = "default",
    encodings: Annotated[
        str | None, typer.Option(help="Such as sinusoidal,rotary(theta=1e6).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 1,2,3.")] = None,
    data: Data = None,
    attention: Attention = None,
    config: ConfigFile = None,
    out: Out = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at a time; one for each core if not given.")
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="A remark on the conditions, kept with the results.")
    ] = None,
) -> None:
    """Train the same model with each encoding and each seed on a task, score and report.

    With --task all, a folder for each task and a summary of all. What is finished in a run folder
    is kept; what was interrupted goes on where it stopped.
    """
    with _errors():
        from ropewalk.lab.compare import compare as run_comparison
        from ropewalk.lab.config import tasks_of
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.run import default_folder
        from ropewalk.lab.table import print_summary, print_table

        options = {"encodings": encodings, "seeds": seeds, "data": data, "attention": attention}
        chosen = [
            _config(preset, config, settings, None, task=name, **options) for name in tasks_of(task)
        ]
        console = Console(soft_wrap=True, markup=False)
        found = []
        for each in chosen:
            run = out or default_folder(each)
            if len(chosen) > 1:
                run = (out / each.task) if out else run
                console.print(f"\n{each.task}", style="bold", highlight=False)
            with Watcher(console) as watcher:
                results = run_comparison(
                    each,
                    run,
                    jobs=jobs,
                    command=["ropewalk", *sys.argv[1:]],
                    note=note,
                    watch=watcher.watch,
                    stage=watcher.stage,
                )
            print_table(console, results)
            console.print(f"\nReport: {run / 'report.html'}", highlight=False)
            found.append(results)
        if len(found) > 1:
            print_summary(console, found)


@app.command()
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
    out: Out = None,
) -> None:
    """Train one model, or go on with it, and print where it is."""
    with _errors():
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.run import default_folder, train_one

        options = {"task": task, "data": data, "attention": attention}
        chosen = _config(
            preset,
            config,
            settings,
            fallback={"encodings": "rotary", "seeds": 1},
            encodings=encoding,
            seeds=seed,
            **options,
        )
        with Watcher(Console(soft_wrap=True, markup=False)) as watcher:
            print(train_one(chosen, out or default_folder(chosen), watcher.watch))


@app.command()
def translate(
    model: Annotated[Path, typer.Argument(help="A model.safetensors, or the folder it is in.")],
    file: Annotated[
        Path | None, typer.Argument(help="Text, one sentence a line; standard input if not given.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Beam width; 1 is greedy; the config's if not given.")
    ] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
) -> None:
    """Translate a file, standard input, or, at a terminal, line by line as you type."""
    with _errors("interrupted"):
        from ropewalk.lab.translate import Translator, read_sentences

        translator = Translator.load(model, beam, length_penalty, device)
        if file is None and sys.stdin.isatty():
            _converse(translator)
            return
        for text in translator(read_sentences(file)):
            print(text)


@app.command()
def bench(
    work: Annotated[str, typer.Option(help="Of these.")] = "prefill,training,decode",
    dtype: Annotated[str, typer.Option(help="Of float32, bfloat16, float16.")] = "float32,bfloat16",
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="Those torch takes, if not given.")
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(metavar="N", help="Of each table, instead of --seconds.")
    ] = None,
    seconds: Annotated[str, typer.Option(metavar="S", help="For each table.")] = "6",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    compiled: Annotated[
        bool, typer.Option("--compile", help="torch.compile of the formula too: a minute more.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A .json file for all numbers.")] = None,
    figure: Annotated[Path | None, typer.Option(help="A .png or .svg file.")] = None,
) -> None:
    """Time rotation on this machine, beside copying and beside other libraries installed here."""
    with _errors("interrupted; nothing was written"):
        from ropewalk.bench.plan import check_target, make_plan
        from ropewalk.bench.run import measure, write_results
        from ropewalk.bench.show import print_notes, print_part, save_figure

        plan = make_plan(work, dtype, threads, rounds, seconds, device, compiled)
        check_target("--out", out, [".json"])
        check_target("--figure", figure, [".png", ".svg"])
        console = Console(soft_wrap=True)
        command = ["ropewalk", *sys.argv[1:]]
        results = measure(plan, command, lambda facts: print_part(console, facts))
        print_notes(console, results)
        if out is not None:
            write_results(out, results)
        if figure is not None:
            save_figure(figure, results)


def _converse(translator: Any) -> None:
    print("One sentence a line; an empty line or Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return
        if not line:
            return
        print(translator([line])[0])


def _config(
    preset: str,
    file: Path | None,
    settings: list[str] | None,
    fallback: Mapping[str, Any] | None = None,
    **options: Any,
) -> Config:
    from ropewalk.lab.config import make_config, read_setting

    given = dict(read_setting(text) for text in settings or [])
    given |= {name: value for name, value in options.items() if value is not None}
    return make_config(preset, file, given, fallback)


@contextmanager
def _errors(
    interrupted: str = "interrupted; the same command goes on where this one stopped",
) -> Iterator[None]:
    """Print a user's mistake in one line and exit with 2; other failures say what is kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # being ended is as good as Ctrl-C
    try:
        yield
    except (ValueError, TypeError) as error:
        _fail(error, 2)
    except ImportError as error:
        _fail(f"{error}; the extra 'lab' has it: pip install 'ropewalk[lab]'", 2)
    except KeyboardInterrupt:
        _fail(interrupted, 130)
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}; what was written before is whole", 1)
    except RuntimeError as error:
        if type(error).__name__ != "CellFailed":
            raise
        _fail(error, 1)


def _fail(message: object, code: int) -> NoReturn:
    print(f"ropewalk: {' '.join(str(message).split())}", file=sys.stderr)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
