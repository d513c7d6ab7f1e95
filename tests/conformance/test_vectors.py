"""The conformance vectors: right, told apart, and each mistake named.

These fail if a vector's numbers, its schema or a runner is wrong; if two mistakes of a vector could
be confused; and if a mistake has no vector that names it.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from scripts import load_scripts

from ropewalk import RotaryEmbedding, axes

HOME = Path(__file__).parents[2] / "conformance"
(run,) = load_scripts("conformance", "run")
(ropewalk,) = load_scripts("conformance/adapters", "ropewalk_adapter")
VECTORS = run.load(HOME / "vectors", [])
IDS = [f"{each['area']}/{each['name']}" for each in VECTORS]
OF_ONE_ROPE = [each for each in VECTORS if each["cached"] is None]


def test_the_files_follow_the_schema():
    schema = json.loads((HOME / "schema.json").read_text("utf-8"))
    for file in (HOME / "vectors").glob("*.json"):
        jsonschema.validate(json.loads(file.read_text("utf-8")), schema)
    assert len(IDS) == len(set(IDS)) == 114


@pytest.mark.slow
def test_the_files_are_those_of_the_generator():
    (generate,) = load_scripts("conformance", "generate")
    made = generate.files()
    assert {file: file.read_text("utf-8") for file in made} == made
    assert set(made) == set((HOME / "vectors").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("vector", VECTORS, ids=IDS)
def test_no_two_results_can_be_confused(vector):
    """Within what float32 angles may be off, each mistake differs from all else at its level."""
    limits = run.bounds(vector, True)
    for fields in run.LEVELS.values():
        results = {"right": vector, **vector["traps"]}
        shown = {
            name: {field: found[field] for field in fields if found.get(field) not in (None, [])}
            for name, found in results.items()
        }
        shown = {name: found for name, found in shown.items() if found}
        for one in shown:
            for two in shown:
                common = one == two or not set(shown[one]) & set(shown[two])
                assert common or run.error(shown[one], shown[two], limits) > 2, (one, two)


def test_ropewalk_passes():
    records = run.run(ropewalk, VECTORS)
    assert len(records) == 3 * 109 + 5
    assert {record["result"] for record in records} == {"valid"}


class Wrong:
    """A port with one mistake, in its rope, positions, frequencies, tables or rotation."""

    def __init__(self, *, rope=None, at=None, tables=None, turn=None, level_1=None):
        self.rope, self.at, self.change, self.turn = rope, at, tables, turn
        self.level_1 = level_1

    def spec(self, vector):
        spec = ropewalk.rotary_spec(vector["rope"])
        return spec if self.rope is None else dataclasses.replace(spec, **self.rope(spec))

    def positions(self, vector):
        at = torch.tensor(vector["positions"])
        return at if self.at is None else self.at(at)

    def frequencies(self, vector):
        spec = self.spec(vector)
        found = spec.inverse_frequencies(vector["length"]), spec.amplitude_at(vector["length"])
        return found if self.level_1 is None else self.level_1(*found)

    def tables(self, vector):
        found = RotaryEmbedding(self.spec(vector)).tables(
            self.positions(vector), length=vector["length"]
        )
        return found if self.change is None else self.change(*found, vector)

    def rotate(self, vector):
        from ropewalk.rotary.tables import apply_tables

        spec, results = self.spec(vector), []
        for name in ("q", "k"):
            if vector[name]:
                x = torch.tensor(vector[name])
                if self.turn is not None:
                    results.append(self.turn(x, *self.tables(vector), vector))
                else:
                    results.append(apply_tables(spec, self.tables(vector), x)[0])
        return results


def coarse(x):
    return x.bfloat16().float()


def without_amplitude(cos, sin, vector):
    return cos / vector["attention_factor"], sin / vector["attention_factor"]


def bfloat16_angles(cos, sin, vector, dtype=torch.bfloat16):
    frequencies = torch.tensor(vector["inverse_frequencies"]).bfloat16().to(dtype)
    at = torch.tensor(vector["positions"]).to(dtype)
    if vector["rope"]["axes"]:
        at = at[[axis for axis, _, _ in vector["rope"]["axes"]]].T
    angles = (at if at.ndim == 2 else at[:, None]) * frequencies
    factor = vector["attention_factor"]
    return factor * angles.double().cos(), factor * angles.double().sin()


def layouts_mixed(x, cos, sin, vector):
    """rotate_half of halves with tables that repeat for neighbors."""
    a, b = x.chunk(2, -1)
    cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def overwritten(x, cos, sin, vector):
    a, b = x.clone().chunk(2, -1)
    a.copy_(a * cos - b * sin)
    b.copy_(b * cos + a * sin)
    return torch.cat((a, b), -1)


def twice(x, cos, sin, vector):
    rope = RotaryEmbedding(ropewalk.rotary_spec(vector["rope"]))
    at = torch.tensor(vector["positions"])
    once = rope.rotate(x[None, None], at, length=vector["length"])
    return rope.rotate(once, at, length=vector["length"])[0, 0]


def other_pairing(read, write):
    """Read and written in the other pairing; if they differ, both as they are read."""
    other = {"half": "interleaved", "interleaved": "half"}[read] if read == write else read
    return {"pairing": other, "write_pairing": other}


WRONG = {
    "pairing": Wrong(rope=lambda s: other_pairing(s.pairing, s.write_pairing)),
    "wrong-sign": Wrong(rope=lambda s: {"reverse": not s.reverse}),
    "theta": Wrong(rope=lambda s: {"theta": 1e4 if s.theta != 1e4 else 5e5}),
    "wrong-exponent": Wrong(
        rope=lambda s: {"axes": tuple((0, Fraction(i, s.rotary_dim)) for i in range(s.pairs))}
    ),
    "rule-ignored": Wrong(rope=lambda s: {"scaling": None}),
    "rotary-part": Wrong(rope=lambda s: {"start": 0 if s.start else s.head_dim - s.rotary_dim}),
    "partial-ignored": Wrong(rope=lambda s: {"rotary_dim": s.head_dim, "start": 0}),
    "offset-ignored": Wrong(at=lambda at: torch.arange(len(at))),
    "positions-ignored": Wrong(at=lambda at: torch.arange(at.shape[-1]).expand_as(at)),
    "frequencies": Wrong(at=lambda at: at.flip(0) if at.ndim == 2 else at),
    "half-precision-angles": Wrong(tables=bfloat16_angles, level_1=lambda f, m: (coarse(f), m)),
    "half-precision-angles:frequencies": Wrong(
        tables=lambda *found: bfloat16_angles(*found, dtype=torch.float64)
    ),
    "half-precision-angles:tables": Wrong(
        tables=lambda *found: tuple(map(coarse, bfloat16_angles(*found)))
    ),
    "rounded-tables": Wrong(tables=lambda cos, sin, _: (coarse(cos), coarse(sin))),
    "cos-sin-mixed": Wrong(tables=lambda cos, sin, _: (sin, cos)),
    "amplitude": Wrong(tables=without_amplitude, level_1=lambda f, _: (f, 1.0)),
    "layouts-mixed": Wrong(turn=layouts_mixed),
    "overwritten-half": Wrong(turn=overwritten),
    "rotated-twice": Wrong(turn=twice),
}  # fmt: skip
#: Of ropes that the last three can rotate as they are.
WHOLE_HALVES = [v for v in OF_ONE_ROPE if v["area"] == "pairings" and v["name"].startswith("half")]


def test_each_mistake_is_named():
    listed = {trap for vector in VECTORS for trap in vector["traps"]}
    assert listed == {*WRONG, "rule-applied-twice"}
    for name, port in WRONG.items():
        vectors = [vector for vector in OF_ONE_ROPE if name in vector["traps"]]
        if port.turn in (layouts_mixed, overwritten):
            vectors = WHOLE_HALVES
        elif name == "wrong-exponent":
            vectors = [vector for vector in vectors if vector["rope"]["axes"] is None]
        elif name == "frequencies":  # axes are exchanged
            plain = {"rope_type": "default"}
            vectors = [vector for vector in vectors if vector["rope"]["scaling"] == plain]
        elif name == "rounded-tables":  # which rounded vectors may hide
            vectors = [vector for vector in vectors if vector["dtype"] == "float32"]
        shown = {
            (vector["area"], vector["name"], level)
            for vector in vectors
            for level, fields in run.LEVELS.items()
            if set(fields) & set(vector["traps"][name])
        }
        records = {(r["area"], r["name"], r["level"]): r for r in run.run(port, vectors)}
        assert len(shown) >= 3
        missed = {p: records[p] for p in shown if records[p].get("trap") != name}
        assert not missed, name


def test_a_rule_that_is_applied_twice_is_named():
    class Twice(Wrong):
        def frequencies(self, vector):
            spec = ropewalk.rotary_spec(vector["rope"])
            plain = dataclasses.replace(spec, scaling=None).inverse_frequencies()
            scaled = spec.inverse_frequencies(vector["length"])
            return scaled * scaled / plain, spec.amplitude_at(vector["length"])

    vectors = [
        v for v in OF_ONE_ROPE if "inverse_frequencies" in v["traps"].get("rule-applied-twice", {})
    ]
    records = [r for r in run.run(Twice(), vectors) if r["level"] == "frequencies"]
    assert {record["trap"] for record in records} == {"rule-applied-twice"}
    assert len(records) > 10


def test_float32_angles_are_acceptable():
    """As transformers computes them: right when near, a choice when far, never a mistake."""

    class Float32(Wrong):
        def tables(self, vector):
            f = torch.tensor(vector["inverse_frequencies"], dtype=torch.float32)
            at = torch.tensor(vector["positions"], dtype=torch.float32)
            if vector["rope"]["axes"]:
                at = at[[axis for axis, _, _ in vector["rope"]["axes"]]].T
            angles = (at if at.ndim == 2 else at[:, None]) * f
            return vector["attention_factor"] * angles.cos(), vector[
                "attention_factor"
            ] * angles.sin()

    records = run.run(Float32(), OF_ONE_ROPE)
    assert {record["result"] for record in records} == {"valid", "acceptable"}
    far = [r for r in records if r["area"] == "far" and r["level"] == "tables"]
    assert {record["result"] for record in far} == {"acceptable"}
    assert max(record["off_by"] for record in far) > 0.1


def conformance(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=HOME)


def test_a_port_that_raises_counts_as_failed(tmp_path):
    """The others go on. It starts Python, since the script is what users run."""
    (tmp_path / "port.py").write_text("def tables(v):\n    raise KeyError('theta')\n", "utf-8")
    done = conformance(sys.executable, "run.py", tmp_path / "port.py", "--area", "pairings")
    assert done.returncode == 1
    assert done.stdout.count("FAILED pairings/") == 5
    assert "KeyError: 'theta'" in done.stdout


def test_a_reader_that_has_enough_ends_it_without_a_word(tmp_path):
    (tmp_path / "port.py").write_text("def tables(v):\n    return v['cos'], v['sin']\n", "utf-8")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "run.py", tmp_path / "port.py", "--area", "far"],
        stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=HOME,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["{", '{"version": 2, "area": "far", "vectors": []}', "[]", "3"])
@pytest.mark.parametrize("runner", ["run.py", "run.mjs"])
def test_a_damaged_file_is_one_line(tmp_path, text, runner):
    program = sys.executable if runner == "run.py" else shutil.which("node")
    if program is None:
        pytest.skip("needs node")
    (tmp_path / "far.json").write_text(text, "utf-8")
    adapter = "adapters/ropewalk_adapter.py" if runner == "run.py" else "adapters/explorer.mjs"
    done = conformance(program, runner, adapter, "--vectors", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("conformance: far.json must")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_page_in_the_browser_passes(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("needs node")
    done = conformance(
        "node", "run.mjs", "adapters/explorer.mjs", "--json", tmp_path / "found.json"
    )
    assert done.returncode == 0, done.stdout
    records = json.loads((tmp_path / "found.json").read_text("utf-8"))["records"]
    assert len(records) > 190


@pytest.mark.slow
def test_results_of_a_wrong_shape_count_as_failed_in_javascript(tmp_path):
    """The others go on."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    (tmp_path / "port.mjs").write_text(
        "export const tables = (v) => [v.cos, v.name === 'half' ? v.sin.slice(1) : v.sin];\n"
    )
    done = conformance("node", "run.mjs", tmp_path / "port.mjs", "--area", "pairings")
    assert done.returncode == 1
    assert "FAILED pairings/half, tables: Error: sin must have 32 numbers, got 24" in done.stdout
    assert done.stdout.split("\n")[1].split() == ["pairings", "4", "0", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(("adapter", "passed"), [("reference.c", 218), ("kernel.c", 109)])
def test_code_in_c_passes(tmp_path, adapter, passed):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    program = tmp_path / "run"
    made = conformance("cc", "-O2", "-w", "run.c", f"adapters/{adapter}", "-lm", "-o", program)
    assert made.returncode == 0, made.stderr
    done = conformance(program, *sorted((HOME / "vectors").glob("*.txt")))
    assert done.stdout == f"exact {passed}, float32 angles 0, wrong 0\n"
    damaged = tmp_path / "far.txt"
    text = (HOME / "vectors" / "far.txt").read_text("utf-8")
    for wrong in (text[:5000], text.replace(" half-far float32\n", " half-far float64\n")):
        damaged.write_text(wrong, "utf-8")
        done = conformance(program, damaged)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert "a field or a dtype is unknown" in done.stderr


def test_the_axes_of_video_are_those_of_the_library():
    (video,) = (v for v in VECTORS if v["name"] == "video")
    assert ropewalk.rotary_spec(video["rope"]).axes == axes.axial((2, 3, 3))
    assert np.array(video["rotated_q"]).shape == (4, 16)
