// Owns the view of one message: what it says of itself, and its body as text or bytes. Text is shown, never interpreted.

import { h } from "./elements.js";
import { bytes, count, distance, moment, span } from "./format.js";

const drawer = document.getElementById("drawer");
let back = "#/";
let asked = 0;

drawer.addEventListener("close", () => { if (location.hash !== back && drawer.dataset.open) location.hash = back; });
drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });

export function closeMessage() {
  delete drawer.dataset.open;
  asked += 1;
  if (drawer.open) drawer.close();
}

export async function showMessage({ name, state, id, ask, back: address }) {
  const mine = ++asked;
  back = address;
  drawer.replaceChildren(heading("Message", id));
  drawer.dataset.open = "1";
  if (!drawer.open) drawer.showModal();
  try {
    const message = await ask(`api/queues/${encodeURIComponent(name)}/messages/${encodeURIComponent(id)}?state=${encodeURIComponent(state)}`);
    if (mine === asked) fill(message, state);
  } catch (error) {
    if (mine !== asked) return;
    const gone = error.status === 404;
    drawer.append(h("div", { class: "note" }, h("strong", {}, gone ? "This message is not in the queue any more" : "The message cannot be shown"),
      gone ? "It was delivered and acknowledged, cancelled, or moved." : error.message));
  }
}

function heading(title, id) {
  return h("header", {}, h("div", {}, h("h2", { id: "drawer-title" }, title), h("span", { class: "mono" }, id)),
    h("button", { class: "button", type: "button", onclick: () => drawer.close() }, "Close"));
}

function fact(name, value) {
  return value === null || value === undefined || value === "" ? [] : [h("dt", {}, name), h("dd", {}, value)];
}

function when(name, at, now) {
  return at === null || at === undefined ? [] : fact(name, `${moment(at)}  (${distance(at, now)})`);
}

function fill(message, state) {
  const now = Date.now() / 1000;
  const parts = [heading(message.type ?? "Message", message.id)];
  if (message.reason) {
    parts.push(h("section", {}, h("div", { class: "reason" }, h("strong", {}, message.reason), message.error ?? ""),
      message.history.length ? h("ul", { class: "attempts" }, message.history.map(({ at, error }) => h("li", {}, h("time", {}, moment(at)), error))) : null));
  }
  parts.push(body(message.body));
  parts.push(h("section", {}, h("h3", {}, "About it"), h("dl", { class: "facts" },
    fact("State", state === "dead" ? "dead letter" : message.state === "pending" ? "in work" : message.state),
    fact("Key", message.key), fact("Priority", String(message.priority)),
    fact("Attempts", count(message.attempts) + (message.max_attempts ? ` of ${message.max_attempts}` : "")),
    when(state === "dead" ? "Dead since" : "Put", message.enqueued_at, now), state === "dead" ? [] : when("Due", message.deliver_at, now), when("Last attempt", message.last_attempt_at, now),
    when("Lease ends", message.lease_ends_at, now), when("Expires", message.expires_at, now),
    fact("Own lease", message.own_lease_s ? span(message.own_lease_s) : null), fact("Dedup id", message.dedup_id),
    fact("Came from", message.came_from), fact("Id here", message.here === message.id ? null : message.here))));
  const headers = Object.entries(message.headers);
  parts.push(h("section", {}, h("h3", {}, "Headers"), headers.length
    ? h("dl", { class: "facts mono" }, headers.flatMap(([name, value]) => fact(name, value)))
    : h("span", { class: "muted" }, "It has none.")));
  drawer.replaceChildren(...parts);
  drawer.scrollTop = 0;
  drawer.querySelector("header button").focus(); // the one that had it has been replaced
}

const KINDS = { json: "JSON", text: "Text", bytes: "Bytes", pickle: "A pickle, which is not opened" };

function body(shown) {
  const text = h("pre", { class: "text", tabindex: "0", "aria-label": "Body" }, shown.text ?? "");
  const hex = h("pre", { class: "hex", tabindex: "0", "aria-label": "Body in hex", hidden: true }, shown.hex);
  const cut = h("p", { class: "muted" });
  const choose = (which) => {
    text.hidden = which !== "text";
    hex.hidden = which !== "hex";
    const most = which === "text" ? shown.shown_bytes : shown.hex_bytes;
    cut.textContent = most < shown.bytes ? `The first ${bytes(most)} of ${bytes(shown.bytes)} are shown.` : "";
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.value === which));
  };
  const buttons = [["text", shown.kind === "json" ? "JSON" : "Text"], ["hex", "Hex"]].filter(([which]) => which === "hex" || shown.text !== null)
    .map(([which, name]) => h("button", { type: "button", value: which, onclick: () => choose(which) }, name));
  const empty = shown.bytes === 0;
  choose(shown.text === null || (shown.kind === "bytes") ? "hex" : "text");
  return h("section", {},
    h("div", { class: "row" }, h("h3", {}, "Body ", h("span", { class: "muted" }, `${KINDS[shown.kind]}, ${bytes(shown.bytes)}`)),
      empty ? null : h("div", { class: "segments", role: "group", "aria-label": "Body as" }, buttons)),
    empty ? h("span", { class: "muted" }, "It is empty.") : [text, hex], cut);
}
