"""`ropewalk inspect` and `ropewalk extend` for models of images and video.

These fail if a size is counted in other patches than the model's, if a stated limit is passed in
silence, if a printed spec has other frequencies than the tables, or if a mistake is not one line.
"""

import json

import pytest

import ropewalk as rw
from ropewalk import RotarySpec, axes, scaling  # noqa: F401 - names in the specs to paste
from ropewalk.tools.extend import extend_sizes

WAN = {"_class_name": "WanTransformer3DModel", "attention_head_dim": 128, "num_layers": 3}
WAN |= {"patch_size": [1, 2, 2], "rope_max_seq_len": 1024}
FLUX = WAN | {"_class_name": "FluxTransformer2DModel", "patch_size": 1, "num_single_layers": 3}
DIT = {"_class_name": "HunyuanDiT2DModel", "attention_head_dim": 88, "num_layers": 2}
COGVIDEOX = WAN | {"_class_name": "CogVideoXTransformer3DModel", "patch_size": 2}
COGVIDEOX |= {"sample_height": 60, "sample_frames": 49, "temporal_compression_ratio": 4}
COGVIDEOX |= {"use_rotary_positional_embeddings": True}
COSMOS = WAN | {"_class_name": "CosmosTransformer3DModel", "rope_scale": [2.0, 1.0, 1.0]}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 64, "rope_theta": 1e4}
BIGGER = ["--height", 180, "--width", 320, "--original-height", 90, "--original-width", 160]


@pytest.fixture(autouse=True)
def files(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    files = {"wan": WAN, "flux": FLUX, "dit": DIT, "cosmos": COSMOS, "llama": LLAMA}
    index = {"_class_name": "FluxPipeline", "transformer": ["diffusers", FLUX["_class_name"]]}
    (tmp_path / "pipe").mkdir()
    for name, config in (files | {"pipe/model_index": index}).items():
        (tmp_path / f"{name}.json").write_text(json.dumps(config))


def test_axes_are_told_in_patches_and_equal_stacks_once(command):
    _, out, _ = command("inspect", "flux.json", "--height", 128)
    assert "transformer_blocks, layers 0-2; single_transformer_blocks, layers 0-2\n" in out
    assert "128 latent pixels are 64 patches, within which pairs 16-35 make no full turn" in out
    _, out, _ = command("inspect", "wan.json", "--height", 4096)
    assert "size-beyond-limit  height: 4,096 makes 2,048 patches, and rope_max_seq_len" in out
    assert "nope-layers" not in out


def test_what_training_had_is_read_in_its_own_unit():
    report = rw.tools.inspect(COGVIDEOX, sizes={"height": 60, "frames": 16})
    frames, height, _ = report.axes
    assert (frames.trained, height.trained) == ((13, "sample_frames"), (30, "sample_height"))
    assert (frames.scaled is None, height.scaled is None) == (True, False)
    assert [each.id for each in report.warnings] == ["size-beyond-training"]
    z_image = {"_class_name": "ZImageTransformer2DModel", "dim": 256, "n_heads": 2, "n_layers": 1}
    z_image |= {"n_refiner_layers": 1, "all_patch_size": [2, 4], "axes_lens": [8, 16, 32]}
    found = rw.tools.inspect(z_image, sizes={"width": 64}).axes
    assert [(axis.patch, axis.limit[0]) for axis in found] == [(1, 8), (2, 16), (2, 32)]


def test_the_specs_to_paste_have_the_frequencies_of_the_tables(command):
    results = extend_sizes(WAN, {"height": 180, "width": 320}, {"height": 90, "width": 160})
    for each in results:
        wavelengths = eval(repr(each.section["spec"])).wavelengths().tolist()
        assert wavelengths[22:] == [x for axis in each.numbers for x in axis.wavelengths_after]
        assert (each.method in ("linear", "yarn")) == (not each.numbers[0].leaving)
    assert f"yarn = {each.section['spec']!r}" in command("extend", "wan.json", *BIGGER)[1]
    assert json.loads(command("extend", "wan.json", *BIGGER, "--json")[1])["results"][3]["section"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "wan.json", "--height", 33], "must be a multiple of patch_size=2, got 33"),
        (["inspect", "flux.json", "--height", 33], "must be a multiple of packing=2, got 33"),
        (["inspect", "dit.json", "--frames", 5], "whose axes are height and width, got 5"),
        (["inspect", "llama.json", "--height", 32], "whose positions have one axis, got 32"),
        (["inspect", "pipe"], "the folder with a rope is transformer"),
        (["extend", "wan.json", *BIGGER, "--to", 8], "--to must be left out with sizes of images"),
        (["extend", "wan.json", "--height", 180], "--original-height must be given"),
        (["extend", "wan.json", *BIGGER[:2], "--original-height", 180], "in training, height=180"),
        (["extend", "dit.json", "--height", 512], "code scales positions (positions.crop)"),
        (["extend", "cosmos.json", *BIGGER], "compare by hand with scaling.PerAxis"),
        (["extend", "wan.json", "--to", 4096], "images and video take sizes in place of to"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(mistake, words, message):
    assert message in mistake(*words)
