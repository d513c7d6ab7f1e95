"""Generated tasks: answers are right, and no test prompt is ever trained on.

Each answer is computed again from the readable text, by another method. These tests would fail if
an answer were wrong, if a size left its range, if an id were outside the vocabulary, if a prompt
were in two splits, if a split had no example of some size, or if another run, seed or version of
Python drew other examples.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS, Example, draw_examples
from ropewalk.lab.data.rng import SPLITS, Rng, split_of
from ropewalk.lab.presets import TRAINED_SIZES
from ropewalk.lab.tokens import BOS, EOS, PAD

SEEDS = st.integers(0, 2**31)


def as_copy(prompt: str, answer: str) -> tuple[int, bool]:
    assert prompt.endswith(" >")
    return prompt.count(" "), prompt == f"{answer} >"


def as_reverse(prompt: str, answer: str) -> tuple[int, bool]:
    assert prompt.endswith(" >")
    return prompt.count(" "), prompt.split()[-2::-1] == answer.split()


def as_sort(prompt: str, answer: str) -> tuple[int, bool]:
    asked, answered = (list(map(int, text.split())) for text in (prompt.rstrip(" >"), answer))
    ascending = all(a < b for a, b in itertools.pairwise(answered))
    return len(asked), ascending and set(asked) == set(answered)


def as_addition(prompt: str, answer: str) -> tuple[int, bool]:
    """Add as on paper, column by column from the right."""
    digits = list(map(int, prompt.removesuffix(" >").split()))
    columns = list(zip(digits[::2], digits[1::2], strict=True))
    carry, written = 0, []
    for a, b in reversed(columns):
        carry, digit = divmod(a + b + carry, 10)
        written.append(str(digit))
    return len(columns), [*written, str(carry)] == answer.split()


def as_recall(prompt: str, answer: str) -> tuple[int, bool]:
    pairs, asked = (text.split() for text in prompt.split(" >"))
    told = dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert len(told) == len(pairs) // 2  # each key once
    return len(told), [told[key] for key in asked] == answer.split()


def as_passkey(prompt: str, answer: str) -> tuple[int, bool]:
    keys = re.findall(r"key((?: \d){5}) \.", prompt)
    hay = prompt.count(" ") + 1 - (1 + 5 + 1) - len(("what", "is", "the", "key", "?"))
    return hay, len(keys) == 1 and keys[0].strip() == answer


def as_count(prompt: str, answer: str) -> tuple[int, bool]:
    items, asked = prompt.split(" > ")
    return len(items.split()), len(re.findall(asked, items)) == int(answer)


READERS: dict[str, Callable[[str, str], tuple[int, bool]]] = {
    "copy": as_copy,
    "reverse": as_reverse,
    "sort": as_sort,
    "addition": as_addition,
    "recall": as_recall,
    "passkey": as_passkey,
    "count": as_count,
}


def in_words(task: str, example: Example) -> tuple[str, str]:
    """The prompt and the answer of an example, without begin and end marks."""
    words = SEQUENCE_TASKS[task].words
    prompt, answer = example.prompt[1:], example.answer[:-1]
    return " ".join(words[i] for i in prompt), " ".join(words[i] for i in answer)


def read(task: str, example: Example) -> tuple[int, bool]:
    """The size of an example and whether its answer is right, read from its words."""
    return READERS[task](*in_words(task, example))


def test_every_task_is_read_here() -> None:
    assert list(READERS) == list(SEQUENCE_TASKS) == list(TRAINED_SIZES)


@pytest.mark.parametrize("task", SEQUENCE_TASKS)
@settings(max_examples=25)
@given(low=st.integers(1, 24), more=st.integers(0, 24), seed=SEEDS, split=st.sampled_from(SPLITS))
def test_answers_are_right_and_sizes_in_range(
    task: str, low: int, more: int, seed: int, split: str
) -> None:
    for example in draw_examples(task, split=split, lengths=(low, low + more), count=4, seed=seed):
        size, right = read(task, example)
        assert right, in_words(task, example)
        assert low <= size <= low + more
        assert example.prompt[0] == BOS
        assert example.answer[-1] == EOS
        inside = (*example.prompt[1:], *example.answer[:-1])
        assert all(EOS < i < len(SEQUENCE_TASKS[task].words) for i in inside)


@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_sizes_are_uniform(task: str) -> None:
    """Fails if a size is too frequent: 200 of each are expected, 5 deviations are allowed."""
    drawn = draw_examples(task, split="train", lengths=(3, 7), count=1000, seed=0)
    sizes = Counter(read(task, example)[0] for example in drawn)
    assert set(sizes) == {3, 4, 5, 6, 7}
    assert all(abs(count - 200) < 5 * math.sqrt(160) for count in sizes.values())


@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_no_prompt_is_in_two_splits(task: str) -> None:
    """Every size has examples in every split, also the smallest, which has few prompts."""
    for n in (1, 2, 3, TRAINED_SIZES[task]):
        drawn = {
            split: draw_examples(task, split=split, lengths=(n, n), count=150, seed=seed)
            for seed, split in enumerate(SPLITS)
        }
        prompts = {split: {each.prompt for each in found} for split, found in drawn.items()}
        assert sum(map(len, prompts.values())) == len(set().union(*prompts.values()))
    assert len(prompts["train"]) == 150  # of the trained size, none repeats


@settings(max_examples=30)
@given(st.sampled_from(list(SEQUENCE_TASKS)), st.sampled_from(SPLITS), SEEDS)
def test_equal_arguments_give_equal_examples(task: str, split: str, seed: int) -> None:
    first, again, longer, other = (
        draw_examples(task, split=split, lengths=(5, 9), count=count, seed=seed)
        for count, seed in ((4, seed), (4, seed), (6, seed), (4, seed + 1))
    )
    assert first == again == longer[:4]
    assert first != other


def test_the_examples_of_seed_0_are_the_same_everywhere() -> None:
    lines = [
        f"{task}: {' '.join(in_words(task, example))}\n"
        for task in SEQUENCE_TASKS
        for example in draw_examples(task, split="test", lengths=(1, 30), count=20, seed=0)
    ]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert digest == "b16733545aff8f5f54c01a5690a26c7a6d9b132d0d1437fd03579e61c38ee666"


@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_eight_times_the_trained_size_fits(task: str) -> None:
    n = 8 * TRAINED_SIZES[task]
    for example in draw_examples(task, split="test", lengths=(n, n), count=3, seed=0):
        assert read(task, example) == (n, True)
        assert len(example.prompt) + len(example.answer) <= 700


@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_vocabulary_is_all_used(task: str) -> None:
    words = SEQUENCE_TASKS[task].words
    assert len(set(words)) == len(words)
    assert words[: EOS + 1] == ("<pad>", "<s>", "</s>")
    assert (PAD, BOS, EOS) == (0, 1, 2)
    n = TRAINED_SIZES[task]
    drawn = draw_examples(task, split="train", lengths=(1, n), count=1500, seed=0)
    met = {i for each in drawn for i in (*each.prompt, *each.answer)}
    assert met | {PAD} == set(range(len(words)))


@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_no_single_answer_is_worth_guessing(task: str) -> None:
    """Fails if one answer is right for far more than a tenth of the prompts, a count's share."""
    for n in (TRAINED_SIZES[task], 4 * TRAINED_SIZES[task]):
        drawn = draw_examples(task, split="test", lengths=(n, n), count=400, seed=0)
        most = Counter(example.answer for example in drawn).most_common(1)[0][1]
        assert most < 40 + 5 * math.sqrt(36)


# The random numbers of all generated data


@given(st.lists(st.integers(), unique=True, max_size=12), SEEDS, st.data())
def test_shuffled_gives_different_ones(options: list[int], seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(options)))
    some = Rng(str(seed)).shuffled(options, count)
    assert len(some) == len(set(some)) == count
    assert set(some) <= set(options)
    assert sorted(Rng(str(seed)).shuffled(options)) == sorted(options)


def test_shuffling_favours_no_order() -> None:
    """Fails if the share of one of the six orders is more than 5 deviations from a sixth."""
    rng = Rng("orders")
    orders = Counter(tuple(rng.shuffled("abc")) for _ in range(3000))
    assert len(orders) == 6
    assert all(abs(count - 500) < 5 * math.sqrt(3000 * 5 / 36) for count in orders.values())


def test_a_tenth_is_held_out_for_validation_and_for_test() -> None:
    splits = Counter(split_of(str(i)) for i in range(5000))
    assert set(splits) == set(SPLITS)
    assert all(abs(splits[split] - 500) < 5 * math.sqrt(450) for split in ("validation", "test"))
