// The agents, and one of them: why does it not answer?

import { Facts, Table } from "./lists.js";
import { operations } from "./operate.js";
import { Sequence } from "./sequence.js";
import { bytes, count, el, local, rate, span, visible, visibleLines } from "./text.js";
import { certificateTable, stepTable } from "./platform.js";

const isOf = (agent, text) => !text || agent.name.toLowerCase().includes(text) || (agent.node ?? "").toLowerCase().includes(text) || (agent.state ?? "ended").includes(text);
export const stateMark = (state) => (state === "active" || state === "waiting" ? "good" : state ? "warn" : "bad");

export function agents({ link, go }) {
  const filter = el("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => go({ filter: filter.value }) });
  const traffic = (name) => (agent) => agent.traffic?.[name] ?? 0;
  const number = (title, name, shown = count) => ({
    title, number: true, value: traffic(name), cell: (agent) => (agent.traffic ? shown(agent.traffic[name]) : "–"),
  });
  const table = new Table(
    "Agents",
    [
      { title: "Agent", value: (it) => it.name, cell: (it) => ({ text: it.name, href: link("agents", it.name) }) },
      { title: "State", value: (it) => it.state ?? "~", cell: (it) => ({ text: it.state ?? "ended", mark: stateMark(it.state) }) },
      { title: "Node", value: (it) => it.node ?? "~", cell: (it) => it.node ?? "–" },
      number("Sent/s", "sent_rate", rate),
      number("Got/s", "received_rate", rate),
      number("Sent", "sent"),
      number("Got", "received"),
      number("Waiting", "waiting"),
      { ...number("Refused", "refused"), cell: (it) => ({ text: count(it.traffic?.refused ?? 0), mark: it.traffic?.refused ? "bad" : "" }) },
      { title: "Restarts", number: true, value: (it) => it.restarts, cell: (it) => count(it.restarts) },
      { title: "Note", cell: (it) => it.note ?? "" },
    ],
    (agent) => agent.name,
    { onsort: (sort) => go({ sort }) },
  );
  let text = "";
  return {
    title: "Agents",
    node: el("div", {}, el("div", { class: "tools" }, el("label", {}, "Filter by name, node or state", filter)), table.node),
    params(params) {
      if (document.activeElement !== filter) filter.value = params.get("filter") ?? "";
      text = (params.get("filter") ?? "").toLowerCase();
      table.sort = params.get("sort") ?? "Agent";
    },
    update: (state) => table.update([...state.agents.values()].filter((agent) => isOf(agent, text))),
  };
}

export function agent({ name, ask, act, link }) {
  const facts = new Facts();
  const log = el("pre", { tabindex: "0", role: "region", "aria-label": "Log" });
  const certificates = certificateTable();
  const steps = stepTable();
  const services = new Table(
    "Services in the DF",
    [{ title: "Service", cell: (it) => it.name ?? "–" }, { title: "Type", cell: (it) => it.service_type ?? "–" }],
    (it) => `${it.name}/${it.service_type}`,
  );
  const sequence = new Sequence();
  const operated = operations(name, act);
  const failed = el("p", { class: "bad", role: "status" });
  const isIt = (other) => other === name || local(other) === name || other === local(name);
  let asked = 0;
  const more = async () => {
    asked = Date.now();
    try {
      const told = await ask({ ask: "agent", agent: name });
      certificates.update(told.certificates.toReversed());
      steps.update(told.events.toReversed());
      services.update(told.services);
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
      const text = told.log === null ? "It was not started by the platform: its output is where it was started." : visibleLines(told.log) || "It has printed nothing.";
      if (log.textContent !== text) log.textContent = text;
      if (isAtEnd) log.scrollTop = log.scrollHeight;
      failed.textContent = "";
    } catch (error) {
      failed.textContent = visible(error.message, 400);
    }
  };
  return {
    title: visible(name),
    watch: { agents: [local(name)] },
    node: el(
      "div", {}, failed, facts.node, operated.node,
      el("p", {}, el("a", { href: link("conversations", "", { agent: local(name) }) }, "Its conversations"), " · ", el("a", { href: link("refusals", "", { filter: local(name) }) }, "Refused attempts of it and at it")),
      el("h2", {}, "Latest messages"), sequence.node,
      el("h2", {}, "Log"), log,
      el("h2", {}, "Certificates"), certificates.node,
      el("h2", {}, "Steps of certification"), steps.node,
      el("h2", {}, "Services"), services.node,
    ),
    update(state) {
      const it = state.agents.get(name) ?? [...state.agents.values()].find((agent) => isIt(agent.name));
      operated.update(state, it?.node);
      if (it) {
        const traffic = it.traffic;
        facts.update([
          ["State", it.state ?? "ended", it.state ? "" : "bad"],
          ["Node", it.node ?? "–"],
          ["Process", it.process],
          ["Process id", it.pid ?? "–"],
          ["Sent a second", traffic ? rate(traffic.sent_rate) : "–"],
          ["Got a second", traffic ? rate(traffic.received_rate) : "–"],
          ["Waiting in its mailbox", traffic ? `${count(traffic.waiting)} (${bytes(traffic.waiting_bytes)})` : "–"],
          ["Refused attempts", traffic ? count(traffic.refused) : "–", traffic?.refused ? "bad" : ""],
          ["Restarts", count(it.restarts)],
          ["Certificate ends", it.expires ? `in ${span(it.expires - Date.now())}` : "–"],
          ["Note", it.note ?? "–"],
        ]);
      } else if (state.totals) {
        facts.update([["State", "no agent has this name", "bad"]]);
      }
      sequence.update(state.heads.filter((head) => isIt(head.from) || isIt(head.to)), state.refused.filter((record) => isIt(record.who) || isIt(record.receiver ?? "")), 40);
      if (!state.isRecording && state.isThere && Date.now() - asked > 3000) more();
    },
  };
}
