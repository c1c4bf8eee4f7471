"""The report in a real browser: Chromium, driven by Playwright. Skipped where either is missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deformrs import DCT, Compose, Deformation, Gaussian, Independent, NoiseLaw, Rotation, Uniform
from deformrs import Scaling as Zoom
from deformrs.report.document import write_report
from made_runs import Entry, stored

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

ENTRIES = [Entry(3, 3, 900), Entry(1, 1, 990), Entry(2, 2, 999), Entry(4, 4, 520), Entry(5, 6, 980)]
NAMES = [f"class <b>{k}</b>" for k in range(10)]
CASES: dict[str, tuple[Deformation, NoiseLaw]] = {
    "rotation": (Rotation(), Uniform(1.0)),
    "dct": (DCT(2), Gaussian(0.2)),
    "composition": (Compose(Rotation(), Zoom()), Independent(Gaussian(0.5), Gaussian(0.2))),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pixels = np.linspace(0, 1, 28 * 28, dtype=np.float32).reshape(1, 28, 28)
    made = {}
    for name, (deformation, law) in CASES.items():
        out = tmp_path_factory.mktemp(name)
        run = stored(out / "run", ENTRIES, deformation, law, names=NAMES)
        made[name] = write_report([run], out, images=lambda *_: pixels)["report.html"]
    return made


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails its test at any error, and at any request besides the file."""
    found = browser.new_page(viewport={"width": 900, "height": 900})
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)

    def note(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            faults.append(request.url)

    found.on("request", note)
    yield found
    found.close()
    assert not faults


def opened(page: Any, report: Path) -> Any:
    """Open the report and its first card; return the dialog."""
    page.goto(report.as_uri())
    page.click("[data-card] >> nth=0")
    page.wait_for_selector("dialog canvas")
    return page.locator("dialog")


def pixels_of(page: Any) -> list[int]:
    code = "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    found = page.locator("dialog canvas").evaluate(code)
    assert isinstance(found, list)
    return found


def slide(page: Any, place: int, value: float) -> None:
    code = "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }"
    page.locator("dialog input[type=range]").nth(place).evaluate(code, value)


def test_a_slider_turns_the_image_and_tells_where_the_certificate_ends(
    page: Any, reports: dict[str, Path]
) -> None:
    dialog = opened(page, reports["rotation"])
    before = pixels_of(page)
    assert "holds here" in dialog.locator(".cover").inner_text()
    slide(page, 0, 1.0)
    assert pixels_of(page) != before
    assert "class <b>3</b> holds here" in dialog.locator(".cover").inner_text()
    arc, hand = dialog.locator(".set .arc"), dialog.locator(".set .hand")
    assert re.fullmatch(r"M-[\d.]+ -[\d.]+A40 40 0 0 1 [\d.]+ -[\d.]+", arc.get_attribute("d"))
    assert hand.get_attribute("transform") == "rotate(-1)", "as the image turns"
    slide(page, 0, 120)
    assert dialog.locator(".cover").inner_text() == "Not certified here."
    assert dialog.locator(".gauge").get_attribute("aria-valuetext") == "not certified"
    dialog.get_by_text("Back to the original").click()
    assert pixels_of(page) == before


def test_keys_move_a_slider_and_not_to_the_next_image(page: Any, reports: dict[str, Path]) -> None:
    dialog = opened(page, reports["rotation"])
    slider = dialog.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert float(slider.input_value()) > 0
    assert dialog.locator(".place").inner_text() == "1 of 5"
    dialog.get_by_role("button", name="Next").focus()
    page.keyboard.press("ArrowRight")
    assert dialog.locator(".place").inner_text() == "2 of 5"


def test_dragging_turns_and_the_wheel_scales(page: Any, reports: dict[str, Path]) -> None:
    dialog = opened(page, reports["composition"])
    box = dialog.locator("canvas").bounding_box()
    centre = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(centre[0] + 100, centre[1])
    page.mouse.down()
    page.mouse.move(centre[0] + 80, centre[1] + 80, steps=8)
    page.mouse.up()
    page.mouse.wheel(0, -100)
    angle, scale = (float(s.input_value()) for s in dialog.locator("input[type=range]").all())
    assert angle == pytest.approx(-45, abs=2), "the image follows the pointer"
    assert scale == -3


def test_many_parameters_have_one_strength_and_many_directions(
    page: Any, reports: dict[str, Path]
) -> None:
    dialog = opened(page, reports["dct"])
    assert dialog.locator("input[type=range]").count() == 1
    slide(page, 0, 0.3)
    first = pixels_of(page)
    dialog.get_by_text("Another direction").click()
    assert pixels_of(page) != first
    dialog.locator("input[type=checkbox]").check()
    assert dialog.locator(".field line").count() > 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, reports: dict[str, Path], scheme: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 720}, color_scheme=scheme)
    dialog = opened(page, reports["composition"])
    assert dialog.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()
