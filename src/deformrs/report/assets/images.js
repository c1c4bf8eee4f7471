// Every image of a run: filtered, sorted, enlarged, and counted by radius.

const BINS = 30;

/** Return the places of the images that a filter keeps. */
function filteredImages(run, names, filter) {
  const search = (filter.search || "").toLowerCase();
  const has = (text) => String(text).toLowerCase().includes(search);
  const places = [];
  for (let k = 0; k < run.index.length; k++) {
    const [label, prediction] = [run.labels[k], run.predictions[k]];
    if (filter.kind && filter.kind !== kindOf(label, prediction)) continue;
    if (typeof filter.label === "number" && filter.label !== label) continue;
    if (typeof filter.low === "number" && !(run.radii[0][k] >= filter.low)) continue;
    if (typeof filter.high === "number" && !(run.radii[0][k] <= filter.high)) continue;
    const texts = [run.start + run.sources[k], run.index[k], names[label], prediction === null ? "abstains" : names[prediction]];
    if (search && !texts.some(has)) continue;
    places.push(k);
  }
  return places;
}

function kindOf(label, prediction) {
  if (prediction === null) return "abstained";
  return prediction === label ? "correct" : "wrong";
}

/** Return how many images of each kind have a radius in each of the bins from 0 to `largest`. */
function radiusBins(run, block, largest) {
  const counts = { correct: new Array(BINS).fill(0), wrong: new Array(BINS).fill(0) };
  for (let k = 0; k < run.index.length; k++) {
    const kind = kindOf(run.labels[k], run.predictions[k]);
    const bin = Math.min(BINS - 1, Math.floor((run.radii[block][k] / largest) * BINS));
    if (kind !== "abstained") counts[kind][bin]++;
  }
  return counts;
}

/** Return the certified radii of an image in words. */
function radiiWords(data, run, k) {
  if (run.predictions[k] === null) return "–";
  const one = (radii, block) => {
    const radius = radii[k];
    return data.full[block] === radius ? "every angle" : `${radius.toFixed(data.decimals[block])}${data.signs[block]}`;
  };
  const words = run.radii.map(one);
  return words.length === 1 ? words[0] : words.map((text, block) => `${data.families[block]} ${text}`).join(", ");
}

/** Return what the certificate of an image says. */
function certificateWords(data, run, k) {
  const [label, prediction] = [run.labels[k], run.predictions[k]];
  if (prediction === null) return `Abstains: no class is certain enough. Its label is ${data.names[label]}.`;
  const right = prediction === label ? "correct" : `wrong: its label is ${data.names[label]}`;
  const words = radiiWords(data, run, k);
  const alone = run.radii.length === 1;
  const extent = alone && words === "every angle" ? `under every ${data.families[0]}` : `up to ${alone ? `a ${data.families[0]} radius of ` : ""}${words}`;
  const least = run.bounds ? " (at least: it was sampled only until the requested queries were decided)" : "";
  const rest = alone ? "" : ", each with the others at rest";
  return `Predicted ${data.names[prediction]} (${right}), with probability at least ${run.p[k].toFixed(4)} under the noise. Certified ${extent}${rest}${least}.`;
}

function imageColumns(data, table) {
  const named = (number) => (number === null ? "abstains" : data.names[number]);
  const run = () => data.runs[table.run];
  return [
    { fill: (cell, k) => table.fillImage(cell, k), title: "image", key: (k) => run().index[k] },
    { title: "label", side: "left", text: (k) => named(run().labels[k]), key: (k) => run().labels[k] },
    { title: "prediction", side: "left", fill: (cell, k) => {
      const kind = kindOf(run().labels[k], run().predictions[k]);
      add(cell, "span", { class: `kind ${kind}` }, named(run().predictions[k]));
    }, key: (k) => run().predictions[k] },
    { title: "radius", text: (k) => radiiWords(data, run(), k), key: (k) => (run().predictions[k] === null ? null : run().radii[0][k]) },
    { title: "probability ≥", text: (k) => run().p[k].toFixed(4), key: (k) => run().p[k] },
  ];
}

class ImageTable extends DataTable {
  constructor(box, data, viewer) {
    super(box);
    this.data = data;
    this.setColumns(imageColumns(data, this));
    this.viewer = viewer;
    this.run = 0;
    this.filter = {};
    const change = (name, parse) => (value) => ({ filter: { ...this.filter, [name]: parse(value) } });
    const number = (value) => (value === "" ? null : Number(value));
    const select = this.field("[name=run]", (value) => ({ run: Number(value) }));
    data.runs.forEach((run, k) => select.append(new Option(run.name, k)));
    select.parentElement.hidden = data.runs.length < 2;
    this.field("[name=kind]", change("kind", String));
    const classes = this.field("[name=label]", change("label", number));
    for (const label of this.labels()) classes.append(new Option(data.names[label], label));
    this.low = this.field("[name=low]", change("low", number));
    this.high = this.field("[name=high]", change("high", number));
    this.field("[type=search]", change("search", (value) => value.trim()));
    this.show({});
  }

  labels() {
    const labels = new Set();
    for (const run of this.data.runs) for (const label of run.labels) labels.add(label);
    return [...labels].sort((a, b) => a - b);
  }

  rows() {
    return filteredImages(this.data.runs[this.run], this.data.names, this.filter);
  }

  show(change) {
    super.show(change);
    const run = this.data.runs[this.run];
    const total = run.index.length;
    this.box.querySelector(".count").textContent =
      this.sorted.length === total ? `${total} images` : `${this.sorted.length} of ${total} images`;
    if (this.drawn !== this.run) this.drawHistograms(run);
    this.drawn = this.run;
  }

  fillImage(cell, k) {
    const run = this.data.runs[this.run];
    const button = add(cell, "button", { type: "button", class: "thumb" });
    if (run.thumbs[k]) add(button, "img", { src: run.thumbs[k], alt: "", class: run.small ? "small" : "" });
    const name = run.start + run.sources[k];
    const text = add(button, "span", { title: name });
    breakable(text, name.replace(/\/+$/, "").split("/").pop() || name);
    button.addEventListener("click", () => this.viewer.open(this, this.sorted.indexOf(k)));
  }

  drawHistograms(run) {
    const box = this.box.querySelector(".histograms");
    box.replaceChildren();
    if (run.bounds) {
      add(box, "p", { class: "note" }, "No histogram: the images were sampled only until the requested queries were decided, so their radii are lower bounds.");
      return;
    }
    run.radii.forEach((radii, block) => {
      const largest = radii.reduce((a, b) => Math.max(a, b), 0);
      if (largest > 0) this.drawHistogram(add(box, "figure", { class: "histogram" }), run, block, largest);
    });
  }

  drawHistogram(figure, run, block, largest) {
    const counts = radiusBins(run, block, largest);
    const most = Math.max(...counts.correct.map((count, bin) => count + counts.wrong[bin]));
    const [width, height, bottom] = [300, 100, 18];
    const sign = this.data.signs[block];
    const title = `Certified ${this.data.families[block]} radii: correct, and wrong predictions on top`;
    const caption = add(figure, "figcaption");
    add(caption, "span", {}, `Certified ${this.data.families[block]} radii `);
    for (const kind of ["correct", "wrong"]) add(caption, "span", { class: `kind ${kind}` }, `${kind} `);
    figure.insertAdjacentHTML("beforeend", '<svg role="img"></svg>');
    const root = figure.lastElementChild;
    root.setAttribute("viewBox", `0 0 ${width} ${height + bottom}`);
    root.setAttribute("aria-label", title);
    const x = (bin) => (bin / BINS) * width;
    const y = (count) => (count / most) * (height - 4);
    for (let bin = 0; bin < BINS; bin++) {
      let base = height;
      const range = [bin, bin + 1].map((k) => `${Number(((k / BINS) * largest).toFixed(this.data.decimals[block]))}`);
      const group = svg(root, "g", { class: "bin" });
      svg(group, "rect", { class: "all", x: x(bin), y: 0, width: width / BINS, height });
      for (const kind of ["correct", "wrong"]) {
        const tall = y(counts[kind][bin]);
        base -= tall;
        if (tall) svg(group, "rect", { class: `bar ${kind}`, x: x(bin) + 0.75, y: base, width: width / BINS - 1.5, height: tall });
      }
      svg(group, "title", {}, `${range[0]} to ${range[1]}${sign}: ${counts.correct[bin]} correct, ${counts.wrong[bin]} wrong`);
      if (block === 0) group.addEventListener("click", () => this.limit(Number(range[0]), Number(range[1])));
    }
    for (const tick of ticks(0, largest, 5)) {
      const px = (tick / largest) * width;
      const anchor = px < 10 ? "start" : px > width - 16 ? "end" : "middle";
      svg(root, "text", { class: "tick", x: px, y: height + 14, "text-anchor": anchor }, `${tick}${sign}`);
    }
  }

  /** Show only the images with a radius in a range. */
  limit(low, high) {
    [this.low.value, this.high.value] = [low, high];
    this.show({ filter: { ...this.filter, low, high } });
  }
}

/** Write a name that breaks after slashes, underscores and the like, never in words. */
function breakable(parent, name) {
  for (const part of name.split(/(?<=[/\\_=])(?=\w)|(?<=[.:,])(?=[^\W\d])/)) parent.append(part, parent.ownerDocument.createElement("wbr"));
}

/** A dialog that shows one image large, with what its certificate says. */
class Viewer {
  constructor(dialog) {
    this.dialog = dialog;
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.querySelector(".previous").addEventListener("click", () => this.move(-1));
    dialog.querySelector(".next").addEventListener("click", () => this.move(1));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && event.target.type !== "range") this.move(step);
    });
  }

  /** Open the image at a place of the table's rows as they are sorted. */
  open(table, place) {
    [this.table, this.place] = [table, place];
    this.fill();
    if (!this.dialog.open) this.dialog.showModal();
  }

  move(step) {
    const place = this.place + step;
    if (place >= 0 && place < this.table.sorted.length) this.open(this.table, place);
  }

  fill() {
    const { dialog, table, place } = this;
    const run = table.data.runs[table.run];
    const k = table.sorted[place];
    const picture = dialog.querySelector(".large");
    picture.replaceChildren();
    const controls = dialog.querySelector(".controls");
    controls.hidden = !canTurn(table.data, run, k);
    if (!controls.hidden) new Turner(picture, controls, table.data, run, k);
    else if (run.thumbs[k]) add(picture, "img", { src: run.thumbs[k], alt: "", class: run.small ? "small" : "" });
    else add(picture, "p", { class: "note" }, "This image is not embedded in the page.");
    const name = dialog.querySelector(".name");
    name.replaceChildren();
    breakable(name, run.start + run.sources[k]);
    dialog.querySelector(".words").textContent = certificateWords(table.data, run, k);
    dialog.querySelector(".place").textContent = `${place + 1} of ${table.sorted.length}`;
    dialog.querySelector(".previous").disabled = place === 0;
    dialog.querySelector(".next").disabled = place === table.sorted.length - 1;
  }
}
