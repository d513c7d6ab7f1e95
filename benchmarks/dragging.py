"""Does the explorer answer a drag within one frame? Work of the page for each move of each slider.

Every slider of every room is moved in a headless Chromium at 1,400 pixels. The work of a move is
its event, the drawing in the next animation frame, and the layout of the page after it; painting is
not included. The limit is a frame of a screen with 60 Hz.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from common import FOLDER, conditions, table
from playwright.sync_api import sync_playwright

from ropewalk.explorer.page_files import page_files
from ropewalk.explorer.questions import ANSWERS, about_runs
from ropewalk.explorer.server import listen, make_app
from ropewalk.files import write_json

FRAME_MS = 1000 / 60
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MOVES = 40

# Callbacks of animation frames run under a stopwatch, from before the page's own script on.
STOPWATCH = """
  const ask = window.requestAnimationFrame.bind(window);
  window.worked = 0;
  window.requestAnimationFrame = (draw) => ask((now) => {
    const began = performance.now();
    draw(now);
    document.body.getBoundingClientRect();
    window.worked += performance.now() - began;
    window.drawn = (window.drawn ?? 0) + 1;
  });
"""
MOVE = """async ([place, moves]) => {
  const slider = document.querySelectorAll("main input[type=range]")[place];
  if (!slider.checkVisibility()) return null;
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const times = [];
  for (let move = 0; move < moves; move += 1) {
    slider.value = String(low + ((high - low) * (move + 0.5)) / moves);
    window.worked = 0;
    const began = performance.now(), before = window.drawn ?? 0;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    const event = performance.now() - began;
    for (let waited = 0; (window.drawn ?? 0) === before && waited < 200; waited += 1)
      await new Promise((resolve) => setTimeout(resolve, 2));
    times.push(event + window.worked);
  }
  return [slider.getAttribute("aria-label").replace(", slider", ""), times];
}"""


@contextmanager
def served() -> Iterator[str]:
    """Yield the link of a running explorer."""
    with listen(None) as listening:
        app = make_app(page_files(), {**ANSWERS, **about_runs(None)}, "token")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token=token"
        server.should_exit = True
        thread.join()


def measure(page: Any, link: str, moves: int) -> list[dict[str, Any]]:
    """Return the work of each slider's moves in milliseconds."""
    page.goto(link)
    page.wait_for_selector("#rooms a")
    rooms = page.locator("#rooms a").evaluate_all("links => links.map((a) => a.hash)")
    rows = []
    for room in rooms:
        page.goto(f"{link.partition('?')[0]}{room}")
        page.wait_for_selector("main h1")
        page.wait_for_function("() => !document.querySelector('main [aria-busy=true]')")
        for place in range(page.locator("main input[type=range]").count()):
            found = page.evaluate(MOVE, [place, moves])
            if found is not None:
                rows.append({"room": room[1:], "slider": found[0], "work_ms": found[1]})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moves", type=int, default=MOVES)
    parser.add_argument("--smoke", action="store_true", help="three moves; numbers mean nothing")
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "dragging.json")
    options = parser.parse_args(arguments)
    results = conditions(1)
    with served() as link, sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script(STOPWATCH)
        rows = measure(page, link, 3 if options.smoke else options.moves)
        results |= {"chromium": browser.version, "frame_ms": FRAME_MS, "rows": rows}
        browser.close()
    cells = []
    for row in rows:
        work = sorted(row["work_ms"])
        late = work[int(0.95 * (len(work) - 1))]
        cells.append(
            [
                f"{row['room']}: {row['slider']}",
                f"{statistics.median(work):.1f}",
                f"{late:.1f}",
                f"{late / FRAME_MS:.2f}",
            ]
        )
    print(table(["room: slider", "median, ms", "95 %, ms", f"× frame ({FRAME_MS:.1f} ms)"], cells))
    write_json(options.out, results)


if __name__ == "__main__":
    main()
