// Who talks to whom, and is it proved?

import { Table } from "./lists.js";
import { MARKS, count, el, knownBy, local, rate, svg, triedBy, visible } from "./text.js";

const SECONDS = 60;
const MOST_POINTS = 60;
const MOST_WAYS = 200;
const [POINT_WIDTH, POINT_HEIGHT, GAP, TITLE] = [130, 30, 26, 26];
const OUTSIDE = "outside";

/** Agents whose names differ only in numbers are one group. */
const stem = (name) => local(name).replace(/\d+/g, "*");

/** Who tried what was refused; of an address only the machine. */
const source = (record) => triedBy(record).replace(/^(\[[0-9a-f:]+\]|\d+(?:\.\d+){3}):\d+$/i, "$1");

/** The points by name, each in a place, and the name of the point that stands for an agent. */
function points(state) {
  const places = new Map();
  for (const agent of state.agents.values()) if (agent.state) places.set(agent.name, agent.node ?? OUTSIDE);
  const since = Date.now() - SECONDS * 1000;
  const recent = state.isRecording ? state.heads : state.heads.filter((head) => head.at > since);
  const refused = state.refused.slice(-MOST_WAYS);
  const named = new Map([...state.agents.keys()].map((name) => [local(name), name]));
  const whole = (name) => (places.has(name) ? name : named.get(name) ?? name);
  for (const head of recent) for (const name of [head.from, head.to]) if (!places.has(name)) places.set(name, OUTSIDE);
  for (const record of refused) for (const name of [source(record), record.receiver]) if (name && !places.has(whole(name))) places.set(whole(name), OUTSIDE);
  const isGrouped = places.size > MOST_POINTS;
  const all = new Map();
  const pointOf = (name) => {
    const place = places.get(name) ?? OUTSIDE;
    return isGrouped ? `${place}/${stem(name)}` : name;
  };
  for (const [name, place] of places) {
    const key = pointOf(name);
    const point = all.get(key) ?? { key, place, label: isGrouped ? stem(name) : local(name), agents: 0, agent: name };
    point.agents += 1;
    all.set(key, point);
  }
  const ways = new Map();
  const way = (from, to, kind, label, times) => {
    const key = `${from}\n${to}\n${kind}`;
    const known = ways.get(key) ?? { key, from, to, kind, label, count: 0 };
    known.count += times;
    known.label = label;
    ways.set(key, known);
  };
  for (const head of recent) {
    const [kind, known] = knownBy(head.provenance);
    way(pointOf(head.from), pointOf(head.to), kind, known, 1);
  }
  for (const record of refused) way(pointOf(whole(source(record))), pointOf(whole(record.receiver ?? source(record))), "refused", record.word ?? "refused", record.count);
  const busiest = [...ways.values()].sort((one, other) => (other.kind === "refused") - (one.kind === "refused") || other.count - one.count);
  return { all: [...all.values()].slice(0, 400), ways: busiest.slice(0, MOST_WAYS) };
}

/** Puts the places side by side, and the points of each in rows. */
function laidOut(all) {
  const places = new Map();
  for (const point of all) places.set(point.place, [...(places.get(point.place) ?? []), point]);
  const boxes = [];
  const at = new Map();
  let left = 10;
  let height = 0;
  const names = [...places.keys()].sort((one, other) => (other === OUTSIDE) - (one === OUTSIDE) || (one < other ? -1 : 1));
  for (const name of names) {
    const inside = places.get(name).sort((one, other) => (one.label < other.label ? -1 : 1));
    const columns = Math.max(1, Math.min(3, Math.ceil(inside.length / 8)));
    const rows = Math.ceil(inside.length / columns);
    const width = columns * (POINT_WIDTH + GAP) + GAP;
    for (const [index, point] of inside.entries()) {
      const [column, row] = [Math.floor(index / rows), index % rows];
      at.set(point.key, { x: left + GAP + column * (POINT_WIDTH + GAP), y: TITLE + 24 + row * (POINT_HEIGHT + GAP) });
    }
    const box = { name, left, width, height: TITLE + rows * (POINT_HEIGHT + GAP) + 20 };
    boxes.push(box);
    height = Math.max(height, box.height);
    left += width + 90;
  }
  return { boxes, at, width: left - 80, height: height + 20 };
}

export function map({ link, go }) {
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Map" });
  const filter = el("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => go({ filter: filter.value }) });
  const shownAs = (key) => key.split("/").at(-1);
  const table = new Table(
    "Who wrote to whom",
    [
      { title: "From", cell: (it) => shownAs(it.from) },
      { title: "To", cell: (it) => shownAs(it.to) },
      { title: "Seen", number: true, cell: (it) => (it.kind === "refused" ? `${count(it.count)} times` : count(it.count)) },
      { title: "Sender is", cell: (it) => ({ text: it.kind === "refused" ? `refused: ${it.label}` : it.label, mark: MARKS[it.kind] }) },
    ],
    (it) => it.key,
  );
  const lost = el("p", { class: "quiet" });
  let drawn = "";
  let text = "";
  const draw = ({ all, ways }) => {
    const { boxes, at, width, height } = laidOut(all);
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-label": `${all.length} agents or groups on ${boxes.length} nodes, and ${ways.length} lines between them. The table below shows the same.`, role: "group" });
    for (const it of boxes) {
      drawing.append(svg("rect", { class: "box", x: it.left, y: 8, width: it.width, height: it.height, rx: 10 }), svg("text", { class: "head", x: it.left + 14, y: 28 }, it.name === OUTSIDE ? "not of a node" : visible(it.name, 30)));
    }
    for (const way of ways) {
      const [from, to] = [at.get(way.from), at.get(way.to)];
      if (!from || !to) continue;
      const [x1, y1, x2, y2] = [from.x + POINT_WIDTH / 2, from.y + POINT_HEIGHT / 2, to.x + POINT_WIDTH / 2, to.y + POINT_HEIGHT / 2];
      // From side to side, or, within a column, around it. There and back are two lines.
      const isRight = x2 > x1;
      const start = x1 === x2 ? from.x + POINT_WIDTH : isRight ? from.x + POINT_WIDTH : from.x;
      const end = x1 === x2 ? to.x + POINT_WIDTH : isRight ? to.x : to.x + POINT_WIDTH;
      const bend = x1 === x2 ? 26 : 0;
      const shift = isRight || y2 > y1 ? -4 : 4;
      const middle = (start + end) / 2 + bend;
      // An attempt at nobody in particular ends where it began.
      const path = way.from === way.to ? `M${start} ${y1 - 10}c34 0 34 14 0 14` : `M${start} ${y1 + shift}C${middle} ${y1 + shift} ${middle} ${y2 + shift} ${end} ${y2 + shift}`;
      const wide = Math.min(8, 1 + Math.log2(1 + way.count) / 2).toFixed(1);
      drawing.append(
        svg("path", { class: `way ${way.kind}`, d: path, "stroke-width": wide }, svg("title", {}, visible(`${shownAs(way.from)} → ${shownAs(way.to)}: ${way.count}, ${way.label}`, 300))),
        svg("path", { class: `tip ${way.kind === "refused" ? "refused" : ""}`, d: `M${end} ${y2 + shift}l${isRight && x1 !== x2 ? -8 : 8} -4v8z` }),
      );
      if (way.kind === "refused") drawing.append(svg("text", { class: "refused", x: start + (isRight ? 8 : -8), y: y1 + shift - 6, "text-anchor": isRight ? "start" : "end" }, `✗ ${visible(way.label, 30)}`));
    }
    for (const point of all) {
      const { x, y } = at.get(point.key);
      const label = point.agents > 1 ? `${point.label} ×${point.agents}` : point.label;
      const isKnown = point.place !== OUTSIDE;
      const inside = [svg("rect", { class: isKnown ? "point" : "point bad", x, y, width: POINT_WIDTH, height: POINT_HEIGHT, rx: 6 }), svg("text", { x: x + POINT_WIDTH / 2, y: y + 20, "text-anchor": "middle" }, svg("title", {}, visible(point.agent)), visible(label, 18))];
      const href = point.agents > 1 ? link("agents", "", { filter: point.label.split("*")[0] }) : link("agents", point.agent);
      drawing.append(isKnown ? svg("a", { href, "aria-label": visible(label) }, ...inside) : svg("g", {}, ...inside));
    }
    return drawing;
  };
  return {
    title: "Map",
    watch: {},
    node: el(
      "div", {},
      el("div", { class: "tools" }, el("label", {}, "Filter by name", filter)),
      el("p", { class: "quiet" }, `Messages of the last ${SECONDS} seconds. Solid lines: the sender is proved. Long dashes: a broker vouches for it. Dots: it is only claimed. Red dashes with ✗: refused.`),
      lost, box, el("h2", {}, "As a table"), table.node,
    ),
    params(params) {
      if (document.activeElement !== filter) filter.value = params.get("filter") ?? "";
      text = (params.get("filter") ?? "").toLowerCase();
    },
    update(state) {
      const { all, ways } = points(state);
      const isWanted = (way) => !text || way.from.toLowerCase().includes(text) || way.to.toLowerCase().includes(text);
      const shown = ways.filter(isWanted);
      const ends = new Set(shown.flatMap((way) => [way.from, way.to]));
      const left = text ? all.filter((point) => point.key.toLowerCase().includes(text) || ends.has(point.key)) : all;
      table.update(shown);
      const seen = state.totals ? `${rate(state.totals.sent_rate)} messages a second` : "";
      lost.textContent = [seen, state.skipped ? `${count(state.skipped)} passed and are not in the map, because there were too many` : ""].filter(Boolean).join("; ");
      const now = JSON.stringify([left.map((it) => [it.key, it.place, it.agents]), shown.map((it) => [it.key, Math.round(Math.log2(1 + it.count))])]);
      if (now === drawn) return;
      drawn = now;
      // The link that has the focus keeps it.
      const focused = box.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      box.replaceChildren(draw({ all: left, ways: shown }));
      if (focused) [...box.querySelectorAll("a")].find((it) => it.getAttribute("href") === focused)?.focus();
    },
  };
}
