// Which part is shown follows from the address after the hash: #run?protocol=token&nodes=5. A link is all there is to a state.

import { decode, encode, get } from "./api.js";
import { fill, h } from "./dom.js";
import * as check from "./check.js";
import * as compare from "./compare.js";
import * as home from "./home.js";
import * as play from "./play.js";
import * as run from "./run.js";
import * as tour from "./tour.js";
import * as trap from "./trap.js";
import * as views from "./views.js";

const PARTS = { home, run, tour, scenario: tour, trap, play, compare, sweep: compare, calculate: compare, check, views, swarm: views };
const NAV = [["tour", "Tours"], ["run", "Run"], ["play", "Play"], ["trap", "Traps"], ["compare", "Compare"], ["check", "Explore"], ["views", "Views"]];

const KEYS = [
  ["Space", "play or pause"], ["→ ←", "one event forward or back"], ["Page Down, Page Up", "ten events"], ["Home, End", "to the start, to the end"],
  ["+ − 0", "zoom in, zoom out, the whole run"], ["V", "to the first violation"], ["N, P", "next and previous step of a tour or trap"],
  ["Z, R", "Play: take back the last step; any step that must happen"], ["1 to 7", "the parts of the laboratory"], ["?", "this list"],
];

const main = document.querySelector("#main");
let current, about, leave;

/** Reads the address: the part and its parameters. */
function route() {
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  return { name: name in PARTS ? name : "home", params: decode(query) };
}

/** Changes the address without going anywhere. Browsers limit how often: the last one wins. A part that was left says nothing. */
let pending, address;
function setAddress(signal, name, params) {
  if (signal.aborted) return;
  clearTimeout(pending);
  pending = setTimeout(() => {
    // Somebody goes elsewhere at this moment, and the page does not know yet.
    if (location.hash !== address) return;
    const query = encode(params);
    history.replaceState(null, "", `#${name}${query ? `?${query}` : ""}`);
    address = location.hash;
  }, 200);
}

/** Goes to another address. */
function go(name, params) {
  const query = encode(params ?? {});
  const hash = `#${name}${query ? `?${query}` : ""}`;
  if (location.hash === hash) return show();
  location.hash = hash;
}

async function show() {
  clearTimeout(pending);
  address = location.hash;
  // Also a part that is still opening ends: its requests are given up, and what it does later is not seen.
  leave?.abort();
  leave = new AbortController();
  const { signal } = leave;
  current?.destroy?.();
  current = undefined;
  const { name, params } = route();
  markPart(name);
  document.body.removeAttribute("data-ready");
  let opened;
  try {
    about ??= await get("about");
    if (signal.aborted) return;
    const container = h("div", { class: `part ${name}` });
    fill(main, container);
    opened = await PARTS[name].open({ container, name, params, about, signal, setAddress: (...where) => setAddress(signal, ...where), go });
  } catch (error) {
    if (signal.aborted) return;
    fill(main, h("div", { class: "part" }, h("p", { class: "notice alarm", role: "alert" }, error.message), h("p", {}, h("a", { href: "#home" }, "Back to the beginning"))));
  }
  if (signal.aborted) return opened?.destroy?.();
  current = opened;
  document.title = `${main.querySelector("h1")?.textContent ?? "The laboratory"} · hallpass`;
  document.body.dataset.ready = name;
}

/** Shows in the bar which part is open. */
function markPart(name) {
  const nav = document.querySelector("#nav");
  for (const link of nav.children) {
    const here = PARTS[link.getAttribute("href").slice(1)] === PARTS[name];
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    // On a phone the bar is wider than the screen.
    if (here) nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
  }
  document.body.dataset.part = name;
}

function showKeys() {
  const dialog = document.querySelector("#help");
  fill(dialog, h("h2", { id: "help-title" }, "Keys"), h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("p", {}, "In the diagram: drag to move, pinch or Ctrl and wheel to zoom, click a message to see why it was sent."),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  dialog.showModal();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target.matches?.("input:not([type=range]):not([type=checkbox]), select, textarea") || document.querySelector("dialog[open]")) return;
  if (event.key === " " && target.matches?.("button, a, summary, input")) return;
  if (target.matches?.("input[type=range]") && /^(Arrow|Page|Home|End)/.test(event.key)) return;
  // A letter means the same with Shift, or with Caps Lock.
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === "?") return showKeys();
  if (current?.onKey?.({ key })) return event.preventDefault();
  const part = NAV[Number(key) - 1];
  if (part && !target.matches?.("input")) go(part[0]);
});

document.querySelector("#keys").addEventListener("click", showKeys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
fill(document.querySelector("#nav"), NAV.map(([name, title]) => h("a", { href: `#${name}` }, title)));
addEventListener("hashchange", show);
// For tests and measurements from outside the page.
globalThis.laboratory = { get current() { return current; } };
show();
