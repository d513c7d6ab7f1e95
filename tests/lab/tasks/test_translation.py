"""Translation has not changed: this fails if its losses differ from recorded ones."""

import pytest
from tiny_tasks import TINY_TRANSLATION, TRANSLATION_VOCABULARY, translation_splits

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.training.trainer import Trainer

# Losses before other tasks were added: same splits, config and seed.
GOLDEN = {
    "rotary": (
        [
            *(3.6631, 3.6643, 3.7951, 3.5054, 3.1301, 3.4862, 3.1782),
            *(3.1037, 3.3462, 3.2743, 3.3599, 3.1913, 3.012, 3.1665),
        ],
        [3.43729, 3.26541, 3.22347],
    ),
    # Since its rows have the initial scale of the word embeddings.
    "learned": (
        [
            *(3.4283, 3.5998, 3.4893, 3.6137, 3.1534, 3.5641, 3.143),
            *(3.0562, 3.2961, 3.3953, 3.5457, 3.1784, 3.0861, 3.2931),
        ],
        [3.39548, 3.31183, 3.29026],
    ),
}


@pytest.mark.parametrize("encoding", GOLDEN)
def test_translation_gives_the_losses_that_it_gave(tmp_path, encoding):
    fields = {**TINY_TRANSLATION, "encodings": encoding}
    task = Translation(make_config(settings=fields), tmp_path)
    task.data, task.vocabulary = translation_splits(), TRANSLATION_VOCABULARY
    record = Trainer(task, encoding, 1, tmp_path).run()
    training, validation = GOLDEN[encoding]
    assert [p["loss"] for p in record.training] == pytest.approx(training, abs=2e-3)
    assert [p["loss"] for p in record.validation] == pytest.approx(validation, abs=2e-3)
