// Starts charts and tables; without a browser, exports the functions for the tests.

function start(document) {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const box of document.querySelectorAll("[data-chart]")) {
    new Chart(box, data.charts[box.dataset.chart]);
  }
  for (const box of document.querySelectorAll("[data-classes]")) {
    new ClassTable(box, data.classes[box.dataset.classes]);
  }
  document.documentElement.classList.add("live");
}

if (typeof document !== "undefined") {
  start(document);
} else {
  module.exports = { percentDown, countAt, nearestPoint, ticks, radiusText, roundRadius, sortedRows, zoomed, seriesOf, classColumns, stepPath, scalesFor };
}
