"""Translation models for tests of export, and what ropewalk and the engine translate with them."""

from collections.abc import Callable
from pathlib import Path

import torch

from ropewalk.encodings import build_encoder_decoder
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.tokens import SPECIAL
from ropewalk.model import Transformer, TransformerShape, initialize

VOCABULARY = 120
PIECES = [*SPECIAL, *(f"t{i}" for i in range(VOCABULARY - len(SPECIAL)))]


def random_model(encoding: str, layers: int = 2, **fields) -> Transformer:
    """Return a small model whose outputs depend strongly on positions.

    Every parameter is random, biases and norms too. Weights inside layers are three times as large
    as usual: otherwise the embedding decides each output alone, and a fault shows in no token.
    """
    shape = TransformerShape(VOCABULARY, 48, 4, 64, layers, layers, **fields)
    stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
    model = Transformer(shape, *build_encoder_decoder(encoding, *stacks))
    initialize(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == "embedding.weight":
                continue
            if parameter.ndim > 1 and "frequencies" not in name:
                parameter.mul_(3)
            else:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def random_sources(count: int, longest: int) -> list[list[int]]:
    """Return token ids of sentences, the first of one token."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, longest + 1, (count - 1,), generator=generator).tolist()
    return [
        torch.randint(4, VOCABULARY, (length,), generator=generator).tolist()
        for length in (1, *lengths)
    ]


def write(spec, folder: Path) -> Path:
    """Write a specification as the engine's own converters do."""
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    return folder


def engine(folder: Path) -> Callable[[list[int]], tuple[list[int], float]]:
    """Return what translates greedily with the engine, a sentence: its tokens and their score."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)

    def translate(source: list[int]) -> tuple[list[int], float]:
        (result,) = translator.translate_batch(
            [[PIECES[i] for i in source]],
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=2 * (len(source) + 1) + 10,
            max_input_length=0,
            length_penalty=0,
            return_scores=True,
        )
        return [PIECES.index(piece) for piece in result.hypotheses[0]], result.scores[0]

    return translate


def compare(model: Transformer, folder: Path, sources: list[list[int]]) -> tuple[int, float]:
    """Translate greedily with ropewalk and with the engine, one sentence at a time.

    Returns how many sentences have other tokens, and the largest difference of log-probabilities
    per token.
    """
    translate = engine(folder)
    found = [ranked[0] for ranked in translate_ids(model, sources, beam=1)]
    others, most = 0, 0.0
    for source, own in zip(sources, found, strict=True):
        ids, score = translate(source)
        others += ids != list(own.ids)
        most = max(most, abs(score - own.log_probability) / (len(own.ids) + 1))
    return others, most
