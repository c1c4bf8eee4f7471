// Numbers as text: counts are exact, shares are rounded down.

/** Return a share in per cent with one decimal, rounded down. The division is exact enough: two
 *  different shares of fewer than a billion images never round to the same double. */
function percentDown(count, total) {
  const tenths = Math.floor((1000 * count) / total);
  return `${Math.floor(tenths / 10)}.${tenths % 10}`;
}

/** Return the first step whose end is not below x. */
function placeAt(ends, x) {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return whether no radius as large as x was requested of a run, so that nothing is known. */
function beyond(curve, x) {
  return typeof curve.until === "number" && x > curve.until;
}

/** Return how many images are correct and certified at radius x, null where nothing is known. */
function countAt(curve, x) {
  if (beyond(curve, x)) return null;
  const place = placeAt(curve.ends, x);
  return place < curve.ends.length ? curve.counts[place] : 0;
}

/** Return the reference point nearest to x. */
function nearestPoint(points, x) {
  let best = null;
  for (const point of points) {
    if (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
  }
  return best;
}

/** Return about `number` round numbers from low to high. */
function ticks(low, high, number) {
  const rough = (high - low) / Math.max(1, number);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999) || 10 * power;
  const result = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    result.push(Number((k * step).toPrecision(12)));
  }
  return result;
}

/** Return the nearest radius with few decimals, more of them when the axis is zoomed in. */
function roundRadius(x, decimals, width) {
  return Number(x.toFixed(Math.max(decimals, Math.min(12, Math.ceil(-Math.log10(width / 200))))));
}

/** Return a radius as text, without trailing zeros. */
function radiusText(x, decimals, sign) {
  return `${Number(x.toFixed(decimals))}${sign}`;
}

/** Return rows sorted by `keyOf`, unknown ones last, equal ones in their old order. */
function sortedRows(rows, keyOf, descending) {
  const turn = descending ? -1 : 1;
  return rows
    .map((row, place) => ({ row, place, key: keyOf(row) }))
    .sort((a, b) => {
      if (a.key === null || b.key === null) {
        return (a.key === null) - (b.key === null) || a.place - b.place;
      }
      if (a.key < b.key) return -turn;
      if (a.key > b.key) return turn;
      return a.place - b.place;
    })
    .map((each) => each.row);
}

/** Return a range of the axis zoomed by `factor` about `centre`, within [0, largest]. */
function zoomed(range, factor, centre, largest) {
  const width = Math.min(largest, Math.max(largest / 2000, (range[1] - range[0]) * factor));
  const share = (centre - range[0]) / (range[1] - range[0]);
  const low = Math.min(Math.max(0, centre - share * width), largest - width);
  return [low, low + width];
}
