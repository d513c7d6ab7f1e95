"""Damaged and hostile files: each is refused in one line that names the file, before OUT exists.

These fail if such a file is converted, crashes with another error than ValueError, or leaves
anything next to it.
"""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors_files import LLAMA, SHAPES, file_of, llama_folder, llama_tensors, tensors_file

from ropewalk import tools

Q = "model.layers.0.self_attn.q_proj.weight"


def entry(shape=(2,), begin=0, end=8, dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def state(folder):
    """Return size and time of change of all files, without following links."""
    found = [folder, *folder.rglob("*")]
    return {file: (file.lstat().st_size, file.lstat().st_mtime_ns) for file in found}


def refused(folder, message):
    """Check that a folder is refused with this message, and that nothing was written."""
    before = state(folder.parent)
    for dry_run in (True, False):
        with pytest.raises(ValueError) as caught:  # noqa: PT011, its text is checked below
            tools.convert(folder, folder.parent / "out", to="interleaved", dry_run=dry_run)
        assert message in str(caught.value), caught.value
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 2_000
    assert state(folder.parent) == before


HEADERS = {
    "an empty file": (b"", "0 bytes, but the length of its header takes 8"),
    "a part of the length": (b"\x01\x00", "2 bytes, but the length"),
    "a huge header": (file_of({}, length=2**63), "a header of 9,223,372,036,854,775,808 bytes"),
    "a header over the limit": (file_of({}, length=100_000_001), "100,000,001 bytes, but at most"),
    "a header longer than the file": (file_of({}, length=99), "is cut off: its header has 99"),
    "no JSON": (file_of(b"{no"), "header: the text at line 1, column 2 is not JSON"),
    "an empty header": (file_of(b""), "header: it is empty"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of git-lfs"),
    "a pickle": (b"PK\x03\x04" + bytes(40), "is cut off: its header has"),
    "a header that is not UTF-8": (file_of(b'{"\xff": 1}'), "its header is not UTF-8"),
    "a list": (file_of([1]), "its header must be a JSON object"),
    "deep lists": (file_of(b'{"a":' + b"[" * 90_000), "nested too deep"),
    "many digits": (file_of(b'{"a": %s}' % (b"9" * 9_000)), "integer of too many digits"),
    "a doubled name": (file_of(b'{"a": {}, "b": 1, "a": {}}'), "its header has 'a' twice"),
    "no offsets": (file_of({"a": {"dtype": "F32", "shape": [2]}}), "tensor 'a' must have dtype"),
    "more than the three": (file_of({"a": {**entry(), "x": 1}}, bytes(8)), "and nothing else"),
    "an unknown dtype": (file_of({"a": entry(dtype="F31")}, bytes(8)), "not known, 'F31'"),
    "a dtype that is a list": (file_of({"a": entry(dtype=[])}, bytes(8)), "not known, []"),
    "a negative size": (file_of({"a": entry((-2,))}, bytes(8)), "got [-2]"),
    "a fraction": (file_of({"a": entry((2.0,))}, bytes(8)), "got [2.0]"),
    "true as a size": (file_of({"a": entry((True,))}, bytes(8)), "got [True]"),
    "too many dimensions": (file_of({"a": entry((1,) * 65)}, bytes(8)), "must have a shape"),
    "sizes that overflow": (file_of({"a": entry((2**62,) * 60)}, bytes(8)), "has 8 bytes, but"),
    "a size that differs": (file_of({"a": entry((3,))}, bytes(8)), "has 8 bytes, but its shape"),
    "half a byte": (file_of({"a": entry((3,), 0, 1, "F4")}, bytes(1)), "has 1 bytes, but its"),
    "offsets backwards": (file_of({"a": entry((2,), 8, 0)}, bytes(8)), "two data_offsets"),
    "offsets below zero": (file_of({"a": entry((2,), -8, 0)}, bytes(8)), "two data_offsets"),
    "data cut off": (file_of({"a": entry()}, bytes(7)), "is cut off: tensor 'a' ends at byte"),
    "data left over": (file_of({"a": entry()}, bytes(9)), "the last 1 bytes belong to no tensor"),
    "a hole": (
        file_of({"a": entry(), "b": entry((1,), 12, 16)}, bytes(16)),
        "4 bytes before tensor 'b' have no tensor",
    ),
    "an overlap": (
        file_of({"a": entry(), "b": entry((2,), 4, 12)}, bytes(12)),
        "tensors 'a' and 'b' overlap",
    ),
    "metadata with numbers": (
        file_of({"__metadata__": {"a": 1}, "a": entry()}, bytes(8)),
        "__metadata__ must be texts by name",
    ),
    "no tensor": (file_of({}), "got no tensor at all"),
    "names of another model": (file_of({"h.0.w": entry()}, bytes(8)), "names such as 'h.0.w'"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_damaged_header_is_named(case, tmp_path):
    content, message = HEADERS[case]
    folder = llama_folder(tmp_path / "in")
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, message)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_header_is_read_or_refused(data, tmp_path):
    folder = llama_folder(tmp_path / "in")
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    end = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.none() | st.integers(0, len(content))) :]
    file.write_bytes(content)
    try:
        found = tools.convert(folder, tmp_path / "out", to="interleaved", dry_run=True)
        message = None
    except ValueError as error:
        message = str(error)
    if message is None:
        assert len(found.tensors) == 4
    else:
        assert "model.safetensors" in message or "model.layers" in message
        assert "\n" not in message


def attention(inner, dtype="F32", shape=(4,)):
    return {f"model.layers.1.self_attn.{inner}": (dtype, shape)}


TENSORS = {
    "scales": (attention("q_proj.weight_scale_inv"), "quantized weights have scales"),
    "a zero point": (attention("k_proj.qzeros"), "quantized weights have scales"),
    "absmax": (attention("q_proj.weight.absmax", "U8"), "quantized weights have scales"),
    "an adapter": (attention("q_proj.lora_A.weight"), "this model type has no such part"),
    "a norm of another type": (attention("q_norm.weight", shape=(8,)), "has no such part"),
    "fused weights": (attention("qkv_proj.weight", shape=(64, 16)), "has no such part"),
    "a second attention": (
        {"model.layers.1.cross_attn.q_proj.weight": ("F32", (32, 16))},
        "part of an attention that this model type does not have",
    ),
    "an attention outside the layers": (
        {"vision.layers.1.attn.qkv.weight": ("F32", (32, 16))},
        "part of an attention that this model type does not have",
    ),
    "a layer for several tokens": (
        {"model.layers.2.self_attn.q_proj.weight": ("F32", (32, 16))},
        "it is of layer 2, but the config has 2 layers",
    ),
    "more heads than the config": ({Q: ("F32", (64, 16))}, "its shape is [64, 16], but the config"),
    "a flat weight": ({Q: ("F32", (512,))}, "its shape is [512], but the config"),
    "packed weights": ({Q: ("U8", (32, 16))}, "its dtype is U8, not a float of whole bytes"),
    "no queries": ({Q: None}, "must have model.layers.0.self_attn.q_proj.weight, since layer 0"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_tensor_that_is_not_understood_is_named(case, tmp_path):
    changed, message = TENSORS[case]
    folder = llama_folder(tmp_path / "in", **changed)
    refused(folder, message)
    refused(folder, next(iter(changed)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "internlm2"}, "model_type must be one of the"),
        ({"model_type": None}, "model_type must be one of the"),
        ({"auto_map": {"AutoModel": "own.Model"}}, "names code of its own (auto_map)"),
        ({"quantization_config": {"bits": 4}}, "quantization_config must be absent"),
        ({"rope_pairing": "interleaved"}, "there is nothing to do"),
        ({"num_key_value_heads": 3}, "must be a multiple of that of keys"),
        ({"num_attention_heads": 5}, "must be a multiple"),
        ({"num_attention_heads": 10**6}, "must be at most 16,384"),
        ({"model_type": "dbrx", "attn_config": 3}, "must have tensors named transformer.blocks"),
        ({"model_type": "llava"}, "model_type must be one of the"),
        ({"model_type": "llava", "text_config": {"model_type": []}}, "with the text model []"),
        ({"head_dim": 4}, "its shape is [32, 16], but the config"),
        ({"num_hidden_layers": 3}, "must have model.layers.2.self_attn.k_proj.weight"),
        ({"rope_thet": 3.0}, "rope_thet"),
        ({"model_type": "qwen3"}, "must have model.layers.0.self_attn.k_norm.weight"),
    ],
)
def test_a_config_that_does_not_fit_is_named(changed, message, tmp_path):
    refused(llama_folder(tmp_path / "in", config={**LLAMA, **changed}), message)


INDEX = "model.safetensors.index.json"


def change_index(folder, **changes):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"].update(changes)
    (folder / INDEX).write_text(json.dumps(index))


def add_tensors(folder, **tensors):
    (folder / "model-3.safetensors").write_bytes(tensors_file(tensors))


FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
#: What is done to the folder, and what the refusal says.
INDEXES = {
    "climbs": (lambda f: change_index(f, **{Q: "../in/" + FIRST}), "not a file of this folder"),
    "is absolute": (lambda f: change_index(f, **{Q: str(f / FIRST)}), "not a file of this folder"),
    "dots": (lambda f: change_index(f, **{Q: ".."}), "which is no name of a file"),
    "a number": (lambda f: change_index(f, **{Q: 3}), "in 3, which is no name of a file"),
    "file missing": (lambda f: (f / SECOND).unlink(), "which is missing from the folder"),
    "another file": (lambda f: change_index(f, **{Q: SECOND}), "but that file does not have it"),
    "no such tensor": (lambda f: change_index(f, x=FIRST), "has tensor 'x'"),
    "in two files": (lambda f: add_tensors(f, **{Q: ("F32", (32, 16))}), "is in two files of"),
    "not in the index": (lambda f: add_tensors(f, y=("F32", (2,))), "does not have tensor 'y'"),
    "no index": (lambda f: (f / INDEX).unlink(), "weights in several files must have an index"),
    "two indexes": (
        lambda f: (f / "model.safetensors.index.fp16.json").write_text("{}"),
        "must have one index",
    ),
    "damaged": (lambda f: (f / INDEX).write_text("{"), "is damaged: the end at line 1"),
    "no map": (lambda f: (f / INDEX).write_text("[]"), "must have a weight_map"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_an_index_that_does_not_fit_is_named(case, tmp_path):
    spoil, message = INDEXES[case]
    folder = llama_folder(tmp_path / "in", shards=2)
    spoil(folder)
    refused(folder, message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pytorch_model.bin", "only safetensors are converted"),
        ("model.gguf", "only safetensors are converted"),
        ("MODEL2.SAFETENSORS", "weights are in names that end in .safetensors"),
        ("model.safetensors.bak", "weights are in names that end in .safetensors"),
        ("optimizer.pt", "only safetensors are converted"),
        ("consolidated.safetensors", "names of another library"),
        ("consolidated.00.pth", "only safetensors are converted"),
        ("adapter_config.json", "an adapter (LoRA) is not converted"),
        ("adapter_model.safetensors", "an adapter (LoRA) is not converted"),
    ],
)
def test_other_weights_would_contradict_and_are_named(name, message, tmp_path):
    folder = llama_folder(tmp_path / "in")
    (folder / name).write_bytes(b"x")
    refused(folder, message)
    refused(folder, name)


def test_a_folder_without_weights_or_config(tmp_path):
    folder = llama_folder(tmp_path / "in")
    (folder / "model.safetensors").unlink()
    refused(folder, "must have weights in *.safetensors")
    (folder / "model.safetensors").write_bytes(tensors_file(llama_tensors()))
    (folder / "config.json").unlink()
    refused(folder, "config.json: no such file")


#: A file of the folder, what takes its place, and what the refusal says of it.
SPECIAL = {
    "dangling": ("model.safetensors", lambda file: file.symlink_to("../blobs/nothing"),
                 "a symlink to a file that is missing"),
    "loop": ("model.safetensors", lambda file: file.symlink_to(file.name),
             "Too many levels of symbolic links"),
    "folder": ("model.safetensors", lambda file: file.mkdir(), "a folder, not a regular file"),
    "link to a folder": ("model.safetensors", lambda file: file.symlink_to(file.parent),
                         "a folder, not a regular file"),
    "pipe": ("pipe", lambda file: os.mkfifo(file), "a pipe, not a regular file"),
    "device": ("tokenizer.model", lambda file: file.symlink_to("/dev/zero"),
               "a device, not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize("case", SPECIAL)
@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in folders")
def test_what_is_no_regular_file_is_named_and_never_waited_for(case, tmp_path):
    name, make, message = SPECIAL[case]
    file = llama_folder(tmp_path / "in") / name
    file.unlink(missing_ok=True)
    make(file)
    refused(file.parent, f"{name}: {message}")


def test_the_cache_of_the_hub_is_read_through_its_symlinks(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    llama_folder(blobs)
    for number, file in enumerate(sorted(blobs.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    tools.convert(snapshot, tmp_path / "out", to="interleaved")
    assert all(file.is_file() and not file.is_symlink() for file in (tmp_path / "out").iterdir())
    assert len(os.listdir(tmp_path / "out")) == 3


DRAFTS = {
    "model.layers.2.": {"model_type": "glm4_moe", "num_nextn_predict_layers": 1},
    "mtp.layers.0.": {"model_type": "qwen3_next", "layer_types": ["full_attention"] * 2},
}


def draft_folder(folder, prefix, rows=32, **facts):
    """Write a model with a layer for a further token, whose queries are those of layer 1."""
    config = {**LLAMA, **DRAFTS[prefix], "partial_rotary_factor": 0.5, **facts}
    tensors = llama_tensors()
    norms = {"self_attn.q_norm.weight": (8,), "self_attn.k_norm.weight": (8,)}
    for before in ("model.layers.0.", "model.layers.1.", prefix):
        shapes = {**SHAPES, **norms, "self_attn.q_proj.weight": (rows, 16)}
        tensors |= {before + name: ("F32", shape) for name, shape in shapes.items()}
    llama_folder(folder, config)
    content = bytearray(tensors_file(tensors))
    content[queries_at(content, prefix)] = content[queries_at(content, "model.layers.1.")]
    (folder / "model.safetensors").write_bytes(content)
    return folder


def queries_at(content, prefix):
    end = 8 + int.from_bytes(content[:8], "little")
    offsets = json.loads(content[8:end])[f"{prefix}self_attn.q_proj.weight"]["data_offsets"]
    return slice(end + offsets[0], end + offsets[1])


@pytest.mark.parametrize("prefix", DRAFTS)
def test_a_layer_for_further_tokens_changes_as_the_others_do(prefix, tmp_path):
    gated = prefix.startswith("mtp")
    folder = draft_folder(tmp_path / "in", prefix, rows=64 if gated else 32)
    found = tools.convert(folder, tmp_path / "out", to="interleaved")
    assert {tensor.layer for tensor in found.tensors} == {0, 1, 2}
    before, after = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("in", "out"))
    assert after[queries_at(after, prefix)] == after[queries_at(after, "model.layers.1.")]
    assert after[queries_at(after, prefix)] != before[queries_at(before, prefix)]


def test_a_layer_that_the_config_does_not_announce_is_refused(tmp_path):
    folder = draft_folder(tmp_path / "in", "model.layers.2.", num_nextn_predict_layers=0)
    refused(folder, "it is of layer 2, but the config has 2 layers")
