// Owns the list of all queues, and the figures of all of them together.

import { dress, h, say } from "./elements.js";
import { bytes, count, rate, span } from "./format.js";
import { sparkline } from "./plots.js";

const PAGE = 50;
const COLUMNS = [
  // name, what it sorts by, class
  ["Queue", "name", "c-name"], ["Waiting, last 5 min", null, "c-spark"], ["Waiting", "waiting", "num"], ["In work", "pending", "num"],
  ["Put /s", "puts", "num"], ["Ack /s", "acks", "num"], ["Oldest due", "oldest", "num"], ["Dead", "dead", "num"],
];

const link = (name) => `#/queues/${encodeURIComponent(name)}`;

export function tile(name, wide = false) {
  const value = h("span", {}, "–");
  const unit = h("small", {});
  const sub = h("span", { class: "sub" });
  const element = h("div", { class: wide ? "tile wide" : "tile" }, h("dt", {}, name), h("dd", {}, value, unit), sub);
  return {
    element,
    show(text, { units = "", under = "", look = "" } = {}) {
      say(value, text);
      say(unit, units);
      if (sub.firstElementChild === null) say(sub, under);
      dress(element, `tile${wide ? " wide" : ""}${look ? ` ${look}` : ""}`);
    },
    sub,
  };
}

// A number in a cell: a zero is quiet, what is wrong is not.
function figure(cell, text, { zero = false, look = "" } = {}) {
  say(cell, text);
  dress(cell, look || (zero ? "zero" : ""));
}

class Row {
  constructor(name) {
    this.name = h("a", { class: "name", href: link(name) }, name);
    this.state = h("span", { class: "state" });
    this.why = h("span", { class: "why" });
    this.spark = sparkline([]);
    this.cells = Object.fromEntries(["waiting", "pending", "puts", "acks", "oldest", "dead"].map((each) => [each, h("span", {}, "–")]));
    const number = (label, field) => h("td", { class: "num", "data-label": label }, this.cells[field]);
    this.element = h("tr", { class: "go", onclick: (event) => { if (!event.target.closest("a")) location.hash = link(name); } },
      h("td", { class: "c-name" }, this.name, h("span", { class: "under" }, this.state, this.why)),
      h("td", { class: "c-spark" }, this.spark.element),
      number("Waiting", "waiting"), number("In work", "pending"), number("Put /s", "puts"), number("Ack /s", "acks"),
      number("Oldest due", "oldest"), number("Dead", "dead"));
  }

  show(queue) {
    const rates = queue.rates ?? {};
    say(this.state, queue.state);
    dress(this.state, `state ${queue.state}`);
    const members = queue.members.length ? `${queue.kind} queue of ${queue.members.join(", ")}` : "";
    const letters = queue.dead_of.length ? `dead letters of ${queue.dead_of.join(", ")}` : "";
    say(this.why, queue.error ?? queue.sync_failed ?? (letters || members || (queue.clients ? `${queue.clients} client${queue.clients > 1 ? "s" : ""}` : "")));
    this.why.title = queue.error ?? "";
    dress(this.element, queue.dead_of.length ? "go dead-queue" : "go");
    const full = queue.slots && queue.waiting + queue.pending >= queue.slots * 0.9;
    figure(this.cells.waiting, count(queue.waiting), { zero: !queue.waiting, look: full ? "warn" : "" });
    this.cells.waiting.title = queue.slots ? `of ${count(queue.slots)}; ${bytes(queue.stored_bytes)} stored` : "";
    figure(this.cells.pending, count(queue.pending), { zero: !queue.pending });
    figure(this.cells.puts, rate(rates.puts), { zero: !rates.puts });
    figure(this.cells.acks, rate(rates.acks), { zero: !rates.acks });
    figure(this.cells.oldest, queue.oldest_s === null || queue.oldest_s === undefined ? "–" : span(queue.oldest_s), { zero: !queue.oldest_s });
    figure(this.cells.dead, count(queue.dead), { zero: !queue.dead, look: queue.dead ? "bad" : "" });
    this.spark.draw(queue.spark);
  }
}

export class Overview {
  constructor(ask, again) {
    this.ask = ask;
    this.again = again;
    this.sort = "name";
    this.skip = 0;
    this.rows = new Map();
    this.tiles = Object.fromEntries(
      [["waiting", "Waiting"], ["pending", "In work"], ["puts", "Put"], ["acks", "Acknowledged"], ["oldest", "Oldest due"], ["dead", "Dead letters"], ["queues", "Queues"]]
        .map(([field, name]) => [field, tile(name, field === "queues")]));
    this.found = h("span", { class: "muted" });
    this.search = h("input", { class: "search", type: "search", placeholder: "Find a queue by name or state", "aria-label": "Find a queue", oninput: () => this.from(0), autocomplete: "off", spellcheck: "false" });
    this.heads = COLUMNS.map(([name, by, look]) => h("th", { class: look, scope: "col" }, by ? h("button", { type: "button", onclick: () => this.order(by) }, name) : name));
    this.body = h("tbody");
    this.table = h("table", { class: "queues stack" },
      h("colgroup", {}, COLUMNS.map(([, , look]) => h("col", { class: look }))), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.note = h("div", { class: "note" }, "Looking at the queues…");
    this.pages = h("span");
    this.before = h("button", { class: "button", type: "button", onclick: () => this.from(this.skip - PAGE) }, "Back");
    this.after = h("button", { class: "button", type: "button", onclick: () => this.from(this.skip + PAGE) }, "Next");
    this.pager = h("nav", { class: "pager", "aria-label": "Pages of queues", hidden: true }, this.pages, this.before, this.after);
    this.banner = h("div", { class: "banner", role: "alert", hidden: true });
    this.element = h("div", {}, this.banner, h("dl", { class: "tiles" }, Object.values(this.tiles).map((each) => each.element)),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Queues ", this.found), this.search), this.table, this.note, this.pager));
    this.mark();
  }

  close() {}

  from(skip) {
    this.skip = Math.max(0, skip);
    this.again();
  }

  // The highest first; again, the other way round.
  order(by) {
    this.sort = this.sort === by ? `-${by}` : by;
    this.mark();
    this.from(0);
  }

  mark() {
    const backwards = this.sort.startsWith("-");
    COLUMNS.forEach(([, by], i) => {
      if (by !== this.sort.replace("-", "")) return this.heads[i].removeAttribute("aria-sort");
      this.heads[i].setAttribute("aria-sort", (by === "name") === backwards ? "descending" : "ascending");
    });
  }

  async look() {
    const find = this.search.value.trim();
    const query = new URLSearchParams({ find, sort: this.sort, skip: this.skip, limit: PAGE });
    const told = await this.ask(`api/queues?${query}`);
    if (!told.queues.length && told.found && this.skip) {
      this.skip = 0; // some have gone meanwhile
      return this.look();
    }
    this.show(told, find);
    return told.interval_s;
  }

  show(told, find) {
    say(document.getElementById("root"), `\u200e${told.root}`); // cut at its start, and yet read from left to right
    this.banner.hidden = !told.error;
    say(this.banner, told.error ?? "");
    const { totals } = told;
    this.tiles.waiting.show(count(totals.waiting), { under: "messages, due or not" });
    this.tiles.pending.show(count(totals.pending), { under: "with a receiver" });
    this.tiles.puts.show(rate(totals.puts), { units: "/s" });
    this.tiles.acks.show(rate(totals.acks), { units: "/s" });
    this.tiles.oldest.show(totals.oldest_s === null ? "–" : span(totals.oldest_s), { under: totals.oldest_s === null ? "nothing is due" : "and not delivered" });
    this.tiles.dead.show(count(totals.dead), { look: totals.dead ? "bad" : "" });
    this.tiles.queues.show(count(totals.queues), { under: totals.failed ? `${totals.failed} failed` : "all well", look: totals.failed ? "bad" : "" });
    say(this.found, find ? `${count(told.found)} of ${count(totals.queues)}` : count(totals.queues));
    this.fill(told.queues);
    this.table.hidden = !told.queues.length;
    this.note.hidden = Boolean(told.queues.length);
    if (!told.queues.length) {
      this.note.replaceChildren(...(find ? [h("strong", {}, "No queue is called that"), `Nothing here has “${find}” in its name or as its state.`]
        : [h("strong", {}, "There are no queues here yet"), "Make one: ", h("code", {}, `penstock create ${told.root}/orders`)]));
    }
    this.pager.hidden = told.found <= PAGE;
    say(this.pages, `${count(told.skip + 1)} to ${count(told.skip + told.queues.length)} of ${count(told.found)}`);
    this.before.disabled = told.skip === 0;
    this.after.disabled = told.skip + PAGE >= told.found;
  }

  // Rows are kept and moved only where the order has changed: a pointer over one stays over it.
  fill(queues) {
    const names = new Set(queues.map((queue) => queue.name));
    for (const [name, row] of this.rows) {
      if (!names.has(name)) {
        row.element.remove();
        this.rows.delete(name);
      }
    }
    queues.forEach((queue, i) => {
      let row = this.rows.get(queue.name);
      if (!row) this.rows.set(queue.name, (row = new Row(queue.name)));
      if (this.body.children[i] !== row.element) this.body.insertBefore(row.element, this.body.children[i] ?? null);
      row.show(queue);
    });
  }

  fail(error) {
    this.banner.hidden = false;
    say(this.banner, error.message);
  }
}
