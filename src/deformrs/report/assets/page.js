// Starts charts and tables; without a browser, exports the functions for the tests.

function start(document) {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const box of document.querySelectorAll("[data-chart]")) {
    new Chart(box, data.charts[box.dataset.chart]);
  }
  for (const box of document.querySelectorAll("[data-classes]")) {
    new ClassTable(box, data.classes[box.dataset.classes]);
  }
  const viewer = new Viewer(document.querySelector("dialog"));
  for (const box of document.querySelectorAll("[data-images]")) {
    const table = new ImageTable(box, data.images[box.dataset.images], viewer);
    listenToCards(document, box.dataset.images, table);
  }
  document.documentElement.classList.add("live");
}

/** Enlarge an image when its card is clicked. */
function listenToCards(document, slug, table) {
  for (const button of document.querySelectorAll(`[data-card="${slug}"]`)) {
    const [run, place] = [Number(button.dataset.run), Number(button.dataset.place)];
    button.addEventListener("click", () => {
      const cards = [...button.closest(".run-cards").querySelectorAll("[data-card]")].map((card) => Number(card.dataset.place));
      table.viewer.open({ data: table.data, run, sorted: cards }, cards.indexOf(place));
    });
  }
}

if (typeof document !== "undefined") {
  start(document);
} else {
  module.exports = { percentDown, countAt, nearestPoint, ticks, radiusText, roundRadius, sortedRows, zoomed, seriesOf, classColumns, filteredImages, radiusBins, radiiWords, certificateWords, stepPath, scalesFor, warped, displacement, dimOf, isKnown, canTurn, shareOf, lengthOf, direction };
}
