// Lets a person deform an image, and says whether its certificate covers what they see.

const PARAMETERS = {
  rotation: ["angle"],
  translation: ["to the left", "upwards"],
  scaling: ["size read"],
  shear: ["shear"],
  affine: ["a", "b", "c", "d", "e", "f"],
};
const WIDEST = { rotation: 180, shear: 100, affine: 1 };
const ARROWS = 12;

/** Return the length of parameters in the norm of their block. */
function lengthOf(values, norm) {
  return norm === 1 ? values.reduce((sum, value) => sum + Math.abs(value), 0) : Math.hypot(...values);
}

/** Return which share of its certificate a shift takes: at most 1 if it is covered, null if the
 *  radii do not say. `shift` and `radii` have a list and a number for each block, in one unit. */
function shareOf(shift, radii, norms, joint) {
  const shares = shift.map((values, k) => {
    const length = lengthOf(values, norms[k]);
    return length === 0 ? 0 : length / radii[k];
  });
  const used = shares.filter((share) => share > 0);
  if (used.length < 2) return used.length ? used[0] : 0;
  if (joint === null) return null;
  return joint === "sum" ? used.reduce((sum, share) => sum + share, 0) : Math.hypot(...used);
}

/** Return `count` numbers of length 1 in a norm, the same for the same seed. */
function direction(count, norm, seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const values = Array.from({ length: count }, normal);
  const length = lengthOf(values, norm) || 1;
  return values.map((value) => value / length);
}

/** Draw the certified set of a block: an arc of angles, or a disc of shifts; the content moves as
 *  the point does. Return the function that moves the point, null for other blocks. */
function certifiedSet(parent, block, radius, norm, half) {
  const turns = block.family === "rotation";
  if (!turns && block.family !== "translation") return null;
  parent.insertAdjacentHTML("beforeend", '<svg class="set" viewBox="-50 -50 100 100" role="img"></svg>');
  const root = parent.lastElementChild;
  const title = turns ? `certified angles: up to ${radius}° both ways` : `certified shifts: up to ${radius} px`;
  root.setAttribute("aria-label", title);
  svg(root, "title", {}, title);
  if (turns) {
    svg(root, "circle", { class: "rest", r: 40 });
    const [x, y] = [40 * Math.sin((radius * Math.PI) / 180), -40 * Math.cos((radius * Math.PI) / 180)];
    if (radius >= 180) svg(root, "circle", { class: "arc", r: 40 });
    else if (radius > 0) svg(root, "path", { class: "arc", d: `M${-x} ${y}A40 40 0 ${radius > 90 ? 1 : 0} 1 ${x} ${y}` });
    const hand = svg(root, "line", { class: "hand", y2: -46 });
    return ([angle]) => hand.setAttribute("transform", `rotate(${-angle})`);
  }
  const length = Math.min(45, (45 * radius) / half);
  svg(root, "rect", { class: "rest", x: -45, y: -45, width: 90, height: 90 });
  if (norm === 2) svg(root, "circle", { class: "disc", r: length });
  else svg(root, "path", { class: "disc", d: `M${-length} 0L0 ${-length}L${length} 0L0 ${length}z` });
  const point = svg(root, "circle", { class: "point", r: 4 });
  return ([left, up]) => point.setAttribute("transform", `translate(${(-45 * left) / half} ${(-45 * up) / half})`);
}

/** The image of a viewer as a canvas, with a slider for each parameter, or for the strength of a
 *  random direction where there are many. */
class Turner {
  constructor(picture, controls, data, run, k) {
    Object.assign(this, { picture, controls, data, run, k });
    this.blocks = data.turning.blocks;
    this.half = Array.isArray(run.half) ? run.half[k] : run.half;
    this.radii = run.radii.map((radii) => radii[k]);
    this.seeds = this.blocks.map((_, block) => block + 1);
    picture.replaceChildren();
    controls.replaceChildren();
    const image = picture.ownerDocument.createElement("img");
    image.addEventListener("load", () => this.begin(image));
    image.src = run.thumbs[k];
  }

  begin(image) {
    const [width, height] = [image.naturalWidth, image.naturalHeight];
    this.size = [width, height];
    const stage = add(this.picture, "div", { class: `stage-of-image${this.run.small ? " small" : ""}` });
    this.canvas = add(stage, "canvas", { width, height, role: "img" });
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.context.drawImage(image, 0, 0);
    this.source = this.context.getImageData(0, 0, width, height);
    stage.insertAdjacentHTML("beforeend", '<svg class="field" aria-hidden="true"></svg>');
    this.field = stage.lastElementChild;
    this.field.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.build();
    this.listen();
    this.draw();
  }

  /** Make a slider for each parameter, or for the strength of a block with many. */
  build() {
    this.sliders = this.blocks.map((block, number) => {
      const names = PARAMETERS[block.family] || [`${block.family.replace("_", " ")}, strength`];
      const radius = this.radii[number];
      const free = !PARAMETERS[block.family];
      const least = block.scale === null ? this.half / 4 : 0.5 * block.scale;
      const widest = { translation: this.half, scaling: 100, ...WIDEST }[block.family] || Math.max(2 * radius, least);
      const low = free ? 0 : block.family === "scaling" ? -90 : -widest;
      return names.map((name) => {
        const label = add(this.controls, "label", { class: "slider" });
        add(label, "span", {}, name);
        const slider = add(label, "input", { type: "range", min: low, max: widest, step: "any", value: 0, "aria-label": name });
        const output = add(label, "output");
        slider.addEventListener("input", () => this.draw());
        return { slider, output };
      });
    });
    const sets = add(this.controls, "div", { class: "sets" });
    this.sets = this.blocks.map((block, number) => certifiedSet(sets, block, this.radii[number], this.run.norm[number], this.half));
    this.gauge = add(this.controls, "div", { class: "gauge", role: "meter", "aria-label": "share of the certified radius", "aria-valuemin": 0, "aria-valuemax": 100 });
    add(this.gauge, "span", { class: "covered" });
    this.mark = add(this.gauge, "span", { class: "mark" });
    this.words = add(this.controls, "p", { class: "cover", "aria-live": "polite" });
    const tools = add(this.controls, "p", { class: "tools" });
    const button = (text, act) => add(tools, "button", { type: "button" }, text).addEventListener("click", act);
    button("Back to the original", () => this.reset());
    if (this.blocks.some((block) => !PARAMETERS[block.family])) button("Another direction", () => this.turnDirection());
    const shown = add(tools, "label");
    this.arrows = add(shown, "input", { type: "checkbox" });
    shown.append(" field");
    this.arrows.addEventListener("change", () => this.draw());
  }

  /** Dragging turns and shifts the image, the wheel scales it. */
  listen() {
    const find = (family) => this.blocks.findIndex((block) => block.family === family);
    const [rotation, translation, scaling] = ["rotation", "translation", "scaling"].map(find);
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2, box];
    };
    let before = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      before = place(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!before) return;
      const [x, y, box] = place(event);
      if (translation >= 0) {
        const scale = (2 * this.half) / Math.min(box.width, box.height);
        this.change(translation, [(before[0] - x) * scale, (before[1] - y) * scale]);
      } else if (rotation >= 0) {
        const turn = Math.atan2(y, x) - Math.atan2(before[1], before[0]);
        this.change(rotation, [(-turn * 180) / Math.PI], 360);
      }
      before = [x, y, box];
    });
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => (before = null));
    if (rotation >= 0 || translation >= 0) this.canvas.classList.add("grab");
    this.canvas.addEventListener("wheel", (event) => {
      if (scaling < 0) return;
      event.preventDefault();
      this.change(scaling, [event.deltaY > 0 ? 3 : -3]);
    }, { passive: false });
  }

  /** Add to the sliders of a block; `period` is that of an angle. */
  change(number, steps, period = null) {
    this.sliders[number].forEach(({ slider }, k) => {
      let value = Number(slider.value) + steps[k];
      if (period !== null) value -= period * Math.round(value / period);
      slider.value = value;
    });
    this.draw();
  }

  reset() {
    for (const { slider } of this.sliders.flat()) slider.value = 0;
    this.draw();
  }

  turnDirection() {
    this.seeds = this.seeds.map((seed) => seed + this.blocks.length);
    this.draw();
  }

  /** Return the parameters of each block in the displayed unit. */
  shift() {
    return this.blocks.map((block, number) => {
      const values = this.sliders[number].map(({ slider }) => Number(slider.value));
      if (PARAMETERS[block.family]) return values;
      return direction(block.dim, this.run.norm[number], this.seeds[number]).map((each) => each * values[0]);
    });
  }

  draw() {
    const shift = this.shift();
    const params = shift.flatMap((values, number) => values.map((value) => value / (this.blocks[number].scale || this.half)));
    const { deformation } = this.data.turning;
    const pixels = warped(this.source, deformation, params, this.run.padding);
    this.context.putImageData(new ImageData(pixels, ...this.size), 0, 0);
    this.blocks.forEach((block, number) => this.sliders[number].forEach(({ slider, output }) => {
      output.textContent = `${Number(Number(slider.value).toFixed(block.decimals))}${block.unit}`;
    }));
    this.sets.forEach((move, number) => move && move(shift[number]));
    this.say(shareOf(shift, this.radii, this.run.norm, this.run.joint));
    this.drawField(displacement(deformation, params, this.size));
  }

  /** Say whether the certificate covers the shift. */
  say(share) {
    const prediction = this.run.predictions[this.k];
    const covered = prediction !== null && share !== null && share <= 1;
    this.mark.style.left = share === null ? "0" : `${Math.min(share / 2, 1) * 100}%`;
    this.mark.hidden = share === null || prediction === null;
    this.gauge.classList.toggle("nothing", prediction === null);
    const percent = share === null || !Number.isFinite(share) ? 100 : Math.min(100, Math.ceil(share * 100));
    this.gauge.setAttribute("aria-valuenow", percent);
    this.gauge.setAttribute("aria-valuetext", covered ? "certified" : "not certified");
    this.words.className = `cover ${covered ? "inside" : "outside"}`;
    if (prediction === null) this.words.textContent = "Nothing is certified: the prediction abstains.";
    else if (covered) this.words.textContent = `Certified: ${this.data.names[prediction]} holds here.`;
    else if (share === null) this.words.textContent = "The radii alone do not say whether this is certified.";
    else this.words.textContent = "Not certified here.";
    this.canvas.setAttribute("aria-label", `The image, deformed. ${this.words.textContent}`);
  }

  /** Draw where pixels are read, as lines from each. */
  drawField(move) {
    this.field.replaceChildren();
    if (!this.arrows.checked) return;
    const [width, height] = this.size;
    const unit = Math.min(width, height) / 2;
    const step = Math.max(1, Math.ceil(Math.max(width, height) / ARROWS));
    for (let row = step >> 1; row < height; row += step) {
      for (let column = step >> 1; column < width; column += step) {
        const [x, y] = [column + 0.5, row + 0.5];
        const [dx, dy] = move((x - width / 2) / unit, (y - height / 2) / unit);
        svg(this.field, "line", { x1: x, y1: y, x2: x + dx * unit, y2: y + dy * unit });
        svg(this.field, "circle", { cx: x, cy: y, r: step / 16 });
      }
    }
  }
}

/** Return whether the page can deform the image of a run at a place. */
function canTurn(data, run, k) {
  if (!data.turning || !run.thumbs[k] || !isKnown(data.turning.deformation)) return false;
  const fitting = (deformation) => (deformation.name === "vector_field" ? run.small : (deformation.parts || []).every(fitting));
  return fitting(data.turning.deformation);
}
