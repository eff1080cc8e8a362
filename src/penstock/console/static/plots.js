// Owns drawing: the small line beside a queue, and plots with axes and the values under the pointer.

import { h, s, say } from "./elements.js";
import { clock } from "./format.js";

const LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 22;
const GAP_LOOKS = 5; // so many looks missing is a gap, not a straight line
const GAP_S = 20; // but a look that was slow is none

// Round steps that divide a range into about `parts`.
export function ticks(most, parts, steps = [1, 2, 2.5, 5, 10]) {
  if (!(most > 0)) return [0, 1];
  const rough = most / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = steps.map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let value = 0; value < most + step * 0.999; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

const SPAN_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

// The same for seconds, where 60 is rounder than 50.
export function spanTicks(most, parts) {
  if (!(most > 0)) return [0, 1];
  const step = SPAN_STEPS.find((each) => each >= most / parts) ?? 86400 * Math.ceil(most / parts / 86400);
  const found = [];
  for (let value = 0; value < most + step * 0.999; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

export function sparkline(values) {
  const svg = s("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" });
  const area = s("path", { class: "under-line" });
  const line = s("path");
  svg.append(area, line);
  const draw = (all) => {
    const known = all.filter((value) => value !== null);
    const most = Math.max(1, ...known);
    const step = 100 / Math.max(1, all.length - 1);
    const y = (value) => (28 - (value / most) * 26).toFixed(1);
    let d = "", fillD = "", open = false, last = 0;
    all.forEach((value, i) => {
      const x = (i * step).toFixed(1);
      if (value === null) {
        if (open) fillD += `L${last},29Z`;
        open = false;
        return;
      }
      d += `${open ? "L" : "M"}${x},${y(value)}`;
      fillD += open ? `L${x},${y(value)}` : `M${x},29L${x},${y(value)}`;
      open = true;
      last = x;
    });
    if (open) fillD += `L${last},29Z`;
    line.setAttribute("d", known.length > 1 ? d : "");
    area.setAttribute("d", known.length > 1 ? fillD : "");
  };
  draw(values);
  return { element: svg, draw };
}

export class Plot {
  // `lines` are [field, what it is called]; `format` says a value, `axis` those of the axis.
  constructor({ title, lines, format, axis = format, spans = false, filled = true }) {
    Object.assign(this, { title, lines, format, axis, spans, filled });
    this.now = lines.map(() => h("b", {}, "–"));
    const legend = lines.map(([field, name], i) => h("span", {}, h("i", { class: `k-${field}` }), `${name} `, this.now[i]));
    this.svg = s("svg", { role: "img", tabindex: "0", "aria-label": title });
    this.tip = h("div", { class: "tip", hidden: true });
    this.canvas = h("div", { class: "canvas" }, this.svg, this.tip);
    this.element = h("section", { class: "plot" }, h("h3", {}, title), h("div", { class: "legend" }, legend), this.canvas);
    this.samples = null;
    this.cursor = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.choose(null));
    this.svg.addEventListener("blur", () => this.choose(null));
    this.svg.addEventListener("keydown", (event) => this.step(event));
    this.watching = new ResizeObserver(() => this.draw());
    this.watching.observe(this.canvas);
  }

  close() {
    this.watching.disconnect();
  }

  show(samples) {
    const chosen = this.cursor === null ? null : this.samples?.at[this.cursor];
    this.samples = samples;
    this.cursor = chosen === null || chosen === undefined ? null : this.nearest(chosen);
    this.lines.forEach(([field], i) => say(this.now[i], this.format(samples[field].at(-1) ?? null)));
    const words = this.lines.map(([field, name], i) => `${name} ${this.now[i].textContent}`);
    this.svg.setAttribute("aria-label", `${this.title}. Now: ${words.join(", ")}. Arrow keys show earlier values.`);
    this.draw();
  }

  get wide() { return this.canvas.clientWidth; }
  get high() { return this.canvas.clientHeight; }
  x(at) { return LEFT + ((at - (this.samples.end - this.samples.span_s)) / this.samples.span_s) * (this.wide - LEFT - RIGHT); }
  y(value) { return this.high - BOTTOM - (value / this.top) * (this.high - TOP - BOTTOM); }

  draw() {
    if (!this.samples || !this.wide) return;
    this.svg.setAttribute("viewBox", `0 0 ${this.wide} ${this.high}`);
    const most = Math.max(0, ...this.lines.flatMap(([field]) => this.samples[field].filter((value) => value !== null)));
    const marks = (this.spans ? spanTicks : ticks)(most, 4);
    this.top = marks.at(-1);
    const known = this.samples.at.length > 1;
    this.svg.replaceChildren(
      ...marks.flatMap((mark) => this.yMark(mark)),
      ...this.xMarks(),
      ...this.lines.flatMap(([field], i) => this.curve(field, this.filled && i === 0)),
      ...(known ? [] : [s("text", { class: "empty", x: this.wide / 2, y: this.high / 2 - 8 }, "collecting the first samples")]),
      ...this.atCursor(),
    );
    this.tell();
  }

  yMark(mark) {
    const y = Math.round(this.y(mark)) + 0.5;
    return [
      s("line", { class: "grid", x1: LEFT, x2: this.wide - RIGHT, y1: y, y2: y }),
      s("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, this.axis(mark)),
    ];
  }

  xMarks() {
    const { end, span_s } = this.samples;
    const parts = Math.max(2, Math.floor((this.wide - LEFT) / 95));
    const step = SPAN_STEPS.find((each) => each >= span_s / parts) ?? 86400;
    const zone = new Date(end * 1000).getTimezoneOffset() * 60;
    const found = [];
    for (let at = Math.ceil((end - span_s - zone) / step) * step + zone; at <= end; at += step) {
      const x = this.x(at);
      if (x > LEFT + 12 && x < this.wide - RIGHT - 16) {
        found.push(s("text", { x, y: this.high - 5, "text-anchor": "middle" }, clock(at, step < 60)));
      }
    }
    return found;
  }

  curve(field, filled) {
    const { at, interval_s, span_s } = this.samples;
    const values = this.samples[field];
    const gap = Math.max(interval_s * GAP_LOOKS, (span_s / 360) * GAP_LOOKS, span_s > 3600 ? 190 : GAP_S);
    const runs = [];
    values.forEach((value, i) => {
      if (value === null) return runs.push([]);
      if (!runs.length || (runs.at(-1).length && at[i] - runs.at(-1).at(-1)[0] > gap)) runs.push([]);
      runs.at(-1).push([at[i], value]);
    });
    const base = this.y(0).toFixed(1);
    let line = "", area = "";
    for (const run of runs.filter((each) => each.length)) {
      const points = run.map(([when, value]) => `${this.x(when).toFixed(1)},${this.y(value).toFixed(1)}`);
      line += `M${points.join("L")}${run.length === 1 ? "h0.1" : ""}`;
      area += `M${this.x(run[0][0]).toFixed(1)},${base}L${points.join("L")}L${this.x(run.at(-1)[0]).toFixed(1)},${base}Z`;
    }
    const drawn = s("path", { class: "line", d: line });
    drawn.style.stroke = `var(--${field})`;
    return filled ? [s("path", { class: `area k-${field}`, d: area }), drawn] : [drawn];
  }

  atCursor() {
    if (this.cursor === null) return [];
    const x = this.x(this.samples.at[this.cursor]);
    const dots = this.lines.map(([field]) => [field, this.samples[field][this.cursor]]).filter(([, value]) => value !== null);
    return [
      s("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.high - BOTTOM }),
      ...dots.map(([field, value]) => s("circle", { class: `dot k-${field}`, cx: x, cy: this.y(value), r: 4 })),
    ];
  }

  tell() {
    this.tip.hidden = this.cursor === null;
    if (this.cursor === null) return;
    const at = this.samples.at[this.cursor];
    this.tip.replaceChildren(
      h("time", {}, clock(at)),
      ...this.lines.map(([field, name]) => h("div", {}, h("span", {}, name), h("b", {}, this.format(this.samples[field][this.cursor])))),
    );
    const x = this.x(at);
    const right = x > this.wide / 2;
    this.tip.style.left = right ? "auto" : `${x + 12}px`;
    this.tip.style.right = right ? `${this.wide - x + 12}px` : "auto";
  }

  nearest(at) {
    const times = this.samples.at;
    if (!times.length) return null;
    let best = 0;
    times.forEach((each, i) => { if (Math.abs(each - at) < Math.abs(times[best] - at)) best = i; });
    return best;
  }

  point(event) {
    if (!this.samples) return;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const part = (x - LEFT) / (this.wide - LEFT - RIGHT);
    this.choose(this.nearest(this.samples.end - this.samples.span_s * (1 - part)));
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") return this.choose(null);
    if (!by || !this.samples?.at.length) return;
    event.preventDefault();
    const last = this.samples.at.length - 1;
    this.choose(Math.min(last, Math.max(0, (this.cursor ?? last + 1) + by)));
  }

  choose(index) {
    if (index === this.cursor) return;
    this.cursor = index;
    this.draw();
  }
}
