// The list of locks: searched and paged by the agent, which may have many.

import { get, post } from "./api.js";
import { $, h, reconcile, setText } from "./dom.js";
import { age, confirm, count, person, setBadges, toast } from "./parts.js";

const PAGE = 50;

// The names after which the pages begin, up to the one that is shown.
let starts = [null];
let page = { locks: [], more: 0, next: null };
// Tells an answer from one to an older question.
let question = 0;

export function setUpLocks() {
  const again = () => {
    starts = [null];
    void refreshLocks();
  };
  let typing;
  $("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(again, 150);
  });
  $("only-used").addEventListener("change", again);
  $("locks-form").addEventListener("submit", (event) => event.preventDefault());
  $("page-next").addEventListener("click", () => {
    // The next page begins after the one that is shown, not after one that is on its way.
    if (page.next === null || page.next === starts.at(-1)) return;
    starts.push(page.next);
    void refreshLocks().then(() => $("locks-title").scrollIntoView({ block: "start" }));
  });
  $("page-back").addEventListener("click", () => {
    if (starts.length > 1) starts.pop();
    void refreshLocks();
  });
  document.addEventListener("keydown", (event) => {
    const inField = event.target instanceof Element && event.target.closest("input, dialog");
    if (event.key === "/" && !inField && !$("overview").hidden) {
      event.preventDefault();
      $("search").focus();
    }
  });
}

export async function refreshLocks() {
  question += 1;
  const mine = question;
  const query = new URLSearchParams({ limit: PAGE });
  const after = starts.at(-1);
  if (after !== null) query.set("after", after);
  if ($("search").value) query.set("search", $("search").value);
  if ($("only-used").checked) query.set("held", "true");
  const found = await get(`/v1/locks?${query}`);
  if (mine !== question) return;
  page = found;
  // The locks of this page may be gone by now.
  if (page.locks.length === 0 && starts.length > 1) {
    starts.pop();
    return refreshLocks();
  }
  show();
}

function show() {
  reconcile($("locks").tBodies[0], page.locks, (lock) => lock.name, create, update);
  const first = (starts.length - 1) * PAGE;
  const shown = page.locks.length;
  setText($("page-text"), shown ? `${count(first + 1)} to ${count(first + shown)} of ${count(first + shown + page.more)}` : "");
  $("page-back").disabled = starts.length === 1;
  $("page-next").disabled = page.next === null;
  $("locks").parentElement.hidden = shown === 0;
  $("locks-none").hidden = shown > 0;
  const narrowed = $("search").value || $("only-used").checked;
  setText($("locks-none"), shown ? "" : narrowed ? "No lock is like that." : "This member knows of no locks: nobody here has used one lately.");
}

function create(lock) {
  const broken = h("button", { type: "button", class: "danger", "aria-label": `Break ${lock.name}`, onclick: () => askToBreak(lock.name) }, "Break");
  return h("tr", {},
    h("td", { class: "name" }, h("a", { href: `#/lock/${encodeURIComponent(lock.name)}` }, h("bdi", {}, shownName(lock.name)))),
    h("td"), h("td", { class: "wide", "data-label": "by" }), h("td", { class: "number", "data-label": "for" }),
    h("td", { class: "number", "data-label": "waiting" }), h("td", { class: "number", "data-label": "fence" }),
    h("td", { class: "actions" }, broken));
}

function update(row, lock) {
  const [, state, holder, time, waiting, fence] = row.cells;
  setBadges(state, [stateOf(lock)]);
  const [first, ...others] = lock.held_by;
  setText(holder, first ? person(first) + (others.length ? ` and ${others.length} more` : "") : "");
  holder.classList.toggle("blank", !first);
  setText(time, age(first?.for_ms));
  time.classList.toggle("blank", !first || first.for_ms === null);
  setText(waiting, lock.waiters ? count(lock.waiters) : "");
  waiting.classList.toggle("blank", !lock.waiters);
  setText(fence, lock.fence === "0" ? "" : lock.fence);
  fence.classList.toggle("blank", lock.fence === "0");
}

/** A name of blanks would leave nothing to click on. */
function shownName(name) {
  return name.trim() ? name : JSON.stringify(name);
}

export function stateOf(lock) {
  if (lock.held) return [`held ${lock.held}`, "good"];
  if (lock.where === "elsewhere") return ["waited for", "warn"];
  if (lock.where === "cached") return ["free, kept here", "none"];
  if (lock.where === "unknown" && lock.protocol) return ["not known now", "warn"];
  return ["not used here", "none"];
}

export async function askToBreak(name) {
  const answer = await confirm({
    title: `Break ${name}?`,
    text: "Its holder, on any member, is told to end, and loses it within a session. Then somebody else may have it. What was done under it is not undone.",
    action: "Break the lock",
  });
  if (answer === null) return;
  toast(`Breaking ${name}: its holder gets time to end.`);
  try {
    await post(`/v1/locks/${encodeURIComponent(name)}/break`, {});
    toast(`${name} is broken.`);
    await refreshLocks();
  } catch (error) {
    toast(`${name} is not broken: ${error.message}`);
  }
}
