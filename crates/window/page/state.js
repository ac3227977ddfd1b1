// What the page knows. It is bounded: the oldest goes first.

const MOST_HEADS = 20_000;
const MOST_REFUSED = 1_024;
const MOST_RATES = 300;

export const state = {
  platform: "",
  level: "",
  isRecording: false,
  operates: false,
  bodies: false,
  isThere: false,
  away: "",
  status: null,
  totals: null,
  nodes: [],
  agents: new Map(),
  channels: new Map(),
  refused: [],
  heads: [],
  skipped: 0,
  /** Total messages a second, one each second. */
  rates: [],
};

function kept(list, most) {
  // Cut seldom, and much at a time.
  if (list.length > most * 1.1) list.splice(0, list.length - most);
}

function change(map, event, key) {
  for (const row of event.changed) map.set(row[key], row);
  for (const name of event.gone) map.delete(name);
}

const sameRefusal = (one, other) => one.at === other.at && one.who === other.who && one.reason === other.reason && one.receiver === other.receiver;

const takes = {
  hello(event) {
    if (event.platform !== state.platform) Object.assign(state, { refused: [], heads: [], skipped: 0, rates: [] });
    Object.assign(state, { platform: event.platform, level: event.level, isRecording: event.is_recording, operates: event.operates, bodies: event.bodies, isThere: true, away: "" });
    state.agents.clear();
    state.channels.clear();
    // A recording is told anew.
    if (event.is_recording) Object.assign(state, { refused: [], heads: [], skipped: 0 });
  },
  status: (event) => void (state.status = event.status),
  nodes: (event) => void (state.nodes = event.nodes),
  agents: (event) => change(state.agents, event, "name"),
  channels: (event) => change(state.channels, event, "channel"),
  totals(event) {
    state.totals = event;
    state.rates.push(event.sent_rate);
    kept(state.rates, MOST_RATES);
  },
  refused(event) {
    const latest = state.refused.slice(-MOST_REFUSED);
    state.refused.push(...event.records.filter((record) => !latest.some((known) => sameRefusal(known, record))));
    kept(state.refused, MOST_REFUSED);
  },
  heads(event) {
    state.heads.push(...event.heads);
    state.skipped += event.skipped;
    kept(state.heads, MOST_HEADS);
  },
  away: (event) => Object.assign(state, { away: event.why, isThere: false }),
  end: () => {},
};

/** Takes one line of the stream. A newer window may say more. */
export function take(event) {
  if (Object.hasOwn(takes, event.event)) takes[event.event](event);
}

/** What was seen, as `sealbus sniff --open` and `sealbus window FILE` read it. */
export function recording() {
  const messages = state.heads.map((head) => ({ seen: "message", ...head }));
  const refused = state.refused.map(({ word, remedy, ...record }) => ({ seen: "refused", ...record }));
  const lines = [...messages, ...refused].sort((one, other) => one.at - other.at);
  if (state.skipped) lines.push({ seen: "skipped", count: state.skipped });
  return [{ "sealbus-sniff": 1 }, ...lines].map((line) => `${JSON.stringify(line)}\n`).join("");
}
