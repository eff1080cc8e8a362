// Owns numbers, spans and times as people read them. Pure.

const WHOLE = new Intl.NumberFormat("en");
const NOTHING = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isNumber(value) ? WHOLE.format(Math.round(value)) : NOTHING;
}

// For the axis of a plot: 1200 is 1.2k.
export function short(value) {
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= limit) return trim(value / limit) + unit;
  }
  return trim(value);
}

function trim(value) {
  return String(Number(value.toFixed(Math.abs(value) < 1 ? 3 : Math.abs(value) < 100 ? 1 : 0)));
}

export function rate(value) {
  if (!isNumber(value)) return NOTHING;
  return value > 0 && value < 9.95 ? value.toFixed(1) : WHOLE.format(Math.round(value));
}

export function span(seconds) {
  if (!isNumber(seconds)) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return "<1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return two(seconds, 60, "min", 1, "s");
  if (seconds < 86400) return two(seconds, 3600, "h", 60, "min");
  return two(seconds, 86400, "d", 3600, "h");
}

function two(seconds, large, largeName, small, smallName) {
  const whole = Math.floor(seconds / large);
  const rest = Math.floor((seconds % large) / small);
  return rest && whole < 10 ? `${whole} ${largeName} ${rest} ${smallName}` : `${whole} ${largeName}`;
}

export function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (size < 1024 || unit === "TiB") return `${unit === "B" || size >= 100 ? Math.round(size) : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
}

const pad = (value, width = 2) => String(value).padStart(width, "0");

export function clock(at, seconds = true) {
  const when = new Date(at * 1000);
  return `${pad(when.getHours())}:${pad(when.getMinutes())}${seconds ? `:${pad(when.getSeconds())}` : ""}`;
}

export function moment(at) {
  if (!isNumber(at)) return NOTHING;
  const when = new Date(at * 1000);
  const day = `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())}`;
  return `${day} ${clock(at)}.${pad(when.getMilliseconds(), 3)}`;
}

// "3 min ago", "in 7 h".
export function distance(at, now) {
  if (!isNumber(at)) return NOTHING;
  const seconds = now - at;
  if (Math.abs(seconds) < 0.001) return "now";
  return seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
}
