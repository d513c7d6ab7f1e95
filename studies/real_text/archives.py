"""Documents of two zip archives with known splits: WikiText-2 and enwik8."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from itertools import pairwise

from real_text.packages import Documents

MOST_BYTES = 2**28  # limit for one member; enwik8 has 10^8
TITLE = re.compile(r"^ = ([^=\n]+) = \n", re.MULTILINE)  # of an article; sections have more =
WIKITEXT = {"train": "train", "validation": "valid", "test": "test"}
#: Where the validation and the test text of enwik8 begin, in bytes, by custom (Mahoney, Graves).
ENWIK8_CUTS = (90_000_000, 95_000_000)
WIKI_NOTICE = (
    b"Text of Wikipedia by its contributors, under the Creative Commons Attribution-ShareAlike "
    b"license\n(https://creativecommons.org/licenses/by-sa/3.0/) and the GNU Free Documentation "
    b"License.\n"
)


def wikitext(content: bytes) -> tuple[dict[str, Documents], bytes]:
    """Return the articles of wikitext-2-raw-v1.zip in the published splits (Merity et al. 2016)."""
    splits: dict[str, Documents] = {}
    for split, name in WIKITEXT.items():
        text = _member(content, f"wikitext-2-raw/wiki.{name}.raw").decode("utf-8")
        starts = [found.start() for found in TITLE.finditer(text)]
        ends = [*starts[1:], len(text)]
        parts = [text[i:j].strip() + "\n" for i, j in zip(starts, ends, strict=True)]
        splits[split] = {f"{number:03d}": part for number, part in enumerate(parts, start=1)}
    return splits, WIKI_NOTICE


def enwik8(content: bytes) -> tuple[dict[str, Documents], bytes]:
    """Return enwik8 in three splits, cut at the first page after the customary 90 and 95 MB.

    The customary cuts go through the middle of two pages; here no page is cut.
    """
    raw = _member(content, "enwik8")
    cuts = [raw.find(b"  <page>\n", cut) for cut in ENWIK8_CUTS]
    if -1 in cuts or cuts[0] == cuts[1]:
        raise ValueError(f"enwik8 must have pages after byte {ENWIK8_CUTS[1]:,}")
    bounds = [0, *cuts, len(raw)]
    parts = [raw[i:j] for i, j in pairwise(bounds)]
    # The file is cut at 10^8 bytes, perhaps inside a character.
    texts = [part.decode("utf-8", "ignore").strip() + "\n" for part in parts]
    return {
        split: {"pages": text}
        for split, text in zip(("train", "validation", "test"), texts, strict=True)
    }, WIKI_NOTICE


def _member(content: bytes, name: str) -> bytes:
    """Return a member of a zip archive; raise ValueError if it is damaged or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(name) as file:
            found = file.read(MOST_BYTES + 1)
    except KeyError:
        raise ValueError(f"it has no {name}") from None
    # RuntimeError: the member is encrypted, or compressed in a way that zipfile can't read.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"it is not a complete zip archive: {error}") from None
    if len(found) > MOST_BYTES:
        raise ValueError(f"its {name} has more than {MOST_BYTES:,} bytes")
    return found
