// What the parts of the dashboard have in common.

import { $, grouped, h, reconcile, setText } from "./dom.js";

/** Names and values, in place of the ones that are there. */
export function facts(list, entries) {
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  reconcile(list, shown, ([name]) => name,
    ([name]) => h("div", {}, h("dt", {}, name), h("dd")),
    (made, [, value]) => setText(made.lastElementChild, String(value)));
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}`.trim() }, text);
}

/** A badge in a cell, made anew only if it changes. */
export function setBadges(cell, badges) {
  const wanted = JSON.stringify(badges);
  if (cell.dataset.badges === wanted) return;
  cell.dataset.badges = wanted;
  cell.replaceChildren(...badges.map(([text, kind]) => badge(text, kind)));
}

/** As the command line writes it: 350ms, 12s, 5m, 3h, 2d. */
export function age(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 120_000) return `${Math.floor(ms / 1000)}s`;
  if (ms < 7_200_000) return `${Math.floor(ms / 60_000)}m`;
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)}h`;
  return `${Math.floor(ms / 86_400_000)}d`;
}

export function count(number) {
  return number === null || number === undefined ? "" : grouped(number);
}

export function rate(number) {
  if (number < 10) return number.toFixed(number === 0 ? 0 : 1);
  return number < 10_000 ? String(Math.round(number)) : `${(number / 1000).toFixed(1)}k`;
}

/** Who holds or wants a lock, in one line. */
export function person(client) {
  const who = client.pid ? `pid ${client.pid}${client.user ? ` of ${client.user}` : ""}` : client.client;
  const command = client.command ? ` (${client.command})` : "";
  return who ? `${who} on ${client.node}${command}` : `member ${client.node}`;
}

export function toast(text) {
  const shown = h("p", { class: "toast" }, text);
  $("toasts").append(shown);
  setTimeout(() => shown.remove(), 6000);
}

/** Asks whether to go on; resolves to null, or to whether the option was chosen. */
export function confirm({ title, text, action, option }) {
  const dialog = $("confirm");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = action;
  const label = $("confirm-option");
  label.hidden = !option;
  label.querySelector("input").checked = false;
  label.querySelector("span").textContent = option ?? "";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? label.querySelector("input").checked : null);
    }, { once: true });
  });
}
