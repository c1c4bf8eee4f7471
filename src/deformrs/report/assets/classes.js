// The table of classes of one run: sorted by column, searched by name.

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

class ClassTable extends DataTable {
  constructor(box, data) {
    super(box);
    this.data = data;
    this.setColumns(classColumns(data));
    this.run = 0;
    this.search = "";
    const select = this.field("select", (value) => ({ run: Number(value) }));
    data.runs.forEach((run, k) => select.append(new Option(run.name, k)));
    select.parentElement.hidden = data.runs.length < 2;
    this.field("input", (value) => ({ search: value.trim().toLowerCase() }));
    this.show({});
  }

  rows() {
    const { names, runs } = this.data;
    return runs[this.run].rows.filter((row) => names[row[0]].toLowerCase().includes(this.search));
  }
}
