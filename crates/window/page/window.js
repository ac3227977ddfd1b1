// The page: its session, its stream, and the view that the address names.

import { agent, agents } from "./agents.js";
import { conversations } from "./conversations.js";
import { broker, gateways, masters } from "./doors.js";
import { map } from "./map.js";
import { overview } from "./overview.js";
import { certificates, channels, nodes, refusals } from "./platform.js";
import { state, take } from "./state.js";
import { count, el, visible } from "./text.js";

const VIEWS = new Map([
  ["overview", ["Overview", overview]],
  ["agents", ["Agents", agents]],
  ["map", ["Map", map]],
  ["conversations", ["Conversations", conversations]],
  ["channels", ["Channels", channels]],
  ["refusals", ["Refused", refusals]],
  ["nodes", ["Nodes", nodes]],
  ["masters", ["Masters", masters]],
  ["gateways", ["Gateways", gateways]],
  ["broker", ["Broker", broker]],
  ["certificates", ["Certificates", certificates]],
]);
/** Views that a recording has something for. */
const RECORDED = new Set(["overview", "map", "conversations", "refusals"]);
const KEY = "sealbus-session";
/** The least time between two drawings, and how much longer than a drawing it is: the rest of the time is the user's. */
const PAUSE = 250;
const SHARE = 10;

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let view = null;
let place = null;
let stream = null;
let isEnded = false;

// ---- the session

async function post(path, body, signal) {
  const headers = { "content-type": "application/json", "sealbus-session": sessionStorage.getItem(KEY) ?? "" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal, cache: "no-store" });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(said.error ?? `the window answered ${answer.status}`), { status: answer.status });
}

const ask = async (question) => (await post("ask", question)).json();
const act = async (confirm, what) => (await post("act", { confirm, act: what })).json();

function end(why) {
  isEnded = true;
  stream?.abort();
  view = null;
  main.replaceChildren(el("h1", {}, "The window is closed"), el("p", {}, visible(why, 400)));
  connection.textContent = "";
}

/** Redeems the secret of a link. It leaves the address at once. */
async function enter() {
  const once = new URLSearchParams(location.hash.slice(1)).get("once");
  if (!once) return;
  history.replaceState(null, "", "#/overview");
  const { session } = await (await post("session", { once })).json();
  sessionStorage.setItem(KEY, session);
}

// ---- the stream

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const watchId = () => {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (high % 2 ** 21) * 2 ** 32 + low;
};

async function follow(watch, aborted) {
  const wanted = watch && { id: watchId(), ...watch };
  while (!aborted.signal.aborted) {
    try {
      const answer = await post("stream", { watch: wanted ?? null }, aborted.signal);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) take(JSON.parse(line));
        draw();
      }
    } catch (error) {
      if (aborted.signal.aborted) return;
      if (error.status === 403) return end(error.message);
      state.away = error.status ? error.message : "the window's process does not answer";
    }
    if (aborted.signal.aborted) return;
    state.isThere = false;
    draw();
    await pause(1000);
  }
}

/** Opens the stream that the view needs. Nobody watches for a page that is not seen. */
function restream() {
  const watch = document.hidden || isEnded ? "none" : JSON.stringify(view?.watch ?? null);
  if (stream?.watch === watch) return;
  stream?.abort();
  stream = null;
  if (watch === "none") return;
  stream = Object.assign(new AbortController(), { watch });
  follow(JSON.parse(watch), stream);
}

// ---- the view

/** The address of a view. */
function link(name, argument = "", params = {}) {
  const set = Object.entries(params).filter(([, value]) => value);
  const query = new URLSearchParams(set).toString();
  return `#/${name}${argument ? `/${encodeURIComponent(argument)}` : ""}${query ? `?${query}` : ""}`;
}

function placed() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, argument] = path.split("/");
  let said = "";
  try {
    said = decodeURIComponent(argument ?? "");
  } catch {
    // An address that somebody cut.
  }
  return { name: VIEWS.has(name) ? name : "overview", argument: said, params: new URLSearchParams(query ?? "") };
}

/** Changes parameters of the present view. */
function go(change) {
  const params = { ...Object.fromEntries(place.params), ...change };
  history.replaceState(null, "", link(place.name, place.argument, params));
  show();
}

function show() {
  if (isEnded) return;
  const next = placed();
  const isNew = !view || next.name !== place.name || next.argument !== place.argument;
  const isFirst = !view;
  place = next;
  if (isNew) {
    const tools = { link, go, ask, act, name: next.argument };
    view = next.name === "agents" && next.argument ? agent(tools) : VIEWS.get(next.name)[1](tools);
    const title = el("h1", { tabindex: "-1" }, el("bdi", {}, view.title));
    main.replaceChildren(title, view.node);
    document.title = `${view.title} – Sealbus`;
    if (!isFirst) title.focus();
    scrollTo(0, 0);
  }
  view.params?.(next.params);
  for (const anchor of document.querySelectorAll("#views a")) {
    if (anchor.dataset.view === next.name) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  restream();
  drawNow();
}

let told = 0;
let toldAt = 0;

/** Says new refusals to those who do not see the page, seldom enough to be borne. */
function announce() {
  const all = state.refused.length;
  if (all > told && told > 0 && Date.now() - toldAt > 5000) {
    const last = state.refused.at(-1);
    document.getElementById("news").textContent = `${count(all - told)} refused: ${last.word ?? "attempt"} by ${visible(last.who)}`;
    toldAt = Date.now();
    told = all;
  }
  if (!told || all < told) told = all;
}

function drawNow() {
  if (!view) return;
  document.getElementById("platform").textContent = visible(state.platform);
  const [text, mark] = state.isThere
    ? [state.isRecording ? "a recording" : "live", ""]
    : state.away ? [`away: ${visible(state.away, 200)}`, "bad"] : ["connecting…", ""];
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = mark;
  for (const item of document.querySelectorAll("#views li")) item.hidden = state.isRecording && !RECORDED.has(item.firstChild.dataset.view);
  view.update(state);
  // The platform may have said what the page may see.
  restream();
  announce();
}

let isDue = false;
let next = 0;

/** Draws soon; much news is one drawing. */
function draw() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    const began = performance.now();
    drawNow();
    next = Math.max(began + PAUSE, performance.now() + SHARE * (performance.now() - began));
  }, Math.max(0, next - performance.now()));
}

for (const [name, [title]] of VIEWS) {
  document.getElementById("views").append(el("li", {}, el("a", { href: link(name), "data-view": name }, title)));
}
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input, select, textarea");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const filter = main.querySelector("input[type=search]");
  if (!filter) return;
  event.preventDefault();
  filter.focus();
});
document.addEventListener("visibilitychange", restream);
// A link that was opened in this tab while it shows the page already.
addEventListener("hashchange", () => (location.hash.startsWith("#once=") ? start() : show()));

async function start() {
  // Nothing is asked before the session is known: the address may change while the link is redeemed.
  isEnded = true;
  stream?.abort();
  stream = null;
  try {
    await enter();
  } catch (error) {
    return end(error.message);
  }
  if (!sessionStorage.getItem(KEY)) return end("Open the link that `sealbus window` prints: press Enter where it runs for a new one.");
  isEnded = false;
  show();
}

start();
