"""The launcher of Slurm clusters: cells as arrays of jobs, through submitit.

A preempted cell, or one that reaches its time limit, saves, is queued again and goes on. Jobs
need the run's folder and the same Python environment on a shared file system.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import (
    DelayedSubmission,
    FailedJobError,
    FailedSubmissionError,
    environment_variables,
)

from ropewalk.checks import shown
from ropewalk.lab.running.launcher import End, Job, Start, WorkerProcess
from ropewalk.lab.stopping import INTERRUPTED, SAFE_PATH

LOGS = "launcher"  # of the run's folder
_DAY = 24 * 60
_SAVES_WITHIN = 80.0  # seconds; submitit warns a job 90 s before it is killed
_LOOKS_EVERY = 0.5
_ASKS_EVERY, _GONE_AFTER = 15.0, 60.0  # seconds; squeue is slow to show what was just submitted
_REQUEUES = 10_000  # of a job that reached its time limit; submitit would give up after 3


class CellJob:
    """What a job executes: the process of a cell. submitit pickles it."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self._process: WorkerProcess | None = None

    def __call__(self) -> End:
        """Run the cell."""
        environment = submitit.JobEnvironment()
        self._process = WorkerProcess(self.start, f"{environment.cluster} job {environment.job_id}")
        while (end := self._process.end(_LOOKS_EVERY)) is None:  # signals arrive in between
            pass
        return end

    def checkpoint(self) -> DelayedSubmission:
        """Let the cell save; return the job that submitit queues again."""
        if self._process is not None:
            self._process.stop()
            self._process.end(_SAVES_WITHIN)
        return DelayedSubmission(CellJob(self.start))


class Queue:
    """The jobs that wait or run according to squeue, which is asked at most every few seconds.

    submitit asks sacct, which says nothing on clusters without accounting.
    """

    def __init__(self) -> None:
        self._asked, self._known = float("-inf"), set[str]()
        self._seen = set[str]()
        self._missed: dict[str, float] = {}

    def has(self, job: str) -> bool:
        """Return whether a job waits or runs. A job that squeue never showed may be too new."""
        now = time.monotonic()
        if now - self._asked > _ASKS_EVERY:
            self._asked = now
            self._ask()
        if job in self._known:
            return True
        return job not in self._seen and now - self._missed.setdefault(job, now) < _GONE_AFTER

    def _ask(self) -> None:
        words = ["squeue", "--noheader", "--array", "--me", "--format", "%i"]
        try:
            said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            self._missed.clear()  # Slurm does not answer: nothing is known to be gone
            return
        self._known = set(said.stdout.split())
        self._seen |= self._known


class SlurmJob:
    """A job in the queue, or running."""

    def __init__(
        self, job: submitit.Job[End], cluster: str, queue: Queue | None, logs: Path
    ) -> None:
        self._job, self._queue, self._logs = job, queue, logs
        self.place = f"{cluster} job {job.job_id}"

    def end(self) -> End | None:
        """Return how the job ended, or None."""
        lost = End(INTERRUPTED, (f"{self.place} ended without a result; see {self._logs}",))
        written = self._job.paths.result_pickle
        if self._queue is None:
            if not self._job.done(force_check=True):
                return None
            if not _exists(written):  # a canceled job writes none; `result` would wait 15 s for it
                return lost
        elif not _exists(written):  # `done` would ask sacct, and complain
            return None if self._queue.has(self._job.job_id) else lost
        try:
            return self._job.result()
        except FailedJobError as error:
            return End(1, tuple(str(error).strip().splitlines()[-20:]))
        except Exception:  # submitit has several: the job was killed, or its node died
            return lost

    def stop(self) -> None:
        """Cancel the job; its cell saves when its parent process ends."""
        self._job.cancel(check=False)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a shared folder that is away for a while
        return False


class SlurmLauncher:
    """Submits cells to Slurm, or to submitit's local cluster of processes."""

    name = "slurm"
    at_once: int | None
    gpus: float

    def __init__(self, run: Path, arguments: dict[str, Any]) -> None:
        self._arguments = dict(arguments)
        self._cluster = self._arguments.pop("cluster", "slurm")
        self.gpus = self._arguments.pop("gpus", 0)
        self.at_once = 1000 if self._cluster == "slurm" else None
        if self._cluster == "slurm" and shutil.which("sbatch") is None:
            raise ValueError(
                "--launcher slurm needs sbatch, which is not installed on this machine; start it "
                "on a login node of the cluster, or try it here with --launcher-args cluster=local"
            )
        if self._cluster == "slurm" and any(sign in str(run.absolute()) for sign in "%\n\r"):
            raise ValueError(
                f"--out must be a path without % and line breaks with --launcher slurm, which "
                f"names log files in it, got {shown(str(run))}; choose another folder"
            )
        # Under a new name: submitit unpickles what lies there under the number of a job.
        self._folder = run / LOGS / secrets.token_hex(8)
        self._queue = Queue() if self._cluster == "slurm" else None

    def start(self, starts: Sequence[Start]) -> list[Job]:
        """Submit the cells, as one array. Raises ValueError if Slurm refuses them."""
        # -P: do not import from the working directory.
        python = f"{shlex.quote(sys.executable)} -P"
        own = {f"{self._cluster}_python": python, f"{self._cluster}_max_num_timeout": _REQUEUES}
        executor = submitit.AutoExecutor(folder=self._folder, cluster=self._cluster, **own)
        given = self._arguments
        words = ("partition", "account", "qos", "constraint")
        executor.update_parameters(
            name="ropewalk",
            timeout_min=given.get("minutes", _DAY),
            cpus_per_task=given.get("cpus", starts[0].threads),
            mem_gb=given.get("memory_gb"),
            gpus_per_node=self.gpus or None,
            slurm_array_parallelism=len(starts),
            **{f"slurm_{name}": given[name] for name in words if name in given},
        )
        jobs: list[Any] = []
        try:
            # submitit repeats what sbatch says, which is in the message.
            quiet = redirect_stderr(StringIO())
            with quiet, environment_variables(**SAFE_PATH), executor.batch():
                jobs += [executor.submit(CellJob(start)) for start in starts]
        except (FailedJobError, FailedSubmissionError) as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"--launcher slurm: Slurm must accept the jobs, got {shown(said, 300)}; change "
                f"--launcher-args, or try again later"
            ) from None
        return [SlurmJob(job, self._cluster, self._queue, self._folder) for job in jobs]

    def close(self) -> None:
        """Do nothing: jobs outlive this process."""
