// Draws a chart for one view of it: pure SVG, no state.

const MARGIN = { left: 52, right: 14, top: 12, bottom: 44 };

/** Add an SVG element to `parent`. */
function svg(parent, name, attributes, text) {
  const element = parent.ownerDocument.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** Return the maps between radii and shares and the drawing's coordinates. */
function scalesFor(view, width, height) {
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const [x0, x1] = view.x;
  const [y0, y1] = view.y;
  return {
    inner,
    x: (value) => MARGIN.left + ((value - x0) / (x1 - x0)) * inner.width,
    y: (value) => MARGIN.top + (1 - (value - y0) / (y1 - y0)) * inner.height,
    radiusAt: (px) => x0 + ((px - MARGIN.left) / inner.width) * (x1 - x0),
    shareAt: (px) => y0 + (1 - (px - MARGIN.top) / inner.height) * (y1 - y0),
  };
}

/** Return a step curve as an SVG path: level up to each end, then down; no further than `until`. */
function stepPath(ends, shareOf, scales, until = null) {
  const point = (number) => number.toFixed(2);
  let path = `M${point(scales.x(0))} ${point(scales.y(ends.length ? shareOf(0) : 0))}`;
  for (let k = 0; k < ends.length; k++) {
    path += `H${point(scales.x(ends[k]))}`;
    if (ends[k] !== until) path += `V${point(scales.y(k + 1 < ends.length ? shareOf(k + 1) : 0))}`;
  }
  return `${path}H${until === null ? "1e5" : point(scales.x(until))}`;
}

/** Draw axes, grid and labels. */
function drawFrame(root, data, view, scales, width, height) {
  const bottom = height - MARGIN.bottom;
  const digits = Math.max(0, Math.ceil(-Math.log10((view.x[1] - view.x[0]) / 6)) + 1);
  for (const x of ticks(view.x[0], view.x[1], Math.max(3, width / 70))) {
    const px = scales.x(x);
    svg(root, "line", { class: "grid", x1: px, x2: px, y1: MARGIN.top, y2: bottom });
    const text = `${Number(x.toFixed(Math.min(12, digits)))}`;
    svg(root, "text", { class: "tick", x: px, y: bottom + 17, "text-anchor": "middle" }, text);
  }
  for (const y of ticks(view.y[0], view.y[1], 5)) {
    const py = scales.y(y);
    svg(root, "line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: py, y2: py });
    const attributes = { class: "tick", x: MARGIN.left - 8, y: py + 4, "text-anchor": "end" };
    svg(root, "text", attributes, `${Number(y.toFixed(2))} %`);
  }
  const middle = MARGIN.left + scales.inner.width / 2;
  svg(root, "text", { class: "axis", x: middle, y: height - 8, "text-anchor": "middle" }, data.axis);
  if (view.y[0] > 0) {
    // An axis that does not start at 0 says so, and looks broken.
    const x = MARGIN.left;
    svg(root, "path", { class: "break", d: `M${x - 5} ${bottom - 3}l10 -6M${x - 5} ${bottom - 9}l10 -6` });
    svg(root, "text", { class: "tick", x: x + 12, y: bottom - 6 }, `the axis starts at ${Number(view.y[0].toFixed(2))} %`);
  }
}

/** Draw the visible curves and points: the first runs on top, best and references behind. */
function drawCurves(root, series, scales) {
  const order = ["best", "reference", "run"];
  const behind = [...series].reverse().sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
  for (const one of behind.filter((each) => !each.hidden)) {
    if (one.kind === "reference") {
      const points = one.points.map((p) => [scales.x(p[0]), scales.y(p[1])]);
      // Where the points fall to 0, a line would suggest values that nobody reported.
      const positive = points.filter((p, k) => one.points[k][1] > 0);
      const path = "M" + positive.map((p) => p.map((v) => v.toFixed(2)).join(" ")).join("L");
      if (positive.length) svg(root, "path", { class: `guide ${one.colour}`, d: path });
      points.forEach(([x, y]) => {
        const d = `M${x} ${y - 5}l5 5l-5 5l-5-5z`;
        svg(root, "path", { class: `point ${one.colour}`, d });
      });
    } else {
      const d = stepPath(one.ends, (k) => one.share(k), scales, one.until);
      svg(root, "path", { class: `curve ${one.kind} ${one.colour} dash${one.dash}`, d });
    }
  }
}

/** Draw the cursor line, with a dot on each curve. */
function drawCursor(root, series, cursor, scales, height) {
  const x = scales.x(cursor);
  svg(root, "line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom });
  for (const one of series.filter((each) => !each.hidden && each.kind !== "reference" && !beyond(each, cursor))) {
    const place = placeAt(one.ends, cursor);
    const share = place < one.ends.length ? one.share(place) : 0;
    svg(root, "circle", { class: `dot ${one.colour}`, cx: x, cy: scales.y(share), r: 4 });
  }
}
