"""Encodings are timed in turn, and compared within a round.

These fail if an encoding is measured twice before each other one was measured, if a disturbance of
one round or a machine that becomes slower moves a ratio, if an encoding that needs too much memory
stops the others or is what they are compared with, if a token is decoded with another number of
earlier tokens than stated, or if the script no longer runs to the end.
"""

import math
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import load_scripts

cost, steps = load_scripts("benchmarks", "cost", "cost_steps")

FACTORS = st.lists(st.floats(0.1, 50), min_size=1, max_size=6).map(lambda rest: [1.0, *rest])
ROUNDS = st.integers(1, 7)


@pytest.fixture(autouse=True, scope="module")
def no_collecting():
    """Stubs leave nothing to collect, and collecting takes longer than hundreds of their rounds."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr("ropewalk.bench.clock.gc", Mock())
        yield


class Stub:
    """A worker whose step takes `factor` seconds, times the slowness of the machine at that time.

    calls: what all stubs of a test share, the worker and the length of each call.
    """

    def __init__(self, factor, calls, slowness=lambda call: 1.0, longest=math.inf):
        self.factor, self.calls, self.slowness = factor, calls, slowness
        self.longest, self.failure = longest, ""

    def measure(self, length):
        self.failure = self.failure or ("out of memory" if length > self.longest else "")
        if self.failure:
            return None
        seconds = self.factor * length * self.slowness(len(self.calls))
        self.calls.append((self, length))
        return {"seconds": seconds, "bytes": length}


def measured(workers, lengths, rounds):
    rows = cost.by_length(workers, lengths, rounds)
    assert [len(row) for row in rows] == [len(lengths)] * len(workers)
    return [[at["ratio"] for at in row] for row in rows]


@given(FACTORS, ROUNDS)
def test_in_each_round_every_encoding_is_measured_once_at_the_same_length(factors, rounds):
    calls = []
    workers = [Stub(factor, calls) for factor in factors]
    cost.by_length(workers, [8, 64], rounds)
    times = rounds * len(workers)
    assert [length for _, length in calls] == [8] * times + [64] * times
    for start in range(0, len(calls), len(workers)):
        turn = [worker for worker, _ in calls[start : start + len(workers)]]
        assert sorted(map(id, turn)) == sorted(map(id, workers))


@pytest.mark.parametrize(
    "slowness",
    [
        lambda call, size, at, slow: slow if call // size == at % 5 else 1.0,
        lambda call, size, at, slow: 100.0 if call == at % (5 * size) else 1.0,
        lambda call, size, at, slow: 3.0 ** (call // size),
    ],
    ids=["a round stalls", "a measurement stalls", "slower from round to round"],
)
@given(FACTORS, st.integers(0, 10_000), st.floats(2, 1e4))
def test_a_disturbance_of_the_machine_moves_no_ratio(slowness, factors, at, slow):
    calls, size = [], len(factors)
    workers = [Stub(f, calls, lambda call: slowness(call, size, at, slow)) for f in factors]
    (found,) = zip(*measured(workers, [8], 5), strict=True)
    assert found == pytest.approx(factors, rel=1e-3)


def test_an_encoding_that_fails_at_a_length_stops_no_other():
    calls = []
    workers = [Stub(1, calls), Stub(2, calls, longest=8), Stub(3, calls)]
    first, second, third = cost.by_length(workers, [8, 64, 128], 2)
    assert [at["ratio"] for at in first + third] == [1, 1, 1, 3, 3, 3]
    assert second[0]["ratio"] == 2
    assert second[1:] == [{"failed": "out of memory"}] * 2


def test_nothing_is_reported_without_the_encoding_that_others_are_compared_with():
    calls = []
    workers = [Stub(1, calls, longest=8), Stub(2, calls)]
    with pytest.raises(RuntimeError, match="failed at 64 tokens: out of memory"):
        cost.by_length(workers, [8, 64], 2)


@pytest.mark.parametrize("attention", ["softmax", "elu"])
def test_each_repetition_decodes_a_token_with_the_stated_number_of_tokens(attention):
    model = steps.model_of("rotary", attention)
    step, seen = steps.decode_step(model, 12), []
    model.register_forward_pre_hook(
        lambda module, words, named: seen.append((words[0].shape[1], named["cache"].length)),
        with_kwargs=True,
    )
    for _ in range(3):
        step()
    assert seen == [(1, 11)] * 3


@pytest.mark.slow
def test_a_process_that_is_killed_is_a_failure_with_its_status(forking):
    worker = steps.Worker("decode", "none", "softmax")
    worker._process.kill()
    worker._process.wait()
    assert worker.measure(8) is None
    assert worker.failure == "ended with status -9"
    worker.close()


@pytest.mark.slow
def test_an_encoding_that_cannot_be_built_is_named_in_one_line(capsys, forking):
    words = ["--encodings", "rotary(foo=1)", "--lengths", "16", "--no-linear", "--rounds", "1"]
    with pytest.raises(SystemExit) as ended:
        cost.main(words)
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "ValueError" in last
    assert "foo" in last


@pytest.mark.slow
def test_the_script_runs_to_the_end_and_says_which_encoding_failed(
    run_script, tmp_path, capsys, forking
):
    words = ["--encodings", "none,learned(max_positions=20)", "--lengths", "16,24"]
    results = run_script(cost, *words, "--no-linear", "--rounds", "2")
    assert [row["name"] for row in results["rows"]] == words[1].split(",")
    none, learned = results["rows"]
    for work in steps.STEPS:
        assert [at["ratios"] for at in none[work]] == [[1, 1], [1, 1]]
        assert learned[work][0]["seconds"] > 0
        assert len(learned[work][0]["ratios"]) == 2
        assert "max_positions" in learned[work][1]["failed"]
    assert "–" in capsys.readouterr().out
    for scheme in ("light", "dark"):
        assert (tmp_path / f"out-{scheme}.png").is_file()
