"""Run a function of this folder in several processes, as torchrun starts them.

One process imports torch, which takes seconds, and divides itself into those of the group.
"""

import faulthandler
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
# torch's compiler reads .grad of parameters that FSDP divides.
WARNINGS = ("-W", "error", "-W", "ignore:The .grad attribute")
#: Seconds after which processes that wait for each other show where, and end.
PATIENCE = 400
SHARED = ("pydantic", "torch.distributed.checkpoint.state_dict_saver", "torch.distributed.fsdp")


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
    env = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
    }
    with TemporaryDirectory() as folder:
        words = [sys.executable, *WARNINGS, __file__, folder, name, json.dumps(arguments)]
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, start_new_session=True)
        try:
            statuses = json.loads(process.communicate(timeout=PATIENCE + 100)[0].splitlines()[-1])
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        ended = []
        for rank, status in enumerate(statuses):
            path = Path(folder, f"{rank}.json")
            returned = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
            error = Path(folder, f"{rank}.err").read_text(encoding="utf-8")
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
    for module in SHARED:
        importlib.import_module(module)
    # Now, since another program may take a port that is free before torch is imported.
    os.environ["MASTER_PORT"] = str(free_port())
    children = []
    for rank in range(int(os.environ["WORLD_SIZE"])):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with Path(folder, f"{rank}.err").open("wb") as errors:
                os.dup2(errors.fileno(), 2)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            returned = call(name, *json.loads(arguments))
            Path(folder, f"{rank}.json").write_text(json.dumps(returned), encoding="utf-8")
            return
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]))


if __name__ == "__main__":
    main(*sys.argv[1:])
