// The space-time diagram on a canvas. Only what is in view is drawn, so that a hundred thousand events stay smooth.

import { css, h } from "./dom.js";
import { STATES } from "./trace.js";
import { PAD, TOP, Viewport } from "./viewport.js";

/** More messages than this in view are thinned out: they would be a grey area anyway. */
const ARROWS_MAX = 12000;
/** Up to these numbers each message has its name and an arrowhead. */
const LABELS_MAX = 70, HEADS_MAX = 900;
const BLOCK = 256;
/** What stands in the circle of an event that is neither a message nor an entry. */
const SIGNS = {
  timer: "t", cancel: "×", refused: "×", restart: "↻", join: "+", joined: "✓", leave: "–", left: "–", forget: "∅", "give-back": "←", downgrade: "↓", upgrade: "↑",
};

export class Diagram extends Viewport {
  constructor({ onPick, label }) {
    super();
    this.canvas = h("canvas", { class: "diagram", tabindex: "0", role: "img", "aria-label": label ?? "Space-time diagram" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("div", { class: "diagram-box" }, this.canvas, this.tip);
    this.onPick = onPick ?? (() => {});
    this.view = { x: 0, y: 0, scale: 1 };
    this.cursor = -1;
    this.selected = -1;
    this.hover = -1;
    this.marks = [];
    this.frames = { count: 0, total: 0, worst: 0 };
    this.pointers = new Map();
    this.listen();
    this.readColours();
  }

  destroy() {
    this.observer.disconnect();
    for (const name of ["beforeprint", "afterprint"]) removeEventListener(name, this.onPrint);
    this.themes.removeEventListener("change", this.onTheme);
    cancelAnimationFrame(this.frame);
  }

  setTrace(trace, keepView = false) {
    this.trace = trace;
    this.lane = trace.nodes.length <= 6 ? 84 : trace.nodes.length <= 12 ? 64 : trace.nodes.length <= 24 ? 40 : trace.nodes.length <= 100 ? 22 : 9;
    this.left = 34 + 8 * Math.max(1, ...trace.nodes.map((node) => this.name(node).length));
    this.width = (trace.x.at(-1) ?? 0) + 2 * PAD;
    this.index();
    if (!keepView) this.view = { x: 0, y: 0, scale: 1 };
    this.resize();
    this.clamp();
    this.redraw();
  }

  /** For each block of events how far right the messages sent in it reach, so that those that end in view are found. */
  index() {
    const { trace } = this, blocks = Math.ceil(trace.length / BLOCK);
    this.reach = new Float64Array(blocks);
    for (let i = 0; i < trace.length; i++) {
      const end = trace.kindOf[i] < 0 ? trace.x[i] : trace.endsAt[i] < 0 ? trace.x[i] + 20 : trace.x[trace.endsAt[i]];
      const block = Math.floor(i / BLOCK);
      this.reach[block] = Math.max(this.reach[block], end);
    }
  }

  setCursor(index, { follow = true } = {}) {
    this.cursor = index;
    if (follow && index >= 0) this.show(index);
    this.redraw();
  }

  select(index) {
    this.selected = index;
    this.redraw();
  }

  contentHeight() {
    return TOP + 2 * PAD + Math.max(0, this.trace.nodes.length - 1) * this.lane;
  }

  resize() {
    const width = Math.max(200, this.element.clientWidth || 600);
    const wanted = this.trace ? Math.min(this.contentHeight(), Math.max(260, Math.min(620, innerHeight * 0.62))) : 240;
    this.size = { width, height: wanted };
    const ratio = devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(wanted * ratio)];
    // Setting a size clears the canvas, which would flicker under a run that grows.
    if (this.canvas.width !== across) this.canvas.width = across;
    if (this.canvas.height !== down) this.canvas.height = down;
    this.canvas.style.height = `${wanted}px`;
  }

  redraw() {
    if (this.frame || !this.trace) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const began = performance.now();
      if (this.gliding !== undefined) {
        const step = this.gliding - this.view.x;
        this.view.x = Math.abs(step) < 1 ? this.gliding : this.view.x + step * 0.3;
        if (this.view.x === this.gliding) this.gliding = undefined;
      }
      this.draw();
      const took = performance.now() - began;
      this.frames.count++;
      this.frames.total += took;
      this.frames.worst = Math.max(this.frames.worst, took);
      if (this.gliding !== undefined) this.redraw();
    });
  }

  // ---- drawing ----

  readColours() {
    const names = ["ground", "ink", "quiet", "line", "grid", "wait", "inside", "inside-edge", "shared", "shared-edge", "alarm", "mark", "down"];
    this.colours = Object.fromEntries(names.map((name) => [name, css(`--${name}`)]));
    this.kinds = Array.from({ length: 8 }, (_, i) => css(`--k${i}`));
  }

  px(x) {
    return this.left + x * this.view.scale - this.view.x;
  }

  py(row) {
    return TOP + PAD + row * this.lane - this.view.y;
  }

  draw() {
    const context = this.canvas.getContext("2d"), ratio = devicePixelRatio || 1;
    const { width, height } = this.size, { trace, colours } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, width, height);
    const from = this.view.x / this.view.scale - 4, to = (this.view.x + width - this.left) / this.view.scale + 4;
    const rows = this.visibleRows();
    context.save();
    context.beginPath();
    context.rect(this.left, TOP, width - this.left, height - TOP);
    context.clip();
    this.drawGrid(context, from, to);
    this.drawLives(context, rows);
    this.drawSpans(context, rows, from, to);
    const arrows = this.visibleArrows(from, to, rows);
    this.drawArrows(context, arrows);
    this.drawEvents(context, from, to, arrows.length);
    this.drawMarks(context);
    this.drawCursor(context);
    context.restore();
    this.drawFrame(context, rows);
    this.visible = arrows;
    if (!trace.length) this.drawEmpty(context);
  }

  drawEmpty(context) {
    context.fillStyle = this.colours.quiet;
    context.font = "14px system-ui, sans-serif";
    context.fillText("Nothing has happened yet.", this.left + 16, TOP + 6);
  }

  visibleRows() {
    const first = Math.max(0, Math.floor((this.view.y - PAD - 10) / this.lane));
    const last = Math.min(this.trace.nodes.length - 1, Math.ceil((this.view.y + this.size.height) / this.lane));
    return { first, last };
  }

  ticks(from, to) {
    const { trace } = this, marks = [];
    if (trace.scale.unit !== "T") {
      let last = -1e9;
      for (let i = this.lower(from); i < trace.length && trace.x[i] <= to; i++) {
        const x = this.px(trace.x[i]), text = trace.mark(i);
        if (text !== undefined && x - last > 44) {
          marks.push([x, text]);
          last = x;
        }
      }
      return marks;
    }
    const [a, b] = [0, trace.length - 1], span = trace.events[b]?.at - trace.events[a]?.at;
    if (!span) return marks;
    const perTick = ((trace.x[b] - trace.x[a]) / span) * trace.scale.tick * this.view.scale;
    const power = 10 ** Math.floor(Math.log10(70 / perTick));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n * perTick >= 64) ?? 10 * power;
    const origin = this.px(trace.x[a]) - (trace.events[a].at / trace.scale.tick) * perTick;
    for (let t = Math.max(0, Math.ceil((this.left - origin) / perTick / step) * step); origin + t * perTick < this.size.width; t += step) {
      marks.push([origin + t * perTick, `${+t.toPrecision(6)} T`]);
    }
    return marks;
  }

  drawGrid(context, from, to) {
    this.marks_ = this.ticks(from, to);
    context.strokeStyle = this.colours.grid;
    context.lineWidth = 1;
    context.beginPath();
    for (const [x] of this.marks_) {
      context.moveTo(Math.round(x) + 0.5, TOP);
      context.lineTo(Math.round(x) + 0.5, this.size.height);
    }
    context.stroke();
  }

  drawLives(context, { first, last }) {
    context.strokeStyle = this.colours.line;
    context.lineWidth = this.lane < 8 ? 0.5 : 1.3;
    context.beginPath();
    const end = this.trace.length ? Math.min(this.size.width, this.px(this.width - PAD)) : this.size.width - PAD;
    for (let row = first; row <= last; row++) {
      const y = Math.round(this.py(row)) + 0.5;
      context.moveTo(this.left, y);
      context.lineTo(end, y);
    }
    context.stroke();
  }

  drawSpans(context, { first, last }, from, to) {
    const { trace, colours } = this, thick = Math.max(1.5, Math.min(1, this.lane / 40) * 15);
    const end = this.width - PAD;
    for (let row = first; row <= last; row++) {
      const list = trace.spans[row], y = this.py(row);
      // Spans are in order of their begin; a long one may begin far to the left, and there are few of those.
      for (let k = 0; k < list.length; k++) {
        const span = list[k], x0 = span.first < 0 ? 0 : trace.x[span.first];
        if (x0 > to) break;
        const x1 = span.last < 0 ? end : trace.x[span.last];
        if (x1 < from) continue;
        const future = span.first > this.cursor && this.cursor >= 0;
        const shown = this.cursor >= 0 && (span.last < 0 || span.last > this.cursor) && !future ? Math.max(x0, trace.x[this.cursor]) : x1;
        context.globalAlpha = future ? 0.25 : 1;
        this.drawSpan(context, span, this.px(x0), this.px(shown), y, thick);
        if (shown < x1) {
          context.globalAlpha = 0.25;
          this.drawSpan(context, { ...span, fence: undefined }, this.px(shown), this.px(x1), y, thick);
        }
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = colours.ink;
  }

  drawSpan(context, span, x0, x1, y, thick) {
    const { colours } = this, width = Math.max(1.5, x1 - x0);
    switch (span.state) {
      case STATES.waiting:
        context.fillStyle = colours.wait;
        context.fillRect(x0, y - thick * 0.28, width, thick * 0.56);
        break;
      case STATES.inside:
      case STATES.shared: {
        const shared = span.state === STATES.shared;
        context.fillStyle = shared ? colours.shared : colours.inside;
        context.strokeStyle = shared ? colours["shared-edge"] : colours["inside-edge"];
        context.lineWidth = 1;
        context.fillRect(x0, y - thick / 2, width, thick);
        if (thick > 5 && width > 3) context.strokeRect(x0, y - thick / 2, width, thick);
        if (span.fence !== undefined && thick > 10 && width > 7 * String(span.fence).length + 6) {
          context.fillStyle = "#1d1300";
          context.font = "600 11px system-ui, sans-serif";
          context.textAlign = "center";
          context.fillText(span.fence, x0 + width / 2, y + 4, width - 4);
          context.textAlign = "left";
        }
        break;
      }
      case STATES.paused:
        context.strokeStyle = colours.quiet;
        context.setLineDash([2, 3]);
        context.strokeRect(x0, y - thick * 0.7, width, thick * 1.4);
        context.setLineDash([]);
        break;
      case STATES.down:
      case STATES.away:
        context.fillStyle = colours.ground;
        context.fillRect(x0, y - 2, width, 4);
        context.fillStyle = colours.down;
        if (span.state === STATES.down) context.fillRect(x0, y - thick * 0.7, width, thick * 1.4);
        else for (let x = x0; x < x1; x += 7) context.fillRect(x, y - 1, 2, 2);
        break;
    }
  }

  /** The first event at or right of a place. */
  lower(x) {
    let low = 0, high = this.trace.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.trace.x[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The messages that touch the view: the events that sent them. */
  visibleArrows(from, to, rows) {
    const { trace, reach } = this, found = [];
    const last = this.lower(to), first = this.lower(from);
    for (let block = 0; block * BLOCK < last; block++) {
      if (reach[block] < from) continue;
      const end = Math.min(last, (block + 1) * BLOCK);
      for (let i = block * BLOCK; i < end; i++) {
        if (trace.kindOf[i] < 0) continue;
        const [a, b] = [trace.rowOf[i], trace.toRow[i]];
        if ((a < rows.first && b < rows.first) || (a > rows.last && b > rows.last)) continue;
        if (i >= first || trace.endsAt[i] < 0 ? trace.x[i] >= from : trace.x[trace.endsAt[i]] >= from) found.push(i);
      }
    }
    if (found.length <= ARROWS_MAX) {
      this.thinned = 1;
      return found;
    }
    // Scattered, and the same ones in every frame: every n-th would make patterns that are not in the run.
    this.thinned = Math.ceil(found.length / ARROWS_MAX);
    return found.filter((i) => (Math.imul(i, 2654435761) >>> 8) % this.thinned === 0);
  }

  arrow(i) {
    const { trace } = this, ends = trace.endsAt[i];
    const from = { x: this.px(trace.x[i]), y: this.py(trace.rowOf[i]) };
    const row = this.py(trace.toRow[i]);
    if (ends < 0) return { from, to: { x: from.x + 18, y: from.y + Math.sign(row - from.y) * this.lane * 0.3 }, flying: true };
    const lost = trace.events[ends].event === "lose";
    let to = { x: this.px(trace.x[ends]), y: row };
    if (lost) to = { x: from.x + Math.max(30 * this.view.scale, to.x - from.x) * 0.6, y: from.y + (row - from.y) * 0.6 };
    return { from, to, lost };
  }

  drawArrows(context, arrows) {
    const { trace, cursor } = this, few = arrows.length <= HEADS_MAX;
    const paths = new Map();
    for (const i of arrows) {
      const arrow = this.arrow(i), kind = trace.colourOf[i];
      if (Math.max(arrow.from.y, arrow.to.y) < TOP || Math.min(arrow.from.y, arrow.to.y) > this.size.height) continue;
      const future = cursor >= 0 && i > cursor;
      const underWay = cursor >= 0 && !future && (trace.endsAt[i] < 0 || trace.endsAt[i] > cursor);
      const key = kind * 4 + (future ? 1 : underWay ? 2 : 0);
      if (!paths.has(key)) paths.set(key, { lines: new Path2D(), heads: new Path2D() });
      const { lines, heads } = paths.get(key);
      lines.moveTo(arrow.from.x, arrow.from.y);
      lines.lineTo(arrow.to.x, arrow.to.y);
      if (few && arrow.lost) cross(lines, arrow.to);
      else if (few) head(heads, arrow.from, arrow.to);
    }
    const crowd = arrows.length > 3000 ? 0.35 : arrows.length > 400 ? 0.65 : 1;
    for (const [key, { lines, heads }] of paths) {
      const mode = key % 4;
      context.strokeStyle = context.fillStyle = this.kinds[Math.floor(key / 4)];
      context.globalAlpha = mode === 1 ? 0.16 : mode === 2 ? 1 : crowd;
      context.lineWidth = mode === 2 ? 2.2 : this.lane < 10 ? 0.7 : 1.4;
      context.setLineDash(mode === 2 ? [5, 3] : []);
      context.stroke(lines);
      context.setLineDash([]);
      context.fill(heads);
    }
    context.globalAlpha = 1;
    for (const i of [this.hover, this.selected]) if (i >= 0 && trace.kindOf[i] >= 0) this.highlight(context, i);
    if (arrows.length <= LABELS_MAX) this.drawLabels(context, arrows);
  }

  highlight(context, i) {
    const { from, to } = this.arrow(i);
    context.strokeStyle = this.colours.mark;
    context.globalAlpha = 0.75;
    context.lineWidth = 7;
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
    context.globalAlpha = 1;
    context.lineCap = "butt";
    context.strokeStyle = this.kinds[this.trace.colourOf[i]];
    context.lineWidth = 2;
    context.stroke();
  }

  drawLabels(context, arrows) {
    const { trace, cursor } = this, taken = [];
    context.font = "11px system-ui, sans-serif";
    context.lineJoin = "round";
    // What is picked, what happens now and what is under way comes first, and gets a place.
    const rank = (i) => {
      const [sent, ends] = [i <= cursor, trace.endsAt[i]];
      return (i === this.selected || i === this.hover ? 4 : 0) + (sent && (ends < 0 || ends > cursor) ? 2 : 0) + (i === cursor || ends === cursor ? 3 : 0);
    };
    const order = [...arrows].sort((a, b) => rank(b) - rank(a));
    for (const i of order) {
      const { from, to } = this.arrow(i), text = trace.events[i].message;
      const width = context.measureText(text).width;
      for (const at of [0.5, 0.36, 0.64, 0.26, 0.74]) {
        const x = from.x + (to.x - from.x) * at - width / 2, y = from.y + (to.y - from.y) * at;
        const box = { x0: x - 2, y0: y - 8, x1: x + width + 2, y1: y + 6 };
        if (box.x0 < this.left || taken.some((other) => box.x0 < other.x1 && other.x0 < box.x1 && box.y0 < other.y1 && other.y0 < box.y1)) continue;
        taken.push(box);
        context.globalAlpha = cursor >= 0 && i > cursor ? 0.3 : 1;
        context.strokeStyle = this.colours.ground;
        context.lineWidth = 4;
        context.strokeText(text, x, y + 3);
        context.fillStyle = this.kinds[trace.colourOf[i]];
        context.fillText(text, x, y + 3);
        break;
      }
    }
    context.globalAlpha = 1;
  }

  drawEvents(context, from, to, crowd) {
    const { trace, cursor, colours } = this;
    const first = this.lower(from);
    for (let i = first; i < trace.length && trace.x[i] <= to; i++) {
      const event = trace.events[i], kind = event.event;
      if (crowd > HEADS_MAX && kind !== "violation" && kind !== "crash" && kind !== "network") continue;
      const x = this.px(trace.x[i]), y = this.py(trace.rowOf[i]);
      if (y < -20 || y > this.size.height + 20) continue;
      context.globalAlpha = cursor >= 0 && i > cursor ? 0.25 : 1;
      if (kind === "violation") this.drawViolation(context, x, y);
      else if (kind === "request" || kind === "try") dot(context, x, y, 4, colours["inside-edge"]);
      else if (kind === "deliver" || kind === "send") dot(context, x, y, 2.4, colours.quiet);
      else if (kind === "crash") bigCross(context, x, y, colours.ink);
      else if (kind === "network") this.drawNetwork(context, x, event.text);
      else if (kind in SIGNS) this.drawSign(context, x, y, kind);
    }
    context.globalAlpha = 1;
  }

  drawSign(context, x, y, kind) {
    context.fillStyle = this.colours.ground;
    context.strokeStyle = this.colours.quiet;
    context.lineWidth = 1.3;
    context.beginPath();
    context.arc(x, y, 7, 0, 7);
    context.fill();
    context.stroke();
    context.fillStyle = this.colours.ink;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(SIGNS[kind], x, y + 4);
    context.textAlign = "left";
  }

  drawViolation(context, x, y) {
    context.strokeStyle = this.colours.alarm;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, this.size.height);
    context.stroke();
    dot(context, x, y, 10, this.colours.alarm);
    context.fillStyle = this.colours.ground;
    context.font = "800 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText("!", x, y + 5);
    context.textAlign = "left";
  }

  drawNetwork(context, x, text) {
    context.strokeStyle = context.fillStyle = this.kinds[2];
    context.setLineDash([6, 4]);
    context.lineWidth = 1.2;
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, this.size.height);
    context.stroke();
    context.setLineDash([]);
    context.font = "11px system-ui, sans-serif";
    context.fillText(text, x + 4, this.size.height - 6);
  }

  /** Events that the page points out, such as the steps of a tour. */
  drawMarks(context) {
    for (const { index, text } of this.marks) {
      if (index < 0 || index >= this.trace.length) continue;
      context.fillStyle = this.colours.quiet;
      context.font = "600 11px system-ui, sans-serif";
      context.fillText(text, this.px(this.trace.x[index]) - 4, TOP + 12);
    }
  }

  drawCursor(context) {
    if (this.cursor < 0 || this.cursor >= this.trace.length) return;
    const event = this.trace.events[this.cursor];
    const x = this.px(this.trace.x[this.cursor]), y = this.py(this.trace.rows.get(event.node));
    context.strokeStyle = this.colours.ink;
    context.globalAlpha = 0.55;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, TOP);
    context.lineTo(Math.round(x) + 0.5, this.size.height);
    context.stroke();
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 7, 0, 7);
    context.stroke();
  }

  drawFrame(context, { first, last }) {
    const { colours, size } = this;
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.left, size.height);
    context.fillRect(0, 0, size.width, TOP);
    context.fillStyle = colours.quiet;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    for (const [x, text] of this.marks_) if (x > this.left - 4 && x < size.width - 12) context.fillText(text, x, 18);
    context.textAlign = "right";
    context.fillStyle = colours.ink;
    context.font = `600 ${Math.min(13, Math.max(9, this.lane - 2))}px system-ui, sans-serif`;
    const stride = Math.max(1, Math.ceil(12 / this.lane));
    for (let row = Math.ceil(first / stride) * stride; row <= last; row += stride) {
      const y = this.py(row);
      if (y > TOP - 4 && y < size.height + 8) context.fillText(this.name(this.trace.nodes[row]), this.left - 12, y + 4);
    }
    context.textAlign = "left";
    if (this.thinned > 1) {
      context.fillStyle = colours.quiet;
      context.font = "11px system-ui, sans-serif";
      context.fillText(`1 of ${this.thinned} messages drawn; zoom in for all`, this.left + 8, size.height - 8);
    }
  }

  name(node) {
    return this.names?.get(node) ?? String(node);
  }
}

function dot(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fill();
}

function bigCross(context, x, y, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 3;
  context.beginPath();
  context.moveTo(x - 7, y - 7);
  context.lineTo(x + 7, y + 7);
  context.moveTo(x + 7, y - 7);
  context.lineTo(x - 7, y + 7);
  context.stroke();
}

function cross(path, { x, y }) {
  path.moveTo(x - 5, y - 5);
  path.lineTo(x + 5, y + 5);
  path.moveTo(x + 5, y - 5);
  path.lineTo(x - 5, y + 5);
}

function head(path, from, to) {
  const angle = Math.atan2(to.y - from.y, to.x - from.x), size = 8;
  path.moveTo(to.x, to.y);
  path.lineTo(to.x - size * Math.cos(angle - 0.4), to.y - size * Math.sin(angle - 0.4));
  path.lineTo(to.x - size * Math.cos(angle + 0.4), to.y - size * Math.sin(angle + 0.4));
  path.closePath();
}
