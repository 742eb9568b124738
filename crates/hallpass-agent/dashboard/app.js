// The page: what is shown, and how often it is looked at again.

import { get, setUpTokens } from "./api.js";
import { $, setText } from "./dom.js";
import { setUpEvents } from "./events.js";
import { refreshMembers, showStatus } from "./group.js";
import { refreshLocks, setUpLocks } from "./locks.js";
import { closeLock, openLock, refreshLock, setUpLock } from "./lock.js";

const REFRESH_MS = 2_000;

function route() {
  const found = location.hash.match(/^#\/lock\/(.+)$/);
  let name = null;
  try {
    name = found && decodeURIComponent(found[1]);
  } catch {
    // An address that somebody has made up.
  }
  $("overview").hidden = name !== null;
  $("lock-page").hidden = name === null;
  if (name === null) closeLock();
  else {
    openLock(name);
    $("lock-title").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  void refresh();
}

let refreshing = false;

async function refresh() {
  // A page that nobody sees asks for nothing; an agent that is slow is not asked twice.
  if (document.hidden || refreshing) return;
  refreshing = true;
  try {
    const status = await get("/v1/status");
    showStatus(status, performance.now());
    await ($("lock-page").hidden ? Promise.all([refreshMembers(), refreshLocks()]) : refreshLock());
    say("good", "live");
    banner(status.complete ? "" : `No locks are granted: ${status.waits_for ?? "the group is not complete"}`);
  } catch (error) {
    say("bad", error.status ? "refused" : "no answer");
    banner(error.status ? error.message : "The agent does not answer. What is shown is old; the page tries again.");
  } finally {
    refreshing = false;
  }
}

function say(kind, text) {
  $("live").className = `live ${kind}`;
  setText($("live-text"), text);
}

function banner(text) {
  $("banner").hidden = !text;
  setText($("banner"), text);
}

setUpTokens();
setUpLocks();
setUpLock();
setUpEvents();
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, REFRESH_MS);
route();
