"""The fields of a comparison on the task copy that trains in a second."""

TINY_COPY = {
    "task": "copy",
    "layers": 1,
    "width": 16,
    "heads": 2,
    "feed_forward": 16,
    "examples": 40,
    "train_length": 3,
    "length_multiples": (1,),
    "test_examples": 5,
    "epochs": 1,
    "device": "cpu",
}
