// The page of one run: its diagram with a player, and the sentence about a violation if there is one.

import { $, fill, h } from "./dom.js";
import { Trace } from "./trace.js";
import { Player } from "./player.js";

const trace = new Trace(JSON.parse($("run").textContent));
const player = new Player({ label: `Space-time diagram of ${trace.title}` });
const violation = trace.firstViolation();
const show = () => player.go(violation);
const alarm = violation >= 0 && h("p", { class: "notice alarm", role: "alert" }, `${player.diagram.name(trace.events[violation].node)} ${trace.words(violation)}, ${trace.time(violation)} `, h("button", { onclick: show }, "Show it (V)"));
fill($("main"), h("h1", {}, trace.title), alarm, player.element);
player.setTrace(trace);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // A control that has the focus handles its own keys.
  const isControl = /^(INPUT|SELECT)$/.test(event.target.tagName) || (event.target.tagName === "BUTTON" && event.key === " ");
  if (!isControl && player.onKey(event)) event.preventDefault();
});
