"""Train the same small language model with two encodings and compare: the lab, from Python.

The same as `ropewalk compare --task causal-lm --encodings rotary,sinusoidal` with a few settings.
Texts are generated stories. Needs `pip install "ropewalk[lab]"`.
"""

import tempfile
from pathlib import Path

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.running.compare import compare

SETTINGS = {
    "task": "causal-lm",
    "encodings": ("rotary", "sinusoidal"),
    "seeds": (1,),  # use three or more to say something about the encodings
    "examples": 150,
    "epochs": 1,
    "vocabulary": 300,
    "width": 48,
    "layers": 2,
    "heads": 2,
    "feed_forward": 96,
    "train_length": 32,
    "length_multiples": (1, 4),  # scored at 32 tokens, as trained, and at 128
    "batch_tokens": 512,
    "learning_rate": 4e-3,
    "validations": 2,
    "test_examples": 8,
}


def main() -> None:
    """Run the comparison in a temporary folder and print its scores."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        results = compare(make_config(settings=SETTINGS), run, stage=print)
        assert results is not None  # None: under torchrun, in all processes but the first
        size = (run / "report.html").stat().st_size
        print(f"report.html, with curves and attention maps: {size / 2**20:.1f} MiB")
    print(f"\n{'encoding':12} {'steps':>6} {'loss':>6} {'perplexity x1':>14} {'x4':>6}")
    for row in results.encodings:
        cell = row.cells[0]
        x1, x4 = (row.summary[split].spread("perplexity").mean for split in ("x1", "x4"))
        print(f"{row.name:12} {cell.steps:6} {cell.validation_loss:6.3f} {x1:14.1f} {x4:6.1f}")
    print("\nOne seed: this holds for these two models, not for the encodings.")


# Each encoding trains in a process of its own, which imports this file: keep this guard.
if __name__ == "__main__":
    main()
