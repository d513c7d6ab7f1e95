"""The evidence of claims that other numbers in committed results decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims_evidence import (
    AGAINST,
    BLEU,
    FOR,
    MASKED,
    NEITHER,
    TEXT,
    Evidence,
    bounded,
    by_seed,
    difference,
    exists,
    held,
    row_of,
)
from common import RESULTS, Facts
from rotary_parts_report import by_eighths, decay
from sharpness import KINDS, chance, grows_sharper

from ropewalk.lab.report.formats import format_number, format_p_value
from ropewalk.lab.results import read_summary
from ropewalk.lab.scoring.significance import BETTER, holm

COST = "../benchmarks/results/cost.json"
UNTOUCHED = ("sinusoidal", "integer", "binary", "learned")  # they do not change attention
RELATIVE = ("alibi", "t5", "kerple", "fire", "shaw", "transformer_xl", "deberta", "cope")


def eight_percent() -> list[Evidence]:
    """The gain in percent on full test sets, and what five sentences show by chance."""
    small = read_summary(RESULTS / "small-samples" / "results.json")
    gap, gains = small["gap_percent"], []
    for folder, split in [*((BLEU, split) for split in held(BLEU).splits), ("default", "test")]:
        test = difference(folder, "rotary", "sinusoidal", split)
        assert test is not None
        base = row_of(folder, "sinusoidal").summary[split].spread("bleu").mean
        gains.append(
            (folder, split, [each / base * 100 for each in (test.difference, test.low, test.high)])
        )
    found = []
    for folder, split, each in gains:
        _, least, most = each
        vote = FOR if 0 < least <= gap <= most else NEITHER if least <= gap <= most else AGAINST
        mean, low, high = (format_number(gain, 1, signed=True) for gain in each)
        says = f"{folder}, {split}: {mean} % ({low} to {high} %)"
        found.append(Evidence(says, vote if folder == BLEU else None, folder))
    says = (
        f"by chance: a model is at least {gap} % better than one with the same encoding and "
        f"another seed in {small['scores']['mean']['alike']['above']:.0%} of draws of five "
        f"sentences, by the mean of their BLEU"
    )
    return [*found, Evidence(says, None, "small-samples")]


def faster_masked() -> list[Evidence]:
    """The share of steps after which rotary has the loss that other encodings end with."""
    found = []
    for other in ("sinusoidal", "learned"):
        ends = [cell.validation_loss for cell in row_of(MASKED, other).cells]
        goal = sum(ends) / len(ends)
        shares = []
        for cell in row_of(MASKED, "rotary").cells:
            there = [seen.step for seen in cell.validation if seen.loss <= goal]
            shares.append(there[0] / cell.steps if there else 1.0)
        vote = FOR if max(shares) < 1 else AGAINST if min(shares) == 1 else NEITHER
        each = " · ".join(f"{share:.0%}" for share in shares)
        says = (
            f"`rotary` reaches {goal:.2f}, the final loss of `{other}`, after at most {each} of "
            f"the steps"
        )
        found.append(Evidence(says, vote, MASKED))
    return found


def _shares(kind: str) -> dict[str, list[list[float]]]:
    encodings = read_summary(RESULTS / "sharpness" / "results.json")["encodings"]
    return {
        name: [[layer["share"] for layer in cell[kind]] for cell in cells]
        for name, cells in encodings.items()
    }


def sharper() -> list[Evidence]:
    """Seeds of rotary that get sharper in each layer, in each kind of attention."""
    found = []
    for kind, title in KINDS.items():
        shares = _shares(kind)
        falls, counts = _chances(shares)
        rises, _ = _chances(
            {name: [[-share for share in cell] for cell in cells] for name, cells in shares.items()}
        )
        for name in ("rotary", "rotary(cross=True)"):
            vote = FOR if falls[name] < 0.05 else AGAINST if rises[name] < 0.05 else NEITHER
            says = (
                f"`{name}`, {title.lower()}: {counts[name]} of {len(shares[name])} seeds "
                f"(p = {format_p_value(falls[name])})"
            )
            found.append(Evidence(says.replace("= <", "&lt;"), vote, "sharpness"))
    return found


def _chances(
    shares: Mapping[str, Sequence[Sequence[float]]],
) -> tuple[dict[str, float], dict[str, int]]:
    """Return p (Holm) that so many seeds get sharper by chance, and how many do, by encoding."""
    counts = {name: sum(map(grows_sharper, cells)) for name, cells in shares.items()}
    chances = [chance(counts[name], len(cells), len(cells[0])) for name, cells in shares.items()]
    return dict(zip(shares, holm(chances), strict=True)), counts


def sharper_why() -> list[Evidence]:
    """Seeds that translate better although their attention ends no sharper than it begins."""
    study = read_summary(RESULTS / "sharpness" / "results.json")
    split = study["split"]
    best = max(row_of(BLEU, "sinusoidal").summary[split].spread("bleu").values)
    found = []
    for name, cells in study["encodings"].items():
        test = None if name == "sinusoidal" else difference(BLEU, name, "sinusoidal", split)
        if test is None or test.verdict != BETTER:
            continue
        scores = {c.seed: c.scores[split].score("bleu") for c in row_of(BLEU, name).cells}
        flat = [
            cell["seed"]
            for cell in cells
            if all(cell[kind][-1]["share"] >= cell[kind][0]["share"] for kind in KINDS)
        ]
        ahead = [seed for seed in flat if scores[seed] > best]
        says = f"`{name}`: no sharper in all three at once in {len(flat)} of {len(cells)} seeds"
        if flat:
            says += f"; {len(ahead)} of these exceed {best:.1f} BLEU, the best seed of `sinusoidal`"
        found.append(Evidence(says, AGAINST if ahead else NEITHER, "sharpness"))
    return found


def costs(what: str) -> list[Evidence]:
    """Time of `train` or `decode` at the longest length, relative to no positions.

    The rounds of encodings that do not change attention show how much times vary by chance.
    """
    cost = read_summary(RESULTS / COST)
    rows = {name: _cost_row(cost, name)[what] for name in (*UNTOUCHED, *RELATIVE, "rotary")}
    rounds = {name: row[-1]["ratios"] for name, row in rows.items()}
    unchanged = list(zip(*(rounds[name] for name in UNTOUCHED), strict=True))
    found = []
    for name in (*RELATIVE, "rotary"):
        pairs = list(zip(rounds[name], unchanged, strict=True))
        slower = all(own > max(others) for own, others in pairs)
        faster = all(own < min(others) for own, others in pairs)
        vote = FOR if slower else AGAINST if faster else NEITHER
        low, high = min(rounds[name]), max(rounds[name])
        says = f"`{name}` × {low:.2f} to {high:.2f} at {cost['lengths'][-1]:,} tokens"
        found.append(Evidence(says, None if name == "rotary" else vote, COST))
    least, most = min(map(min, unchanged)), max(map(max, unchanged))
    says = f"{', '.join(f'`{name}`' for name in UNTOUCHED)} × {least:.2f} to {most:.2f}"
    return [*found, Evidence(says, None, COST)]


def _cost_row(cost: Facts, name: str) -> Facts:
    """Return the row of an encoding with its defaults, or its only row with arguments."""
    rows = {row["name"]: row for row in cost["rows"]}
    if name in rows:
        found: Facts = rows[name]
        return found
    (found,) = (row for each, row in rows.items() if each.startswith(f"{name}("))
    return found


def t5_any_length() -> list[Evidence]:
    """T5's bias with every bucket trained; with its defaults, the last buckets were not."""
    name = "t5(distance=64)"
    if all(row.name != name for row in held(TEXT).encodings):
        return []
    return [_perplexity_far(name)]


def scales(name: str) -> list[Evidence]:
    """An encoding at 8 times the trained length, seed by seed."""
    found = [_perplexity_far(name)]
    for task in ("recall", "passkey"):
        exact = row_of(f"generated/{task}", name).summary["x8"].spread("exact").values
        says = f"{task} at x8: {by_seed(exact, 0)} % exact"
        found.append(Evidence(says, bounded(exact, 90, 50), f"generated/{task}"))
    return found


def _perplexity_far(name: str) -> Evidence:
    near, far = (
        [c.scores[s].score("perplexity") for c in row_of(TEXT, name).cells] for s in ("x1", "x8")
    )
    ratios = [b / a for a, b in zip(near, far, strict=True)]
    vote = -bounded(ratios, 1.2, 1.05)
    says = f"`{name}`, perplexity at x8 divided by that at x1: {by_seed(ratios)}"
    return Evidence(says, vote, TEXT)


def decay_trained() -> list[Evidence]:
    """How far scores fall with distance in trained models, with rotary and without positions."""
    encodings = read_summary(RESULTS / "rotary-parts" / "results.json")["encodings"]
    found = []
    for name in ("rotary", "none"):
        layers = [layer for cell in encodings[name]["cells"] for layer in cell["scores"]]
        falls = [decay(layer) for layer in layers]
        rising = sum(eighths[-1] > min(eighths) for eighths in map(by_eighths, layers))
        vote = FOR if min(falls) > 0 and not rising else AGAINST if rising == len(layers) else 0
        says = (
            f"`{name}`: nearest eighth minus farthest {min(falls):+.2f} to {max(falls):+.2f}; in "
            f"{rising} of {len(layers)} layers (all seeds) the farthest is not the lowest"
        )
        found.append(Evidence(says, vote if name == "rotary" else None, "rotary-parts"))
    return found


def integers_explode(norm: str) -> list[Evidence]:
    """Gradients and loss of models that add the position itself, and of those with sinusoids."""
    unit = "claims/integer-positions"
    if not exists(unit):
        return []
    cells = read_summary(RESULTS / unit / "results.json")["norms"][norm]
    ratios, failed, calm = [], [], []
    for other, cell in zip(cells["sinusoidal"], cells["integer"], strict=True):
        ratios.append(cell["largest"] / other["largest"] if cell["largest"] else float("inf"))
        worse = cell["status"] != "finished" or (
            cell["validation_loss"] >= 2 * other["validation_loss"]
        )
        failed.append(ratios[-1] >= 10 or worse)
        calm.append(ratios[-1] <= 2 and not worse)
    vote = FOR if all(failed) else AGAINST if all(calm) else NEITHER
    says = f"largest gradient × {by_seed(ratios, 1)}; validation loss " + ", ".join(
        f"`{name}` {by_seed([cell['validation_loss'] for cell in cells[name]])}"
        for name in ("integer", "integer(length=512)", "sinusoidal", "none")
    )
    return [Evidence(says, vote, unit)]


def positions_stay() -> list[Evidence]:
    """How well a linear map reads positions; even without any, a causal mask lets layers count."""
    encodings = read_summary(RESULTS / "rotary-parts" / "results.json")["encodings"]
    left = {  # a row for each place in the model
        name: list(zip(*(cell["position_left"] for cell in encodings[name]["cells"]), strict=True))
        for name in ("sinusoidal", "learned", "rotary", "none")
    }
    rotated, found = [share for place in left["rotary"] for share in place], []
    without = [max(*pair[0], *pair[1]) for pair in zip(left["none"], left["rotary"], strict=True)]
    votes = {}
    for name in ("sinusoidal", "learned"):
        above = all(min(a) > b for a, b in zip(left[name], without, strict=True))
        below = max(map(max, left[name])) < min(rotated)
        votes[name] = FOR if above else AGAINST if below else NEITHER
    votes["rotary"] = -bounded(rotated, 0.5, 0.1)
    for name, places in left.items():
        least, most = (pick(map(pick, places)) for pick in (min, max))
        says = f"`{name}`: R² {format_number(least, 2)} to {format_number(most, 2)}"
        found.append(Evidence(says, votes.get(name), "rotary-parts"))
    return found


def spoils_meaning() -> list[Evidence]:
    """How many tokens have their own embedding nearest to their vector, in two places at once."""
    unit = "claims/token-left"
    if not exists(unit):
        return []
    encodings = read_summary(RESULTS / unit / "results.json")["encodings"]
    votes, parts = [], []
    for layer, place in enumerate(("at the first layer's input", "after the first layer")):
        left = {
            name: [cell["token_left"][layer] for cell in encodings[name]]
            for name in ("sinusoidal", "rotary")
        }
        votes.append(-bounded(left["sinusoidal"], 0.99, min(left["rotary"]) - 0.02))
        each = (
            f"`{name}` {' · '.join(f'{share:.1%}' for share in shares)}"
            for name, shares in left.items()
        )
        parts.append(f"{place}, {', '.join(each)}")
    vote = votes[0] if votes[0] == votes[1] else NEITHER
    return [Evidence("; ".join(parts), vote, unit)]
