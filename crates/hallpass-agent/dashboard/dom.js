// What all parts of the page need to show something.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children. Text is always text: nothing that comes from an agent is read as HTML. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Changes a text only if it is another one, so that selections and screen readers are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Makes the children of a parent those of the items, in order. What is there for the same key stays, with its focus, and is
 * updated.
 */
export function reconcile(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = before.get(key);
    if (child) before.delete(key);
    else {
      child = create(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const gone of before.values()) gone.remove();
}

/** Names and values, in place of the ones that are there. */
export function facts(list, entries) {
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  reconcile(list, shown, ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd")),
    (made, [, value]) => setText(made.lastElementChild, String(value)));
}

export function badge(text, kind = "") {
  return element("span", { class: `badge ${kind}`.trim() }, text);
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
  return number === null || number === undefined ? "" : number.toLocaleString("en-US");
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
  const shown = element("p", { class: "toast" }, text);
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
