"""Run a function of this folder in several processes, as torchrun starts them."""

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# torch's compiler reads .grad of parameters that FSDP divides.
WARNINGS = ("-W", "error", "-W", "ignore:The .grad attribute")


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def start(world, name, *arguments):
    """Start `module:function` with arguments that JSON can express, in `world` processes."""
    env = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
    }
    return [
        subprocess.Popen(
            [sys.executable, *WARNINGS, __file__, name, json.dumps(arguments)],
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def finish(processes, timeout=300):
    """Return what each process returned; raise with its error if one failed."""
    outputs = []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=timeout))
    finally:
        for process in processes:
            process.kill()
    for process, (_, error) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"status {process.returncode}: {error[-4000:]}")
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def run(world, name, *arguments):
    return finish(start(world, name, *arguments))


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    found = getattr(importlib.import_module(module), function)(*json.loads(sys.argv[2]))
    print(json.dumps(found), flush=True)
