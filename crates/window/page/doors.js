// Masters, gateways and the broker: how the platform is led, and the ways in and out of it.

import { Facts, Table } from "./lists.js";
import { bytes, count, date, el, span, visible } from "./text.js";

/** How often the platform is asked while the view is seen. */
const EVERY = 3000;

/** Asks a question again and again, as long as the view is drawn; `show` gets the answer. */
function asking(ask, question, show) {
  const failed = el("p", { class: "bad", role: "status" });
  let asked = 0;
  const update = (state) => {
    if (state.isRecording || !state.isThere || Date.now() - asked < EVERY) return;
    asked = Date.now();
    ask(question).then((answer) => {
      failed.textContent = "";
      show(answer);
    }, (error) => void (failed.textContent = visible(error.message, 400)));
  };
  return { failed, update };
}

const reasonTable = (caption) => new Table(
  caption,
  [
    { title: "Reason", cell: (it) => ({ text: it.reason, mark: "bad" }) },
    { title: "Times", number: true, cell: (it) => count(it.count) },
  ],
  (it) => it.reason,
);
const reasons = (refused) => Object.entries(refused ?? {}).map(([reason, times]) => ({ reason, count: times }));

/** A gateway whose callers are agents: what it says of itself, its callers, and the refused requests. */
class Callers {
  constructor(link, who, there, none) {
    Object.assign(this, { there, none });
    this.text = el("p", {});
    this.callers = new Table(
      `Callers: ${who}`,
      [
        { title: "Agent", cell: (it) => ({ text: it.agent, href: link("agents", it.agent) }) },
        { title: "Proves itself", cell: (it) => (it.anonymous ? { text: "not at all", mark: "warn" } : { text: "by a key or a token", mark: "good" }) },
        { title: "Requests", number: true, cell: (it) => count(it.requests) },
        { title: "Open now", number: true, cell: (it) => count(it.open) },
        { title: "Sessions", number: true, cell: (it) => count(it.sessions) },
      ],
      (it) => it.agent,
    );
    this.refused = reasonTable(`Refused requests of ${who}`);
    this.tables = el("section", { hidden: true }, this.callers.node, this.refused.node);
    this.node = el("div", {}, this.text, this.tables);
  }

  update(status) {
    this.text.textContent = status ? this.there(status) : this.none;
    this.tables.hidden = !status;
    if (!status) return;
    this.callers.update(status.callers);
    this.refused.update(reasons(status.refused));
  }
}

export function gateways({ ask, link }) {
  const text = el("p", {}, "The gateways are asked…");
  const fipa = new Facts();
  const rules = new Table(
    "Other platforms that may write to agents here",
    [
      { title: "Platform", cell: (it) => it.platform },
      { title: "May write to", cell: (it) => it.to.join(" ") },
      { title: "From", cell: (it) => it.from?.join(" ") || "anywhere" },
      { title: "Certificate", cell: (it) => it.certificate ?? "any" },
      { title: "DF", cell: (it) => (it.register ? "may register" : "–") },
      { title: "Made by", cell: (it) => it.by },
    ],
    (it) => JSON.stringify(it),
  );
  const turned = reasonTable("Refused messages of other platforms");
  const other = el("section", { hidden: true }, fipa.node, turned.node);
  const models = new Callers(link, "hosts", (it) => `Hosts reach ${count(it.tools)} tools of agents at ${visible(it.address)}.`, "No gateway to hosts of language models runs. It starts where the manifest has [gateway.mcp].");
  const clients = new Callers(link, "clients", (it) => `Clients reach ${count(it.tools)} services of agents at ${visible(it.address)}.`, "No gateway for A2A clients runs. It starts where the manifest has [gateway.a2a].");
  const standsText = el("p", {});
  const stands = new Table(
    "Agents of others",
    [
      { title: "Agent", cell: (it) => ({ text: it.agent, href: link("agents", it.agent) }) },
      { title: "Stands for", cell: (it) => (it.card ? `${it.card} at ${it.url}` : it.url) },
      { title: "Known by", cell: (it) => it.proof || "–" },
      { title: "Skills", number: true, cell: (it) => count(it.skills) },
      { title: "Asked", number: true, cell: (it) => count(it.asked) },
      { title: "Open now", number: true, cell: (it) => count(it.open) },
      { title: "Failed", number: true, cell: (it) => ({ text: count(it.failed), mark: it.failed ? "bad" : "" }) },
      { title: "Trouble", cell: (it) => (it.trouble ? { text: it.trouble, mark: "bad" } : "–") },
    ],
    (it) => it.agent,
  );
  const asked = asking(ask, { ask: "gateway" }, ({ status, rules: made, mcp, a2a, neighbours }) => {
    text.textContent = status ? `Other platforms reach this one at ${status.addresses.map((it) => visible(it)).join(" ")}.` : "No gateway to other platforms runs. It starts where the manifest has [gateway.http].";
    other.hidden = !status;
    const counters = status?.counters;
    if (counters) {
      const refused = Object.values(counters.refused).reduce((sum, it) => sum + it, 0);
      fipa.update([
        ["Came in", count(counters.received)],
        ["Came again", count(counters.repeated)],
        ["Went out", count(counters.sent)],
        ["Tried again", count(counters.retried)],
        ["Not taken", count(counters.failed), counters.failed ? "bad" : ""],
        ["Refused", count(refused), refused ? "bad" : ""],
      ]);
      turned.update(reasons(counters.refused));
    }
    const by = (policy, who) => (policy?.rules ?? []).map((rule) => ({ ...rule, by: who }));
    rules.update([...by(status?.own, "manifest"), ...by(made, "operator")]);
    models.update(mcp);
    clients.update(a2a);
    standsText.textContent = neighbours ? "" : "No agent of others is a neighbour. It becomes one by [gateway.neighbours.NAME] in the manifest.";
    stands.node.hidden = !neighbours;
    if (neighbours) stands.update(neighbours.neighbours);
  });
  return {
    title: "Gateways",
    node: el("div", {}, asked.failed, el("h2", {}, "Other platforms"), text, other, rules.node, el("h2", {}, "Hosts of language models (MCP)"), models.node, el("h2", {}, "Clients of A2A"), clients.node, el("h2", {}, "Agents of others (A2A)"), standsText, stands.node),
    update: asked.update,
  };
}

export function broker({ ask, link }) {
  const text = el("p", {}, "The broker is asked…");
  const facts = new Facts();
  const members = new Table(
    "Brokers",
    [
      { title: "Broker", cell: (it) => it.name },
      { title: "State", cell: (it) => (it.running ? { text: "runs", mark: "good" } : { text: "down", mark: "bad" }) },
      { title: "Takes no messages for want of", cell: (it) => (it.alarms.length ? { text: it.alarms.join(", "), mark: "bad" } : "–") },
    ],
    (it) => it.name,
  );
  const waiting = new Table(
    "Messages that wait there",
    [
      { title: "Agent", cell: ([agent]) => ({ text: agent, href: link("agents", agent) }) },
      { title: "Waiting", number: true, cell: ([, messages]) => count(messages) },
    ],
    ([agent]) => agent,
  );
  const dead = new Table(
    "Dead letters",
    [
      { title: "When", cell: (it) => date(it.at) },
      { title: "From", cell: (it) => it.from ?? "–" },
      { title: "To", cell: (it) => it.to ?? "–" },
      { title: "Performative", cell: (it) => it.performative ?? "–" },
      { title: "Size", number: true, cell: (it) => bytes(it.bytes) },
      { title: "Why", cell: (it) => ({ text: it.why, mark: "bad" }) },
      { title: "Sender was told", cell: (it) => (it.told ? "yes" : "no") },
    ],
    (it) => `${it.at}/${it.from}/${it.to}/${it.why}`,
  );
  const there = el("section", { hidden: true }, facts.node, members.node, waiting.node, dead.node);
  const asked = asking(ask, { ask: "broker" }, ({ broker: told }) => {
    there.hidden = !told;
    text.textContent = told ? `Agents reach the broker at ${told.addresses.map((it) => visible(it)).join(" ")}.` : "The platform runs on the mesh: it has no broker.";
    if (!told) return;
    const down = told.members.filter((it) => !it.running).length;
    facts.update([
      ["Brokers", down ? `${told.members.length}, ${down} down` : count(told.members.length), down ? "bad" : ""],
      ["Waiting", count(told.waiting.reduce((sum, [, messages]) => sum + messages, 0))],
      ["Dead letters", count(told.dead), told.dead ? "bad" : ""],
      ["Kept of them", count(told.kept)],
    ]);
    members.update(told.members);
    waiting.update(told.waiting.filter(([, messages]) => messages).sort((one, another) => another[1] - one[1]));
    dead.update(told.dead_letters.toReversed());
  });
  return { title: "Broker", node: el("div", {}, asked.failed, text, there), update: asked.update };
}

/** An address; none where the platform lives in a program, which listens nowhere. */
const listens = (address) => (address.endsWith(":0") ? "–" : address);

export function masters({ link }) {
  const notes = el("ul", { class: "notes", hidden: true });
  const facts = new Facts();
  const table = new Table(
    "Masters",
    [
      { title: "Process id", number: true, cell: (it) => String(it.pid) },
      { title: "State", cell: (it) => it.state },
      { title: "Since", cell: (it) => date(it.since) },
      { title: "Version", cell: (it) => it.version },
      { title: "Links of agents", cell: (it) => listens(it.address) },
      { title: "Nodes join at", cell: (it) => listens(it.enrolment) },
    ],
    (it) => String(it.pid),
  );
  return {
    title: "Masters",
    node: el("div", {}, notes, table.node, el("h2", {}, "What it keeps"), facts.node, el("p", {}, el("a", { href: link("certificates") }, "The issuance log and the certificates"), " · ", el("a", { href: link("nodes") }, "Its nodes"))),
    update(state) {
      const { status } = state;
      if (!status) return;
      const away = state.isThere ? { text: "leads", mark: "good" } : { text: "does not answer", mark: "bad" };
      table.update([{ ...status, state: away }]);
      facts.update([
        ["Nodes", count(status.nodes)],
        ["Agents", count(status.agents)],
        ["Certificates issued", count(status.certificates)],
        ["Refused attempts", count(status.refusals), status.refusals ? "bad" : ""],
        ["Level", status.level],
        ["CA ends", status.ca_ends ? `in ${span(status.ca_ends - Date.now())}` : "–"],
      ]);
      const told = [...status.alarms, ...status.log_alarms, ...status.warnings];
      notes.hidden = !told.length;
      notes.replaceChildren(...told.map((it) => el("li", {}, visible(it, 1000))));
    },
  };
}
