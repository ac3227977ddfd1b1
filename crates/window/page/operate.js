// What the page may change. It asks again, and the agent's name is typed.

import { el, local, visible } from "./text.js";

const ACTS = new Map([
  ["kill", ["Kill", "Its process ends, with all agents in it, and its certificate is revoked."]],
  ["move", ["Move", "It comes to rest, and goes on at the other node with its process."]],
  ["revoke", ["Revoke", "Its certificates are good no longer: what it writes is refused."]],
]);

/** Buttons for one agent, and the dialog that asks again. `act` does what was confirmed. */
export function operations(name, act) {
  const agent = local(name);
  const said = el("p", { role: "status" });
  const heading = el("h2", { id: "asked" });
  const effect = el("p", {});
  const nodes = el("select", {});
  const where = el("label", {}, "To the node", nodes);
  const reason = el("input", { maxlength: "256", autocomplete: "off", value: "by the window" });
  const why = el("label", {}, "Reason", reason);
  const typed = el("input", { autocomplete: "off", spellcheck: "false" });
  const go = el("button", { type: "button", class: "bad", disabled: true });
  const leave = el("button", { type: "button" }, "Cancel");
  const asking = el("p", {});
  const dialog = el("dialog", { "aria-labelledby": "asked" }, heading, effect, el("div", { class: "tools" }, where, why, el("label", {}, asking, typed)), go, " ", leave);
  let wanted = "";
  let others = [];
  let place;
  const isReady = () => typed.value === agent && (wanted !== "move" || nodes.value !== "");
  const carryOut = async () => {
    if (!isReady()) return;
    go.disabled = true;
    const details = wanted === "move" ? { node: nodes.value } : wanted === "revoke" ? { reason: reason.value } : {};
    try {
      said.textContent = visible((await act(typed.value, { do: wanted, agent, ...details })).done, 400);
      said.className = "good";
    } catch (error) {
      said.textContent = visible(error.message, 400);
      said.className = "bad";
    }
    dialog.close();
  };
  typed.addEventListener("input", () => void (go.disabled = !isReady()));
  nodes.addEventListener("change", () => void (go.disabled = !isReady()));
  typed.addEventListener("keydown", (event) => event.key === "Enter" && carryOut());
  go.addEventListener("click", carryOut);
  leave.addEventListener("click", () => dialog.close());
  const buttons = [...ACTS].map(([key, [word, what]]) => el("button", { type: "button", onclick: () => {
    wanted = key;
    heading.replaceChildren(`${word} `, el("bdi", {}, visible(agent)), "?");
    effect.textContent = what;
    asking.replaceChildren("Type ", el("bdi", {}, visible(agent)), " to confirm");
    where.hidden = key !== "move";
    why.hidden = key !== "revoke";
    nodes.replaceChildren(...others.map((it) => el("option", { value: it }, visible(it))));
    typed.value = "";
    go.textContent = word;
    go.disabled = true;
    dialog.showModal();
    typed.focus();
  } }, `${word}…`));
  const node = el("section", { hidden: true, "aria-label": "Operate" }, el("div", { class: "tools" }, ...buttons), said, dialog);
  return {
    node,
    update(state, at) {
      node.hidden = !state.operates;
      // While the page has no news of the agent, it offers no move to the node where the agent was last.
      place = at ?? place;
      others = state.nodes.filter((it) => it.state === "alive" && it.name !== place).map((it) => it.name);
    },
  };
}
