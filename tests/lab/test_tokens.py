"""Subword tokens: these fail when text does not come back from them."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentences import TEXT

from ropewalk.lab.tokens import BOS, EOS, PAD, SPECIAL, UNK, Tokens


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.train(TEXT, 200)


@cache
def known_letters() -> Tokens:
    return Tokens.train(["a e i n r s ä ö ü ß E I N Ä Ö Ü . , ! ?", "eine, rein."], 100)


@pytest.mark.parametrize("lowercase", [False, True])
def test_sentences_come_back_from_their_tokens(lowercase):
    tokens = Tokens.train(TEXT, 200, lowercase=lowercase)
    for text, encoded in zip(TEXT, tokens.encode(TEXT), strict=True):
        assert tokens.decode(encoded) == (text.lower() if lowercase else text)
        assert not set(encoded) & {PAD, BOS, EOS, UNK}
        assert len(encoded) < len(text)


@given(
    st.lists(st.text("aeinrsäöüßEINÄÖÜ", min_size=1, max_size=9), min_size=1),
    st.sampled_from(".,!?"),
)
def test_unseen_words_with_umlauts_and_punctuation_come_back(words, end):
    tokens, text = known_letters(), ", ".join(words) + end
    assert tokens.decode(tokens.encode([text])[0]) == text


def test_text_is_normalized_and_what_is_unknown_is_dropped():
    tokens = known_letters()
    composed, decomposed = tokens.encode(["ä", "a\u0308"])
    assert composed == decomposed
    assert UNK in tokens.encode(["a€a"])[0]
    assert tokens.decode(tokens.encode(["a €a"])[0]) == "a a"


def test_special_tokens_have_their_places_and_are_not_shown(tokens):
    assert tokens.pieces([PAD, BOS, EOS, UNK]) == SPECIAL
    encoded = tokens.encode(["er"])[0]
    assert tokens.decode([BOS, *encoded, EOS, PAD]) == "er"


def test_punctuation_is_no_part_of_a_word(tokens):
    for piece in tokens.pieces(range(tokens.size)):
        assert piece in SPECIAL or len(piece) == 1 or not set(piece) & set(",.?!;()")


def test_a_vocabulary_is_as_large_as_asked_and_kept_in_a_file(tokens, tmp_path):
    assert tokens.size == 200
    tokens.save(tmp_path / "tokenizer.json")
    loaded = Tokens.load(tmp_path / "tokenizer.json")
    assert loaded.encode(TEXT) == tokens.encode(TEXT)
    assert loaded.pieces(range(200)) == tokens.pieces(range(200))


def test_training_twice_gives_the_same_vocabulary():
    one, two = (Tokens.train(TEXT, 150) for _ in range(2))
    assert one.pieces(range(150)) == two.pieces(range(150))


class TestFiles:
    """Vocabularies that are not what was written: an error that names the file."""

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            *((special, "<other>", f"'{special}'") for special in SPECIAL),
            ('"unk_token": "<unk>"', '"unk_token": null', "'<unk>' as its unknown token"),
        ],
    )
    def test_a_vocabulary_without_a_special_token_is_refused(
        self, tokens, tmp_path, old, new, said
    ):
        """Fails if it is read, and its first unknown character ends in a foreign error."""
        path = tmp_path / "tokenizer.json"
        tokens.save(path)
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), "utf-8")
        with pytest.raises(ValueError, match=rf"tokenizer\.json must have {said}.*makes it again"):
            Tokens.load(path)

    def test_the_message_is_short_whatever_the_file_holds(self, tokens, tmp_path):
        path = tmp_path / "tokenizer.json"
        path.write_text('{"version": "1.0", "model": {"type": "%s"}}' % ("x" * 10_000))
        with pytest.raises(ValueError, match="is not a readable vocabulary") as caught:
            Tokens.load(path)
        assert len(str(caught.value)) < 600
