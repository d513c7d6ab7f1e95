"""`patch` in image and video models of diffusers: the rotation alone, and a whole step.

Two blocks of each kind, with the heads and about the tokens of real models, random weights. A ratio
is unpatched time divided by patched time, within a round; with more blocks, both have more of the
same, and tables are read only once. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import diffusers
import torch
from common import FOLDER, conditions, precisions, table
from torch import Tensor, nn

import ropewalk
from ropewalk.bench.clock import Ratio, Run, time_rows
from ropewalk.files import write_json
from ropewalk.machine import cores
from ropewalk.tools.patch.own_tables import called_functions, replacing

DTYPES = ("float32", "bfloat16")
ROUNDS = {"rotation": 41, "step": 6}
Inputs = dict[str, Any]


def flux(small: bool) -> tuple[nn.Module, Inputs]:
    """Return Flux with 2 + 2 blocks; 1,024 image tokens and 256 of text."""
    heads, side, text = (2, 8, 16) if small else (24, 32, 256)
    model = diffusers.FluxTransformer2DModel(
        num_layers=2, num_single_layers=2, num_attention_heads=heads, joint_attention_dim=256
    )
    places = torch.cartesian_prod(*(torch.arange(size) for size in (1, side, side)))
    return model, {
        "hidden_states": torch.randn(1, side * side, 64),
        "encoder_hidden_states": torch.randn(1, text, 256),
        "pooled_projections": torch.randn(1, 768),
        "timestep": torch.tensor([0.5]),
        "img_ids": places.float(),
        "txt_ids": torch.zeros(text, 3),
    }


def wan(small: bool) -> tuple[nn.Module, Inputs]:
    """Return Wan 1.3B with 2 blocks; 1,560 tokens of a picture of 480 x 832 pixels."""
    heads, size = (2, (1, 8, 8)) if small else (12, (1, 60, 104))
    model = diffusers.WanTransformer3DModel(
        num_layers=2, num_attention_heads=heads, ffn_dim=8960 if heads == 12 else 64, text_dim=256
    )
    return model, {
        "hidden_states": torch.randn(1, 16, *size),
        "encoder_hidden_states": torch.randn(1, 256, 256),
        "timestep": torch.tensor([500]),
    }


MODELS = {"Flux": flux, "Wan": wan}


def rotations(model: nn.Module, inputs: Inputs, dtype: torch.dtype) -> dict[str, Run]:
    """Return calls that rotate q and k of one layer by the model's function, and by the kernel."""
    of_flux = "img_ids" in inputs
    ids = torch.cat((inputs["txt_ids"], inputs["img_ids"])) if of_flux else inputs["hidden_states"]
    tables: tuple[Tensor, Tensor] = model.pos_embed(ids) if of_flux else model.rope(ids)
    attention = next(m for m in model.modules() if hasattr(m, "processor"))
    (function,) = called_functions(type(attention.processor).__call__).values()
    length = tables[0].shape[0 if of_flux else 1]
    q, k = torch.randn(2, 1, length, attention.heads, tables[0].shape[-1]).to(dtype)

    def run(rotate: Callable[..., Tensor]) -> Run:
        if of_flux:
            return lambda: [rotate(x, tables, sequence_dim=1) for x in (q, k)]
        return lambda: [rotate(x, *tables) for x in (q, k)]

    by_kernel = replacing(function)
    return {"unpatched": run(function), "patched": run(by_kernel)}


def steps(model: nn.Module, inputs: Inputs, dtype: torch.dtype) -> dict[str, Run]:
    """Return calls of a model and of its patched copy, which has the same weights."""
    patched = copy.deepcopy(model, {id(each): each for each in model.parameters()})
    ropewalk.patch(patched)
    given = {
        name: value if "ids" in name or not value.is_floating_point() else value.to(dtype)
        for name, value in inputs.items()
    }
    return {
        "unpatched": lambda: model(**given, return_dict=False)[0],
        "patched": lambda: patched(**given, return_dict=False)[0],
    }


@torch.no_grad()
def measured(name: str, dtype: str, smoke: bool) -> list[dict[str, Any]]:
    """Time both parts of one model, and return how far the outputs differ, relatively."""
    torch.manual_seed(0)
    model, inputs = MODELS[name](smoke)
    for parameter in model.eval().parameters():  # tables stay float32, as in a loaded model
        parameter.data = parameter.to(getattr(torch, dtype))
    rows = []
    for part, make in (("rotation", rotations), ("step", steps)):
        if part == "step" and dtype not in precisions():
            continue  # matrix products without such instructions take minutes
        runs = make(model, inputs, getattr(torch, dtype))
        seconds = time_rows(runs, torch.device("cpu"), 1 if smoke else ROUNDS[part], 0.0)
        before, after = (torch.cat([*runs[way]()]).float() for way in ("unpatched", "patched"))
        rows.append(
            {
                "model": name,
                "dtype": dtype,
                "part": part,
                "seconds": {way: median(times) for way, times in seconds.items()},
                "times_faster": vars(Ratio.of(seconds["unpatched"], seconds["patched"])),
                "difference": float((after - before).norm() / before.norm()),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the ratios as Markdown, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "patch-diffusers.json")
    parser.add_argument("--smoke", action="store_true", help="one round of tiny models")
    options = parser.parse_args(arguments)
    results = conditions(cores())
    results["diffusers"] = diffusers.__version__
    results["rows"] = [
        row for name in MODELS for dtype in DTYPES for row in measured(name, dtype, options.smoke)
    ]
    cells = [
        [
            f"{row['model']}, {row['part']}, {row['dtype']}",
            *(f"{seconds * 1e3:,.2f}" for seconds in row["seconds"].values()),
            f"{row['times_faster']['median']:.2f}",
            "{low:.2f} to {high:.2f}".format(**row["times_faster"]) if not options.smoke else "",
        ]
        for row in results["rows"]
    ]
    print(table(["", "unpatched, ms", "patched, ms", "×", "95 %"], cells))
    write_json(options.out, results)


if __name__ == "__main__":
    main()
