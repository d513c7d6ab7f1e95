"""A small training for one process or several; each returns its losses."""

import os
import resource
import signal
from contextlib import ExitStack
from functools import partial, partialmethod
from pathlib import Path
from unittest.mock import patch

import torch
from tiny_tasks import TRANSLATION_VOCABULARY, translation_config, translation_splits

from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.training import checkpoints, trainer
from ropewalk.lab.training import parallel_trainer as distributed
from ropewalk.lab.training.process_group import failures_in_words, is_launched, join

#: Adam's epsilon. Some gradients are 0 but for rounding (1e-9): all of key biases, and single ones
#: of weights. With the usual epsilon, Adam would make steps of full size from them.
EPSILON = 1e-5


def new_trainer(folder, fields, alone=False):
    """Return a trainer of the group if several processes were started, unless of one `alone`."""
    config = translation_config(**{"dropout": 0.0, "validations": 2, **fields})
    task = Translation(config, Path(folder))
    task.data, task.vocabulary = translation_splits(), TRANSLATION_VOCABULARY
    cell = (task, config.encodings[0], 1, Path(folder))
    if is_launched() and not alone:
        made = distributed.ParallelTrainer(*cell, group=join("cpu"))
    else:
        made = trainer.Trainer(*cell)
    for group in made.optimizer.param_groups:
        group["eps"] = EPSILON
    return made


def learn(folder, fields, stop_at=None, fault=None):
    """Train to the end, until a stopping signal after `stop_at` steps, or until a fault.

    A training that is killed, or has no room to save, saves after each step.
    """
    with ExitStack() as patches:
        if fault in ("killed while saving", "no room for one part"):
            patches.enter_context(patch.object(trainer, "SAVE_EVERY", -1.0))
        if fields.get("compile"):  # no C++ compiler is needed
            eager = partialmethod(torch.nn.Module.compile, backend="eager")
            patches.enter_context(patch.object(torch.nn.Module, "compile", eager))
        if fault == "rows count equally":
            equally = partial(_part_that_counts_equally, distributed._part_of)
            patches.enter_context(patch.object(distributed, "_part_of", equally))
        return _learn(new_trainer(folder, fields), stop_at, fault)


def _learn(running, stop_at, fault):
    rank, losses = os.environ.get("RANK", "0"), []

    def progress(record, loss):
        losses.append(loss)
        if record.step == stop_at and rank == "0":
            os.kill(os.getpid(), signal.SIGINT)
        if fault == "one process dies" and rank == "1" and record.step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "killed while saving" and record.step == 4:
            checkpoints.write_checked_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        if fault == "no room for one part" and rank == "1" and record.step == 3:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    began = running.record.step
    try:
        with failures_in_words():
            running.run(progress)
    except KeyboardInterrupt:
        assert stop_at is not None
    return {"began": began, "losses": losses, **facts_of(running)}


def _part_that_counts_equally(part_of, batch, rank, world):
    part, share = part_of(batch, rank, world)
    return part, batch.target_tokens / world if share else 0


def differences(folder, encodings, ways):
    """Return the largest differences from one process, in two steps of each encoding and way."""
    found = []
    for encoding in encodings:
        fields = {"encodings": encoding, "accumulate": 2}
        one = _two_steps(new_trainer(folder, fields, alone=True))
        for way in ways:
            many = _two_steps(new_trainer(folder, {**fields, "parallel": way}))
            found.append(max(abs(own - other) for own, other in zip(one, many, strict=True)))
    return found


def _two_steps(running):
    """Return loss and gradient norm of each."""
    batches = running.task.plan(1, 0)
    return [number for i in (0, 2) for number in running.step(batches[i : i + 2])]


def facts_of(running):
    record = running.record
    return {
        "step": record.step,
        "status": record.status,
        "gradients": [point["gradient"] for point in record.training],
        "validation": [point["loss"] for point in record.validation],
        "tokens": record.target_tokens,
        "elements": sum(_own(p).numel() for p in running.model.parameters()),
    }


def _own(parameter):
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter
