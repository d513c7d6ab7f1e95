"""Generated tasks of any length: a prompt to read, an answer to produce, scored by exact match.

Each task has a size n: the number of items to copy, digits of a number, or words to search. A
model that was trained on sizes 1 … n is tested at n and beyond (2n, 4n, 8n). A hash of the
prompt's tokens decides its split, whatever the seed and the sizes, so no test prompt is ever a
training prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ropewalk.lab.data.rng import Rng, Split, split_of
from ropewalk.lab.tokens import BOS, EOS, SPECIAL

Words = Sequence[str]


@dataclass(frozen=True)
class Example:
    """Token ids of one example: the prompt with its begin mark, the answer with its end mark."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class SequenceTask:
    """A generated task: its vocabulary, and how an example of size n is drawn as words.

    `words` is the vocabulary; a token's id is its index in it. Pad, begin and end marks come first,
    as in `lab.tokens`. `size_unit` names what n counts. `max_size` is the largest possible
    size. `draw` returns the words of prompt and answer, without begin and end marks. `chance` is
    the percentage of examples for which a constant answer is right.
    """

    words: tuple[str, ...]
    description: str
    size_unit: str
    source: str
    draw: Callable[[Rng, int], tuple[Words, Words]]
    max_size: int | None = None
    chance: int = 0


def draw_examples(
    task: str, *, split: Split, lengths: tuple[int, int], count: int, seed: int
) -> list[Example]:
    """Draw examples whose size is uniform in `lengths`, both ends included.

    Equal arguments give equal examples in every version of Python. Examples are drawn with
    replacement: the smallest sizes may have fewer different examples than requested. These
    then repeat within their split, but never in another one. No size may be above `max_size`.
    """
    sequence, (low, high) = SEQUENCE_TASKS[task], lengths
    ids = {word: i for i, word in enumerate(sequence.words)}
    rng = Rng(f"{task}/{split}/{seed}")
    drawn: list[Example] = []
    while len(drawn) < count:
        n = low + rng.below(high - low + 1)
        while True:
            asked, answered = sequence.draw(rng, n)
            if split_of(f"{task}: {' '.join(asked)}") == split:
                break
        prompt = (BOS, *(ids[word] for word in asked))
        drawn.append(Example(prompt, (*(ids[word] for word in answered), EOS)))
    return drawn


MARKS = tuple(SPECIAL[: EOS + 1])
ASK = ">"  # separates the prompt's items from the answer
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
ITEMS = LETTERS[:8]
DIGITS = tuple("0123456789")
NUMBERS = tuple(str(i) for i in range(128))
KEYS = tuple(f"k{i}" for i in range(64))
VALUES = tuple(f"v{i}" for i in range(32))
KEY_DIGITS = 5
MOST_COUNTED = 9
SENTENCES = (
    "the grass is green . the sky is blue . the sun is yellow . here we go . there and back again ."
)
HAYSTACK = tuple(SENTENCES.split())
QUESTION = ("what", "is", "the", "key", "?")


def _copy(rng: Rng, n: int) -> tuple[Words, Words]:
    items = rng.several(LETTERS, n)
    return [*items, ASK], items


def _reverse(rng: Rng, n: int) -> tuple[Words, Words]:
    items = rng.several(LETTERS, n)
    return [*items, ASK], items[::-1]


def _sort(rng: Rng, n: int) -> tuple[Words, Words]:
    numbers = rng.shuffled(NUMBERS, n)
    return [*numbers, ASK], sorted(numbers, key=int)


def _addition(rng: Rng, n: int) -> tuple[Words, Words]:
    first, second = rng.several(DIGITS, n), rng.several(DIGITS, n)
    total = int("".join(first)) + int("".join(second))
    columns = [digit for column in zip(first, second, strict=True) for digit in column]
    return [*columns, ASK], f"{total:0{n + 1}d}"[::-1]


def _recall(rng: Rng, n: int) -> tuple[Words, Words]:
    keys, values = rng.shuffled(KEYS, n), rng.several(VALUES, n)
    pairs = [word for pair in zip(keys, values, strict=True) for word in pair]
    asked = rng.below(n)
    return [*pairs, ASK, keys[asked]], [values[asked]]


def _passkey(rng: Rng, n: int) -> tuple[Words, Words]:
    key = rng.several(DIGITS, KEY_DIGITS)
    start, place = rng.below(len(HAYSTACK)), rng.below(n + 1)
    hay = [HAYSTACK[(start + i) % len(HAYSTACK)] for i in range(n)]
    return [*hay[:place], "key", *key, ".", *hay[place:], *QUESTION], key


def _count(rng: Rng, n: int) -> tuple[Words, Words]:
    asked, *others = rng.shuffled(ITEMS)
    times = rng.below(min(n, MOST_COUNTED) + 1)
    items = rng.shuffled([asked] * times + rng.several(others, n - times))
    return [*items, ASK, asked], [str(times)]


def _vocabulary(*groups: Words) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*MARKS, *(word for group in groups for word in group))))


_NOPE = "Kazemnejad et al. 2023, arXiv 2305.19466"

#: A new task is one function, one entry here and its size in `presets.TRAINED_SIZES`.
SEQUENCE_TASKS: Mapping[str, SequenceTask] = MappingProxyType(
    {
        "copy": SequenceTask(
            words=_vocabulary([ASK], LETTERS),
            description="letters, many of them more than once, in the same order",
            size_unit="letters",
            source=f"{_NOPE}, make_copy_dataset.py (copy_multi_char; there 100 symbols)",
            draw=_copy,
        ),
        "reverse": SequenceTask(
            words=_vocabulary([ASK], LETTERS),
            description="letters from the last to the first",
            size_unit="letters",
            source=f"{_NOPE}, make_reverse_dataset.py (multi_char; there 100 symbols)",
            draw=_reverse,
        ),
        "sort": SequenceTask(
            words=_vocabulary([ASK], NUMBERS),
            description="different numbers in ascending order, each number one token",
            size_unit="numbers",
            source=f"{_NOPE}, make_sort_dataset.py (single_digit; there 50 symbols, repeated)",
            draw=_sort,
            max_size=len(NUMBERS),
        ),
        # The sum begins with its lowest digit, where carrying begins. Both numbers have the same
        # number of digits and are written column by column: one after the other, as published,
        # they were learned more slowly in short trials.
        "addition": SequenceTask(
            words=_vocabulary([ASK], DIGITS),
            description="the sum of two numbers given column by column, from its lowest digit",
            size_unit="digits of each number",
            source="Lee et al. 2023, arXiv 2307.03381 (reversed sum); columns are this project's",
            draw=_addition,
            max_size=4000,  # Python converts no number that is much longer to text
        ),
        "recall": SequenceTask(
            words=_vocabulary([ASK], KEYS, VALUES),
            description="the value that was given with a key",
            size_unit="pairs of key and value",
            source="Arora et al. 2023, arXiv 2312.04927, multiquery_ar.py (there many queries)",
            draw=_recall,
            max_size=len(KEYS),
        ),
        "passkey": SequenceTask(
            words=_vocabulary(DIGITS, HAYSTACK, QUESTION),
            description="five digits, told once at any place among words without meaning",
            size_unit="words around the key",
            source="Mohtashami and Jaggi 2023, arXiv 2305.16300, as in YaRN's eval/passkey.py",
            draw=_passkey,
        ),
        # Counts 0 to 9 are equally likely at every size of 9 or more, so size does not reveal them.
        "count": SequenceTask(
            words=_vocabulary([ASK], ITEMS, DIGITS),
            description="how often one of eight letters occurs, nine times at most",
            size_unit="letters",
            source="after Golovneva et al. 2024, arXiv 2405.18719, count_data_gen.py",
            chance=10,
            draw=_count,
        ),
    }
)
