"""A picture in two schemes, light and dark, with its numbers and an alternative text."""

from __future__ import annotations

import base64
import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.checks import check_int, shown
from ropewalk.figures.palette import DARK, LIGHT, Scheme
from ropewalk.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# matplotlib's settings are global, so one picture at a time is drawn.
_DRAWING = threading.Lock()

# Pages state their scheme in one of these ways, which count more than the reader's setting:
# JupyterLab, Material for MkDocs and Zensical, VS Code, Colab, pages made with Sphinx.
_LIGHT_HOSTS = (
    "[data-jp-theme-light=true]",
    "[data-md-color-scheme=default]",
    ".vscode-light",
    "[data-theme=light]",
)
_DARK_HOSTS = (
    "[data-jp-theme-light=false]",
    "[data-md-color-scheme=slate]",
    ".vscode-dark",
    "[theme=dark]",
    "[data-theme=dark]",
)
_SHOW = "{0} .ropewalk-{1}{{display:inline}}{0} .ropewalk-{2}{{display:none}}"
_STYLE = (
    ".ropewalk-picture img{max-width:100%;height:auto}.ropewalk-dark{display:none}"
    f"@media (prefers-color-scheme:dark){{{_SHOW.format('', 'dark', 'light')}}}"
    + _SHOW.format(f":is({','.join(_LIGHT_HOSTS)})", "light", "dark")
    + _SHOW.format(f":is({','.join(_DARK_HOSTS)})", "dark", "light")
)


class Picture:
    """A drawing that notebooks show, and that can be saved as SVG or PNG, light or dark.

    The functions of `ropewalk.figures` return pictures. The same numbers always give the same
    bytes. In an SVG, words stay words.

    draw: returns a new matplotlib figure in the colors of a scheme.
    alt: the alternative text, for readers who do not see the picture: what is drawn, with ranges.
    data: the numbers that are drawn, as lists by name.

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> frequencies = RotarySpec(head_dim=8).inverse_frequencies()
        >>> picture = figures.pair_planes(frequencies, positions=range(7))
        >>> picture.svg()[:5], picture.png(dark=True)[1:4]
        (b'<?xml', b'PNG')
        >>> picture.data["positions"]
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """

    def __init__(self, draw: Callable[[Scheme], Figure], alt: str, data: Mapping[str, Any]) -> None:
        self._draw = draw
        self.alt = alt
        self.data = dict(data)

    def figure(self, *, dark: bool = False) -> Figure:
        """Return a new matplotlib figure, to change it before it is saved."""
        with _settings():
            return self._draw(DARK if dark else LIGHT)

    def svg(self, *, dark: bool = False) -> bytes:
        """Return an SVG file; the alternative text is its description."""
        return self._file("svg", dark)

    def png(self, *, dark: bool = False, dpi: int = 150) -> bytes:
        """Return a PNG file with so many pixels per inch."""
        check_int("dpi", dpi, 1)
        return self._file("png", dark, dpi)

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> None:
        """Write the file completely or not at all; its name ends with .svg or .png.

        Raises ValueError if it ends otherwise.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise ValueError(f"path must end with .svg or .png, got {shown(str(path))}")
        write_bytes(path, self._file(path.suffix[1:], dark))

    def _file(self, form: str, dark: bool, dpi: int = 150) -> bytes:
        file = io.BytesIO()
        # matplotlib writes its version and the date unless these are None.
        own = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[form]
        facts = {"Title": self.alt.partition(". ")[0], "Description": self.alt, **own}
        with _settings():
            figure = self._draw(DARK if dark else LIGHT)
            figure.savefig(file, format=form, dpi=dpi, metadata=facts)
        content = file.getvalue()
        return _tidy(content) if form == "svg" else content

    def _repr_html_(self) -> str:
        """Return both schemes and a style that shows the one of the notebook or page."""
        shown_by = "".join(
            f'<img class="ropewalk-{name}" alt="" src="data:image/svg+xml;base64,'
            f'{base64.b64encode(self.svg(dark=name == "dark")).decode()}">'
            for name in ("light", "dark")
        )
        return (
            f'<style>{_STYLE}</style><div class="ropewalk-picture" role="img" '
            f'aria-label="{escape(self.alt)}">{shown_by}</div>'
        )

    def __repr__(self) -> str:
        return f"Picture({self.alt!r})"


@contextmanager
def _settings() -> Iterator[None]:
    """Set matplotlib's defaults, whatever the user or the notebook set, and those of this house."""
    from matplotlib import rc_context, rcdefaults

    with _DRAWING, rc_context():
        rcdefaults()
        from matplotlib import rcParams

        rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ropewalk", "font.size": 9})
        yield


def _tidy(svg: bytes) -> bytes:
    """Return the SVG as one image for screen readers, without spaces at the ends of lines."""
    lines = svg.decode("utf-8").replace("<svg ", '<svg role="img" ', 1).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines).encode("utf-8")
