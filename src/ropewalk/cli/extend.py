"""`ropewalk extend`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated

from ropewalk.checks import check_word
from ropewalk.cli import options
from ropewalk.cli.messages import errors, one_line, print_blocks, print_json, print_rows
from ropewalk.cli.options import argument, flag, option

if TYPE_CHECKING:
    from ropewalk.tools.extend import Extension
    from ropewalk.tools.loss import LossMeasurement
    from ropewalk.tools.loss.measure_losses import LossPlan
    from ropewalk.tools.model_files import Source


def extend(
    config: Annotated[
        str, argument("CONFIG", "config.json, model folder, or name on the Hugging Face hub.")
    ],
    to: Annotated[int | None, option("N", "The new context, in tokens.", min=2)] = None,
    method: Annotated[
        str, option("METHOD", "all, linear, ntk, dynamic, yarn, llama3 or longrope.")
    ] = "all",
    engine: Annotated[
        str,
        option(
            "ENGINE",
            "transformers, vllm, sglang, llama.cpp, gguf, tensorrt-llm, onnxruntime-genai or all.",
        ),
    ] = "transformers",
    original: Annotated[
        int | None,
        option(
            "N", "Context in training, if config.json does not state it.", min=2, show_default=False
        ),
    ] = None,
    height: options.Size = None,
    width: options.Size = None,
    frames: options.Size = None,
    original_height: options.Size = None,
    original_width: options.Size = None,
    original_frames: options.Size = None,
    pairing: options.TypePairing = None,
    model: Annotated[
        str | None,
        option(
            "PATH",
            "Also measure the loss of this model on --text, under each rule: a folder with "
            "config.json, tokenizer.json and safetensors.",
        ),
    ] = None,
    text: Annotated[
        str | None, option("FILE", "UTF-8 text for --model, of at least --to tokens.")
    ] = None,
    passages: Annotated[
        int | None, option("N", "For --model: passages of the text.  [default: 16]", min=1)
    ] = None,
    dtype: Annotated[
        str | None, option("NAME", "For --model: float32, bfloat16 or float16.  [default: float32]")
    ] = None,
    device: Annotated[str | None, option("DEVICE", "For --model.  [default: auto]")] = None,
    seconds: Annotated[
        float | None,
        option("S", "For --model: refuse what would take longer.  [default: 3600]", min=0),
    ] = None,
    trust_remote_code: Annotated[
        bool, flag("--trust-remote-code", "For --model: execute the model code in PATH.")
    ] = False,
    as_json: Annotated[bool, flag("--json", "Print one JSON document.")] = False,
    plot: Annotated[
        str | None,
        option("PATH", ".png or .svg file for the wavelengths; for --model, the losses."),
    ] = None,
) -> None:
    """Compare scaling rules for a longer context, for an engine.

    For each rule: how far wavelengths move, which pairs reach angles that training never reached,
    and the mean score by distance. Then a recommendation with its limits, and the block of
    config.json or the command line for an engine. Weights are read only with --model. The report
    then also has the loss of a fixed set of tokens, as the context before them grows and at
    shifted positions. A model of images or video takes --height, --width and --frames in place of
    --to: linear, ntk and yarn are compared on each axis, and printed as Python.
    """
    sizes = {"height": height, "width": width, "frames": frames}
    trained = dict(zip(sizes, (original_height, original_width, original_frames), strict=True))
    flags = {f"original_{name}": f"--original-{name}" for name in sizes} | {"pairing": "--pairing"}
    with errors(as_json=as_json, options=flags | {"original": "--original"}):
        from ropewalk.tools.extend import extend as compare_rules
        from ropewalk.tools.extend.engine_fragments import ENGINES
        from ropewalk.tools.extend.extend_sizes import extend_sizes
        from ropewalk.tools.extend.extension_report import save_rules, size_blocks, summary_blocks
        from ropewalk.tools.inspect import to_plain
        from ropewalk.tools.loss.loss_report import loss_picture
        from ropewalk.tools.loss.measure_losses import read_model

        check_word("--engine", engine, [*ENGINES, "all"])
        picture = options.target_of("--plot", plot, options.PICTURES)
        plan = _loss_plan(model, text, passages, dtype, device, seconds, trust_remote_code)
        if any((*sizes.values(), *trained.values())):
            options.leave_out("with sizes of images", {
                "--to": to, "--original": original, "--model": model, "--pairing": pairing,
                "--plot": plot, "--engine": engine != "transformers", "--method": method != "all",
            })  # fmt: skip
            results = extend_sizes(options.config_of_pipe(config), sizes, trained)
            if as_json:
                print_json({"results": to_plain(results)})
                return
            print_blocks(size_blocks(results))
            print("\nfrom ropewalk import RotarySpec, axes, scaling")
            for each in results[1:]:
                print(f"{each.method} = {each.section['spec']!r}")
            return
        if to is None:
            raise ValueError("--to must be given; or --height and --width for a model of images")
        rules_for = partial(compare_rules, to=to, method=method, original=original, pairing=pairing)
        extension, measured = rules_for(options.config_of_pipe(config)), None
        if plan is not None:
            source = read_model(plan)
            measured = _measure(extension, rules_for(plan.model), plan, source)
        if picture is not None and measured is None:
            save_rules(picture, extension)
        elif picture is not None and measured is not None:
            loss_picture(measured).save(picture)
        if as_json:
            facts = extension.to_dict() | ({"loss": measured.to_dict()} if measured else {})
            print_json(facts)
            return
        print_blocks(summary_blocks(extension))
        print_fragments(extension, engine)
        if measured is not None and plan is not None:
            print_losses(measured, plan)


def _loss_plan(
    model: str | None,
    text: str | None,
    passages: int | None,
    dtype: str | None,
    device: str | None,
    seconds: float | None,
    trust_remote_code: bool,
) -> LossPlan | None:
    """Return what to measure with --model, or None without it."""
    from ropewalk.machine import pick_device
    from ropewalk.tools.loss.measure_losses import MOST_TOKENS, PASSAGES, SECONDS, LossPlan

    folder, file = options.path_of("--model", model), options.path_of("--text", text)
    if folder is None and file is None:
        options.leave_out("without --model", {
            "--passages": passages, "--dtype": dtype, "--device": device, "--seconds": seconds,
            "--trust-remote-code": trust_remote_code,
        })  # fmt: skip
        return None
    if folder is None or file is None:
        needed, other = ("--text", "--model") if file is None else ("--model", "--text")
        raise ValueError(f"{needed} must be given with {other}")
    chosen = options.dtype_of("float32" if dtype is None else dtype)
    if seconds == 0:
        raise ValueError("--seconds must be above 0, got 0")
    return LossPlan(
        folder,
        file,
        pick_device("auto" if device is None else device),
        chosen,
        passages=min(passages or PASSAGES, MOST_TOKENS),  # a text of that many tokens has no more
        seconds=SECONDS if seconds is None else seconds,
        trust_remote_code=trust_remote_code,
    )


def _measure(
    extension: Extension, of_model: Extension, plan: LossPlan, source: Source
) -> LossMeasurement:
    """Measure the rules; what the model's code prints, and the progress, go to standard error.

    of_model: what `extend` finds in the config of --model.
    """
    from ropewalk.tools.loss.measure_losses import measure_files

    if of_model.results != extension.results:
        raise ValueError(
            "--model must have the ropes of CONFIG, got other ones; pass the model's folder as "
            "CONFIG too"
        )
    rules = {each.method: each.rule for each in extension.results if each.rule and each.usable}

    def watch(doing: str) -> None:
        if sys.stderr.isatty():
            print(f"{doing} …", file=sys.stderr)

    with redirect_stdout(sys.stderr):
        return measure_files(plan, source, rules, extension.original_length, extension.to, watch)


def print_losses(measured: LossMeasurement, plan: LossPlan) -> None:
    """Print the losses, what they show, and the command for RULER."""
    from ropewalk.tools.loss.loss_report import FROM, INSTALL, LEAST, loss_blocks, ruler_command

    print()
    print_blocks(loss_blocks(measured))
    contexts = [each.context for each in measured.results[0].contexts]
    longer = [context for context in contexts if context >= measured.original]
    command = ruler_command(plan.model, longer, str(plan.dtype).removeprefix("torch."))
    if command is None:
        print(f"\nRULER's tasks need contexts of at least {LEAST} tokens: no command")
        return
    print(f"\nRULER: {FROM}")
    print_rows([("", "first", "paste the block into the model's config.json"), ("", "", INSTALL)])
    print("\n" + command)


def print_fragments(extension: Extension, engine: str) -> None:
    """Print the fragments of one engine or of all; the text to paste is not wrapped."""
    from ropewalk.tools.extend.extension_report import fragment_rows, fragment_title

    if not extension.fragments and any(each.usable for each in extension.results):
        print("\nnothing to paste; --method METHOD prints a rule anyway")
    for fragment in extension.fragments:
        if engine in (fragment.engine, "all"):
            print("\n" + one_line(fragment_title(fragment, extension.method)))
            print_rows(("", *row) for row in fragment_rows(fragment))
            if fragment.text is not None:
                print("\n" + fragment.text)
