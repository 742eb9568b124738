// What all pages need to show something, without a library.

export const $ = (id) => document.getElementById(id);

/**
 * Makes an element: h("button", {onclick, class: "x"}, "text", child, [more]). Text is always text: nothing that comes from
 * elsewhere is read as HTML.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key in element && !["list", "form", "role", "type"].includes(key) && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
}

/**
 * Replaces all children. If one of them has the keyboard's focus, the new child with the same `data-keep` gets it, or else the
 * first child that has such a name, or else the element itself. So the keyboard stays where it was.
 */
export function fill(element, ...children) {
  const held = document.activeElement;
  const keeps = held !== element && element.contains(held) && held.matches(":focus-visible");
  element.replaceChildren();
  add(element, children);
  if (!keeps) return element;
  const named = [...element.querySelectorAll("[data-keep]")];
  const next = named.find((one) => one.dataset.keep === held.dataset.keep) ?? named[0] ?? element;
  if (next === element && element.tabIndex < 0) element.tabIndex = -1;
  next.focus({ preventScroll: true });
  return element;
}

/** Changes a text only if it differs, so that selections and screen readers are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Makes the children of a parent those of the items, in order. A child that is there for the same key stays, keeps its focus,
 * and is updated.
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

/** A text whose `words` in backticks are code. */
export const prose = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

const SVG = "http://www.w3.org/2000/svg";

/** Makes an SVG element. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  add(element, children);
  return element;
}

/** Tells a screen reader; at most four times a second, and the last text wins. */
let said = 0;
export function say(text) {
  clearTimeout(said);
  said = setTimeout(() => (document.querySelector("#live").textContent = text), 250);
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A CSS variable's value now. */
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Offers a text as a file. */
export function download(name, text, type = "text/plain") {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Without the permission, or on plain HTTP from another machine: show it instead.
    prompt("Copy this:", text);
  }
  setTimeout(() => (button.textContent = before), 1200);
}

/** Three significant digits. */
export function short(value) {
  if (value === null || value === undefined) return "-";
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toPrecision(value >= 1000 ? 4 : 3));
}

export const grouped = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
export const plural = (count, one, many = one + "s") => `${grouped(count)} ${count === 1 ? one : many}`;
