"""The token ids of a translation run, as its cells read them."""

from __future__ import annotations

from pathlib import Path

from ropewalk.files import Facts
from ropewalk.lab.config import Config
from ropewalk.lab.data.batches import EncodedSplit, write_splits
from ropewalk.lab.data.corpus import Corpus
from ropewalk.lab.data.store import tokenize, vocabulary_of
from ropewalk.lab.data.stream import PairStream, Progress
from ropewalk.lab.tokens import Tokens

SPLITS = "splits.safetensors"  # the encoded splits of a run; of a large corpus, all but "train"


def prepare_pairs(corpus: Corpus, config: Config, run: Path) -> Facts:
    """Tokenize a corpus in memory and return facts about it."""
    tokens = Tokens.train(
        (sentence for pair in corpus.splits["train"] for sentence in pair),
        config.vocabulary,
        lowercase=config.lowercase,
    )
    splits = {name: _encode(tokens, pairs) for name, pairs in corpus.splits.items()}
    splits["train"], left_out = _without_long_pairs(splits["train"], config.max_tokens)
    digest = tokens.save(run / "tokenizer.json")
    write_splits(run / SPLITS, splits)
    return {
        "left_out": left_out,
        "tokenizer": digest,
        "vocabulary": tokens.size,
        "longest_in_training": {
            "source": max(map(len, splits["train"].source)),
            "target": max(map(len, splits["train"].target)),
        },
    }


def prepare_stream(
    corpus: Corpus, stream: PairStream, config: Config, run: Path, progress: Progress
) -> Facts:
    """Tokenize a large corpus into a store; the held-out splits are prepared as usual."""
    tokens, digest = vocabulary_of(
        stream,
        run,
        config.vocabulary,
        lowercase=config.lowercase,
        progress=progress,
    )
    facts = tokenize(
        stream,
        tokens,
        digest,
        run,
        max_tokens=config.max_tokens,
        held_out=corpus.splits,
        progress=progress,
    )
    write_splits(run / SPLITS, {name: _encode(tokens, p) for name, p in corpus.splits.items()})
    sizes = {name: len(pairs) for name, pairs in corpus.splits.items()}
    facts |= {"pairs": {"train": stream.pairs, **sizes}}
    return {"tokenizer": digest, "vocabulary": tokens.size, **facts}


def _encode(tokens: Tokens, pairs: tuple[tuple[str, str], ...]) -> EncodedSplit:
    sources, targets = zip(*pairs, strict=True)
    return EncodedSplit(tokens.encode(sources), tokens.encode(targets))


def _without_long_pairs(split: EncodedSplit, max_tokens: int) -> tuple[EncodedSplit, int]:
    both = zip(split.source, split.target, strict=True)
    kept = [(s, t) for s, t in both if len(s) <= max_tokens and len(t) <= max_tokens]
    if not kept:
        raise ValueError(f"max_tokens must leave training pairs, got {max_tokens}: all are longer")
    sources, targets = zip(*kept, strict=True)
    return EncodedSplit(list(sources), list(targets)), len(split) - len(kept)
