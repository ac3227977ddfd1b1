// A sequence diagram of what was seen: agents are columns, messages are arrows, refused attempts are dashed.

import { Table } from "./lists.js";
import { MARKS, bytes, clock, count, el, knownBy, local, svg, triedBy, visible } from "./text.js";

const COLUMN = 170;
const LEFT = 110;
const TOP = 44;
const ROW = 30;
const MOST_COLUMNS = 14;
const LONGEST_BODY = 5000;

/** The body of a message, or the reason why it is not shown; nothing if nobody asked for it. */
function bodyOf(head) {
  switch (head.body?.is) {
    case "shown": return head.body.left_out ? `${head.body.text} … and ${bytes(head.body.left_out)}` : head.body.text;
    case "private": return "kept from watchers by [tap] in the manifest";
    case "skipped": return "left out: too many came at once";
    default: return "";
  }
}

/** Messages and refused attempts in the order of time: the latest of them. */
function merged(heads, refused, most) {
  const messages = heads.slice(-most).map((head) => {
    const [kind, known] = knownBy(head.provenance);
    const label = head.channel ? `${head.performative} ${head.channel}` : head.performative;
    return { at: head.at, from: head.from, to: head.to, kind, known, label, conversation: head.conversation ?? "", size: bytes(head.size), body: bodyOf(head) };
  });
  const attempts = refused.slice(-most).map((record) => ({
    at: record.at, from: triedBy(record), to: record.receiver ?? triedBy(record), kind: "refused",
    label: `✗ ${record.word ?? "refused"}${record.count > 1 ? ` (${record.count} times)` : ""}`, known: record.reason, conversation: "", size: "", body: "",
  }));
  return [...messages, ...attempts].sort((one, other) => one.at - other.at).slice(-most);
}

export class Sequence {
  constructor() {
    this.box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sequence diagram" });
    this.table = new Table(
      "The same as a table, the latest first",
      [
        { title: "Time", cell: (it) => clock(it.at) },
        { title: "From", cell: (it) => it.from },
        { title: "To", cell: (it) => it.to },
        { title: "Message", cell: (it) => ({ text: it.label, mark: it.kind === "refused" ? "bad" : "" }) },
        { title: "Sender is", cell: (it) => ({ text: it.known, mark: MARKS[it.kind] }) },
        { title: "Conversation", cell: (it) => it.conversation || "–" },
        { title: "Size", number: true, cell: (it) => it.size },
        { title: "Body", cell: (it) => ({ text: it.body || "–", most: LONGEST_BODY }) },
      ],
      (it) => it.key,
    );
    this.empty = el("p", { class: "quiet" }, "No messages yet. They appear as they arrive.");
    this.details = el("details", { ontoggle: () => this.rows() }, el("summary", {}, "As a table"), this.table.node);
    this.node = el("div", {}, this.empty, this.box, this.details);
    this.shown = [];
    this.drawn = "";
  }

  rows() {
    if (this.details.open) this.table.update(this.shown.toReversed());
  }

  update(heads, refused, most = 150) {
    this.shown = merged(heads, refused, most);
    const seen = new Map();
    for (const it of this.shown) {
      const base = `${it.at}/${it.from}/${it.to}/${it.label}`;
      seen.set(base, (seen.get(base) ?? 0) + 1);
      it.key = `${base}/${seen.get(base)}`;
    }
    const drawn = `${heads.length}/${refused.length}/${this.shown[0]?.key}/${this.shown.at(-1)?.key}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.empty.hidden = this.shown.length > 0;
    this.box.hidden = !this.shown.length;
    this.details.hidden = !this.shown.length;
    const isAtEnd = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 8;
    this.box.replaceChildren(this.draw());
    if (isAtEnd) this.box.scrollTop = this.box.scrollHeight;
    this.rows();
  }

  draw() {
    const columns = new Map();
    for (const it of this.shown) {
      for (const name of [it.from, it.to]) if (!columns.has(name) && columns.size < MOST_COLUMNS) columns.set(name, columns.size);
    }
    const place = (name) => LEFT + (columns.get(name) ?? MOST_COLUMNS) * COLUMN + COLUMN / 2;
    const hasOthers = this.shown.some((it) => !columns.has(it.from) || !columns.has(it.to));
    const width = LEFT + (columns.size + (hasOthers ? 1 : 0)) * COLUMN;
    const height = TOP + this.shown.length * ROW + 16;
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${count(this.shown.length)} messages and refused attempts between ${columns.size} agents. The table below shows the same.` });
    const heads = hasOthers ? [...columns.keys(), "others"] : [...columns.keys()];
    for (const [at, name] of heads.entries()) {
      const x = LEFT + at * COLUMN + COLUMN / 2;
      drawing.append(
        svg("line", { class: "life", x1: x, x2: x, y1: 30, y2: height }),
        svg("text", { class: "head", x, y: 20, "text-anchor": "middle" }, svg("title", {}, visible(name)), visible(local(name) || name, 22)),
      );
    }
    for (const [row, it] of this.shown.entries()) {
      const y = TOP + row * ROW + 14;
      const [from, to] = [place(it.from), place(it.to)];
      const kind = it.kind;
      const isLoop = from === to;
      const way = isLoop ? `M${from} ${y - 4}h26v10h-20` : `M${from} ${y}H${to + (to > from ? -7 : 7)}`;
      const [tip, turn] = isLoop ? [`${from} ${y + 6}`, 1] : [`${to} ${y}`, to > from ? -1 : 1];
      drawing.append(
        svg("text", { class: "time", x: 8, y: y + 4 }, clock(it.at)),
        svg("path", { class: `arrow ${kind}`, d: way }),
        svg("path", { class: `tip ${kind === "refused" ? kind : ""}`, d: `M${tip}l${8 * turn} -4v8z` }),
        svg(
          "text",
          { class: kind === "refused" ? kind : "", x: isLoop ? from + 32 : (from + to) / 2, y: isLoop ? y + 4 : y - 5, "text-anchor": isLoop ? "start" : "middle" },
          svg("title", {}, visible(`${it.from} → ${it.to}: ${it.label}, ${it.known}${it.body && `: ${it.body}`}`, 500)),
          visible(it.label, 34) + (kind === "claimed" ? " (not proved)" : ""),
        ),
      );
    }
    return drawing;
  }
}
