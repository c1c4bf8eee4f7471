// Deforms an image as the library does: the same fields, pixel centres, interpolation and padding.
//
// Lengths are in half sides: min(width, height) / 2 pixels. A deformation is its configuration,
// {name: "rotation"} or {name: "compose", parts: [...]}; its parameters are an array of numbers.

const FAMILIES = {
  rotation: { dim: () => 1, at: ([angle]) => {
    const [sin, less] = [Math.sin(angle), -2 * Math.sin(angle / 2) ** 2];
    return (x, y) => [less * x - sin * y, less * y + sin * x];
  } },
  translation: { dim: () => 2, at: ([right, down]) => () => [right, down] },
  scaling: { dim: () => 1, at: ([scale]) => (x, y) => [scale * x, scale * y] },
  shear: { dim: () => 1, at: ([shear]) => (x, y) => [shear * y, 0] },
  affine: { dim: () => 6, at: ([a, b, c, d, e, f]) => (x, y) => [a * x + b * y + e, c * x + d * y + f] },
  dct: { dim: (size, { k }) => 2 * k * k, at: cosines },
  vector_field: { dim: ([width, height]) => 2 * width * height, at: free },
  compose: { dim: (size, { parts }) => parts.reduce((sum, part) => sum + dimOf(part, size), 0), at: composed },
};

/** Return whether the page can draw a deformation: those of users are Python code. */
function isKnown(deformation) {
  return Object.hasOwn(FAMILIES, deformation.name) && (deformation.parts || []).every(isKnown);
}

/** Return the number of parameters on an image of a size, [width, height]. */
function dimOf(deformation, size) {
  return FAMILIES[deformation.name].dim(size, deformation);
}

/** Return the displacement as a function of a point, (x, y) -> [dx, dy]. */
function displacement(deformation, params, size) {
  return FAMILIES[deformation.name].at(params, size, deformation);
}

function cosines(params, [width, height], { k, basis }) {
  const unit = Math.min(width, height) / 2;
  const waves = (at, length) => {
    const edge = at * unit + length / 2;
    const phase = basis === "dct" ? edge / length : (2 * (edge - 0.5)) / Math.max(length - 1, 1) - 1 + 0.5 / length;
    return Array.from({ length: k }, (_, order) => Math.cos(Math.PI * order * phase));
  };
  return (x, y) => {
    const [across, down] = [waves(x, width), waves(y, height)];
    const sum = (start) => down.reduce((all, wave, i) => all + wave * across.reduce((row, other, j) => row + params[start + i * k + j] * other, 0), 0);
    return [sum(0), sum(k * k)];
  };
}

function free(params, [width, height]) {
  const unit = Math.min(width, height) / 2;
  return (x, y) => {
    const read = bilinear(x * unit + width / 2 - 0.5, y * unit + height / 2 - 0.5, width, height, "border");
    return [0, 1].map((axis) => read.reduce((sum, [place, weight]) => sum + weight * params[2 * place + axis], 0));
  };
}

function composed(params, size, { parts }) {
  let start = 0;
  const maps = parts.map((part) => {
    const end = start + dimOf(part, size);
    const map = displacement(part, params.slice(start, end), size);
    start = end;
    return map;
  });
  return (x, y) => {
    let [u, v] = [x, y];
    for (const map of [...maps].reverse()) {
      const [du, dv] = map(u, v);
      [u, v] = [u + du, v + dv];
    }
    return [u - x, v - y];
  };
}

/** Return the pixels around a position in pixels, as pairs [place, weight]. */
function bilinear(column, row, width, height, padding) {
  if (padding !== "zeros") [column, row] = [inside(column, width, padding), inside(row, height, padding)];
  const [left, top] = [Math.floor(column), Math.floor(row)];
  const [right, down] = [column - left, row - top];
  const pixels = [];
  for (const [j, i, weight] of [[0, 0, (1 - right) * (1 - down)], [1, 0, right * (1 - down)], [0, 1, (1 - right) * down], [1, 1, right * down]]) {
    const [x, y] = [left + j, top + i];
    if (x >= 0 && x < width && y >= 0 && y < height && weight) pixels.push([y * width + x, weight]);
  }
  return pixels;
}

/** Return the position inside the image that is read for one outside. */
function inside(position, length, padding) {
  if (padding === "reflection") {
    const from = Math.abs(position + 0.5);
    const rest = from % length;
    position = (Math.floor(from / length) % 2 ? length - rest : rest) - 0.5;
  }
  return Math.min(Math.max(position, 0), length - 1);
}

/** Return the pixels of a deformed image, as `image.data`: four bytes each, outside black. */
function warped(image, deformation, params, padding) {
  const { width, height, data } = image;
  const unit = Math.min(width, height) / 2;
  const move = displacement(deformation, params, [width, height]);
  const result = new Uint8ClampedArray(data.length);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const [dx, dy] = move((column + 0.5 - width / 2) / unit, (row + 0.5 - height / 2) / unit);
      const place = 4 * (row * width + column);
      const sum = [0, 0, 0];
      for (const [from, weight] of bilinear(column + dx * unit, row + dy * unit, width, height, padding)) {
        for (let channel = 0; channel < 3; channel++) sum[channel] += weight * data[4 * from + channel];
      }
      for (let channel = 0; channel < 3; channel++) result[place + channel] = Math.round(sum[channel]);
      result[place + 3] = 255;
    }
  }
  return result;
}
