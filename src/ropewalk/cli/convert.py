"""`ropewalk convert`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from ropewalk.checks import ranges
from ropewalk.cli.messages import errors, one_line, print_json, print_rows
from ropewalk.cli.options import AsJson, argument, flag, option, path_of

if TYPE_CHECKING:
    from ropewalk.tools.convert import Conversion


def convert(
    source: Annotated[str, argument("IN", "Model folder with config.json and safetensors.")],
    target: Annotated[str, argument("OUT", "New folder; it must not exist yet.")],
    to: Annotated[str, option("PAIRING", "half or interleaved: the pairing of OUT.")],
    read_as: Annotated[
        str | None,
        option(
            "PAIRING",
            "half or interleaved: the pairing of the weights in IN.  [default: what "
            "config.json states, or else its model type's]",
            "--from",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "List what would change, and write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a model's weights to the other rotary pairing.

    The rows of the query and key weights, biases and norms are reordered. config.json then states
    the new pairing, unless it is the model type's default. Other files are copied byte for byte;
    folders in IN are not copied. OUT appears complete or not at all, and IN is only read.
    """
    with errors(as_json=as_json, options={"read_as": "--from"}) as at_interruption:
        from ropewalk import tools
        from ropewalk.rotary.pairing import check_pairing

        check_pairing("--to", to)
        if read_as is not None:
            check_pairing("--from", read_as)
        folder, new = path_of("IN", source), path_of("OUT", target)
        with at_interruption.after_writing(new):
            conversion = tools.convert(folder, new, to=to, read_as=read_as, dry_run=dry_run)
        if as_json:
            print_json(conversion.to_dict())
        else:
            print_conversion(conversion, every=dry_run)


def print_conversion(conversion: Conversion, *, every: bool) -> None:
    """Print what changed, with one line for the tensors of all layers that `every` lists."""
    done = conversion
    print(f"{done.model_type}: {done.before} -> {done.after}\n")
    if every:
        print_rows(_rows(done))
        print()
    config = f"; config.json gets {done.config_change}" if done.config_change else ""
    if done.key_changes and done.key_changes[0].value is None:
        config = f"; config.json is written {done.config_change}"
    change = "change" if done.written else "would change"
    print_rows([(f"{len(done.tensors)} tensors {change}{config}",)])
    print(f"{len(done.files)} files, {done.bytes:,} bytes")
    if done.left_out:
        print_rows([(f"folders that are not copied: {', '.join(done.left_out)}",)])
    where = one_line(done.target)
    print(f"written to {where}" if done.written else "nothing was written (--dry-run)", end="\n\n")
    print_rows([(next_step(done),)])


def _rows(conversion: Conversion) -> Iterator[tuple[str, str, str]]:
    """Yield one row for all layers in which a tensor of the same name changes in the same way."""
    layers: dict[tuple[str, int], list[int]] = {}
    for tensor in conversion.tensors:
        layers.setdefault((tensor.what, tensor.rows), []).append(tensor.layer)
    for (what, rows), places in layers.items():
        yield what, f"layer{'s' if len(places) > 1 else ''} {ranges(places)}", f"{rows:,} rows"


def next_step(conversion: Conversion) -> str:
    """Return how to load the new folder."""
    from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY

    model_type, after = conversion.model_type, conversion.after
    if after == conversion.own:
        return (
            f"The code of model type {model_type} pairs dimensions as {after}, so transformers and "
            f"engines load OUT as it is."
        )
    if CONVERTED_PAIRING_KEY not in {change.key for change in conversion.key_changes}:
        return (
            f"The code of model type {model_type} reads {conversion.config_change} in config.json, "
            f"so transformers loads OUT as it is. Check that your engine reads it too."
        )
    return (
        f"Code that does not read rope_pairing pairs {model_type} as {conversion.own}, as "
        f"transformers does, and rotates OUT wrongly. Load it with ropewalk.patch(model), which "
        f"reads rope_pairing, or use an engine that pairs dimensions as {after}."
    )
