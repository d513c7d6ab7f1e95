"""`ropewalk bench` times equal rotations, compares them with copying, and reports the conditions.

These fail if a contender is timed that computes another rotation or gradient, changes its arguments
or does not run; if a right one is refused; if a table lacks its limit or counts wrong bytes; if the
results cannot be read back from JSON; and if a mistake is not named. No test asserts how long
anything takes.
"""

import io
import json
import math
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ropewalk import rotate
from ropewalk.bench import contenders
from ropewalk.bench.bench_options import make_plan, using_threads
from ropewalk.bench.bench_report import duration, picture_of, print_notes, print_part
from ropewalk.bench.clock import peak_call_memory, time_rows
from ropewalk.bench.contenders import CONTENDERS, OURS, WITHOUT_KERNEL, Absent, Contender, Rotation
from ropewalk.bench.rotation_bench import TimedTable, allowed, measure, worst_error
from ropewalk.bench.workloads import (
    GRADIENT,
    IN_PLACE,
    NEW,
    THETA,
    WITH_TABLES,
    WORKLOADS,
    Case,
    Workload,
)

CPU = torch.device("cpu")
FORMS = (NEW, IN_PLACE, GRADIENT, WITH_TABLES)
TINY = Workload("tiny", FORMS, batch=2, heads=4, key_heads=2, length=40, head_dim=16, first=3)
SIZE = 2 * (4 + 2) * 40 * 16  # elements of q and k


def tiny_plan(*, chosen=CONTENDERS, work=TINY, dtype="float32"):
    plan = make_plan("tiny", dtype, rounds=2, device="cpu", workloads={"tiny": [work]})
    return replace(plan, contenders=tuple(chosen))


def case_of(form):
    return Case(TINY, form, torch.float32, CPU)


def turned_by(q, k, case, extra=0.0, sign=1):
    """Both rotated with every angle too large by `extra`, in plain torch."""
    exponents = (
        torch.arange(0, case.workload.head_dim, 2, dtype=torch.float64) / case.workload.head_dim
    )
    angles = case.workload.positions().double()[:, None] * THETA**-exponents + extra
    cos, sin = angles.cos().float(), sign * angles.sin().float()
    return tuple(rotate(x, cos, sin, pairing="half") for x in (q, k))


@pytest.fixture(scope="module")
def measured():
    heard = []
    plan = tiny_plan(chosen=(*CONTENDERS, *contenders.PEERS), dtype="float32,bfloat16")
    results = measure(plan, ["ropewalk", "bench"], heard.append)
    assert heard == [results.conditions, *results.tables]
    return results


def test_every_table_holds_its_limit_and_counts_the_bytes_it_moves(measured):
    assert len(measured.tables) == len(FORMS) * 2
    for timed in measured.tables:
        assert timed.refused == []  # a library that is installed is called as it wants
        rows = {row.name: row for row in timed.rows}
        (limit,) = [row for row in timed.rows if row.limit]
        assert limit.name.startswith("copy_" if timed.form == IN_PLACE else "clone")
        assert limit.of_copy == 1
        width = {"float32": 4, "bfloat16": 2}[timed.dtype]
        assert timed.bytes_moved == 2 * SIZE * width * (1 + (timed.form == GRADIENT))
        for row in rows.values():
            assert row.rounds == 2
            assert row.of_copy == row.seconds / limit.seconds > 0
            assert row.gb_per_s == pytest.approx(timed.bytes_moved / row.seconds / 1e9)
            assert row.worst_error <= allowed(getattr(torch, timed.dtype))
        assert OURS in rows
        assert (WITHOUT_KERNEL in rows) == measured.conditions["kernel"]
        assert (f"{OURS}, tables ready" in rows) == (timed.form == WITH_TABLES)
        # ropewalk's kernel allocates only results and gradients; in place, nothing.
        if measured.conditions["kernel"]:
            held = 0 if timed.form == IN_PLACE else timed.bytes_moved // 2
            assert rows[OURS].peak_bytes == rows[limit.name].peak_bytes == held


def test_transformers_is_measured_beside_where_it_is_installed(measured):
    pytest.importorskip("transformers")
    for timed in measured.tables:
        rows = {row.name: row for row in timed.rows}
        assert ("transformers" in rows) == (timed.form != IN_PLACE)
        if "transformers" in rows:
            theirs = rows["transformers"].seconds
            assert rows[OURS].times_transformers == theirs / rows[OURS].seconds


def test_the_conditions_stand_with_the_numbers(measured):
    facts = measured.as_json()
    assert {"commit", "command", "versions", "started", "duration_s"} <= facts.keys()
    machine = {"processor", "threads", "device", "load_before", "load_after"}
    assert machine <= facts["machine"].keys()
    assert "torch" in facts["versions"]
    assert facts["instructions"].keys() == {"torch", "ropewalk"}  # of the CPU
    gone = {row.name: row.reason for row in measured.absent}
    for name in ("Liger", "flash-attn"):
        assert gone[name] == "not installed" or "needs a GPU" in gone[name]


def test_what_was_measured_comes_back_from_its_json_and_can_be_shown(measured, tmp_path):
    read = json.loads(json.dumps(measured.as_json()))
    tables = [TimedTable.read(facts) for facts in read["tables"]]
    assert tables == measured.tables
    shown = io.StringIO()
    console = Console(file=shown, soft_wrap=True)
    for part in (measured.conditions, *tables):
        print_part(console, part)
    print_notes(console, measured)
    text = shown.getvalue()
    assert text.count("(limit)") == len(tables)
    assert "…" not in text
    assert "absent: " in text
    picture = picture_of(tables)
    picture.save(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for timed, rows in zip(tables, picture.data.values(), strict=True):
        timed_rows = [row for row in timed.rows if not row.limit]
        assert [bar["value"] for bar in rows] == [row.of_copy for row in timed_rows]
        assert all(f"({duration(row.seconds)})" in picture.alt for row in timed_rows)


def gradient_of_another(q, k, case):
    right, wrong = turned_by(q, k, case), turned_by(q, k, case, sign=-1)
    return tuple(w + (r - w).detach() for r, w in zip(right, wrong, strict=True))


def spoils_its_argument(q, k, case):
    rotated = turned_by(q, k, case)
    q.detach().zero_()
    return rotated


def one_position_off(q, k, case):
    return turned_by(q, k, replace(case, workload=replace(case.workload, first=4)))


@pytest.mark.parametrize(
    ("form", "rotation", "reason"),
    [
        *((form, one_position_off, "another rotation") for form in (NEW, WITH_TABLES, GRADIENT)),
        (NEW, partial(turned_by, sign=-1), "another rotation"),
        (NEW, lambda q, k, case: [x.flip(1) for x in turned_by(q, k, case)], "another rotation"),
        (NEW, lambda q, k, case: (turned_by(q, k, case)[0], k * math.nan), "another rotation"),
        (NEW, lambda q, k, case: [x[None] for x in turned_by(q, k, case)], "another rotation"),
        (GRADIENT, gradient_of_another, "another rotation"),
        (NEW, spoils_its_argument, "writes into q or k"),
        (GRADIENT, spoils_its_argument, "writes into q or k"),
        (IN_PLACE, turned_by, "another rotation"),  # it leaves its arguments
        (NEW, lambda q, k, case: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_contender_that_does_not_do_the_same_is_named_and_not_timed(form, rotation, reason):
    wrong = Contender("wrong", lambda case: Rotation(partial(rotation, case=case)))
    plan = tiny_plan(chosen=(CONTENDERS[0], wrong), work=replace(TINY, forms=(form,)))
    (timed,) = measure(plan).tables
    (refused,) = timed.refused
    assert refused.name == "wrong"
    assert reason in refused.reason
    names = [row.name for row in timed.rows]
    assert OURS in names
    assert "wrong" not in names


@given(st.floats(1e-2, 3.0), st.sampled_from((NEW, GRADIENT, WITH_TABLES)))
def test_an_error_of_known_size_is_found_as_what_it_is(extra, form):
    case = case_of(form)
    error = worst_error(Rotation(lambda q, k: turned_by(q, k, case, extra)), case)
    assert error == pytest.approx(2 * math.sin(extra / 2), abs=1e-4)
    assert worst_error(Rotation(lambda q, k: turned_by(q, k, case)), case) < 1e-5


def test_who_is_absent_is_asked_once_and_named_with_its_reason():
    asked = []

    def missing(case):
        asked.append("missing")
        raise ModuleNotFoundError("No module named 'x'", name="x")

    def unable(case):
        asked.append("unable")
        raise Absent("needs another machine")

    chosen = [
        Contender("missing", missing, "a-package-that-nobody-has"),
        Contender("broken", missing, "torch"),
        Contender("unable", unable),
    ]
    results = measure(tiny_plan(chosen=chosen, work=replace(TINY, forms=(NEW, IN_PLACE))))
    assert asked == ["missing", "missing", "unable"]
    assert {row.name: row.reason for row in results.absent} == {
        "missing": "not installed",
        "broken": "cannot be imported: ModuleNotFoundError: No module named 'x'",
        "unable": "needs another machine",
    }


def test_without_its_kernel_ropewalk_is_its_reference_and_the_kernel_comes_back(monkeypatch):
    if not contenders.kernel_serves(CPU):
        pytest.skip("the C kernel is not installed")
    case = case_of(NEW)
    rotation = contenders.ropewalk_without_kernel(case)
    q, k = case.tensors(-2)

    def unwanted(*_):
        raise AssertionError("the kernel was called")

    monkeypatch.setattr("ropewalk.rotary.kernels.cpu.rotate", unwanted)
    rotation.rotate(q, k)
    with pytest.raises(AssertionError, match="the kernel was called"):
        contenders.ropewalk(case).rotate(q, k)
    with pytest.raises(TypeError, match="q must be a tensor"):
        rotation.rotate(None, None)
    assert contenders.kernel_serves(CPU)


def stand_in(monkeypatch, name, **members):
    """A module of this name, and its packages, where the real one needs a GPU."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
    for member, value in members.items():
        setattr(sys.modules[name], member, value)
    monkeypatch.setattr(contenders, "_needs_gpu", lambda module, case: None)


@pytest.mark.parametrize("form", FORMS)
def test_flash_attn_is_called_with_the_arguments_it_documents(form, monkeypatch):
    def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0):
        assert x.dtype == cos.dtype
        assert x.shape[1] + seqlen_offsets <= len(cos)  # x is (B, S, H, D)
        rows = slice(seqlen_offsets, seqlen_offsets + x.shape[1])
        out = x if inplace else None
        return rotate(x, cos[rows], sin[rows], pairing="half", seq_dim=-3, out=out)

    stand_in(monkeypatch, "flash_attn.layers.rotary", apply_rotary_emb=apply_rotary_emb)
    case = case_of(form)
    assert worst_error(contenders.flash_attn(case), case) < allowed(case.dtype)


@pytest.mark.parametrize("form", FORMS)
def test_liger_is_called_with_the_arguments_it_documents(form, monkeypatch):
    class Rope(torch.autograd.Function):  # in place on whatever is contiguous as (B, S, H, D)
        @staticmethod
        def forward(ctx, q, k, cos, sin):
            ctx.save_for_backward(cos, sin)
            return rotate_both(q, k, cos, sin)

        @staticmethod
        def backward(ctx, dq, dk):
            return *rotate_both(dq, dk, *ctx.saved_tensors, adjoint=True), None, None

    def rotate_both(q, k, cos, sin, adjoint=False):
        assert cos.shape == (1, q.shape[2], q.shape[3])
        tables = (table[0, :, : q.shape[3] // 2] for table in (cos, sin))
        cos, sin = tables
        rows = [x.transpose(1, 2).contiguous() for x in (q, k)]
        for x in rows:
            rotate(x, cos, sin, pairing="half", seq_dim=-3, adjoint=adjoint, out=x)
        return tuple(x.transpose(1, 2) for x in rows)

    stand_in(monkeypatch, "liger_kernel.transformers.rope", liger_rotary_pos_emb=Rope.apply)
    case = case_of(form)
    rotated = contenders.liger(case)
    assert (rotated is None) == (form == WITH_TABLES)
    if rotated is not None:
        assert worst_error(rotated, case) < allowed(case.dtype)


@pytest.mark.slow
@pytest.mark.longer  # it compiles
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_what_the_compiler_makes_of_the_formula_is_the_same_rotation():
    assert [contenders.compiled(case_of(form)) for form in (IN_PLACE, WITH_TABLES)] == [None, None]
    rotation = contenders.compiled(case_of(GRADIENT))  # both passes; NEW is the first one alone
    assert worst_error(rotation, case_of(GRADIENT)) < 1e-5


def test_rows_are_sampled_in_every_round_and_six_times_at_least():
    counts = {"a": 0, "b": 0}

    def count(name):
        counts[name] += 1

    runs = {name: (lambda name=name: count(name)) for name in counts}
    assert {name: len(s) for name, s in time_rows(runs, CPU, 3, 0).items()} == {"a": 3, "b": 3}
    assert {name: len(s) for name, s in time_rows(runs, CPU, None, 0).items()} == {"a": 6, "b": 6}
    assert min(counts.values()) > 8


@pytest.mark.parametrize(
    ("run", "held"),
    [
        (lambda x: x.clone(), 1),
        (lambda x: (x * 2) + 1, 2),  # the product is freed after the sum
        (lambda x: x.mul_(2), 0),
        (lambda x: torch.cat([x.neg(), x.neg()]), 4),
    ],
)
def test_the_peak_is_what_torch_held_at_once(run, held):
    x = torch.ones(1 << 14)
    # A number that meets a tensor becomes one itself, of a few bytes.
    assert 0 <= peak_call_memory(lambda: run(x), CPU) - held * x.nbytes < 64


def test_threads_are_those_asked_for_and_then_as_before():
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_the_default_is_what_models_do():
    plan = make_plan()
    shapes = {(case.workload.q(), case.workload.k()) for case in plan.cases()}
    assert ((1, 32, 4096, 128), (1, 8, 4096, 128)) in shapes
    assert ((64, 32, 1, 128), (64, 8, 1, 128)) in shapes
    assert {case.form for case in plan.cases()} == set(FORMS)
    assert {case.dtype for case in plan.cases()} == {torch.float32, torch.bfloat16}
    assert [work.name for work in make_plan("decode,prefill,decode").workloads] == [
        *(work.name for work in WORKLOADS["decode"]),
        "prefill",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"work": "prefil"}, "--work must be of prefill, training, decode, got 'prefil'"),
        ({"dtype": "float32,int8"}, "--dtype must be of float32, bfloat16, float16, got 'int8'"),
        ({"threads": 1025}, "--threads must be at most 1,024, got 1,025"),
        ({"seconds": math.nan}, "--seconds must be a number of at least 0, got nan"),
        ({"device": "gpu9"}, "device must be one that this machine has, .*got 'gpu9'"),
        ({"device": "meta"}, "device must be one that this machine has, .*got 'meta'"),
    ],
)
def test_a_mistake_names_option_rule_and_value(words, said):
    with pytest.raises(ValueError, match=said):
        make_plan(**words)


def test_a_duration_has_three_figures_and_a_unit():
    assert duration(0.1234) == "123 ms"
    assert duration(0.01234) == "12.3 ms"
    assert duration(1.234e-6) == "1.23 µs"


@pytest.mark.slow
def test_the_command_prints_tables_and_writes_what_it_is_asked_to(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["bench", "--work", "decode", "--dtype", "float32", "--rounds", "1", "--device", "cpu"]
    status, out, _ = command(*words, "--out", "o.json", "--figure", "f.svg")
    assert status == 0
    assert out.count("clone (limit)") == 2
    results = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert results["command"].startswith("ropewalk bench --work decode")
    assert "<svg" in (tmp_path / "f.svg").read_text(encoding="utf-8")
