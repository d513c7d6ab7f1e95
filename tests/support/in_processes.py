"""Run a function of this folder in several processes, as torchrun starts them.

They are forks of this process, since an import of torch takes seconds.
"""

import faulthandler
import importlib
import json
import os
import socket
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forking import Forking

#: Seconds after which processes that wait for each other show where, and end.
PATIENCE = 300


@dataclass
class Ended:
    """How a process ended: its exit status, what it printed as errors, what it returned."""

    status: int
    error: str
    returned: Any


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def ends(world, name, *arguments):
    """Call `module:function` with arguments that JSON can express, in `world` processes."""
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env |= {"WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as temporary:
        folder, processes = Path(temporary), []
        words = [sys.executable, __file__, temporary, name, json.dumps(arguments)]
        try:
            for rank in map(str, range(world)):
                with (folder / f"{rank}.err").open("wb") as errors:
                    own = {**env, "RANK": rank, "LOCAL_RANK": rank}
                    processes.append(Forking(words, env=own, stderr=errors))
            statuses = [process.wait(PATIENCE + 100) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        ended = []
        for rank, status in enumerate(statuses):
            path = folder / f"{rank}.json"
            returned = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
            error = (folder / f"{rank}.err").read_text(encoding="utf-8")
            ended.append(Ended(status, error, returned))
    return ended


def run(world, name, *arguments):
    """Return what each process returned; raise with its error if one failed."""
    ended = ends(world, name, *arguments)
    for process in ended:
        if process.status:
            raise RuntimeError(f"status {process.status}: {process.error[-4000:]}")
    return [process.returned for process in ended]


def run_each(world, calls):
    """Call several functions in turn in the same processes.

    calls: name and arguments of each, by any key. Returns what each process returned, by key.
    """
    returned = run(world, "in_processes:each", *calls.values())
    return dict(zip(calls, zip(*returned, strict=True), strict=True))


def call(name, *arguments):
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)(*arguments)


def each(*calls):
    return [call(*name_and_arguments) for name_and_arguments in calls]


def main(folder, name, arguments):
    warnings.simplefilter("error")
    # torch's compiler reads .grad of parameters that FSDP divides.
    warnings.filterwarnings("ignore", "The .grad attribute")
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=sys.stderr)
    returned = call(name, *json.loads(arguments))
    path = Path(folder, f"{os.environ['RANK']}.json")
    path.write_text(json.dumps(returned), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
