// Tables that follow what they show: a row stays the same element as long as its key is there.

import { el, visible } from "./text.js";

const MOST = 200;

/**
 * A table. `columns` have a title, a `cell` that makes `{text, href, mark, most}` or a text out of a row, and, if they can be
 * sorted by, the `value` to compare. `key` names a row. `onsort` is told the title of the column.
 */
export class Table {
  constructor(caption, columns, key, { sort = "", onsort } = {}) {
    Object.assign(this, { columns, key, sort, onsort, rows: new Map() });
    this.caption = el("caption", {}, caption);
    this.body = el("tbody");
    this.heads = columns.map((column) => this.head(column));
    const table = el("table", {}, this.caption, el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    this.more = el("p", { class: "quiet" });
    const region = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
    this.node = el("div", {}, region, this.more);
  }

  head(column) {
    const attributes = { scope: "col", class: column.number ? "number" : undefined };
    if (!column.value || !this.onsort) return el("th", attributes, column.title);
    return el("th", attributes, el("button", { type: "button", onclick: () => this.onsort(column.title) }, column.title));
  }

  sorted(rows) {
    const column = this.columns.find((it) => it.title.toLowerCase() === this.sort.toLowerCase() && it.value);
    for (const [at, head] of this.heads.entries()) {
      if (this.columns[at] === column) head.setAttribute("aria-sort", column.number ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    if (!column) return rows;
    const sign = column.number ? -1 : 1;
    const compare = (one, other) => (one < other ? -sign : one > other ? sign : 0);
    return [...rows].sort((one, other) => compare(column.value(one), column.value(other)) || (this.key(one) < this.key(other) ? -1 : 1));
  }

  update(all) {
    const rows = this.sorted(all).slice(0, MOST);
    const left = all.length - rows.length;
    this.more.textContent = left > 0 ? `${left} more are not shown: filter or sort the list.` : all.length ? "" : "None.";
    const now = new Map();
    for (const [at, row] of rows.entries()) {
      const key = this.key(row);
      const known = this.rows.get(key) ?? { row: el("tr", {}, ...this.columns.map((it) => el("td", { class: it.number && "number" }))), cells: [] };
      this.columns.forEach((column, index) => this.show(known, index, column.cell(row)));
      const there = this.body.children[at];
      if (there !== known.row) this.body.insertBefore(known.row, there ?? null);
      now.set(key, known);
    }
    for (const [key, known] of this.rows) if (!now.has(key)) known.row.remove();
    this.rows = now;
  }

  show(known, index, told) {
    const cell = typeof told === "object" && told !== null ? told : { text: told ?? "" };
    const before = known.cells[index];
    if (before && before.text === cell.text && before.href === cell.href && before.mark === cell.mark) return;
    known.cells[index] = cell;
    const text = el("bdi", { class: cell.mark }, visible(cell.text, cell.most ?? 400));
    known.row.children[index].replaceChildren(cell.href ? el("a", { href: cell.href }, text) : text);
  }
}

/** Large figures with their names. */
export class Facts {
  constructor() {
    this.node = el("dl", { class: "facts" });
    this.known = new Map();
  }

  update(facts) {
    for (const [name, text, mark] of facts) {
      let known = this.known.get(name);
      if (!known) {
        const value = el("dd");
        known = { box: el("div", {}, el("dt", {}, name), value), value };
        this.known.set(name, known);
        this.node.append(known.box);
      }
      const shown = visible(text);
      if (known.value.textContent !== shown) known.value.textContent = shown;
      known.box.className = mark ?? "";
      known.value.className = shown.length > 10 ? "small" : "";
    }
  }
}
