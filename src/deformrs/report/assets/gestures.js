// Pointer, wheel and keys on a chart.

/** Moving reads off; dragging zooms with a mouse, and reads off with a finger. */
function listenToPointer(chart) {
  const { root } = chart;
  root.addEventListener("pointerdown", (event) => {
    const place = chart.place(event);
    chart.point(chart.scales.radiusAt(place[0]));
    if (event.pointerType !== "touch" && event.button === 0) {
      chart.drag = { from: place, to: place };
      root.setPointerCapture(event.pointerId);
    }
  });
  root.addEventListener("pointermove", (event) => {
    chart.armed = true;
    const place = chart.place(event);
    if (chart.drag) chart.drag.to = place;
    chart.point(chart.scales.radiusAt(place[0]));
  });
  root.addEventListener("pointerup", () => {
    const drag = chart.drag;
    chart.drag = null;
    if (drag) select(chart, drag.from, drag.to);
  });
  root.addEventListener("pointercancel", () => {
    chart.drag = null;
    chart.draw();
  });
  root.addEventListener("dblclick", () => chart.reset());
  listenToWheel(chart);
}

/** The wheel zooms once the pointer has moved in the chart, so that scrolling past does not. */
function listenToWheel(chart) {
  const { root } = chart;
  root.addEventListener("pointerleave", () => (chart.armed = false));
  root.ownerDocument.addEventListener("scroll", () => (chart.armed = false), { passive: true });
  root.addEventListener(
    "wheel",
    (event) => {
      if (!chart.armed && !event.ctrlKey) return;
      const centre = chart.scales.radiusAt(chart.place(event)[0]);
      if (chart.zoom(event.deltaY > 0 ? 1.25 : 0.8, centre)) event.preventDefault();
    },
    { passive: false },
  );
}

/** Zoom to what was marked; its height counts only if it is clearly meant. */
function select(chart, from, to) {
  const { scales } = chart;
  if (Math.abs(from[0] - to[0]) > 6) {
    const xs = [from[0], to[0]].map((px) => scales.radiusAt(px)).sort((a, b) => a - b);
    const ys = [from[1], to[1]].map((px) => scales.shareAt(px)).sort((a, b) => a - b);
    const least = chart.data.largest / 2000;
    const low = Math.min(Math.max(0, xs[0]), chart.data.largest - least);
    const x = [low, Math.max(low + least, Math.min(chart.data.largest, xs[1]))];
    const tall = Math.abs(from[1] - to[1]) > 40;
    const y = tall ? [Math.max(0, ys[0]), Math.min(100, ys[1])] : chart.view.y;
    chart.view = { x, y: y[1] - y[0] > 0.5 ? y : chart.view.y };
  }
  chart.point(chart.cursor);
}

/** Arrows read off, plus and minus zoom, 0 or Escape resets the view. */
function listenToKeys(chart) {
  const stage = chart.root.parentElement;
  stage.addEventListener("keydown", (event) => {
    const width = chart.view.x[1] - chart.view.x[0];
    const step = (event.shiftKey ? 0.1 : 0.01) * width;
    const actions = {
      ArrowLeft: () => chart.point(chart.cursor - step),
      ArrowRight: () => chart.point(chart.cursor + step),
      Home: () => chart.point(chart.view.x[0]),
      End: () => chart.point(chart.view.x[1]),
      "+": () => chart.zoom(0.5, chart.cursor),
      "=": () => chart.zoom(0.5, chart.cursor),
      "-": () => chart.zoom(2, chart.cursor),
      0: () => chart.reset(),
      Escape: () => chart.reset(),
    };
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && Object.hasOwn(actions, event.key)) {
      event.preventDefault();
      actions[event.key]();
    }
  });
}
