// Refused attempts, channels, nodes and certificates.

import { Table } from "./lists.js";
import { bytes, clock, count, date, el, named, rate, span, triedBy, visible } from "./text.js";

const has = (text, ...fields) => !text || fields.some((field) => (field ?? "").toLowerCase().includes(text));

function attempt(record) {
  return el(
    "li", {},
    el("p", {}, el("strong", { class: "bad" }, record.word ?? "refused"), " ", named(triedBy(record)), " → ", named(record.receiver ?? "nobody in particular"), record.count > 1 ? ` · ${count(record.count)} times` : ""),
    el("p", {}, el("bdi", {}, visible(record.reason, 600))),
    record.remedy ? el("p", {}, el("strong", {}, "What to do: "), record.remedy) : "",
    el("p", { class: "quiet" }, date(record.at), record.by ? [" · reported by ", visible(record.by)].join("") : ""),
  );
}

/** The latest refused attempts. */
export function refusalList(most) {
  const node = el("ul", { class: "refusals" });
  let known = "";
  return {
    node,
    update(records) {
      const shown = records.slice(-most).toReversed();
      const now = `${records.length}/${shown[0]?.at}/${shown.at(-1)?.at}/${shown[0]?.who}`;
      if (now === known) return;
      known = now;
      node.replaceChildren(...shown.map(attempt));
    },
  };
}

export function refusals({ go }) {
  const filter = el("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => go({ filter: filter.value }) });
  const reason = el("select", { onchange: () => go({ reason: reason.value }) }, el("option", { value: "" }, "all"));
  const sums = new Table(
    "By reason and source",
    [
      { title: "Times", number: true, cell: (it) => count(it.count) },
      { title: "Reason", cell: (it) => ({ text: it.word, mark: "bad" }) },
      { title: "Tried by", cell: (it) => it.who },
      { title: "Last", cell: (it) => clock(it.at) },
    ],
    (it) => `${it.word}/${it.who}`,
  );
  const list = refusalList(100);
  const none = el("p", {}, "Nothing was refused.");
  const reasons = new Set();
  let params = new URLSearchParams();
  const word = (record) => record.word ?? "other";
  return {
    title: "Refused",
    node: el("div", {}, el("div", { class: "tools" }, el("label", {}, "Filter by name or words", filter), el("label", {}, "Reason", reason)), none, sums.node, el("h2", {}, "The latest first"), list.node),
    params(given) {
      params = given;
      if (document.activeElement !== filter) filter.value = params.get("filter") ?? "";
      reason.value = params.get("reason") ?? "";
    },
    update(state) {
      for (const record of state.refused) {
        if (reasons.has(word(record))) continue;
        reasons.add(word(record));
        reason.append(el("option", { value: word(record) }, word(record)));
        reason.value = params.get("reason") ?? "";
      }
      const text = (params.get("filter") ?? "").toLowerCase();
      const wanted = state.refused.filter((it) => has(text, it.who, it.receiver, it.reason) && (!params.get("reason") || word(it) === params.get("reason")));
      const groups = new Map();
      for (const record of wanted) {
        const key = `${word(record)}/${record.who}`;
        const group = groups.get(key) ?? { word: word(record), who: triedBy(record), count: 0, at: 0 };
        group.count += record.count;
        group.at = Math.max(group.at, record.at);
        groups.set(key, group);
      }
      sums.update([...groups.values()].sort((one, other) => other.count - one.count));
      list.update(wanted);
      none.hidden = wanted.length > 0;
    },
  };
}

export function channels({ go, ask }) {
  const filter = el("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => go({ filter: filter.value }) });
  const number = (title, name, mark = () => "") => ({ title, number: true, value: (it) => it[name], cell: (it) => ({ text: name.endsWith("rate") ? rate(it[name]) : count(it[name]), mark: mark(it) }) });
  const table = new Table(
    "Channels",
    [
      { title: "Channel", value: (it) => it.channel, cell: (it) => it.channel },
      number("Published/s", "published_rate"),
      number("Published", "published"),
      number("Subscriptions", "subscriptions", (it) => (it.published && !it.subscriptions ? "warn" : "")),
      number("Dropped", "dropped", (it) => (it.dropped ? "bad" : "")),
      number("Filter errors", "filter_errors", (it) => (it.filter_errors ? "bad" : "")),
      { title: "Note", cell: (it) => (it.published && !it.subscriptions ? "published, and nobody listens" : it.dropped ? "slow subscribers lost events" : "") },
    ],
    (it) => it.channel,
    { onsort: (sort) => go({ sort }) },
  );
  const logs = new Table(
    "Logs of persistent channels",
    [
      { title: "Channel", cell: (it) => it.channel },
      { title: "Node", cell: (it) => it.node },
      { title: "Events", number: true, cell: (it) => count(it.events) },
      { title: "On disk", number: true, cell: (it) => bytes(it.bytes) },
      { title: "Durable subscriptions, and what they have not read", cell: (it) => Object.entries(it.durable ?? {}).map(([name, next]) => `${name}: ${count(it.next - next)}`).join(", ") || "–" },
      { title: "State", cell: (it) => (it.damage ? { text: it.damage, mark: "bad" } : { text: "good", mark: "good" }) },
    ],
    (it) => `${it.channel}/${it.node}`,
  );
  let asked = 0;
  let params = new URLSearchParams();
  return {
    title: "Channels",
    node: el("div", {}, el("div", { class: "tools" }, el("label", {}, "Filter by name", filter)), table.node, el("h2", {}, "Kept events"), logs.node),
    params(given) {
      params = given;
      if (document.activeElement !== filter) filter.value = params.get("filter") ?? "";
      table.sort = params.get("sort") ?? "Channel";
    },
    update(state) {
      const text = (params.get("filter") ?? "").toLowerCase();
      table.update([...state.channels.values()].filter((it) => has(text, it.channel)));
      if (state.isRecording || !state.isThere || Date.now() - asked < 3000) return;
      asked = Date.now();
      ask({ ask: "channel-logs" }).then((told) => logs.update(told.logs), () => {});
    },
  };
}

export const certificateTable = () =>
  new Table(
    "Certificates, the latest first",
    [
      { title: "Index", number: true, cell: (it) => count(it.index) },
      { title: "Identity", cell: (it) => it.identity },
      { title: "Vouched for by", cell: (it) => it.node ?? "–" },
      { title: "From", cell: (it) => date(it.not_before) },
      { title: "To", cell: (it) => date(it.not_after) },
      { title: "State", cell: (it) => (it.revoked ? { text: `revoked: ${it.revoked}`, mark: "bad" } : it.not_after < Date.now() ? { text: "ended", mark: "quiet" } : { text: "good", mark: "good" }) },
      { title: "Serial number", cell: (it) => it.serial },
    ],
    (it) => `${it.index}/${it.serial}`,
  );

export const stepTable = () =>
  new Table(
    "Steps of certification, the latest first",
    [
      { title: "Time", cell: (it) => `${date(it.at)}${clock(it.at).slice(8)}` },
      { title: "Step", cell: (it) => (it.step ? `${it.step} of 6` : "–") },
      { title: "Of", cell: (it) => it.subject },
      { title: "What happened", cell: (it) => it.what },
      { title: "Node", cell: (it) => it.node ?? "–" },
    ],
    (it) => String(it.sequence),
  );

export function nodes() {
  const table = new Table(
    "Nodes",
    [
      { title: "Node", cell: (it) => it.name },
      { title: "State", cell: (it) => ({ text: it.state, mark: it.state === "alive" ? "good" : it.state === "left" ? "quiet" : "bad" }) },
      { title: "Machine", cell: (it) => it.host },
      { title: "Address", cell: (it) => it.address },
      { title: "Processors", number: true, cell: (it) => count(it.processors) },
      { title: "Isolation", cell: (it) => it.isolation ?? "none" },
      { title: "Processes", number: true, cell: (it) => count(it.processes) },
      { title: "Agents", number: true, cell: (it) => count(it.agents) },
      { title: "Heard", cell: (it) => ({ text: Date.now() - it.heard < 10_000 ? "now" : `${span(Date.now() - it.heard)} ago` }) },
    ],
    (it) => it.name,
  );
  return { title: "Nodes", node: table.node, update: (state) => table.update(state.nodes) };
}

export function certificates({ go, ask }) {
  const filter = el("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => go({ filter: filter.value }) });
  const table = certificateTable();
  const steps = stepTable();
  const head = el("p", {});
  const failed = el("p", { class: "bad", role: "status" });
  let params = new URLSearchParams();
  let asked = 0;
  let told = { certificates: [], events: [] };
  const show = () => {
    const text = (params.get("filter") ?? "").toLowerCase();
    table.update(told.certificates.filter((it) => has(text, it.identity, it.node, it.serial, it.revoked)).toReversed());
    steps.update(told.events.filter((it) => has(text, it.subject, it.node, it.what)).toReversed());
  };
  return {
    title: "Certificates",
    node: el("div", {}, failed, head, el("div", { class: "tools" }, el("label", {}, "Filter by name or words", filter)), table.node, el("h2", {}, "Certification"), steps.node),
    params(given) {
      params = given;
      if (document.activeElement !== filter) filter.value = params.get("filter") ?? "";
      show();
    },
    update(state) {
      if (state.isRecording || !state.isThere || Date.now() - asked < 3000) return;
      asked = Date.now();
      ask({ ask: "certificates" }).then((answer) => {
        told = answer;
        head.textContent = `The issuance log has ${count(told.log.size)} certificates; its root hash is ${told.log.root}.`;
        failed.textContent = "";
        show();
      }, (error) => void (failed.textContent = visible(error.message, 400)));
    },
  };
}
