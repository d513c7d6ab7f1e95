"""Joint byte-pair encoding of both languages, trained on the training split alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ropewalk.checks import shown
from ropewalk.files import read_text, write_bytes

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
MOST_BYTES = 2**25  # of a file: 100,000 tokens take some 10 million
_WAY_OUT = "it is damaged or no vocabulary of ropewalk: the same ropewalk compare or train makes it"


class Tokens:
    """Text to token ids and back, by one subword vocabulary for source and target.

    A space is part of the word behind it (``▁``) and punctuation is split off, so that decoding
    gives detokenised text. Byte-pair encoding: Sennrich et al. 2016, arXiv 1508.07909.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary: int, *, lowercase: bool = False) -> Tokens:
        """Learn a vocabulary of this many tokens; ``lowercase`` folds all text first.

        A short text gives fewer, and one with more different characters as many as these are.
        """
        tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNK]))
        steps: list[normalizers.Normalizer] = [normalizers.NFC()]
        tokenizer.normalizer = normalizers.Sequence(
            steps + ([normalizers.Lowercase()] if lowercase else [])
        )
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
    def load(cls, path: Path) -> Tokens:
        """Read what ``save`` wrote; a damaged file is a ValueError that names it."""
        text = read_text(path, MOST_BYTES)
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # whatever the library's parser raises
            reason = shown(str(error), 200)
            raise ValueError(f"{path} is not a vocabulary that can be read: {reason}") from None
        for place, token in enumerate(SPECIAL):
            if tokenizer.token_to_id(token) != place:
                raise ValueError(f"{path} must have {token!r} as token {place}; {_WAY_OUT}")
        if getattr(tokenizer.model, "unk_token", None) != SPECIAL[UNK]:
            raise ValueError(f"{path} must have {SPECIAL[UNK]!r} for what is unknown; {_WAY_OUT}")
        return cls(tokenizer)

    def save(self, path: Path) -> None:
        """Write the vocabulary as one JSON file."""
        write_bytes(path, self._tokenizer.to_str(pretty=True).encode())

    @property
    def size(self) -> int:
        """Number of tokens in the vocabulary."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Give the ids of each sentence, without begin and end marks."""
        batch = self._tokenizer.encode_batch(list(sentences), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def decode(self, ids: Sequence[int]) -> str:
        """Give the text of these ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Give each id's token as it is written in the vocabulary."""
        return [str(self._tokenizer.id_to_token(i)) for i in ids]
