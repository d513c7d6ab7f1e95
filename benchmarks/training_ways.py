"""The ways to train that `training_peers.py` measures, on the same token ids.

Each is prepared once, and then trains for some seconds whenever it is its turn.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

import torch
from common import FOLDER
from torch import Tensor

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.batches import EncodedSplit, make_batch, plan_epoch
from ropewalk.lab.loss import autocast
from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.tokens import BOS, EOS, PAD
from ropewalk.lab.training.trainer import Trainer
from ropewalk.model import TransformerShape

SMOOTHING = 0.1
LEARNING_RATE = 1e-3
IGNORED = -100  # the label that transformers leaves out of the loss


class Way(Protocol):
    """A way to train: `train` returns the real target tokens and the seconds of some steps.

    Seconds are CPU time of the process: with one thread, other load on the machine counts little.
    """

    def train(self, seconds: float) -> tuple[int, float]:
        """Train for at least so long, and at least one step."""


class Ropewalk:
    """ropewalk's own training step with its batches."""

    def __init__(self, shape: TransformerShape, split: EncodedSplit, precision: str, tokens: int):
        sizes = {k: v for k, v in asdict(shape).items() if k != "vocabulary"}
        settings = {**sizes, "batch_tokens": tokens, "precision": precision, "device": "cpu"}
        nowhere = FOLDER / "results" / "none"  # single steps read and write nothing
        task = Translation(make_config("multi30k-cpu", settings=settings), nowhere)
        task.data, task.vocabulary = {"train": split, "validation": split}, shape.vocabulary
        self.trainer = Trainer(task, "sinusoidal", 1, nowhere)
        self.plan = plan(split, tokens)

    def train(self, seconds: float) -> tuple[int, float]:
        """Take steps."""
        record, began = self.trainer.record, time.process_time()
        record.target_tokens = 0
        while (spent := time.process_time() - began) < seconds or not record.target_tokens:
            self.trainer.step([next(self.plan)])
        return record.target_tokens, spent


class BareMarian:
    """Marian of transformers in a loop of a few lines, on ropewalk's batches."""

    def __init__(self, shape: TransformerShape, split: EncodedSplit, precision: str, tokens: int):
        self.model, self.precision, self.split = marian(shape).train(), precision, split
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)
        self.plan = plan(split, tokens)

    def train(self, seconds: float) -> tuple[int, float]:
        """Take steps."""
        tokens, began = 0, time.process_time()
        while (spent := time.process_time() - began) < seconds or not tokens:
            batch = make_batch(self.split, next(self.plan))
            with autocast(torch.device("cpu"), self.precision):
                logits = self.model(
                    input_ids=batch.source,
                    attention_mask=batch.source_mask.long(),
                    decoder_input_ids=batch.target_in,
                ).logits
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1),
                    batch.target_out.flatten(),
                    ignore_index=PAD,
                    label_smoothing=SMOOTHING,
                )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            tokens += batch.target_tokens
        return tokens, spent


class TransformersTrainer:
    """Seq2SeqTrainer of transformers with its own batches, padded to their longest sentence.

    sampling: how it chooses a batch, `random` (its default) or `group_by_length`. `train` continues
    one training, which pauses at the end of a step when its turn is over.
    """

    def __init__(
        self,
        shape: TransformerShape,
        split: EncodedSplit,
        precision: str,
        tokens: int,
        sampling: str,
    ) -> None:
        from transformers import (
            DataCollatorForSeq2Seq,
            PrinterCallback,
            Seq2SeqTrainer,
            Seq2SeqTrainingArguments,
        )

        model = marian(shape)
        pairs = [
            {"input_ids": [*s, EOS], "attention_mask": [1] * (len(s) + 1), "labels": [*t, EOS]}
            for s, t in zip(split.source, split.target, strict=True)
        ]
        self.sentences = sentences_of(split, tokens)
        arguments = Seq2SeqTrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=self.sentences,
            train_sampling_strategy=sampling,
            learning_rate=LEARNING_RATE,
            label_smoothing_factor=SMOOTHING,
            max_steps=1,
            bf16=precision == "bfloat16",
            use_cpu=True,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        collator = DataCollatorForSeq2Seq(_Padder(), model=model, label_pad_token_id=IGNORED)
        self.clock = clock = _Clock()

        class Counted(Seq2SeqTrainer):
            def training_step(self, model: Any, inputs: Any, *rest: Any) -> Tensor:
                clock.tokens += int((inputs["labels"] != IGNORED).sum())
                found: Tensor = super().training_step(model, inputs, *rest)
                return found

        self.trainer = Counted(
            model, arguments, train_dataset=pairs, data_collator=collator, callbacks=[clock.stop()]
        )
        self.trainer.remove_callback(PrinterCallback)

    def train(self, seconds: float) -> tuple[int, float]:
        """Take steps; the Trainer's preparation and its first step are not timed."""
        self.clock.start(seconds)
        self.trainer.args.max_steps = 10**9
        self.trainer.train()
        return self.clock.tokens, self.clock.spent


class _Clock:
    """Times the steps of a Trainer, from the end of the first one on, and ends it."""

    def start(self, seconds: float) -> None:
        """Begin a turn."""
        self.seconds, self.tokens, self.spent = seconds, 0, 0.0
        self.began: float | None = None

    def tick(self) -> bool:
        """Note the end of a step; return whether the turn is over."""
        now = time.process_time()
        if self.began is None:
            self.began, self.tokens = now, 0
            return False
        self.spent = now - self.began
        return self.spent >= self.seconds

    def stop(self) -> Any:
        """Return the callback that a Trainer takes."""
        from transformers import TrainerCallback

        clock = self

        class Stop(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
                control.should_training_stop = clock.tick()
                return control

        return Stop()


class _Padder:
    """What DataCollatorForSeq2Seq needs of a tokenizer: padding at the end."""

    padding_side = "right"
    pad_token_id = PAD

    def pad(self, features: Any, return_tensors: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Pad every field of the features to its longest row."""
        fills = {"input_ids": PAD, "attention_mask": 0, "labels": IGNORED}
        rows = {name: [torch.tensor(f[name]) for f in features] for name in features[0]}
        return {
            name: torch.nn.utils.rnn.pad_sequence(of, batch_first=True, padding_value=fills[name])
            for name, of in rows.items()
        }


WAYS: dict[str, Callable[..., Way]] = {
    "Trainer, random batches (its default)": partial(TransformersTrainer, sampling="random"),
    "Trainer, group_by_length": partial(TransformersTrainer, sampling="group_by_length"),
    "Marian in a loop, ropewalk's batches": BareMarian,
    "ropewalk": Ropewalk,
}


def marian(shape: TransformerShape) -> Any:
    """Return Marian with random weights: sinusoidal, post-norm, one table for all embeddings."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=shape.vocabulary,
        max_position_embeddings=256,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_ffn_dim=shape.feed_forward,
        decoder_ffn_dim=shape.feed_forward,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        d_model=shape.width,
        dropout=shape.dropout,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        decoder_start_token_id=BOS,
        use_cache=False,
    )
    torch.manual_seed(1)
    return MarianMTModel(config)


def plan(split: EncodedSplit, tokens: int) -> Iterator[list[int]]:
    """Yield ropewalk's batches without end."""
    return itertools.cycle(plan_epoch(split, tokens=tokens, sentences=None, seed=1, epoch=0))


def sentences_of(split: EncodedSplit, tokens: int) -> int:
    """Return the sentences of a fixed batch with as many target tokens as ropewalk's on average."""
    batches = len(plan_epoch(split, tokens=tokens, sentences=None, seed=1, epoch=0))
    return max(1, round(len(split) / batches))
