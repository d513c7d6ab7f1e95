"""The builders of `ropewalk.positions`.

These fail when a token stands elsewhere than its document, image, padding or rank puts it, when the
positions of a multimodal prompt are not those of Qwen2-VL, and when a mistake passes unnoticed.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from torch import Tensor

from ropewalk import positions

NEEDS_TRANSFORMERS = "needs transformers, the outside reference: pip install 'ropewalk[dev]'"
SCHEMES = ["contiguous", "zigzag", "round-robin"]
sizes = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(sizes)
def test_packed_documents_begin_at_zero_each(documents):
    ends = [sum(documents[:i]) for i in range(len(documents) + 1)]
    expected = [place for n in documents for place in range(n)]
    for given_as in (ends, torch.tensor(ends), torch.tensor(ends, dtype=torch.int32)):
        built = positions.packed(given_as)
        assert built.dtype == torch.int64
        assert built.tolist() == expected


@given(sizes)
def test_left_padded_rows_begin_at_their_first_real_token(real):
    width = max(real) + 2
    mask = torch.tensor([[0] * (width - n) + [1] * n for n in real])
    expected = [[0] * (width - n) + list(range(n)) for n in real]
    for given_as in (mask, mask.bool(), mask.float()):
        assert positions.left_padded(given_as).tolist() == expected


@given(st.integers(-(2**31), 2**31), st.integers(0, 9), st.integers(1, 4))
def test_offset_counts_on_from_its_start(start, length, rows):
    assert positions.offset(start, length).tolist() == list(range(start, start + length))
    starts = torch.arange(rows, dtype=torch.int32) * 7
    expected = [list(range(7 * b, 7 * b + length)) for b in range(rows)]
    built = positions.offset(starts, length)
    assert built.dtype == torch.int64
    assert built.tolist() == expected


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_grids_run_row_by_row_and_videos_frame_by_frame(frames, height, width):
    rows = [[r, c] for r in range(height) for c in range(width)]
    assert positions.grid(height, width).T.tolist() == rows
    whole = [[f, *row] for f in range(frames) for row in rows]
    assert positions.video(frames, height, width).T.tolist() == whole
    assert positions.video(frames, height, width).is_contiguous()


@pytest.mark.parametrize(("height", "width", "merge"), [(4, 6, 2), (6, 3, 3), (2, 2, 1)])
def test_merge_blocks_are_in_the_order_of_vision_towers(height, width, merge):
    """Fails if patches come in another order than to Qwen2-VL's and GLM-V's vision towers."""
    theirs = pytest.importorskip("transformers.vision_utils", reason=NEEDS_TRANSFORMERS)
    sizes = torch.tensor([[1, height, width]])
    expected = theirs.get_vision_position_ids(sizes, merge).T
    assert torch.equal(positions.grid(height, width, merge=merge), expected)


def test_coordinates_are_centers_of_patches_within_a_turn():
    built = positions.coordinates(2, 4) / torch.pi
    assert built.dtype == torch.float64
    assert built[0].tolist() == [-1, -1, -1, -1, 1, 1, 1, 1]
    assert built[1].tolist() == [-1.5, -0.5, 0.5, 1.5] * 2


@given(
    axes=st.lists(
        st.tuples(st.floats(0.5, 4096), st.lists(st.integers(0, 4096), min_size=3, max_size=3)),
        min_size=1,
        max_size=3,
    )
)
def test_fractions_run_from_minus_to_plus_a_quarter_turn(axes):
    """Also with axes of a batch behind the first."""
    sizes = [size for size, _ in axes]
    rows = torch.tensor([row for _, row in axes])
    built = positions.fractions(rows, sizes)
    assert built.dtype == torch.float64
    for (size, row), found in zip(axes, built.tolist(), strict=True):
        assert found == pytest.approx([(2 * at / size - 1) * math.pi / 2 for at in row])
    assert torch.equal(positions.fractions(rows[:, None], sizes), built[:, None])


# Multimodal prompts

segments = st.lists(
    st.integers(0, 5)
    | st.tuples(st.integers(1, 3), st.integers(1, 4))
    | st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
    | st.tuples(
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(1, 5) | st.sampled_from([0.5, 0.25, 1.5, 12.5]),  # exact in float32
    ),
    max_size=6,
)


def by_the_paper(parts: list, start: int) -> list[list[int]]:
    """2409.12191, section 2.1, token by token."""
    tokens, here = [], start
    for part in parts:
        if isinstance(part, int):
            new = [[here + i] * 3 for i in range(part)]
        else:
            frames, height, width, step = {2: (1, *part, 1), 3: (*part, 1), 4: part}[len(part)]
            new = [
                [here + math.floor(step * t), here + h, here + w]
                for t in range(frames)
                for h in range(height)
                for w in range(width)
            ]
        tokens += new
        here = max([here - 1, *(place for token in new for place in token)]) + 1
    return tokens


@given(segments, st.integers(0, 99))
def test_each_segment_begins_one_behind_the_greatest_position_so_far(parts, start):
    built = positions.multimodal(parts, start=start)
    assert built.shape[0] == 3
    assert built.dtype == torch.int64
    assert built.T.tolist() == by_the_paper(parts, start)


def of_transformers(family: str, parts: list, merge: int = 2) -> Tensor:
    """get_rope_index, driven without a model: it reads one number of the configuration."""
    module = pytest.importorskip(
        f"transformers.models.{family}.modeling_{family}", reason=NEEDS_TRANSFORMERS
    )
    model = {"qwen2_vl": "Qwen2VLModel", "qwen2_5_vl": "Qwen2_5_VLModel"}[family]
    functions = getattr(module, model)
    driven = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=merge)),
        get_vision_position_ids=lambda *a, **k: functions.get_vision_position_ids(None, *a, **k),
    )
    kinds, images, videos = [], [], []
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
            continue
        frames, height, width = (1, *part) if len(part) == 2 else part
        kinds += [len(part) - 1] * (frames * height * width)
        (images if len(part) == 2 else videos).append([frames, merge * height, merge * width])
    found, _ = functions.get_rope_index(
        driven,
        torch.zeros(1, len(kinds), dtype=torch.int64),
        torch.tensor([kinds]),
        torch.tensor(images) if images else None,
        torch.tensor(videos) if videos else None,
    )
    return found[:, 0]


@pytest.mark.parametrize(
    "parts",
    [
        [7],
        [3, (2, 3), 4],
        [(4, 2), 1, (1, 1), 5, (3, 5)],
        [2, (2, 4, 3), 3],
        [1, (3, 3, 3), 2, (2, 2), 2, (2, 5, 1), 6],
    ],
)
def test_multimodal_positions_are_those_of_qwen2_vl(parts):
    """Where no video has more frames than rows and columns. With more, transformers 5.23 goes on
    from the greater of rows and columns, so that the text behind the video stands among its frames;
    the paper, and transformers up to 4.57, go on behind the greatest position of all.
    """
    assert torch.equal(positions.multimodal(parts), of_transformers("qwen2_vl", parts))


@pytest.mark.parametrize("step", [25, 0.5, 2.1, 0.3, 12.5])
def test_frames_may_stand_apart_as_in_qwen2_5_vl(step):
    module = pytest.importorskip(
        "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl", reason=NEEDS_TRANSFORMERS
    )
    theirs = module.Qwen2_5_VLModel.get_vision_position_ids(
        None, 5, torch.tensor([11, 4, 6]), 1, 2, time_interval=step
    )
    assert torch.equal(positions.multimodal([(11, 2, 3, step)], start=5), theirs)


# Shards of a sequence


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.integers(1, 6), st.integers(0, 5))
def test_the_ranks_hold_every_position_once_and_equally_many(scheme, world, share):
    length = 2 * world * share
    shards = [positions.context_parallel(length, r, world, scheme) for r in range(world)]
    assert [len(shard) for shard in shards] == [2 * share] * world
    assert sorted(torch.cat(shards).tolist()) == list(range(length))
    for shard in shards:
        assert shard.dtype == torch.int64
        assert shard.tolist() == sorted(shard.tolist())


def test_shards_of_eight_tokens_on_two_ranks():
    def shards(scheme):
        return [positions.context_parallel(8, r, 2, scheme).tolist() for r in range(2)]

    assert shards("contiguous") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert shards("zigzag") == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert shards("round-robin") == [[0, 2, 4, 6], [1, 3, 5, 7]]


# Mistakes


def sharded(length, rank=0, world=2, scheme="zigzag"):
    return lambda: positions.context_parallel(length, rank, world, scheme)


def made(build, *arguments, **others):
    return lambda: build(*arguments, **others)


def test_a_mistake_is_named():
    offset, packed, padded = positions.offset, positions.packed, positions.left_padded
    grid, video, multimodal = positions.grid, positions.video, positions.multimodal
    starts, count = torch.zeros(9, dtype=torch.int64), "must give at most 2^31 posit"
    check_refused(
        ValueError,
        (made(packed, []), "cu_seqlens must be a one-dimensional tensor or list"),
        (made(packed, torch.tensor(3)), "cu_seqlens must be a one-dimensional"),
        (made(packed, [[0, 4]]), "integers, cumulative lengths"),
        (made(packed, [1, 4]), "begin at 0 and never decrease, got [1, 4]"),
        (made(packed, [1] * 999), "that begin at 0 and never decrease, got [1, 1"),
        (made(packed, [0, 4, 3]), "never decrease, got [0, 4, 3]"),
        (made(packed, [0, 2.5]), "never decrease, got [0.0, 2.5]"),
        (made(packed, [0, 2**60]), f"cu_seqlens {count}ions, got 1152921504606846976"),
        (made(padded, torch.ones(4)), "padding only on the left, got shape (4,)"),
        (made(padded, torch.tensor([[1, 1, 0]])), "on the left, got padding after a real token"),
        (made(offset, 0, -1), "length must be at least 0, got -1"),
        (made(offset, torch.tensor(3), 2), "must be an int or integers (B,), got tensor(3)"),
        (made(offset, torch.tensor([3.0]), 2), "an int or integers (B,), got tensor([3.])"),
        (made(offset, 2**62, 2**62), f"length {count}"),
        (made(offset, 2**63 - 2, 4), "start must be at most 2^62, got 9"),
        (made(offset, starts, 2**30), f"length {count}ions, got 1073741824"),
        (made(grid, 2**40, 2**40), f"the product of sizes {count}ions, got (1099511627776, 10"),
        (made(grid, 0, 3), "height must be at least 1, got 0"),
        (made(video, 2**30, 2, 2), count),
        (made(video, 0, 1, 1), "frames must be at least 1, got 0"),
        (made(positions.coordinates, 2**40, 2), count),
        (made(positions.coordinates, 3, 0), "width must be at least 1, got 0"),
        (made(positions.resized, 2, 2, base=(2, 2), start=-1), "start must be at least 0, got -1"),
        (made(positions.resized, 2, 2, base=(2, 2), start=2**62), "start must be at most 2^31"),
        (made(multimodal, [2**40]), f"segments {count}ions, got [1099511627776]"),
        (made(multimodal, [2**30] * 3), f"segments {count}"),
        (made(multimodal, [(2**20, 2**20)]), count),
        (made(multimodal, [(2, 2, 2, 2**62)]), "step must be at most 2^31"),
        (made(multimodal, [3], start=2**63 - 1), "start must be at most"),
        (made(multimodal, [-1]), "each text segment must be at least 0"),
        (made(multimodal, [2.5]), "(H, W), (T, H, W) or (T, H, W, step), got 2.5"),
        (made(multimodal, [(1,)]), "each segment must be an int of text to"),
        (made(multimodal, [(1, 2, 2, 0)]), "step must be finite and above 0, got 0"),
        (made(multimodal, [(1, 2, 2, math.nan)]), "step must be finite and above 0, got nan"),
        (made(grid, 4, 6, merge=0), "merge must be at least 1, got 0"),
        (made(grid, 4, 6, merge=3), "height and width must be multiples of merge=3, got 4 and 6"),
        (made(multimodal, [(2, 0)]), "width must be at least 1, got 0"),
        (sharded(8, rank=2), "rank must be below world=2, got 2"),
        (sharded(8, rank=-1), "rank must be at least"),
        (sharded(8, world=0), "world must be at least"),
        (sharded(-4), "length must be at least 0, got -4"),
        (sharded(2**50), f"length {count}ions, got 1125899906842624"),
        (sharded(6), "length must be a multiple of 4 for zigzag, got 6"),
        (sharded(7, scheme="round-robin"), "must be a multiple of 2 for round-robin, got 7"),
        (sharded(7, scheme="striped"), '"zigzag" or "round-robin", got \'striped\''),
    )
    integers = "cu_seqlens must be an integer tensor or a l"
    check_refused(
        TypeError,
        (made(packed, None), f"{integers}ist of ints below 2^63, got None"),
        (made(packed, "abc"), integers),
        (made(packed, [0, 2**70]), "list of ints below 2^63, got [0, 118"),
        (made(multimodal, None), "segments must be a list of ints (text)"),
        (made(multimodal, "abc"), "segments must be a list of ints (text)"),
        (made(multimodal, [True]), "each text segment must be an int, got T"),
        (made(padded, [[0, 1]]), "mask must be a tensor of 0 and 1, or of False and True, got [["),
        (made(padded, torch.tensor([[0, 2]])), "mask must be a tensor of 0 and 1, or of False and"),
        (made(grid, 3, 2.0), "width must be an int, got 2.0 of type float"),
    )


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_positions_of_images_and_text(frames, height, width, text):
    """Text counts on the axes that it is said to; an image starts where it is said to."""
    plain = positions.video(frames, height, width)
    moved = positions.video(frames, height, width, start=(text, -2, 0))
    assert torch.equal(moved - plain, torch.tensor([[text], [-2], [0]]).expand_as(plain))
    middle = positions.video(frames, height, width, centered=True)
    assert torch.equal(middle[0], plain[0])
    assert middle[1].max() == height // 2 - 1
    assert middle[2].min() == -(width - width // 2)
    slow = positions.video(frames, height, width, fps=23.976)
    apart = torch.tensor([[24 / 23.976], [1.0], [1.0]], dtype=torch.float64)
    assert slow.dtype == torch.float64
    assert torch.equal(slow, plain * apart)
    words = positions.text(text, along=(0, 2), start=4)
    assert torch.equal(words, torch.arange(4, 4 + text) * torch.tensor([[1], [0], [1]]))
    assert positions.text(text, 1).tolist() == [[0] * text]
    assert positions.text(text, 2, along=(0, 1)).tolist() == [[*range(text)]] * 2


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.integers(1, 50))
def test_an_image_lies_in_the_middle_of_the_trained_grid(height, width, rows, columns):
    """`get_resize_crop_region_for_grid` of diffusers, and its steps."""
    if height / width > rows / columns:
        extents = rows, round(rows / height * width)
    else:
        extents = round(columns / width * height), columns
    inside = positions.crop(height, width, base=(rows, columns))
    moving = positions.crop(height, width, base=(rows, columns), frames=2)
    assert moving[0].tolist() == [0.0] * height * width + [1.0] * height * width
    assert torch.equal(moving[1:], inside.repeat(1, 2))
    lattice = inside.view(2, height, width)
    sides = zip((height, width), (rows, columns), extents, strict=True)
    for axis, (count, room, extent) in enumerate(sides):
        first = round((room - extent) / 2)
        expected = torch.linspace(first, (first + extent) * (count - 1) / count, count).double()
        ours = lattice[axis].T if axis else lattice[axis]
        assert (ours - expected[:, None]).abs().max() < 1e-4


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.integers(0, 2),
)
def test_patches_are_resized_to_the_trained_grid(height, width, base, start):
    """`_get_positional_embeddings` of CogView4 rounds; timm does not, and may begin at 1."""
    grid = [(row + start, column + start) for row in range(height) for column in range(width)]
    ours = positions.resized(height, width, base=base, start=start)
    exact = positions.resized(height, width, base=base, start=start, rounded=False)
    assert ours.dtype == torch.int64
    assert exact.dtype == torch.float64
    for axis, count in enumerate((height, width)):
        assert ours[axis].tolist() == [place[axis] * base[axis] // count for place in grid]
        assert exact[axis].tolist() == [place[axis] * base[axis] / count for place in grid]
    from_zero = positions.resized(height, width, base=base)
    assert torch.equal(from_zero, positions.resized(height, width, base=base, start=0))


@given(st.integers(1, 3), st.lists(st.floats(0.1, 1e4), min_size=1, max_size=4))
def test_fractions_of_the_trained_sizes(axes, along):
    sizes = tuple(1000.0 / 3 ** (axis + 1) for axis in range(axes))
    ours = positions.fractions(torch.tensor([along] * axes, dtype=torch.float64), sizes)
    for row, size in zip(ours.tolist(), sizes, strict=True):
        assert row == pytest.approx([(2 * x / size - 1) * math.pi / 2 for x in along], rel=1e-14)
    on_meta = positions.fractions(torch.ones(axes, 2, 3, device="meta"), sizes)
    assert (on_meta.device.type, on_meta.shape) == ("meta", (axes, 2, 3))


def test_positions_follow_their_tensors_and_are_int64():
    starts = torch.tensor([3, 4], dtype=torch.int32)
    assert positions.offset(starts.to("meta"), 5).device.type == "meta"
    assert positions.offset(starts, 5).dtype == torch.int64
    assert positions.packed([0]).tolist() == []
    assert positions.packed(torch.tensor([0, 2, 5], dtype=torch.uint8)).tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: positions.video(2, 2, 2, fps=0), "^fps must be finite and above 0, got 0"),
        (lambda: positions.video(2, 2, 2, fps=1e-320), "^fps must lie between 1e-18 and 1e18"),
        (lambda: positions.video(2, 2, 2, fps=1.0, base_fps=0.0), "^base_fps must be finite"),
        (lambda: positions.video(2, 2, 2, start=(1, 2)), "start must be three integers"),
        (lambda: positions.video(1, 1, 1, start=(0, 2**62 + 1, 0)), "^the row of start must be at"),
        (lambda: positions.video(1, 1, 1, start=(0, 0, -(2**62) - 1)), "^the column of start must"),
        (lambda: positions.offset(2**62 + 1, 1), r"^start must be at most 2\^62"),
        (lambda: positions.offset(0, 2**31 + 1), "^length must give at .* got 2147483649"),
        (lambda: positions.text(3, 2, along=(2,)), r"along must be axes in 0\.\.1"),
        (lambda: positions.text(3, 2, along=2), r"along must be axes in 0\.\.1"),
        (lambda: positions.text(-1), "^length must be at least 0"),
        (lambda: positions.text(3, 0), "^axes must be at least 1"),
        (lambda: positions.text(3, start=-(2**62) - 1), "^start must be at least -"),
        (lambda: positions.text(2**30), "^length must give at most .* got 1073741824"),
        (lambda: positions.packed([0, 1, 2**32]), "^cu_seqlens must give at most"),
        (lambda: positions.packed(torch.tensor([0, 5, 3], dtype=torch.uint8)), "never decrease"),
        (lambda: positions.packed(torch.tensor([], dtype=torch.int64)), "begin at 0"),
        (
            lambda: positions.crop(2, 2, base=(2**31 + 1, 3)),
            "^the height of base must give at .* got 2147483649",
        ),
        (lambda: positions.resized(2, 2, base=(3, 3), start=2**31 + 1), r"^start must be at most"),
        (lambda: positions.multimodal([3], start=2**62 + 1), r"^start must be at most 2\^62"),
        (lambda: positions.multimodal([3], start=-1), "^start must be at least 0"),
        (lambda: positions.crop(2, 2, base=(30,)), "base must be a height and a width"),
        (lambda: positions.resized(2, 2, base=(0, 3)), "height of base must be at least 1"),
        (lambda: positions.fractions(torch.ones(2, 3), (1.0,)), r"be \(1, S\).* got \(2, 3\)$"),
        (
            lambda: positions.fractions([[1, 2]], (1.0,)),
            r"coordinates must be .* got \[\[1, 2\]\]$",
        ),
        (lambda: positions.fractions(torch.ones(1, 3), (0.0,)), r"sizes\[0\] must be finite"),
    ],
)
def test_bad_positions(call, says):
    """A refusal names the argument, the rule and the value."""
    with pytest.raises(ValueError, match=says):
        call()


def test_steps_and_starts_may_be_as_large_as_the_borders():
    most = 2**31
    assert positions.multimodal([(2, 1, 1, most)])[0].tolist() == [0, most]
    assert positions.resized(1, 1, base=(1, 1), start=most).tolist() == [[most], [most]]


def test_starts_may_be_as_far_as_two_to_the_62():
    for far in (2**62, -(2**62)):
        assert positions.offset(far, 1).tolist() == [far]
        assert positions.text(1, 1, along=(0,), start=far).tolist() == [[far]]
        assert positions.video(1, 1, 1, start=(far, far, far)).tolist() == [[far]] * 3
    assert positions.multimodal([1], start=2**62).tolist() == [[2**62]] * 3
    check_refused(
        TypeError,
        (lambda: positions.offset(1.5, 3), "start must be an int, got 1.5"),
        (lambda: positions.text(3, start=1.5), "start must be an int, got 1.5"),
        (lambda: positions.text(3.0), "length must be an int, got 3.0"),
        (lambda: positions.text(3, 2.0), "axes must be an int, got 2.0"),
        (lambda: positions.video(1, 1, 1, centered=1), "centered must be True or False, got 1"),
        (lambda: positions.video(1, 1, 1, start=(0.5, 0, 0)), "the frame of start must be an int"),
        (lambda: positions.resized(2, 2, base=(3, 3), rounded=1), "rounded must be True or False"),
        (lambda: positions.resized(2, 2, base=(3, 3), start=1.0), "start must be an int, got 1.0"),
        (lambda: positions.crop(2, 2, base=(3.0, 3)), "the height of base must be an int, got 3."),
        (lambda: positions.crop(2, 2, base=(3, 3.0)), "the width of base must be an int, got 3.0"),
        (lambda: positions.fractions(torch.ones(1, 2), 5), "sizes must be a list of a number for"),
    )
