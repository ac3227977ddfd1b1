// What was said, in which conversation, and what was not answered?

import { Table } from "./lists.js";
import { Sequence } from "./sequence.js";
import { recording } from "./state.js";
import { clock, count, el, local, span } from "./text.js";

const FIELDS = [
  ["agent", "Agent, such as buyer-*"],
  ["conversation", "Conversation"],
  ["protocol", "Protocol"],
  ["performative", "Performative"],
  ["channel", "Channel, such as /offers/**"],
];
const ASKS = new Set(["request", "query-if", "query-ref", "cfp", "propose", "request-when", "request-whenever", "subscribe", "proxy", "propagate"]);
const ENDS = new Map([
  ["failure", ["failed", "bad"]], ["refuse", ["refused by the other", "warn"]], ["not-understood", ["not understood", "bad"]],
  ["reject-proposal", ["rejected", "warn"]], ["cancel", ["cancelled", "warn"]], ["inform", ["answered", "good"]],
  ["inform-if", ["answered", "good"]], ["inform-ref", ["answered", "good"]], ["agree", ["agreed, under way", ""]],
  ["accept-proposal", ["accepted, under way", ""]], ["confirm", ["answered", "good"]], ["disconfirm", ["answered", "good"]],
]);
const SLOW = 5000;

/** How a contract net stands; nothing if no call for proposals was seen. */
function netStanding(heads, now) {
  const asked = heads.filter((head) => head.performative.toLowerCase() === "cfp");
  if (!asked.length) return null;
  const askers = new Set(asked.map((head) => head.from));
  const answers = heads.filter((head) => !askers.has(head.from));
  const answered = new Set(answers.map((head) => head.from));
  const called = new Set(asked.map((head) => head.to));
  const silent = [...called].filter((name) => !answered.has(name)).map(local);
  const said = (from, ...words) => from.some((head) => words.includes(head.performative.toLowerCase()));
  if (said(answers, "failure", "not-understood")) return ["failed", "bad"];
  if (said(answers, "inform", "inform-done", "inform-result")) return ["done", "good"];
  if (silent.length && now - asked.at(-1).at > SLOW) return [`no answer from ${silent.slice(0, 3).join(", ")}${silent.length > 3 ? " and others" : ""}`, "bad"];
  if (silent.length) return [`${answered.size} of ${called.size} answered`, ""];
  if (said(heads, "accept-proposal")) return ["accepted, under way", ""];
  if (!said(answers, "propose")) return ["all refused", "warn"];
  return said(heads, "reject-proposal") ? ["rejected", "warn"] : ["proposals are in", ""];
}

/** How a conversation stands, by what was seen of it: words and a mark. */
export function standing(heads, now) {
  const last = heads.at(-1);
  const net = last.protocol?.includes("contract-net") && netStanding(heads, now);
  if (net) return net;
  const word = last.performative.toLowerCase();
  if (ASKS.has(word)) return now - last.at > SLOW ? [`no answer for ${span(now - last.at)}`, "bad"] : ["asked", ""];
  return ENDS.get(word) ?? [word, ""];
}

/** The conversations among the messages, the latest first. */
function grouped(heads) {
  const all = new Map();
  for (const head of heads) {
    if (!head.conversation) continue;
    const known = all.get(head.conversation);
    if (known) known.push(head);
    else all.set(head.conversation, [head]);
  }
  const list = [...all].map(([id, messages]) => ({ id, messages, at: messages.at(-1).at }));
  return list.sort((one, other) => other.at - one.at);
}

function fits(pattern, name) {
  if (!pattern.includes("*")) return pattern === name || pattern === local(name);
  const parts = pattern.split("*");
  const text = pattern.includes("@") ? name : local(name);
  if (!text.startsWith(parts[0]) || !text.endsWith(parts.at(-1)) || text.length < parts[0].length + parts.at(-1).length) return false;
  let at = parts[0].length;
  for (const part of parts.slice(1, -1)) {
    at = text.indexOf(part, at);
    if (at < 0) return false;
    at += part.length;
  }
  return at <= text.length - parts.at(-1).length;
}

function onChannel(pattern, channel) {
  if (!channel) return false;
  const [wanted, is] = [pattern.split("/"), channel.split("/")];
  for (const [at, part] of wanted.entries()) {
    if (part === "**") return true;
    if (at >= is.length || (part !== "*" && part !== is[at])) return false;
  }
  return wanted.length === is.length;
}

export function conversations({ go, link }) {
  const inputs = new Map(FIELDS.map(([name]) => [name, el("input", { type: "search", size: "16", spellcheck: "false", autocomplete: "off", onchange: (event) => go({ [name]: event.target.value }) })]));
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => {
    isHeld = !isHeld;
    pause.setAttribute("aria-pressed", String(isHeld));
    pause.textContent = isHeld ? "Go on" : "Pause";
  } }, "Pause");
  const save = el("button", { type: "button", onclick: () => {
    const address = URL.createObjectURL(new Blob([recording()], { type: "application/jsonl" }));
    el("a", { href: address, download: "sealbus.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } }, "Save as a recording");
  const bodies = el("input", { type: "checkbox", onchange: () => go({ bodies: bodies.checked ? "yes" : "" }) });
  const withBodies = el("label", { class: "tick" }, bodies, "Show bodies");
  const noBodies = el("p", { class: "quiet", hidden: true }, "Bodies are not shown: ", el("code", {}, "sealbus window --bodies"), " starts a window that may show them.");
  const lost = el("p", { class: "warn" });
  const sequence = new Sequence();
  const table = new Table(
    "Conversations, the latest first",
    [
      { title: "Conversation", cell: (it) => ({ text: it.id.length > 24 ? `${it.id.slice(0, 22)}…` : it.id, href: link("conversations", "", { ...Object.fromEntries(params), conversation: it.id }) }) },
      { title: "State", cell: (it) => ({ text: it.standing[0], mark: it.standing[1] }) },
      { title: "Between", cell: (it) => [...new Set(it.messages.flatMap((head) => [local(head.from), local(head.to)]))].slice(0, 6).join(", ") },
      { title: "Protocol", cell: (it) => it.messages.at(-1).protocol ?? "–" },
      { title: "Messages", number: true, cell: (it) => count(it.messages.length) },
      { title: "Last", cell: (it) => clock(it.at) },
    ],
    (it) => it.id,
  );
  let params = new URLSearchParams();
  let isHeld = false;
  let mayRead = false;
  const given = (name) => params.get(name) ?? "";
  const isWanted = (head) =>
    (!given("agent") || fits(given("agent"), head.from) || fits(given("agent"), head.to)) &&
    (!given("conversation") || head.conversation === given("conversation")) &&
    (!given("protocol") || head.protocol === given("protocol")) &&
    (!given("performative") || given("performative").toLowerCase().split(",").includes(head.performative.toLowerCase())) &&
    (!given("channel") || onChannel(given("channel"), head.channel));
  const showsRefused = () => !["conversation", "protocol", "performative", "channel"].some(given);
  const isWantedAttempt = (record) => showsRefused() && (!given("agent") || fits(given("agent"), record.who) || fits(given("agent"), record.receiver ?? ""));
  return {
    title: "Conversations",
    // What the platform is asked for; the list shows all conversations of these agents.
    get watch() {
      const list = (name) => (given(name) ? given(name).split(",").map((it) => it.trim()).filter(Boolean).slice(0, 16) : []);
      return { agents: list("agent"), protocol: given("protocol") || null, performatives: list("performative"), channel: given("channel") || null, bodies: mayRead && given("bodies") === "yes" };
    },
    node: el(
      "div", {},
      el("div", { class: "tools" }, ...FIELDS.map(([name, label]) => el("label", {}, label, inputs.get(name))), withBodies, pause, save),
      noBodies,
      lost,
      el("div", { class: "split" }, table.node, el("div", {}, sequence.node)),
    ),
    params(given) {
      params = given;
      bodies.checked = params.get("bodies") === "yes";
      for (const [name, input] of inputs) if (document.activeElement !== input) input.value = params.get(name) ?? "";
    },
    update(state) {
      mayRead = state.bodies;
      withBodies.hidden = !mayRead;
      noBodies.hidden = mayRead || state.isRecording || !state.isThere;
      if (isHeld) return;
      const latest = state.heads.at(-1)?.at ?? 0;
      const now = state.isRecording ? latest : Date.now();
      const wanted = state.heads.filter(isWanted);
      const listed = given("conversation") ? state.heads : wanted;
      table.update(grouped(listed).slice(0, 300).map((it) => ({ ...it, standing: standing(it.messages, now) })));
      sequence.update(wanted, state.refused.filter(isWantedAttempt));
      lost.textContent = state.skipped ? `${count(state.skipped)} messages passed and are not shown: there were too many. Name an agent to see all of its messages.` : "";
    },
  };
}
