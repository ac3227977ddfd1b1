// Text of others, numbers and times as people read them. Everything is inserted as text nodes, never as markup.

const UNSEEN = /[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\u00ad\u180e\u200b\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const LONGEST = 128;

const escaped = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;

/** The beginning of a text, in which nothing is unseen and nothing changes the order of what stands around it. */
export function visible(text, most = LONGEST) {
  const characters = [...String(text).slice(0, 2 * most + 2)];
  const cut = characters.length > most || String(text).length > 2 * most;
  return characters.slice(0, most).join("").replace(UNSEEN, escaped) + (cut ? "…" : "");
}

/** Several lines of text, such as a log. */
export const visibleLines = (text) => text.replace(UNSEEN, (it) => (it === "\n" || it === "\t" ? it : escaped(it)));

/** An element. Attributes that begin with `on` are listeners; children are nodes or text. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of a drawing. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** A name: its characters do not change the order of the text around it. */
export const named = (text) => el("bdi", {}, visible(text));

export const local = (name) => name.split("@")[0];

export function rate(value) {
  if (!value) return "0";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

export const count = (value) => Number(value).toLocaleString("en");

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(1)} KiB`;
  return `${(value / 1024 ** 2).toFixed(1)} MiB`;
}

/** Whether a number is a time that a calendar has. Others may say any number. */
const isTime = (at) => Math.abs(at) <= 8.64e15;

const two = (number) => String(number).padStart(2, "0");

/** The time of day, to the millisecond. */
export function clock(at) {
  if (!isTime(at)) return "–";
  const time = new Date(at);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

export const date = (at) => (isTime(at) ? `${new Date(at).toISOString().slice(0, 10)} ${clock(at).slice(0, 8)}` : "–");

/** A length of time, such as `3 min`. */
export function span(milliseconds) {
  const seconds = Math.round(Math.abs(milliseconds) / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

const KNOWN = new Map([
  ["same-process", ["proved", "an agent of the same process"]],
  ["proved", ["proved", "proved"]],
  ["carried", ["proved", "proved before the receiver moved"]],
  ["platform", ["proved", "the platform itself"]],
  ["vouched", ["vouched", "vouched for by the broker"]],
  ["foreign", ["claimed", "of another platform, not proved"]],
]);

/** What a sender is known by: one word, and how. */
export const knownBy = (provenance) => KNOWN.get(provenance) ?? ["claimed", "claimed, not proved"];

/** Who tried what was refused. A name that was only claimed, perhaps another's, stands in quotes. */
export const triedBy = (record) => (record.word === "forged-sender" || record.word === "not-proved" ? `“${record.who}”` : record.who);

/** The mark of the one word. */
export const MARKS = { proved: "good", vouched: "warn", claimed: "warn", refused: "bad" };
