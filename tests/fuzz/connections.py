"""Trace every command's system calls: none opens a connection that was not asked for.

``python tests/fuzz/connections.py`` needs Linux and Debian's strace. It runs each command of the
table under it, with local input, and fails if one looks up a host or connects to an address of the
internet. Processes of one run speak over loopback and Unix sockets, which is counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

TINY = [
    *("width=16", "heads=2", "feed_forward=16", "examples=60", "device=cpu"),
    *("epochs=0.05", "precision=float32", "batch_tokens=256", "validations=1"),
]
LAYERS = ["encoder_layers=1", "decoder_layers=1", "beam=1"]
RUN = ["--seeds", "1", "--encodings", "rotary"]

#: Each command with its words; {f} is a folder that begins with `model`, and keeps what they write.
COMMANDS = {
    "compare": ["--seeds", "1", "--encodings", "none,rotary", "--out", "{f}/run", *TINY, *LAYERS],
    "compare --task": [
        "--task",
        "causal-lm",
        *RUN,
        "--out",
        "{f}/text",
        "layers=1",
        "test_examples=8",
        *TINY,
    ],
    "train": [*RUN, "--out", "{f}/train", *TINY, *LAYERS],
    "status": ["{f}/run"],
    "runs": ["{f}"],
    "translate": ["{f}/run/cells/rotary/seed-1", "{f}/words.txt"],
    "export": ["{f}/run/cells/rotary/seed-1", "{f}/engine", "--to", "ctranslate2"],
    "tune": ["{f}/run", "length_penalty=0.6,1"],
    "encodings": [],
    "tasks": [],
    "fields": [],
    "verify": ["transformers.models.llama.modeling_llama:apply_rotary_pos_emb"],
    "verify --model": ["--model", "{f}/model"],
    "inspect": ["{f}/model"],
    "extend": ["{f}/model/config.json", "--to", "4096"],
    "extend --model": [
        "{f}/model",
        "--model",
        "{f}/model",
        "--text",
        "{f}/words.txt",
        "--to",
        "64",
    ],
    "convert": ["{f}/model", "{f}/converted", "--to", "interleaved"],
    "usage": ["{f}/text", "--text", "{f}/words.txt"],
    "catalogue": ["llama"],
    "explore --export": ["--export", "{f}/page"],
    "explore --model": ["--model", "{f}/model", "--text", "one two", "--export", "{f}/heads"],
    "bench": ["--work", "decode", "--rounds", "1"],
    "bench --model": ["--model", "{f}/model", "--rounds", "1", "--tokens", "8"],
}

MODEL = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
config = LlamaConfig(vocab_size=16, max_position_embeddings=32, **sizes)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
tokenizer = Tokenizer(models.WordLevel({"one": 0, "two": 1, "?": 2}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(sys.argv[1] + "/tokenizer.json")
"""

ADDRESS = re.compile(
    r"(?:connect|sendto|sendmsg|sendmmsg)\(.*?sa_family=(AF_INET6?).*?\"([^\"]+)\""
)
LOOPBACK = re.compile(r"127\.|::1$|::ffff:127\.")


def called(line: str) -> str | None:
    """Return where a line of a trace connects to: "loopback", an address, or None."""
    found = ADDRESS.search(line)
    if found is None:
        return None
    return "loopback" if LOOPBACK.match(found[2]) else found[2]


def trace(command: list[str], folder: Path) -> tuple[int, Counter[str]]:
    """Run a command under strace; return its status, and where it and its children connect to."""
    log = folder / "trace"
    words = ["strace", "-f", "-qq", "-e", "trace=network", "-o", str(log), *command]
    status = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL).returncode
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return status, Counter(filter(None, map(called, lines)))


def main() -> None:
    """Trace every command, print a table of them, and fail if one reaches out or fails."""
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-c", MODEL, str(folder / "model")], check=True)
        (folder / "words.txt").write_text("one two two one\n" * 100, encoding="utf-8")
        for command, words in COMMANDS.items():
            given = [word.format(f=folder) for word in words]
            start = [sys.executable, "-P", "-m", "ropewalk.cli", command.split()[0]]
            status, places = trace([*start, *given], folder)
            outside = sorted(places.keys() - {"loopback"})
            print(f"| {command} | exit {status} | {places['loopback']} on loopback |", *outside)
            wrong += [command] if outside or status else []
    control = "import socket; socket.create_connection(('192.0.2.1', 9), 0.2)"
    with tempfile.TemporaryDirectory() as name:
        seen = trace([sys.executable, "-c", control], Path(name))[1]
    assert seen["192.0.2.1"] == 1, "a connection must be seen in the trace"
    if wrong:
        sys.exit(f"these commands failed or reached out: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
