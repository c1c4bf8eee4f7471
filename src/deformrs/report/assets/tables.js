// Tables of many rows: sorted by column, shown page by page.

const PER_PAGE = 50;

/** Add an HTML element to `parent`. */
function add(parent, name, attributes, text) {
  const element = parent.ownerDocument.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** A table in `box`. Subclasses have rows() and call setColumns. */
class DataTable {
  constructor(box) {
    this.box = box;
    this.sortedBy = 0;
    this.descending = false;
    for (const [name, step] of [["previous", -1], ["next", 1]]) {
      box.querySelector(`.${name}`).addEventListener("click", () => this.show({ page: this.page + step }));
    }
  }

  /** Set the columns: { title, text or fill, key, hint, side }. */
  setColumns(columns) {
    this.columns = columns;
    const row = this.box.querySelector("thead tr");
    this.heads = columns.map((column, k) => {
      const head = add(row, "th", { scope: "col", class: column.side || "" });
      const button = add(head, "button", { type: "button" }, column.title);
      button.addEventListener("click", () => {
        const again = this.sortedBy === k;
        this.show({ sortedBy: k, descending: again ? !this.descending : false });
      });
      return head;
    });
  }

  /** Listen to a field; `change` maps its value to what it changes. */
  field(selector, change) {
    const field = this.box.querySelector(selector);
    field.addEventListener(field.tagName === "SELECT" ? "change" : "input", () => this.show(change(field.value)));
    return field;
  }

  /** Show the table after a change; any but that of the page begins at the first page. */
  show(change) {
    Object.assign(this, { page: 0 }, change);
    this.sorted = sortedRows(this.rows(), this.columns[this.sortedBy].key, this.descending);
    const last = Math.max(0, Math.ceil(this.sorted.length / PER_PAGE) - 1);
    this.page = Math.min(Math.max(0, this.page), last);
    const first = this.page * PER_PAGE;
    const shown = this.sorted.slice(first, first + PER_PAGE);
    this.heads.forEach((head, k) => {
      const order = this.descending ? "descending" : "ascending";
      head.setAttribute("aria-sort", k === this.sortedBy ? order : "none");
    });
    const body = this.box.querySelector("tbody");
    body.replaceChildren(...shown.map((row) => this.makeRow(body.ownerDocument, row)));
    this.box.querySelector(".pager").hidden = last === 0;
    this.box.querySelector(".previous").disabled = this.page === 0;
    this.box.querySelector(".next").disabled = this.page === last;
    this.box.querySelector(".place").textContent = `${first + 1} to ${first + shown.length} of ${this.sorted.length}`;
  }

  makeRow(document, row) {
    const line = document.createElement("tr");
    this.columns.forEach((column, k) => {
      const cell = add(line, k === 0 ? "th" : "td", k === 0 ? { scope: "row" } : {});
      if (column.fill) column.fill(cell, row);
      else cell.textContent = column.text(row);
      if (column.hint) cell.title = column.hint(row);
      if (column.side) cell.className = column.side;
    });
    return line;
  }
}
