// The table of classes of one run: sorted by column, searched by name.

const FEW = 50;

/** Return the columns of the table: title, text of a cell, tooltip and sort key. */
function classColumns(data) {
  const shareColumn = (title, place, unknown) => ({
    title,
    text: (row) => (row[place] === null ? "–" : `${percentDown(row[place], row[1])} %`),
    hint: (row) => (row[place] === null ? unknown : `${row[place]}/${row[1]}`),
    key: (row) => (row[place] === null ? null : row[place] / row[1]),
  });
  const averages = data.averages.map((title, k) => {
    const place = 4 + data.radii.length + k;
    return {
      title,
      text: (row) => (row[place] === null ? "–" : `${row[place].toFixed(data.decimals[k])}${data.signs[k]}`),
      key: (row) => row[place],
    };
  });
  return [
    { title: "class", text: (row) => data.names[row[0]], hint: (row) => `number ${row[0]}`, key: (row) => row[0] },
    { title: "images", text: (row) => String(row[1]), key: (row) => row[1] },
    shareColumn("base correct", 2, "not counted"),
    shareColumn("smoothed correct", 3, ""),
    ...data.radii.map((title, k) => shareColumn(title, 4 + k, "not requested")),
    ...averages,
  ];
}

class ClassTable {
  constructor(box, data) {
    this.box = box;
    this.data = data;
    this.columns = classColumns(data);
    this.run = 0;
    this.sortedBy = 0;
    this.descending = false;
    this.all = false;
    this.search = "";
    const select = box.querySelector("select");
    data.runs.forEach((run, k) => select.append(new Option(run.name, k)));
    select.parentElement.hidden = data.runs.length < 2;
    select.addEventListener("change", () => this.show({ run: Number(select.value) }));
    const search = box.querySelector("input");
    search.addEventListener("input", () => this.show({ search: search.value.trim().toLowerCase() }));
    box.querySelector(".all").addEventListener("click", () => this.show({ all: true }));
    this.makeHead();
    this.show({});
  }

  makeHead() {
    const row = this.box.querySelector("thead tr");
    this.heads = this.columns.map((column, k) => {
      const head = row.ownerDocument.createElement("th");
      head.scope = "col";
      const button = row.ownerDocument.createElement("button");
      button.type = "button";
      button.textContent = column.title;
      button.addEventListener("click", () => {
        const again = this.sortedBy === k;
        this.show({ sortedBy: k, descending: again ? !this.descending : false });
      });
      head.append(button);
      row.append(head);
      return head;
    });
  }

  show(change) {
    Object.assign(this, change);
    const { columns, data } = this;
    const rows = data.runs[this.run].rows.filter((row) => data.names[row[0]].toLowerCase().includes(this.search));
    const sorted = sortedRows(rows, columns[this.sortedBy].key, this.descending);
    const shown = this.all ? sorted : sorted.slice(0, FEW);
    this.heads.forEach((head, k) => {
      const order = this.descending ? "descending" : "ascending";
      head.setAttribute("aria-sort", k === this.sortedBy ? order : "none");
    });
    const body = this.box.querySelector("tbody");
    body.replaceChildren(...shown.map((row) => this.makeRow(body.ownerDocument, row)));
    const more = this.box.querySelector(".all");
    more.hidden = shown.length === sorted.length;
    more.textContent = `Show all ${sorted.length} classes`;
  }

  makeRow(document, row) {
    const line = document.createElement("tr");
    this.columns.forEach((column, k) => {
      const cell = document.createElement(k === 0 ? "th" : "td");
      if (k === 0) cell.scope = "row";
      cell.textContent = column.text(row);
      if (column.hint) cell.title = column.hint(row);
      line.append(cell);
    });
    return line;
  }
}
