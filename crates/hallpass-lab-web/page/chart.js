// Line charts on logarithmic scales. Lines that cover each other are striped in their colours, so that none is hidden.

import { fill, h, s, short } from "./dom.js";

const HEIGHT = 380, LEFT = 56, TOP = 16, BOTTOM = 44;
/** On a phone there is no room for the lines' names beside them; the buttons below have the same colours. */
const isNarrow = () => innerWidth < 600;
const TOLERANCE = 2.5;

/** `series`: [{name, points: [[x, y], ..], colour}]; `hidden`: the names of those that are not drawn. Returns an element. */
export function lineChart({ title, series, xLabel, yLabel, hidden, onToggle }) {
  const box = h("figure", { class: "chart" });
  const [WIDTH, RIGHT] = isNarrow() ? [360, 14] : [640, 150];
  draw();

  function draw() {
    const shown = series.filter((one) => !hidden.has(one.name) && one.points.some(([, y]) => y > 0));
    const all = shown.flatMap((one) => one.points.filter(([, y]) => y > 0));
    const legend = h("div", { class: "legend" }, series.map((one) => h("button", {
      class: hidden.has(one.name) ? "off" : "", "aria-pressed": String(!hidden.has(one.name)), title: "Show or hide",
      "data-keep": `${title} ${one.name}`, onclick: () => onToggle(one.name),
    }, h("i", { style: `background:${one.colour}` }), one.name)));
    if (!all.length) return fill(box, h("figcaption", {}, title), h("p", {}, "Nothing to draw."), legend);
    const x = axis(all.map(([value]) => value), LEFT, WIDTH - RIGHT), y = axis(all.map(([, value]) => value), HEIGHT - BOTTOM, TOP);
    const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${shown.map((one) => one.name).join(", ")}` });
    for (const mark of y.marks) svg.append(s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(mark), y2: y.at(mark), class: "grid" }), s("text", { x: LEFT - 8, y: y.at(mark) + 4, class: "mark end" }, short(mark)));
    for (const mark of x.marks) svg.append(s("text", { x: x.at(mark), y: HEIGHT - BOTTOM + 18, class: "mark middle" }, short(mark)));
    svg.append(s("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, class: "mark middle" }, xLabel), s("text", { x: LEFT, y: TOP - 4, class: "mark" }, yLabel));
    const lines = shown.map((one) => one.points.filter(([, value]) => value > 0).map(([a, b]) => [x.at(a), y.at(b)]));
    drawLines(svg, shown, lines);
    if (RIGHT > 100) labels(svg, shown, lines, WIDTH - RIGHT);
    hover(svg, shown, x, y);
    fill(box, h("figcaption", {}, title), svg, legend);
  }

  function hover(svg, shown, x, y) {
    const cross = s("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cross", visibility: "hidden" }), tip = h("div", { class: "tip", hidden: true });
    svg.append(cross);
    const sizes = [...new Set(shown.flatMap((one) => one.points.map(([value]) => value)))].sort((a, b) => a - b);
    const move = (event) => {
      const rect = svg.getBoundingClientRect(), at = ((event.clientX - rect.left) / rect.width) * WIDTH;
      const size = sizes.reduce((best, value) => (Math.abs(x.at(value) - at) < Math.abs(x.at(best) - at) ? value : best), sizes[0]);
      cross.setAttribute("x1", x.at(size));
      cross.setAttribute("x2", x.at(size));
      cross.setAttribute("visibility", "visible");
      const rows = shown.map((one) => ({ one, value: one.points.find(([value]) => value === size)?.[1] })).filter(({ value }) => value !== undefined && value !== null).sort((a, b) => b.value - a.value);
      fill(tip, h("b", {}, `${xLabel} ${size}`), rows.map(({ one, value }) => h("div", {}, h("i", { style: `background:${one.colour}` }), `${one.name} ${short(value)}`)));
      tip.hidden = false;
      tip.style.left = `${Math.min(rect.width - 190, ((x.at(size) / WIDTH) * rect.width) + 12)}px`;
      tip.style.top = "30px";
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerleave", () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); });
    box.append(tip);
    requestAnimationFrame(() => box.append(tip));
  }

  return box;
}

/** A logarithmic axis over these values. */
function axis(values, from, to) {
  let low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values));
  if (high - low < 0.2) [low, high] = [low - 0.2, high + 0.2];
  const at = (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
  const marks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) for (const n of high - low > 2.2 ? [1] : [1, 2, 5]) {
    const mark = n * 10 ** power;
    if (Math.log10(mark) >= low - 0.001 && Math.log10(mark) <= high + 0.001) marks.push(mark);
  }
  return { at, marks };
}

/** Each piece of a line that others share gets dashes of its own among theirs. */
function drawLines(svg, series, lines) {
  const near = (a, b) => Math.abs(a[0] - b[0]) < TOLERANCE && Math.abs(a[1] - b[1]) < TOLERANCE;
  const pieces = lines.flatMap((points, line) => points.slice(1).map((to, i) => ({ line, from: points[i], to })));
  for (const piece of pieces) {
    const sharers = pieces.filter((other) => near(piece.from, other.from) && near(piece.to, other.to)).map((other) => other.line);
    const rank = sharers.indexOf(piece.line), dash = 9;
    svg.append(s("line", {
      x1: piece.from[0], y1: piece.from[1], x2: piece.to[0], y2: piece.to[1], stroke: series[piece.line].colour, "stroke-width": 2.4,
      "stroke-dasharray": sharers.length > 1 ? `${dash} ${dash * (sharers.length - 1)}` : null, "stroke-dashoffset": sharers.length > 1 ? -dash * rank : null,
    }));
  }
  lines.forEach((points, line) => points.forEach((point) => {
    const sharers = lines.flatMap((others, i) => (others.some((other) => near(point, other)) ? [i] : []));
    const rank = sharers.indexOf(line), share = (2 * Math.PI) / sharers.length, [x, y] = point, r = 4.2;
    if (sharers.length === 1) return svg.append(s("circle", { cx: x, cy: y, r, fill: series[line].colour }));
    const p = (angle) => `${x + r * 1.25 * Math.cos(angle)} ${y + r * 1.25 * Math.sin(angle)}`;
    svg.append(s("path", { d: `M${x} ${y} L${p(rank * share)} A${r * 1.25} ${r * 1.25} 0 ${share > Math.PI ? 1 : 0} 1 ${p((rank + 1) * share)} Z`, fill: series[line].colour }));
  }));
}

/** A name at the end of each line, moved apart. */
function labels(svg, series, lines, right) {
  const ends = lines.map((points, i) => ({ i, y: points.at(-1)?.[1] ?? 0, x: points.at(-1)?.[0] ?? 0 })).sort((a, b) => a.y - b.y);
  let last = -Infinity;
  const placed = ends.map((end) => ({ ...end, at: (last = Math.max(end.y, last + 13)) }));
  const over = (placed.at(-1)?.at ?? 0) - (HEIGHT - BOTTOM + 8);
  for (const { i, x, y, at } of placed) {
    const to = at - Math.max(0, over);
    svg.append(s("path", { d: `M${x + 6} ${y} L${right + 14} ${to}`, class: "lead" }), s("text", { x: right + 17, y: to + 4, class: "name", fill: series[i].colour }, series[i].name));
  }
}
