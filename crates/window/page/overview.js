// Is all well, and what is not?

import { Facts } from "./lists.js";
import { refusalList } from "./platform.js";
import { count, date, el, rate, span, svg, visible } from "./text.js";

const WIDTH = 600;
const HEIGHT = 80;

/** Messages a second over the last five minutes. */
function curve() {
  const line = svg("polyline");
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "curve", role: "img", "aria-label": "Messages a second" }, line);
  const said = el("p", { class: "quiet" });
  const update = (rates) => {
    const most = Math.max(...rates, 1);
    const step = WIDTH / Math.max(rates.length - 1, 59);
    line.setAttribute("points", rates.map((it, at) => `${(at * step).toFixed(1)},${(HEIGHT - 2 - (it / most) * (HEIGHT - 6)).toFixed(1)}`).join(" "));
    said.textContent = `${rate(rates.at(-1))} a second now, at most ${rate(most)} in the last ${span(rates.length * 1000)}.`;
  };
  return { node: el("div", {}, el("div", { class: "scroll" }, drawing), said), update };
}

export function overview() {
  const facts = new Facts();
  const notes = el("ul", { class: "notes", hidden: true });
  const rates = curve();
  const refused = refusalList(5);
  const none = el("p", {}, "Nothing was refused.");
  const node = el(
    "div", {}, notes, facts.node,
    el("h2", {}, "Messages a second"), rates.node,
    el("h2", {}, "Refused lately"), refused.node, none,
  );
  return {
    title: "Overview",
    node,
    update(state) {
      const { status, totals } = state;
      refused.update(state.refused);
      none.hidden = state.refused.length > 0;
      if (state.isRecording) {
        facts.update([["Messages", count(state.heads.length)], ["Refused", count(state.refused.length)], ["Not seen", count(state.skipped)]]);
        return;
      }
      if (!status) return;
      const agents = [...state.agents.values()];
      const alive = agents.filter((agent) => agent.state);
      const nodes = state.nodes.filter((it) => it.state === "alive").length;
      const lost = state.nodes.filter((it) => it.state === "dead" || it.state === "expected").length;
      facts.update([
        ["Agents", count(alive.length), agents.length > alive.length ? "" : undefined],
        ["Ended agents", count(agents.length - alive.length)],
        ["Nodes", lost ? `${nodes}, ${lost} lost` : count(nodes), lost ? "bad" : ""],
        ["Messages a second", totals ? rate(totals.sent_rate) : "–"],
        ["Waiting", totals ? count(totals.waiting) : "–"],
        ["Undeliverable", totals ? count(totals.undeliverable) : "–"],
        ["Refused", count(status.refusals), status.refusals ? "bad" : ""],
        ["Level", state.level],
        ["Certificates issued", count(status.certificates)],
        ["Master since", date(status.since)],
        ["CA ends", status.ca_ends ? `in ${span(status.ca_ends - Date.now())}` : "–"],
        ["Watching took", totals ? `${totals.took} ms` : "–"],
      ]);
      const silent = totals?.silent.map((it) => `${it.node} does not answer: ${it.why}`) ?? [];
      const told = [...status.alarms, ...status.log_alarms, ...status.warnings, ...silent];
      notes.hidden = !told.length;
      notes.replaceChildren(...told.map((text) => el("li", {}, visible(text, 1000))));
      rates.update(state.rates);
    },
  };
}
