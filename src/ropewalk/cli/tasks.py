"""`ropewalk tasks`."""

from __future__ import annotations

from ropewalk.cli.common import errors
from ropewalk.cli.listing import print_rows, summary


def tasks() -> None:
    """List every task with its data, score and description.

    DATA is what the task uses if --data is not given; SCORE is the score of the report's headline.
    """
    with errors():
        from ropewalk.lab.config_sources import make_config
        from ropewalk.lab.data.sequences import SEQUENCE_TASKS
        from ropewalk.lab.presets import fields_of_other_tasks
        from ropewalk.lab.tasks import CLASSES

        rows = [("TASK", "DATA", "SCORE", "DESCRIPTION")]
        for name, task in CLASSES.items():
            generated = "data" in fields_of_other_tasks(name)
            data = "generated" if generated else make_config(settings={"task": name}).data
            sequence = SEQUENCE_TASKS.get(name)
            what = summary(task.__doc__) if sequence is None else sequence.description
            rows.append((name, data, task.metrics[0].name, what))
        print_rows(rows)
