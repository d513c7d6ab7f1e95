"""A tokenizer with one token for each byte, written as a model's folder has it."""

from pathlib import Path


def write_tokenizer(folder: Path, special: bool = False) -> None:
    """Write tokenizer.json with 256 tokens, and one for the beginning of a text if `special`.

    It cuts texts and fills them up, as files on the hub may do.
    """
    import tokenizers

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    if special:
        tokenizer.add_special_tokens(["<s>"])
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=2000)
    tokenizer.save(str(folder / "tokenizer.json"))
