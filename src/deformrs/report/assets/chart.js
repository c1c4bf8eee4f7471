// Charts that can be read off and zoomed, with mouse, touch or keyboard.

/** Return the curves of a chart with their legend entries, in the order of the legend. */
function seriesOf(data) {
  const colour = (k) => `c${k % 8}`;
  const runs = data.curves.map((curve, k) => ({
    ...curve,
    kind: "run",
    label: `${curve.name}: ${curve.noise}`,
    colour: colour(k),
    dash: Math.floor(k / 8) % 3,
    share: (place) => (100 * curve.counts[place]) / curve.total,
    read: (x) => {
      const count = countAt(curve, x);
      return count === null ? "not requested" : `${percentDown(count, curve.total)} % (${count}/${curve.total})`;
    },
  }));
  const best = data.best && {
    ...data.best,
    kind: "best",
    label: "best of these runs",
    colour: "neutral",
    dash: 0,
    share: (place) => (100 * data.best.counts[place]) / data.best.totals[place],
    read: (x) => {
      if (beyond(data.best, x)) return "not requested";
      const place = placeAt(data.best.ends, x);
      if (place === data.best.ends.length) return "0.0 %";
      const [count, total] = [data.best.counts[place], data.best.totals[place]];
      const run = data.curves[data.best.runs[place]].name;
      return `${percentDown(count, total)} % (${count}/${total}, ${run})`;
    },
  };
  const references = data.references.map((one) => ({
    ...one,
    kind: "reference",
    label: one.name,
    colour: "neutral",
    read: (x) => {
      const [radius, share] = nearestPoint(one.points, x);
      return `${share.toFixed(2)} % at ${radiusText(radius, data.decimals, data.sign)}`;
    },
  }));
  return [...runs, ...(best ? [best] : []), ...references];
}

class Chart {
  constructor(box, data) {
    this.box = box;
    this.data = data;
    this.root = box.querySelector("svg");
    this.series = seriesOf(data);
    this.cursor = data.cursor;
    this.drag = null;
    this.armed = false;
    this.full = { x: [0, data.largest], y: [0, 100] };
    this.view = { x: this.full.x, y: [data.start, 100] };
    this.makeLegend();
    this.listen();
    this.draw();
  }

  makeLegend() {
    const list = this.box.querySelector(".legend");
    for (const one of this.series) {
      const button = list.ownerDocument.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!one.hidden));
      for (const part of ["swatch", "label", "value"]) {
        const span = list.ownerDocument.createElement("span");
        span.className = part === "swatch" ? `swatch ${one.kind} ${one.colour}` : part;
        if (part === "label") span.textContent = one.label;
        if (part === "value") one.value = span;
        button.append(span);
      }
      button.addEventListener("click", () => {
        one.hidden = !one.hidden;
        button.setAttribute("aria-pressed", String(!one.hidden));
        this.draw();
      });
      list.append(button);
    }
  }

  size() {
    const width = Math.max(280, Math.round(this.root.parentElement.clientWidth || 640));
    return [width, Math.round(Math.min(440, Math.max(260, width * 0.6)))];
  }

  draw() {
    const [width, height] = this.size();
    const { root, view } = this;
    this.scales = scalesFor(view, width, height);
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const clip = svg(svg(root, "defs"), "clipPath", { id: `clip-${this.box.dataset.chart}` });
    const { inner } = this.scales;
    const area = { x: MARGIN.left, y: MARGIN.top - 3, width: inner.width, height: inner.height + 4 };
    svg(clip, "rect", area);
    drawFrame(root, this.data, view, this.scales, width, height);
    const plot = svg(root, "g", { "clip-path": `url(#clip-${this.box.dataset.chart})` });
    drawCurves(plot, this.series, this.scales);
    drawCursor(plot, this.series, this.cursor, this.scales, height);
    if (this.drag) {
      const [a, b] = [this.drag.from, this.drag.to];
      const tall = Math.abs(a[1] - b[1]) > 40;
      svg(plot, "rect", {
        class: "selection",
        x: Math.min(a[0], b[0]),
        width: Math.abs(a[0] - b[0]),
        y: tall ? Math.min(a[1], b[1]) : MARGIN.top,
        height: tall ? Math.abs(a[1] - b[1]) : inner.height,
      });
    }
    this.read();
  }

  /** Write the values at the cursor into the legend. */
  read() {
    this.box.querySelector(".at").textContent = `at ${radiusText(this.cursor, 12, this.data.sign)}`;
    for (const one of this.series) one.value.textContent = one.hidden ? "" : one.read(this.cursor);
  }

  /** Move the cursor to a radius with few decimals, so that the values there are exact. */
  point(to) {
    const [low, high] = this.view.x;
    this.cursor = roundRadius(Math.min(Math.max(to, low), high), this.data.decimals, high - low);
    this.draw();
  }

  zoom(factor, centre) {
    const x = zoomed(this.view.x, factor, centre, this.data.largest);
    const changed = x[0] !== this.view.x[0] || x[1] !== this.view.x[1];
    this.view = { x, y: factor > 1 && x[1] - x[0] >= this.data.largest ? this.full.y : this.view.y };
    this.point(this.cursor);
    return changed;
  }

  reset() {
    this.view = this.full;
    this.draw();
  }

  place(event) {
    const frame = this.root.getBoundingClientRect();
    const [width, height] = this.size();
    return [((event.clientX - frame.left) / frame.width) * width, ((event.clientY - frame.top) / frame.height) * height];
  }

  listen() {
    listenToPointer(this);
    listenToKeys(this);
    const actions = { in: () => this.zoom(0.5, this.cursor), out: () => this.zoom(2, this.cursor), reset: () => this.reset() };
    for (const button of this.box.querySelectorAll("[data-action]")) {
      button.addEventListener("click", actions[button.dataset.action]);
    }
    if (typeof ResizeObserver !== "undefined") {
      new ResizeObserver(() => this.draw()).observe(this.root.parentElement);
    }
  }
}
