"""Translation: sentence pairs, an encoder-decoder, beam search, BLEU and chrF."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropewalk.files import MOST_DATA_BYTES, Facts, read_bytes
from ropewalk.lab.cells import read_hypotheses, write_hypotheses
from ropewalk.lab.config import Config
from ropewalk.lab.data.batches import (
    Batch,
    EncodedSplit,
    Plan,
    in_order,
    make_batch,
    plan_epoch,
    read_splits,
    write_splits,
)
from ropewalk.lab.data.corpus import Corpus, load_corpus, overlap
from ropewalk.lab.data.store import FOLDER, MappedSplit, tokenize, vocabulary_of
from ropewalk.lab.data.stream import PairStream
from ropewalk.lab.decoding.beam_search import Hypothesis, best
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.loss import autocast, token_loss
from ropewalk.lab.results import (
    AttentionMap,
    AttentionMaps,
    Examples,
    ExampleSentence,
    MappedSentence,
    Results,
)
from ropewalk.lab.scoring import bleu
from ropewalk.lab.tasks.base import MAPPED_TOKENS, Metric, Task, at_quartiles, attention_map
from ropewalk.lab.tokens import BOS, EOS, PAD, Tokens
from ropewalk.model import Transformer

SPLITS = "splits.safetensors"  # the encoded splits of a run; of a large corpus, all but "train"


def _encode(tokens: Tokens, pairs: tuple[tuple[str, str], ...]) -> EncodedSplit:
    sources, targets = zip(*pairs, strict=True)
    return EncodedSplit(tokens.encode(sources), tokens.encode(targets))


def spread_out(order: Sequence[int]) -> list[int]:
    """Choose from a sorted list: the ends and the quartiles first, then evenly between them."""

    def places(count: int) -> list[int]:
        return [round(i * (len(order) - 1) / (count - 1)) for i in range(count)]

    chosen = dict.fromkeys(places(FIRST_SHOWN) + places(EXAMPLES_SHOWN))
    return [order[place] for place in chosen][:EXAMPLES_SHOWN]


def _order_of_examples(results: Results, split: str, count: int) -> tuple[list[int], str]:
    """Return the sentences by what an encoding gains in each, and what they are sorted by.

    The encoding is the one with the highest BLEU besides the first one, with which it is compared.
    """
    first, *others = results.encodings
    of = {row.name: row.cells[0].scores[split].sentence_bleu for row in results.encodings}
    means = {row.name: row.summary[split].spread("bleu").mean or 0.0 for row in others}
    rivals = [name for name in sorted(means, key=lambda name: -means[name]) if of[name]]
    base = of[first.name]
    if base and rivals:
        here = of[rivals[0]] or []
        keys = [there - before for there, before in zip(here, base, strict=True)]
        names = f"`{rivals[0]}` minus that of `{first.name}`"
    else:
        known = [name for name, scores in of.items() if scores]
        keys = (of[known[0]] if known else None) or [0.0] * count
        names = f"`{known[0]}`" if known else "no encoding"
    order = sorted(range(count), key=lambda i: (keys[i], i))
    return order, f"the sentence BLEU of {names}"


FIRST_SHOWN, EXAMPLES_SHOWN = 5, 20

BLEU = Metric("bleu", "BLEU", bleu.bleu_from_statistics, floor=5, margin=1.0)
CHRF = Metric("chrf", "chrF")

FEW_TRAINING = 1_000  # pairs; a model memorizes fewer
FEW_TESTED = 100  # pairs; with fewer, single sentences dominate the corpus score


class Translation(Task):
    """Train on sentence pairs and translate test splits."""

    metrics: ClassVar = (BLEU, CHRF)
    tested_metric: ClassVar = BLEU
    tuned_metric: ClassVar = BLEU
    evaluation_phase: ClassVar = "translating"

    @cached_property
    def corpus(self) -> Corpus:
        """The sentence pairs of the corpus that the config names."""
        config = self.config
        return load_corpus(
            config.data,
            source=config.source,
            target=config.target,
            examples=config.examples,
            stream=True,
        )

    @cached_property
    def tokens(self) -> Tokens:
        """The vocabulary of the prepared run."""
        return Tokens.of_run(self.run)

    @cached_property
    def data(self) -> dict[str, EncodedSplit | MappedSplit]:
        """The token ids of the prepared run."""
        splits: dict[str, EncodedSplit | MappedSplit] = {**read_splits(self.run / SPLITS)}
        if "train" in splits:
            return splits
        return {"train": MappedSplit(self.run / FOLDER), **splits}

    def digest(self) -> str:
        corpus, config = self.corpus, self.config
        if corpus.stream is not None:
            corpus.stream.scan(self.progress)
        unknown = [s for s in config.splits or () if s not in corpus.splits or s == "train"]
        if unknown:
            raise ValueError(
                f"splits must be of {', '.join(s for s in corpus.splits if s != 'train')}, "
                f"got {unknown[0]!r}"
            )
        if not config.splits and not corpus.test_splits:
            raise ValueError(
                f"corpus {corpus.name!r} has no test split; add test.{corpus.source} and "
                f"test.{corpus.target}, or score another split with splits=validation"
            )
        streamed = [] if corpus.stream is None else [corpus.stream.digest]
        content = [corpus.source, corpus.target, dict(corpus.splits), *streamed]
        text = json.dumps(content, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def prepare(self) -> Facts:
        corpus, config, most = self.corpus, self.config, self.config.max_tokens
        if corpus.stream is not None:
            return self._prepare_stream(corpus.stream)
        sentences = (sentence for pair in corpus.splits["train"] for sentence in pair)
        tokens = Tokens.train(sentences, config.vocabulary, lowercase=config.lowercase)
        splits = {name: _encode(tokens, pairs) for name, pairs in corpus.splits.items()}
        train = splits["train"]
        both = zip(train.source, train.target, strict=True)
        kept = [(s, t) for s, t in both if max(len(s), len(t)) <= most]
        if not kept:
            raise ValueError(f"max_tokens must leave training pairs, got {most}: all are longer")
        splits["train"] = EncodedSplit([s for s, _ in kept], [t for _, t in kept])
        digest = tokens.save(self.run / "tokenizer.json")
        write_splits(self.run / SPLITS, splits)
        longest = splits["train"].sizes().max(0).tolist()
        return {
            "left_out": len(train) - len(kept),
            "tokenizer": digest,
            "vocabulary": tokens.size,
            "longest_in_training": dict(zip(("source", "target"), longest, strict=True)),
        }

    def _prepare_stream(self, stream: PairStream) -> Facts:
        """Tokenize a large corpus into a store; the held-out splits are prepared as usual."""
        config, held_out = self.config, self.corpus.splits
        tokens, digest = vocabulary_of(
            stream, self.run, config.vocabulary, lowercase=config.lowercase, progress=self.progress
        )
        facts = tokenize(
            stream,
            tokens,
            digest,
            self.run,
            max_tokens=config.max_tokens,
            held_out=held_out,
            progress=self.progress,
        )
        write_splits(self.run / SPLITS, {name: _encode(tokens, p) for name, p in held_out.items()})
        sizes = {"train": stream.pairs, **{name: len(pairs) for name, pairs in held_out.items()}}
        return {"tokenizer": digest, "vocabulary": tokens.size, **facts, "pairs": sizes}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of pairs of each split, before long ones are left out."""
        found = self.data_facts.get("pairs")
        return found or {name: len(pairs) for name, pairs in self.corpus.splits.items()}

    @property
    def splits(self) -> tuple[str, ...]:
        return self.config.splits or tuple(
            name for name in self.data if name not in ("train", "validation")
        )

    def cautions(self) -> list[str]:
        pairs, found = self.sizes, []
        if pairs["train"] < FEW_TRAINING:
            found.append(f"trained on {pairs['train']} pairs: too few to learn a language")
        return found + [
            f"{split} has {pairs[split]} pairs: BLEU of fewer than {FEW_TESTED} says little"
            for split in self.splits
            if pairs[split] < FEW_TESTED
        ]

    def plan(self, seed: int, epoch: int) -> Plan:
        config = self.config
        return plan_epoch(
            self.data["train"],
            tokens=config.batch_tokens,
            sentences=config.batch_sentences,
            seed=seed,
            epoch=epoch,
        )

    def batch(self, rows: Sequence[int], draw: int) -> Batch:
        return make_batch(self.data["train"], rows)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        hidden = model(batch.source, batch.target_in, batch.source_mask)
        return token_loss(
            hidden, model.embedding.weight, batch.target_out, self.config.label_smoothing
        )

    @torch.no_grad()
    def validation_loss(self, model: Any, precision: str) -> float:
        model.eval()
        device = model.embedding.weight.device
        split = self.data["validation"]
        total, tokens = 0.0, 0
        for rows in in_order(split, tokens=self.config.batch_tokens):
            batch = make_batch(split, rows).to(device)
            with autocast(device, precision):
                logits = model.logits(model(batch.source, batch.target_in, batch.source_mask))
            nll = cross_entropy(
                logits.float().flatten(0, 1),
                batch.target_out.flatten(),
                ignore_index=PAD,
                reduction="sum",
            )
            total, tokens = total + float(nll), tokens + batch.target_tokens
        return total / tokens

    def validation_scores(self, model: Any, configs: Sequence[Config]) -> list[Facts]:
        """Return BLEU and brevity penalty; all length penalties of a beam size share one search."""
        searches = {
            beam: translate_ids(model, self.data["validation"].source, beam=beam)
            for beam in {config.beam for config in configs}
        }
        references = [target for _, target in self.corpus.splits["validation"]]
        scores = []
        for config in configs:
            texts = self._texts(searches[config.beam], config.length_penalty)
            rows, _ = bleu.bleu_statistics(texts, references, lowercase=config.lowercase)
            sums = rows.sum(0)
            scores.append(
                {
                    "bleu": round(bleu.bleu_from_statistics(sums).item(), 4),
                    "brevity_penalty": round(bleu.brevity_penalty(sums).item(), 4),
                }
            )
        return scores

    def evaluate(self, model: Any, split: str, folder: Path) -> Facts:
        assert isinstance(model, Transformer)
        found = translate_ids(model, self.data[split].source, beam=self.config.beam)
        write_hypotheses(folder, split, self._texts(found, self.config.length_penalty))
        return {}

    def _texts(self, searches: Sequence[list[Hypothesis]], length_penalty: float) -> list[str]:
        return [self.tokens.decode(best(found, length_penalty).ids) for found in searches]

    def evaluate_diverged(self, split: str, folder: Path) -> Facts:
        """Write empty translations, which are scored as such."""
        write_hypotheses(folder, split, [""] * len(self.data[split]))
        return {}

    def is_evaluated(self, split: str, folder: Path) -> bool:
        return (folder / f"{split}.hypotheses.txt").exists() and super().is_evaluated(split, folder)

    def made_from(self, split: str, folder: Path) -> Facts:
        """Return the checksums of model, data and translations that a score is made from."""
        path = folder / f"{split}.hypotheses.txt"
        content = read_bytes(path, MOST_DATA_BYTES) if path.exists() else None
        digest = None if content is None else hashlib.sha256(content).hexdigest()
        return {**super().made_from(split, folder), "hypotheses": digest}

    def score(self, split: str, folder: Path) -> Facts:
        held = self.evaluation(split, folder)
        if "no_result" in held:
            return {"no_result": held["no_result"]}
        sources, references = zip(*self.corpus.splits[split], strict=True)
        hypotheses, lowercase = read_hypotheses(folder, split), self.config.lowercase
        found = bleu.score(hypotheses, references, sources, lowercase=lowercase)
        columns = found.statistics.long().t().tolist()
        digest = held.get("made_from", {}).get("hypotheses")
        return {
            "bleu": round(found.bleu, 4),
            "chrf": round(found.chrf, 4),
            "decode_seconds": round(held["seconds"], 2),
            "sentence_bleu": [round(x, 2) for x in found.sentence_bleu],
            "statistics": {
                "length": columns[0],
                "reference_length": columns[1],
                "matches": columns[2 : 2 + bleu.ORDERS],
            },
            "by_length": [{"bleu": round(x, 3)} for x in found.by_length],
            **({} if digest is None else {"hypotheses_sha256": digest}),
        }

    @classmethod
    def statistics_of(cls, statistics: Mapping[str, Sequence[Any]]) -> Tensor:
        names = ("length", "reference_length", "matches")
        return bleu.whole_statistics(*(statistics[name] for name in names))

    def describe_data(self) -> Facts:
        corpus, facts = self.corpus, self.data_facts
        longest = facts["longest_in_training"]["source"]
        return {
            "corpus": {
                "name": corpus.name,
                "source": corpus.source,
                "target": corpus.target,
                "pairs": self.sizes,
                "seen_in_training": facts.get("seen_in_training") or overlap(corpus),
                "notes": [*corpus.notes, *self.cautions()],
                **{k: facts[k] for k in ("left_out", "vocabulary", "longest_in_training")},
            },
            "signatures": bleu.signatures(lowercase=self.config.lowercase),
            "splits": list(self.splits),
            "share_beyond_training": {
                split: round(sum(len(row) > longest for row in source) / len(source), 4)
                for split in self.splits
                if (source := self.data[split].source)
            },
            "length_bins": {
                split: bleu.length_bins([pair[0] for pair in corpus.splits[split]])
                for split in self.splits
            },
        }

    def examples(self, results: Results) -> Examples:
        """Choose sentences and return them with the translations of every encoding's first seed."""
        split, seed = results.splits[0], results.config.seeds[0]
        pairs = self.corpus.splits[split]
        order, by = _order_of_examples(results, split, len(pairs))
        hypotheses = {
            row.slug: read_hypotheses(row.cell(seed).folder(self.run), split)
            for row in results.encodings
            if row.cells[0].scores[split].no_result is None
        }
        sentences = [
            ExampleSentence(
                index=i,
                source=pairs[i][0],
                reference=pairs[i][1],
                hypotheses={slug: texts[i] for slug, texts in hypotheses.items()},
            )
            for i in spread_out(order)
        ]
        rule = (
            f"the sentences of `{split}` are sorted by {by}; the first {FIRST_SHOWN} examples "
            f"are the least, the quartiles and the greatest, and the others are evenly between "
            f"them. Translations of seed {seed}"
        )
        return Examples(split=split, rule=rule, sentences=tuple(sentences))

    def attention(self, results: Results) -> AttentionMaps:
        """Return every head's attention over a few sentences, for every encoding's first seed.

        The decoder reads the reference, so that all encodings attend to the same tokens.
        """
        split, encoded = results.splits[0], self.data[results.splits[0]]
        lengths = [max(len(s), len(t)) for s, t in zip(encoded.source, encoded.target, strict=True)]
        chosen = at_quartiles(lengths, MAPPED_TOKENS - 1)

        def maps(model: Any, place: int) -> dict[str, AttentionMap]:
            i, batch = chosen[place], make_batch(encoded, [chosen[place]])
            weights = model.attention_maps(batch.source, batch.target_in, batch.source_mask)
            source = self.tokens.pieces([*encoded.source[i], EOS])
            target = self.tokens.pieces([BOS, *encoded.target[i]])
            return {
                "encoder": attention_map(source, source, weights.encoder),
                "decoder": attention_map(target, target, weights.decoder),
                "cross": attention_map(target, source, weights.cross),
            }

        rule = (
            f"among the sentences of “{split}” with fewer than {MAPPED_TOKENS} tokens, "
            f"those at the quartiles of length. The maps are of the model of seed "
            f"{results.config.seeds[0]}, in all layers and heads; the input of its decoder is the "
            f"reference translation"
        )
        pairs = self.corpus.splits[split]
        sentences = [
            MappedSentence(index=i, source=pairs[i][0], target=pairs[i][1]) for i in chosen
        ]
        return self.maps_of_first_models(results, rule, sentences, maps)
