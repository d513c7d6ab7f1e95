"""The ways to translate that `serving.py` measures; each measurement is a process of its own.

`python benchmarks/serving_ways.py WORK WAY BEAM THREADS` reads the files of `write_work`,
translates all sentences, and writes the seconds and the tokens to `WORK/found.json`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ropewalk.encodings import AttentionEncoding, build_encoder_decoder
from ropewalk.lab.data.batches import EncodedSplit, in_order, source_batch
from ropewalk.lab.decoding.beam_search import best
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.export.ctranslate2 import transformer_spec
from ropewalk.lab.tokens import BOS, EOS, PAD
from ropewalk.model import Attention, Transformer, TransformerShape

Ids = list[list[int]]
Translate = Callable[[Ids], Ids]

BATCH_TOKENS = 2048  # of the other engines, which took longer with 4096; ropewalk has its default
LENGTH_PENALTY = 0.6


def write_work(work: Path, model: Transformer, encoding: str, pieces: list[str], rows: Ids) -> None:
    """Write a model in both formats, and the sentences."""
    facts = {"encoding": encoding, "shape": asdict(model.shape), "sources": rows}
    (work / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    torch.save(model.state_dict(), work / "weights.pt")
    spec = transformer_spec(model, pieces)
    spec.validate()
    spec.optimize()
    engine = work / "engine"
    engine.mkdir()
    spec.save(os.fspath(engine))


def read_model(work: Path) -> tuple[Transformer, Ids]:
    """Return the model and the sentences that `write_work` wrote."""
    facts = json.loads((work / "facts.json").read_text(encoding="utf-8"))
    shape = TransformerShape(**facts["shape"])
    stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
    model = Transformer(shape, *build_encoder_decoder(facts["encoding"], *stacks))
    model.load_state_dict(torch.load(work / "weights.pt", weights_only=True))
    return model.eval(), facts["sources"]


def limit(source: int) -> int:
    """Return the most tokens that ropewalk writes for a source without its end mark."""
    return 2 * (source + 1) + 10


def with_ropewalk(work: Path, beam: int, threads: int) -> Translate:
    """Return ropewalk's own translation, in batches of its default size."""
    torch.set_num_threads(threads)
    model, _ = read_model(work)

    def translate(sources: Ids) -> Ids:
        found = translate_ids(model, sources, beam=beam)
        return [list(best(ranked, LENGTH_PENALTY).ids) for ranked in found]

    return translate


def with_ctranslate2(work: Path, beam: int, workers: int, threads: int) -> Translate:
    """Return the translation by CTranslate2 in float32; each worker has its own threads."""
    import ctranslate2

    engine = work / "engine"
    pieces = json.loads((engine / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {piece: i for i, piece in enumerate(pieces)}
    translator = ctranslate2.Translator(
        os.fspath(engine), inter_threads=workers, intra_threads=threads, compute_type="float32"
    )

    def translate(sources: Ids) -> Ids:
        results = translator.translate_batch(
            [[pieces[i] for i in row] for row in sources],
            beam_size=beam,
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            min_decoding_length=0,
            max_decoding_length=limit(max(map(len, sources))),
            max_input_length=0,
            length_penalty=LENGTH_PENALTY,
        )
        return [
            [ids[piece] for piece in result.hypotheses[0]][: limit(len(row))]
            for row, result in zip(sources, results, strict=True)
        ]

    return translate


def m2m100_with_weights_of(model: Transformer) -> Any:
    """Return transformers' M2M100 with a model's weights; it is pre-norm too (Marian is post-norm).

    Raises ValueError if the encoding does not add a table to embeddings.
    """
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    shape = model.shape
    for encoding in (model.encoder_encoding, model.decoder_encoding):
        if type(encoding.for_layer(0)) is not AttentionEncoding:
            raise ValueError(
                f"M2M100 has only positions that are added to embeddings, got "
                f"{type(encoding).__name__}"
            )
    if shape.kv_heads not in (None, shape.heads) or shape.attention != "softmax":
        raise ValueError("M2M100 has no shared key heads and no linear attention")
    config = M2M100Config(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.feed_forward,
        decoder_ffn_dim=shape.feed_forward,
        max_position_embeddings=1024,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    same = M2M100ForConditionalGeneration(config).eval()
    inner, zeros = same.model, torch.zeros(1, 1, shape.width)
    with torch.no_grad():
        inner.shared.weight.copy_(model.embedding.weight)
        for theirs, ours, encoding, norm in (
            (inner.encoder, model.encoder, model.encoder_encoding, model.encoder_norm),
            (inner.decoder, model.decoder, model.decoder_encoding, model.decoder_norm),
        ):
            table = theirs.embed_positions.weights  # row 0 is for padding, row i + 1 for position i
            most = min(len(table) - 1, encoding.max_positions or len(table))
            table[1 : most + 1] = encoding.embed(zeros, torch.arange(most))[0]
            theirs.layer_norm.load_state_dict(norm.state_dict())
            for to, layer in zip(theirs.layers, ours, strict=True):
                _copy_attention(to.self_attn, layer.attention)
                to.self_attn_layer_norm.load_state_dict(layer.attention_norm.state_dict())
                if hasattr(layer, "cross"):
                    _copy_attention(to.encoder_attn, layer.cross)
                    to.encoder_attn_layer_norm.load_state_dict(layer.cross_norm.state_dict())
                to.final_layer_norm.load_state_dict(layer.feed_forward_norm.state_dict())
                to.fc1.load_state_dict(layer.feed_forward.inner.state_dict())
                to.fc2.load_state_dict(layer.feed_forward.outer.state_dict())
    return same


def _copy_attention(to: nn.Module, attention: Attention) -> None:
    keys, values = zip(
        attention.key_value.weight.chunk(2), attention.key_value.bias.chunk(2), strict=True
    )
    for name, (weight, bias) in {
        "q_proj": (attention.query.weight, attention.query.bias),
        "k_proj": keys,
        "v_proj": values,
        "out_proj": (attention.output.weight, attention.output.bias),
    }.items():
        linear = to.get_submodule(name)
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)


def with_transformers(work: Path, beam: int, threads: int) -> Translate:
    """Return the translation by `generate` of transformers, in batches of ropewalk's size."""
    torch.set_num_threads(threads)
    return generated(m2m100_with_weights_of(read_model(work)[0]), beam)


def generated(model: Any, beam: int) -> Translate:
    """Return the translation by `generate`, which ends at the limit of a batch's longest source."""

    @torch.inference_mode()
    def translate(sources: Ids) -> Ids:
        found: Ids = [[] for _ in sources]
        split = EncodedSplit(sources, [[] for _ in sources])
        for rows in in_order(split, tokens=BATCH_TOKENS):
            source, mask = source_batch([sources[i] for i in rows])
            out = model.generate(
                input_ids=source,
                attention_mask=mask.long(),
                num_beams=beam,
                do_sample=False,
                early_stopping=True,
                length_penalty=LENGTH_PENALTY,
                max_new_tokens=limit(max(len(sources[i]) for i in rows)),
            )
            for i, row in zip(rows, out[:, 1:].tolist(), strict=True):
                ids = row[: row.index(EOS)] if EOS in row else row
                found[i] = ids[: limit(len(sources[i]))]
        return found

    return translate


WAYS: dict[str, Callable[[Path, int, int], Translate]] = {
    "ropewalk": with_ropewalk,
    "CTranslate2, one worker": lambda work, beam, cores: with_ctranslate2(work, beam, 1, cores),
    "CTranslate2, a worker per core": lambda w, beam, cores: with_ctranslate2(w, beam, cores, 1),
    "transformers, generate": with_transformers,
}


def main() -> None:
    """Translate twice, the first sentences untimed, and write what was found."""
    work, way, beam, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    _, sources = read_model(work)
    translate = WAYS[way](work, beam, threads)
    translate(sources[:4])
    began = time.perf_counter()
    found = translate(sources)
    seconds = time.perf_counter() - began
    answer = {"seconds": seconds, "found": found}
    (work / "found.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
