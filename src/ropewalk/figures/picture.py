"""A picture in two schemes, light and dark, with its numbers and an alternative text."""

from __future__ import annotations

import base64
import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.checks import check_int, shown
from ropewalk.figures.drawing import DARK, LIGHT, NARROW, Scheme
from ropewalk.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# matplotlib's settings are global, so one picture at a time is drawn.
_DRAWING = threading.Lock()

# Pages state their scheme by one of these selectors. It takes precedence over the reader's setting.
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

    The functions of `ropewalk.figures` return pictures. With the same version of matplotlib,
    the same numbers always give the same bytes. In an SVG, words stay text.

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

    def figure(self, *, dark: bool = False, narrow: bool = False) -> Figure:
        """Return a new matplotlib figure, to change it before it is saved.

        narrow: for phones; panels are below each other.
        """
        with _settings():
            return self._draw(_scheme(dark, narrow))

    def svg(self, *, dark: bool = False, narrow: bool = False) -> bytes:
        """Return an SVG file; the alternative text is its description."""
        return self._file("svg", _scheme(dark, narrow))

    def png(self, *, dark: bool = False, dpi: int = 150, colors: int | None = None) -> bytes:
        """Return a PNG file with `dpi` pixels per inch.

        colors: the number of colors to keep, 2 to 256, for a smaller file.
        """
        check_int("dpi", dpi, 1)
        if colors is None:
            return self._file("png", _scheme(dark), dpi)
        check_int("colors", colors, 2)
        if colors > 256:
            raise ValueError(f"colors must be at most 256, got {colors}")
        return _with_colors(self._file("png", _scheme(dark), dpi, compress_level=0), colors)

    def both(self, stem: str, form: str = "svg", *, narrow: bool = False) -> dict[str, bytes]:
        """Return small files of both schemes by name, `stem-light.svg` and `stem-dark.svg`.

        form: "svg" or "png".
        narrow: adds SVG files for phones, `stem-narrow-light.svg` and `stem-narrow-dark.svg`.
        """
        if form not in ("svg", "png"):
            raise ValueError(f"form must be 'svg' or 'png', got {shown(form)}")
        files = {}
        for name, dark in (("light", False), ("dark", True)):
            files[f"{stem}-{name}.{form}"] = (
                self.svg(dark=dark) if form == "svg" else self.png(dark=dark, dpi=120, colors=128)
            )
            if narrow:
                files[f"{stem}-narrow-{name}.svg"] = self.svg(dark=dark, narrow=True)
        return files

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> None:
        """Write the file completely or not at all; its name ends with .svg or .png.

        Raises ValueError if it ends otherwise.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise ValueError(f"path must end with .svg or .png, got {shown(str(path))}")
        write_bytes(path, self._file(path.suffix[1:], _scheme(dark)))

    def _file(self, form: str, scheme: Scheme, dpi: int = 150, **compression: int) -> bytes:
        file = io.BytesIO()
        # matplotlib writes its version and the date unless these are None.
        own = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[form]
        facts = {"Title": self.alt.partition(". ")[0], "Description": self.alt, **own}
        with _settings():
            figure = self._draw(scheme)
            options: dict[str, Any] = {"pil_kwargs": compression} if compression else {}
            figure.savefig(file, format=form, dpi=dpi, metadata=facts, **options)
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


def _scheme(dark: bool, narrow: bool = False) -> Scheme:
    scheme = DARK if dark else LIGHT
    return replace(scheme, widest=NARROW) if narrow else scheme


def picture_html(stem: str, form: str, alt: str, *, narrow: bool = False) -> str:
    """Return the HTML of a picture in a Markdown page: of the files of `Picture.both`, the one for
    the reader's scheme, and with `narrow` for the width of the screen.
    """
    phone = "(max-width: 600px)"
    sources = f"""
  <source media="{phone} and (prefers-color-scheme: dark)" srcset="{stem}-narrow-dark.svg">
  <source media="{phone}" srcset="{stem}-narrow-light.svg">"""
    return f"""<picture>{sources if narrow else ""}
  <source media="(prefers-color-scheme: dark)" srcset="{stem}-dark.{form}">
  <img alt="{escape(alt)}" src="{stem}-light.{form}">
</picture>"""


@contextmanager
def _settings() -> Iterator[None]:
    """Use matplotlib's defaults with ropewalk's settings, not those of the user or the notebook."""
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


def _with_colors(png: bytes, colors: int) -> bytes:
    """Return the PNG file with a palette of `colors` colors, and the same title and description."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    image = Image.open(io.BytesIO(png))
    facts = PngInfo()
    for name, text in image.info.items():
        if isinstance(name, str) and isinstance(text, str):
            facts.add_itxt(name, text)
    whole = image.convert("RGB")
    # The method that keeps colors of few pixels, such as a thin line's.
    few = whole.quantize(colors, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette, place = bytearray(few.getpalette() or ()), 3 * few.tobytes()[0]
    palette[place : place + 3] = whole.tobytes()[:3]  # exactly the page's color, at the corner
    few.putpalette(palette)
    file = io.BytesIO()
    few.save(file, "PNG", optimize=True, pnginfo=facts)
    return file.getvalue()
