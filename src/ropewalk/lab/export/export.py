"""Write a trained translation model as a folder that another engine loads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ropewalk.checks import check_word, needing, shown
from ropewalk.files import check_space, check_target, complete_folder
from ropewalk.lab.decoding.translator import Translator, find_model
from ropewalk.lab.export.ctranslate2 import (
    NotExpressibleError,
    positions_of_stacks,
    transformer_spec,
)
from ropewalk.lab.tensors import MOST_MODEL_HEADER_BYTES, read_tensors
from ropewalk.model import Transformer

ENGINES = ("ctranslate2",)

#: Translates `lines` with an exported folder.
SERVE = """\
tokens = [tokenizer.encode(line, add_special_tokens=False).tokens for line in lines]
results = translator.translate_batch(tokens, beam_size=1, min_decoding_length=0)
texts = [tokenizer.decode([tokenizer.token_to_id(t) for t in r.hypotheses[0]]) for r in results]
"""

_README = """\
# A translation model for CTranslate2

`ropewalk export` wrote this folder from a model with the encoding `{encoding}`.
`lines` is a list of sentences:

```python
import ctranslate2
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
translator = ctranslate2.Translator(".", inter_threads=2, intra_threads=1)
{serve}```

With `beam_size=1` in float32, the output is that of `ropewalk translate --beam 1`, except where
rounding decides between two tokens. A larger beam may give other translations: CTranslate2 ends
its search by another rule.

- `max_decoding_length` is 256 by default. ropewalk allows `2 * source + 10` tokens, where
  `source` includes the end mark.
- `max_input_length` is 1024 by default: CTranslate2 cuts longer sentences. 0 removes the limit.
{limit}"""


@dataclass(frozen=True)
class Exported:
    """A folder that was written: from which encoding, and its size."""

    folder: Path
    encoding: str
    bytes: int


def export(path: Path, target: Path | None = None, *, to: str) -> Exported:
    """Write the model at `path` for the engine `to`; the folder appears complete or not at all.

    path: what `Translator.load` reads. target: the new folder, OUT in messages; by default, one
    named after the engine next to the model's file. Raises ValueError if the model is not one for
    translation, if the engine cannot express it, or if OUT exists; OSError if OUT cannot be
    written.
    """
    check_word("--to", to, ENGINES)
    with needing("export"):
        import ctranslate2.specs  # noqa: F401, before a model is read
    file = find_model(path)
    target = file.parent / to if target is None else target
    if not target.name:  # "." or ".."
        target = target.resolve()
    check_target(file, target)
    translator = Translator.load(file, beam=1, device="cpu")
    encoding = str(read_tensors(file, MOST_MODEL_HEADER_BYTES)[1]["encoding"])
    with complete_folder(target) as part:
        _write(translator, encoding, part, target)
        size = sum(file.stat().st_size for file in part.iterdir())
    return Exported(target, encoding, size)


def _write(translator: Translator, encoding: str, part: Path, target: Path) -> None:
    model, tokens = translator.model, translator.tokens
    check_space(target, sum(p.numel() * 4 for p in model.parameters()))
    try:
        spec = transformer_spec(model, tokens.pieces(range(tokens.size)))
    except NotExpressibleError as error:
        raise ValueError(
            f"a model with encoding {shown(encoding, 200)} can't be exported to ctranslate2: "
            f"{error}"
        ) from None
    spec.validate()
    spec.optimize()  # a tensor that occurs several times is written once
    spec.save(os.fspath(part))
    tokens.save(part / "tokenizer.json")
    text = _README.format(encoding=encoding, serve=SERVE, limit=_limit(model))
    (part / "README.md").write_text(text, encoding="utf-8")
    for each in part.iterdir():
        with each.open("rb") as written:
            os.fsync(written.fileno())  # OUT never appears before its content


def _limit(model: Transformer) -> str:
    """Return the item of the README about the longest sentences, or nothing."""
    stacks = positions_of_stacks(model)
    tables = [len(each.table) for each in stacks if each.table is not None]
    if tables:
        return (
            f"- Positions end at {min(tables):,} tokens, end mark included. CTranslate2 raises an\n"
            f"  error for longer sentences; `max_decoding_length={min(tables)}` avoids it in "
            f"outputs.\n"
        )
    ends = [site.tokens for each in stacks for site in each.layers if site.tokens is not None]
    if ends:
        return f"- Outputs are those of ropewalk up to {min(ends):,} tokens.\n"
    return ""
