"""User-defined encodings: files and modules that are imported, packages that offer entry points.

These fail if a file's encoding is not built by its name, if a broken file or plugin gives a
traceback, a message without its name, or a half-changed registry, if it replaces another encoding,
or if changed bytes are accepted in place of those that a run began with.
"""

import re
import sys

import pytest

from ropewalk.encodings import REGISTRY, Encoding, StackShape, build, import_encodings, outside
from ropewalk.lab.config_sources import make_config

STACK = StackShape(layers=1, heads=2, kv_heads=2, head_dim=4, width=8, causal=True)
GOOD = """from dataclasses import dataclass
from ropewalk.encodings import REGISTRY, Encoding

@dataclass
class Held:
    width: int

class Mine(Encoding):
    def __init__(self, shape, width=3):
        super().__init__()
        self.held = Held(width)

REGISTRY["mine"] = Mine
"""

SPEECHLESS = """class Speechless(ValueError):
    def __str__(self):
        raise SystemExit(4)

"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    known = dict(REGISTRY)
    monkeypatch.setattr(outside, "_imported", {})
    yield
    REGISTRY.clear()
    REGISTRY.update(known)


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def save(text, name="mine.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return save


def test_a_file_registers_by_its_whole_path(saved, tmp_path):
    found = import_encodings(saved(GOOD))
    assert found.source == str(tmp_path / "mine.py")
    assert build("mine(width=5)", STACK).held.width == 5
    assert import_encodings("mine.py") == found  # a second time changes nothing
    assert not list(tmp_path.glob("__pycache__"))


def test_an_installed_module_registers(saved, tmp_path, monkeypatch):
    saved(GOOD, "ropewalk_try_module.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert import_encodings("ropewalk_try_module").source == "ropewalk_try_module"
    assert isinstance(build("mine", STACK), Encoding)
    del sys.modules["ropewalk_try_module"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "can't be loaded, ZeroDivisionError: division by zero"),
        ("def", "can't be loaded, SyntaxError"),
        ("import nothing_of_that_name", "can't be loaded, ModuleNotFoundError"),
        ("raise SystemExit(3)", "can't be loaded, SystemExit: 3"),
        ("raise BaseException('x')", "can't be loaded, BaseException: x"),
        (SPEECHLESS + "raise Speechless", "can't be loaded, Speechless: its text can't be made"),
        (GOOD + "1 / 0", "ZeroDivisionError"),
        ("x = 1", "it registers no encoding"),
        (GOOD.replace('"mine"', '"rotary"'), "must not replace the encoding 'rotary'"),
        (GOOD.replace('"mine"', '"my own"'), "must be letters, digits and _, got 'my own'"),
        (GOOD.replace("= Mine", "= 3"), "REGISTRY['mine'] must be callable"),
    ],
)
def test_a_broken_file_is_one_line_and_leaves_nothing(saved, text, message):
    known = dict(REGISTRY)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        import_encodings(saved(text))
    assert "--import mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert known == REGISTRY


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.py", "none.py: no such file"),
        (".", "must be a FILE.py or an installed.module"),
        ("./", "a folder, not a regular file"),
        ("/dev/zero", "a device, not a regular file"),
        ("no_module_of_that_name", "no such module is installed"),
        ("no_module.of_that_name", "can't be loaded, ModuleNotFoundError"),
        ("sys", "it has no file"),
    ],
)
def test_what_is_no_file_is_refused(source, message, saved):
    with pytest.raises(ValueError, match=re.escape(message)):
        import_encodings(source)


BUILD = (
    SPEECHLESS
    + """from ropewalk.encodings import REGISTRY, Encoding

class Bare(Encoding):
    def __init__(self):
        pass

class Site(Encoding):
    def for_layer(self, layer):
        return {}[layer]

class NoSite(Encoding):
    def for_layer(self, layer):
        return None

def mine(shape):
    """
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "TypeError: callable(shape) must return an Encoding, got NoneType"),
        ("return object()", "must return an Encoding, got object"),
        ("return Bare()", "AttributeError"),
        ("return Site()", "KeyError: 0"),
        ("return NoSite()", "for_layer(0) must return an AttentionEncoding, got NoneType"),
        ("raise KeyError('width')", "KeyError: 'width'"),
        ("return shape.breadth", "AttributeError: 'StackShape' object has no attribute"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise Speechless", "Speechless: its text can't be made"),
    ],
)
def test_an_encoding_that_is_wrong_when_built_is_one_line(saved, body, message):
    import_encodings(saved(BUILD + body + "\n\nREGISTRY['mine'] = mine\n"))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        build("mine", STACK)
    assert "encoding 'mine' of --import mine.py can't be built" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=re.escape(message)):
        make_config(settings={"encodings": "mine"})


def test_ctrl_c_while_an_encoding_is_built_is_the_users_own(saved):
    import_encodings(saved(BUILD + "raise KeyboardInterrupt\n\nREGISTRY['mine'] = mine\n"))
    with pytest.raises(KeyboardInterrupt):
        build("mine", STACK)


def test_a_large_file_is_not_read(saved):
    with pytest.raises(ValueError, match="1,048,577 bytes, but at most 1,048,576 are allowed"):
        import_encodings(saved("#" * (outside.MOST + 1)))


def test_other_bytes_are_refused(saved):
    digest = import_encodings(saved(GOOD)).digest
    assert outside.import_error("elsewhere/mine.py", digest) is None
    outside._imported.clear()
    assert "name it with --import mine.py" in outside.import_error("mine.py", digest)
    saved(GOOD + "# changed")
    with pytest.raises(ValueError, match=re.escape("mine.py has changed since this run")):
        import_encodings("mine.py", digest)


# Entry points


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package which offers an encoding."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(text, package="try-plugin", value="ropewalk_try_plugin:Mine"):
        (tmp_path / "ropewalk_try_plugin.py").write_text(text, encoding="utf-8")
        folder = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[ropewalk.encodings]\nmine = {value}\n")

    yield install
    sys.modules.pop("ropewalk_try_plugin", None)


PLUGIN = GOOD.partition("REGISTRY[")[0]


def test_an_installed_package_is_asked_for_an_unknown_name_alone(installed):
    installed(PLUGIN)
    build("rotary", STACK)
    assert "ropewalk_try_plugin" not in sys.modules
    assert build("mine(width=4)", STACK).held.width == 4
    assert build("mine+rotary", STACK)


def test_what_is_installed_is_named_to_whoever_mistypes(installed):
    installed(PLUGIN)
    with pytest.raises(ValueError, match="did you mean 'mine'"):
        build("mnie", STACK)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("", "AttributeError"),
        ("Mine = 3", "must be callable(shape, **arguments), got int"),
    ],
)
def test_a_broken_plugin_is_named_in_one_line(installed, text, message):
    installed(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        build("mine", STACK)
    assert "encoding 'mine' of the installed package try-plugin" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_packages_with_one_name_are_both_named(installed):
    installed(PLUGIN)
    installed(PLUGIN, "other-plugin", "ropewalk_try_plugin:Held")
    with pytest.raises(ValueError, match=r"offered by package other-plugin .*try-plugin"):
        build("mine", STACK)
