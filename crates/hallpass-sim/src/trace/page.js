"use strict";
// Steps through the diagram on this page. `current` is the index of the last event shown; -1 shows the whole run.
(() => {
  const find = (selector) => document.querySelector(selector);
  const trace = JSON.parse(find("#trace").textContent);
  const diagram = find("#diagram"), svg = find("#diagram svg"), tip = find("#tip"), play = find("#play");
  const list = find("#events"), items = [...list.children];
  const parts = [...svg.querySelectorAll("[data-i]")].map((element) => ({
    element,
    first: Number(element.dataset.i),
    last: Number(element.dataset.j ?? element.dataset.i),
  }));
  const size = { width: svg.width.baseVal.value, height: svg.height.baseVal.value };
  const sticky = [svg.querySelector(".names"), svg.querySelector(".top")];
  const cursor = makeCursor();
  const view = { x: 0, y: 0, scale: 1 };
  let current = -1, timer = 0;

  // Steps.

  function show(index) {
    current = Math.max(-1, Math.min(trace.events.length - 1, index));
    const whole = current < 0;
    for (const { element, first, last } of parts) {
      element.classList.toggle("later", !whole && first > current);
      element.classList.toggle("open", !whole && first <= current && last > current);
      element.classList.toggle("now", first === current || last === current);
    }
    items.forEach((item, i) => {
      item.classList.toggle("later", !whole && i > current);
      item.classList.toggle("now", i === current);
    });
    cursor.style.display = whole ? "none" : "";
    find("#now").textContent = whole ? `The whole run: ${trace.events.length} events` : sentence(items[current]);
    if (!whole) {
      point(items[current]);
    }
    showNodes();
  }

  function sentence(item) {
    const [time, node, words] = [...item.children].map((child) => child.textContent);
    return `${current + 1} of ${trace.events.length} · ${time} · node ${node} ${words}`;
  }

  function point(item) {
    const x = Number(item.dataset.x), y = Number(item.dataset.y);
    cursor.firstChild.setAttribute("transform", `translate(${x} 0)`);
    cursor.lastChild.setAttribute("transform", `translate(${x} ${y})`);
    // Only the list scrolls: scrollIntoView would move the page as well.
    const middle = item.offsetTop - list.clientHeight / 2;
    if (item.offsetTop < list.scrollTop || item.offsetTop + item.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = middle;
    }
    const width = diagram.clientWidth / view.scale;
    if (x < view.x + 90 || x > view.x + width - 60) {
      view.x = x - width / 2;
      look();
    }
  }

  // The nodes that are not founding members: the first event about their membership is that they join.
  // A node that crashes or restarts was a member before.
  const joinLater = new Set(), known = new Set();
  for (const { node, event } of trace.events) {
    if (!/^(join|joined|leave|left|crash|restart)$/.test(event) || known.has(node)) continue;
    known.add(node);
    if (event.startsWith("join")) joinLater.add(node);
  }

  function states() {
    const states = new Map();
    const start = (node) => ({ away: joinLater.has(node) });
    const end = current < 0 ? trace.events.length - 1 : current;
    for (const { node, event, mode, fence } of trace.events.slice(0, end + 1)) {
      const state = states.get(node) ?? start(node);
      if (event === "request") state.main = "waiting";
      if (event === "enter" || event === "hold") Object.assign(state, { main: "inside", mode, fence });
      if (["cancel", "exit", "crash"].includes(event)) state.main = "";
      if (event === "crash") Object.assign(state, { down: true, paused: false });
      if (event === "restart") state.down = false;
      if (event === "pause" || event === "resume") state.paused = event === "pause";
      if (event === "joined" || event === "left") state.away = event === "left";
      states.set(node, state);
    }
    return (node) => states.get(node) ?? start(node);
  }

  function showNodes() {
    const stateOf = states();
    for (const item of find("#nodes").children) {
      const state = stateOf(Number(item.dataset.node));
      const inside = state.main === "inside";
      const shared = inside && state.mode === "shared";
      let words = inside ? `inside${shared ? ", shared" : ""}${state.fence === undefined ? "" : `, fence ${state.fence}`}` : state.main || "idle";
      if (state.down) words = "down";
      else if (state.away) words = "not a member";
      if (state.paused) words += ", paused";
      item.className = state.down ? "down" : shared ? "shared" : state.main || "";
      item.lastElementChild.textContent = words;
    }
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  function toggle() {
    if (timer) return stop();
    if (current >= trace.events.length - 1) show(-1);
    play.textContent = "Pause";
    timer = setInterval(() => (current < trace.events.length - 1 ? show(current + 1) : stop()), 600);
  }

  function step(by) {
    stop();
    // Stepping back from the whole run shows the last event.
    show(current < 0 && by < 0 ? trace.events.length - 1 : Math.max(0, current + by));
  }

  function jump(index) {
    stop();
    show(index);
  }

  // The visible part of the diagram.

  function look() {
    const width = diagram.clientWidth / view.scale, height = diagram.clientHeight / view.scale;
    view.x = Math.max(0, Math.min(view.x, size.width - width));
    view.y = Math.max(0, Math.min(view.y, size.height - height));
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${width} ${height}`);
    for (const group of sticky) group.setAttribute("transform", `translate(${view.x} 0)`);
  }

  function zoom(factor, clientX = diagram.clientWidth / 2, clientY = diagram.clientHeight / 2) {
    const scale = Math.max(0.05, Math.min(8, view.scale * factor));
    view.x += clientX / view.scale - clientX / scale;
    view.y += clientY / view.scale - clientY / scale;
    view.scale = scale;
    look();
  }

  function fit() {
    lookFromStart(Math.min(diagram.clientWidth / size.width, diagram.clientHeight / size.height, 1.6));
  }

  // A long run opens at its start, as large as it can be with all lanes visible.
  function open() {
    fit();
    if (view.scale < 0.85) lookFromStart(Math.max(0.7, Math.min(diagram.clientHeight / size.height, 1.1)));
  }

  function lookFromStart(scale) {
    Object.assign(view, { x: 0, y: 0, scale });
    look();
  }

  function makeCursor() {
    const make = (name, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
      return element;
    };
    const group = make("g", { id: "cursor", "pointer-events": "none" });
    const names = svg.querySelector(".names"), { y, height } = names.getBBox();
    // Down to the marks of the axis, which are in the last 32 pixels.
    group.append(make("path", { d: `M0 -22V${y + height - 32}` }), make("circle", { r: 9 }));
    names.before(group);
    return group;
  }

  // The mouse.

  let drag = null;
  diagram.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false, target: event.target };
  });
  diagram.addEventListener("pointermove", (event) => {
    hover(event);
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) diagram.setPointerCapture(event.pointerId);
    Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true });
    diagram.classList.add("drag");
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    look();
  });
  diagram.addEventListener("pointerup", () => {
    const part = drag && !drag.moved && drag.target.closest("[data-i]");
    if (part) jump(Number(part.dataset.i));
    endDrag();
  });
  diagram.addEventListener("pointercancel", endDrag);
  diagram.addEventListener("pointerleave", () => (tip.hidden = true));
  diagram.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = diagram.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  function endDrag() {
    drag = null;
    diagram.classList.remove("drag");
  }

  // The browser's own tooltips are slow to appear, so the page shows the titles itself.
  for (const title of svg.querySelectorAll("title")) {
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }

  function hover(event) {
    const part = event.target.closest("[data-tip]");
    tip.hidden = !part || Boolean(drag && drag.moved);
    if (tip.hidden) return;
    tip.textContent = part.dataset.tip;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  }

  // Buttons and keys.

  const clicks = {
    first: () => jump(0), back: () => step(-1), play: toggle, forward: () => step(1), all: () => jump(-1),
    in: () => zoom(1.25), out: () => zoom(0.8), fit,
  };
  Object.entries(clicks).forEach(([id, act]) => find(`#${id}`).addEventListener("click", act));
  list.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) jump(items.indexOf(item));
  });
  const keys = {
    ArrowLeft: clicks.back, ArrowRight: clicks.forward, Home: clicks.first, End: () => jump(trace.events.length - 1),
    Escape: clicks.all, " ": toggle, "+": clicks.in, "=": clicks.in, "-": clicks.out, 0: clicks.fit,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    // A focused button handles the space bar itself.
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    event.preventDefault();
    keys[event.key]();
  });
  addEventListener("resize", look);

  open();
  show(-1);
})();
