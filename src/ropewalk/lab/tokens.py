"""Joint byte-pair encoding of both languages, trained on the training split only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ropewalk.checks import shown
from ropewalk.files import WAY_OUT, read_checked_json, read_text, write_bytes

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
MOST_BYTES = 2**25  # of a file: 100,000 tokens take about 10 million


class Tokens:
    """Text to token ids and back, with one subword vocabulary for source and target.

    A space is part of the word after it (`▁`) and punctuation is split off, so that decoding
    returns detokenized text. Byte-pair encoding: Sennrich et al. 2016, arXiv 1508.07909.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary: int, *, lowercase: bool = False) -> Tokens:
        """Return a vocabulary of this many tokens; `lowercase` applies to all text first.

        A short text gives fewer tokens; a text with more different characters gives one for each.
        """
        tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNK]))
        steps: list[normalizers.Normalizer] = [normalizers.NFC(), normalizers.Lowercase()]
        tokenizer.normalizer = normalizers.Sequence(steps if lowercase else steps[:1])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
        )
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False
        )
        tokenizer.train_from_iterator(sentences, trainer)
        return cls(tokenizer)

    @classmethod
    def of_run(cls, run: Path) -> Tokens:
        """Return the vocabulary of a run folder; `corpus.json` has its digest.

        The format is that of the tokenizers library, which cannot include a checksum.
        """
        digest = read_checked_json(run / "corpus.json", "tokenizer")["tokenizer"]
        return cls.load(run / "tokenizer.json", digest)

    @classmethod
    def load(cls, path: Path, digest: str | None = None) -> Tokens:
        """Return the vocabulary that `save` wrote. Raises ValueError if the file is damaged."""
        text = read_text(path, MOST_BYTES)
        if digest is not None and digest != hashlib.sha256(text.encode()).hexdigest():
            raise ValueError(f"{path} is damaged: it does not match its checksum; {WAY_OUT}")
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library's parser raises various types
            reason = shown(str(error), 200)
            raise ValueError(f"{path} is not a readable vocabulary: {reason}; {WAY_OUT}") from None
        for place, token in enumerate(SPECIAL):
            if tokenizer.token_to_id(token) != place:
                raise ValueError(f"{path} must have {token!r} as token {place}; {WAY_OUT}")
        if getattr(tokenizer.model, "unk_token", None) != SPECIAL[UNK]:
            raise ValueError(f"{path} must have {SPECIAL[UNK]!r} as its unknown token; {WAY_OUT}")
        return cls(tokenizer)

    def save(self, path: Path) -> str:
        """Write the vocabulary as one JSON file; return the digest that `load` takes."""
        content = self._tokenizer.to_str(pretty=True).encode()
        write_bytes(path, content)
        return hashlib.sha256(content).hexdigest()

    @property
    def size(self) -> int:
        """Number of tokens in the vocabulary."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of each sentence, without begin and end marks."""
        batch = self._tokenizer.encode_batch(list(sentences), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each id's token as written in the vocabulary."""
        return [str(self._tokenizer.id_to_token(i)) for i in ids]
