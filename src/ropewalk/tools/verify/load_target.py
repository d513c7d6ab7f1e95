"""Load what a user names to verify: a function, in bounded time, or a model from a folder.

A model has safetensors only, and its folder's code runs only if that is allowed.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from ropewalk.checks import ArgumentNeededError, did_you_mean, shown
from ropewalk.files import shown_path
from ropewalk.rotary.model_spec import ModelSpec

GRACE = 5.0  # seconds after the limit until the process ends, if compiled code never returns


class TimeIsUp(BaseException):
    """The user's code took too long. Not an Exception, so that no code of the user catches it."""


def load_target(name: str) -> Callable[..., Any]:
    """Import `module:function`; the function may be an attribute, as in `module:Class.method`.

    Modules in the working directory can be imported. The module's code is executed. Raises
    ValueError if the name has another form, or nothing callable is there, or the module raises.
    """
    module_name, colon, path = name.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"TARGET must be module:function, as in my_model:apply_rope, got {shown(name)}"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        target: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"TARGET must name a module that can be imported from {shown(here)}, got "
                f"{shown(module_name)}"
            ) from None
        raise ValueError(f"TARGET's module {shown(module_name)} raised: {error}") from error
    except (Exception, SystemExit) as error:
        says = f"{type(error).__name__}: {shown(str(error), 160)}"
        raise ValueError(f"TARGET's module {shown(module_name)} raised {says}") from error
    for part in path.split("."):
        if not hasattr(target, part):
            hint = did_you_mean(part, dir(target))
            raise ValueError(f"{shown(module_name)} has no {shown(part)}{hint}")
        target = getattr(target, part)
    if isinstance(target, type):
        try:
            target = target()
        except Exception as error:
            raise ValueError(
                f"TARGET must be a function, or a class that needs no arguments, got "
                f"{shown(name)}: {shown(str(error), 160)}; write a function that makes and calls it"
            ) from error
    if not callable(target):
        raise ValueError(f"TARGET must be callable, {shown(name)} is {shown(target)}")
    return target  # type: ignore[no-any-return]


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Run the user's code: its prints go to standard error, and it ends after a time limit.

    Raises ValueError when the time is up. If compiled code does not return even then, the process
    exits with status 2. Outside the main thread, and on systems without timers, there is no limit.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer"):
        with _to_standard_error():
            yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    said = f"TARGET must answer within {seconds:g} seconds, and it did not"
    last = threading.Timer(seconds + GRACE, _end, (said,))
    last.daemon = True
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last.start()
    try:
        with _to_standard_error():
            yield
    except TimeIsUp:
        raise ValueError(said) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()


@contextmanager
def _to_standard_error() -> Iterator[None]:
    """Send what the user's code prints to standard error, also from C and from its children."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _end(said: str) -> None:
    print(f"ropewalk: {said}", file=sys.stderr, flush=True)
    os._exit(2)


def load_model(
    path: str | PathLike[str],
    *,
    meta: bool = False,
    trust_remote_code: bool = False,
    dtype: torch.dtype = torch.float32,
    needs_rope: bool = True,
) -> nn.Module:
    """Return the transformers model in a folder, in eval mode.

    meta: build it on the meta device, allocate it by `to_empty` and load the weights, as serving
        engines do. What the checkpoint does not contain then stays unset, here NaN.
    trust_remote_code: run the model code that the folder brings along.
    needs_rope: refuse a model without a rope that is known.
    dtype: of the weights. Frequencies stay as the model's code builds them, mostly in float32;
        `model.to(dtype)` would round them too. Only float32 with `meta`.

    Raises ValueError if the folder has no config.json or no safetensors, or if the model cannot be
    built. Raises ImportError if transformers is missing. Nothing is downloaded or unpickled.

    Example:
        >>> from ropewalk import tools
        >>> tools.load_model("no-such-folder")
        Traceback (most recent call last):
        ValueError: model must be a folder with config.json, got no-such-folder
    """
    if meta and dtype != torch.float32:
        raise ValueError(f"dtype must be torch.float32 with meta=True, got {dtype}")
    folder = Path(path)
    check_folder(folder)
    if not trust_remote_code:
        try:
            ModelSpec.from_config(folder)  # bounds sizes too
        except ArgumentNeededError:
            if needs_rope:
                raise
    transformers = import_transformers()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    with errors_of(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **local)
        if meta:
            return _through_meta(transformers, folder, config, trust_remote_code)
        model = class_of(transformers, config).from_pretrained(
            folder, config=config, use_safetensors=True, dtype=dtype, **local
        )
    return model.eval()  # type: ignore[no-any-return]


def check_folder(folder: Path) -> None:
    """Raise ValueError if a folder has no config.json, or no weights as safetensors."""
    if not folder.is_dir():
        raise ValueError(f"model must be a folder with config.json, got {shown_path(folder)}")
    if not (folder / "config.json").is_file():
        raise ValueError(f"model must have a config.json in its folder, got {shown_path(folder)}")
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
        way = "nothing is unpickled; convert the weights to safetensors"
        instead = f"; {pickles[0]} is not read: {way}" if pickles else ""
        raise ValueError(f"model must have *.safetensors in {shown_path(folder)}{instead}")


def import_transformers() -> Any:
    """Return the module. Raises ImportError with the pip command if it is not installed."""
    try:
        import transformers
    except ImportError:
        raise ImportError(
            "transformers is needed to load a model: pip install transformers"
        ) from None
    return transformers


@contextmanager
def errors_of(folder: Path) -> Iterator[None]:
    """Turn errors of transformers and of the model's code into one line."""
    try:
        yield
    except Exception as error:
        says = shown(" ".join(str(error).split()), 240)
        raise ValueError(
            f"model in {shown_path(folder)} must load with transformers, got "
            f"{type(error).__name__}: {says}"
        ) from error


def class_of(transformers: Any, config: Any) -> Any:
    """Return the class that config.json names, so that names of weights fit, else AutoModel."""
    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, name, None) if isinstance(name, str) else None
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    remote = getattr(config, "auto_map", None) or {}
    causal = "AutoModelForCausalLM"
    return getattr(transformers, causal) if causal in remote else transformers.AutoModel


def _through_meta(transformers: Any, folder: Path, config: Any, remote: bool) -> nn.Module:
    from safetensors.torch import load_file

    cls = class_of(transformers, config)
    with torch.device("meta"):
        if hasattr(cls, "_from_config"):
            model = cls._from_config(config, dtype=torch.float32)
        else:
            model = cls.from_config(config, trust_remote_code=remote, dtype=torch.float32)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)
    for file in sorted(folder.glob("*.safetensors")):
        model.load_state_dict(load_file(file), strict=False)
    return model.eval()  # type: ignore[no-any-return]
