// Owns the view of one queue: its figures, plots, messages, clients and options.

import { dress, h, say } from "./elements.js";
import { bytes, clock, count, distance, moment, rate, short, span } from "./format.js";
import { Plot } from "./plots.js";
import { tile } from "./overview.js";

const PAGE = 25;
const SPANS = [["5 min", 300], ["1 h", 3600], ["24 h", 86400]];
const STATES = [["waiting", "Waiting"], ["pending", "In work"], ["dead", "Dead letters"]];
const EMPTY = {
  waiting: ["Nothing waits", "Messages that were put and not yet delivered would be here, the next one first."],
  pending: ["Nothing is in work", "Messages that a receiver has, and has not acknowledged, would be here."],
  dead: ["No dead letters", "Messages that failed too often would be here, each with the reason."],
};

const part = (value, whole) => (whole ? Math.min(100, (value / whole) * 100) : 0);

export class QueueView {
  constructor(name, ask, again) {
    this.name = name;
    this.ask = ask;
    this.again = again;
    this.path = `api/queues/${encodeURIComponent(name)}`;
    this.span = 300;
    this.state = "waiting";
    this.skip = 0;
    this.plots = [
      new Plot({ title: "Depth", lines: [["waiting", "waiting"], ["pending", "in work"]], format: count, axis: short }),
      new Plot({ title: "Messages a second", lines: [["puts", "put"], ["acks", "acked"], ["retries", "came back"]], format: rate, axis: short, filled: false }),
      new Plot({ title: "Lateness", lines: [["oldest_s", "oldest due"], ["late_s", "delivered, p99"]], format: span, axis: (value) => span(value).replace(".0 ", " "), spans: true }),
    ];
    this.build();
  }

  build() {
    this.pill = h("span", { class: "pill" }, "…");
    this.letters = h("span", { class: "tag", hidden: true });
    this.place = h("p", { class: "place" }, "\u00a0");
    this.banner = h("div", { class: "banner", role: "alert", hidden: true });
    this.tiles = Object.fromEntries(
      [["waiting", "Waiting"], ["pending", "In work"], ["puts", "Put"], ["acks", "Acknowledged"], ["late", "Due for"], ["dead", "Dead letters"], ["stored", "Stored"], ["clients", "Clients"]]
        .map(([field, name]) => [field, tile(name)]));
    for (const field of ["waiting", "stored"]) {
      this.tiles[field].meter = h("span", { class: "meter" }, h("i"));
      this.tiles[field].sub.replaceChildren(this.tiles[field].meter);
    }
    this.spans = SPANS.map(([name, seconds]) => h("button", { type: "button", "aria-pressed": String(seconds === this.span), onclick: () => this.over(seconds) }, name));
    this.tabs = STATES.map(([state, name]) => h("button", { type: "button", role: "tab", "aria-selected": String(state === this.state), onclick: () => this.choose(state) }, name));
    this.people = h("div");
    this.options = h("div", { class: "columns" });
    this.figures = h("div", { class: "columns" });
    this.members = h("section", { class: "card", hidden: true });
    this.times = h("section", { class: "card", hidden: true });
    this.messages = this.messagesCard();
    this.allFigures = h("details", { class: "card" }, h("summary", {}, "All figures"), h("div", { class: "body" }, this.figures));
    this.element = h("div", {},
      h("a", { class: "crumb", href: "#/" }, "← All queues"),
      h("div", { class: "heading" }, h("h1", {}, this.name), this.pill, this.letters), this.place, this.banner,
      h("dl", { class: "tiles" }, Object.values(this.tiles).map((each) => each.element)),
      h("section", { class: "card" },
        h("header", {}, h("h2", {}, "Over time"), h("div", { class: "segments", role: "group", "aria-label": "Span" }, this.spans)),
        h("div", { class: "plots" }, this.plots.map((plot) => plot.element))),
      this.members, this.times, this.messages,
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Clients")), this.people),
      h("details", { class: "card" }, h("summary", {}, "Options"), h("div", { class: "body" }, this.options)),
      this.allFigures);
  }

  messagesCard() {
    this.asOf = h("span", { class: "muted" });
    this.rows = h("tbody");
    this.heads = h("tr");
    this.table = h("table", { class: "messages stack" }, h("colgroup", {}, ["c-due", "c-type", "c-small", "c-small", "c-small", ""].map((look) => h("col", { class: look }))), h("thead", {}, this.heads), this.rows);
    this.note = h("div", { class: "note" }, "Looking…");
    this.pages = h("span");
    this.before = h("button", { class: "button", type: "button", onclick: () => this.list(this.skip - PAGE) }, "Back");
    this.after = h("button", { class: "button", type: "button", onclick: () => this.list(this.skip + PAGE) }, "Next");
    this.pager = h("nav", { class: "pager", "aria-label": "Pages of messages", hidden: true }, this.pages, this.before, this.after);
    return h("section", { class: "card", id: "messages" },
      h("header", {}, h("h2", {}, "Messages"), this.asOf, h("button", { class: "button", type: "button", onclick: () => this.list(this.skip) }, "Look again"),
        h("div", { class: "segments", role: "tablist", "aria-label": "Which messages" }, this.tabs)),
      this.table, this.note, this.pager);
  }

  close() {
    this.plots.forEach((plot) => plot.close());
  }

  over(seconds) {
    this.span = seconds;
    SPANS.forEach(([, each], i) => this.spans[i].setAttribute("aria-pressed", String(each === seconds)));
    this.again();
  }

  async look() {
    const [queue, past] = await Promise.all([this.ask(this.path), this.ask(`${this.path}/history?span=${this.span}`)]);
    if (past.asked_s === this.span) this.plots.forEach((plot) => plot.show(past));
    this.show(queue);
    return queue.interval_s;
  }

  fail(error) {
    dress(this.pill, "pill failed");
    say(this.pill, error.status === 404 ? "gone" : "failed");
    this.banner.hidden = false;
    this.banner.replaceChildren(h("strong", {}, error.status === 404 ? "There is no such queue now" : "The queue cannot be looked at"), error.message);
  }

  show(queue) {
    say(this.pill, queue.state);
    dress(this.pill, `pill ${queue.state}`);
    this.letters.hidden = !queue.dead_of.length;
    say(this.letters, `dead letters of ${queue.dead_of.join(", ")}`);
    say(this.place, queue.place);
    const wrong = queue.error ?? (queue.sync_failed ? `A sync to disk has failed: ${queue.sync_failed}` : null);
    this.banner.hidden = !wrong;
    if (wrong && this.banner.lastChild?.textContent !== wrong) this.banner.replaceChildren(h("strong", {}, "This queue has failed"), wrong);
    this.showFigures(queue);
    this.showMembers(queue.members);
    this.showTimes(queue.stats);
    this.showPeople(queue);
    this.listFirst(queue);
    this.showOptions(queue);
  }

  showFigures(queue) {
    const rates = queue.rates ?? {};
    const { tiles } = this;
    const full = part((queue.waiting ?? 0) + (queue.pending ?? 0), queue.slots);
    tiles.waiting.show(count(queue.waiting), { units: queue.slots ? `of ${count(queue.slots)}` : "" });
    this.fill(tiles.waiting.meter, full);
    tiles.pending.show(count(queue.pending), { under: queue.holders ? `with ${queue.holders} receiver${queue.holders > 1 ? "s" : ""}` : "" });
    tiles.puts.show(rate(rates.puts), { units: "/s", under: queue.stats.puts === undefined ? "" : `${count(queue.stats.puts)} in all` });
    tiles.acks.show(rate(rates.acks), { units: "/s", under: queue.stats.acks === undefined ? "" : `${count(queue.stats.acks)} in all` });
    const next = queue.next_due_at && queue.late_s === null ? `next ${distance(queue.next_due_at, queue.at)}` : "the next message";
    tiles.late.show(queue.late_s === null || queue.late_s === undefined ? "–" : span(queue.late_s), { under: queue.waiting === 0 ? "nothing waits" : next });
    tiles.dead.show(count(queue.dead), { look: queue.dead ? "bad" : "", under: queue.dead_queues.join(", ") });
    tiles.stored.show(bytes(queue.stored_bytes), {});
    this.fill(tiles.stored.meter, part(queue.stored_bytes ?? 0, queue.data_bytes));
    tiles.clients.show(count(queue.clients), { under: queue.stats.producers === undefined ? "" : `${queue.stats.producers} put, ${queue.stats.consumers} get` });
    say(this.tabs[2], queue.dead ? `Dead letters (${short(queue.dead)})` : "Dead letters");
  }

  fill(meter, percent) {
    meter.firstChild.style.width = `${percent}%`;
    meter.title = `${percent.toFixed(1)} % full`;
    dress(meter, `meter${percent >= 95 ? " bad" : percent >= 80 ? " warn" : ""}`);
  }

  showMembers(members) {
    this.members.hidden = !members.length;
    this.messages.hidden = this.allFigures.hidden = Boolean(members.length); // both are its members'
    if (members.length) {
      this.members.replaceChildren(h("header", {}, h("h2", {}, "Members")),
        h("div", { class: "body members" }, members.map((name) => h("a", { class: "tag", href: `#/queues/${encodeURIComponent(name)}` }, name)),
          h("span", { class: "muted" }, "Their messages are there.")));
    }
  }

  // Waiting, lateness and service times, where the queue keeps them.
  showTimes(stats) {
    const known = [["waiting_time", "Waiting, from put to delivery"], ["lateness", "Lateness, from due to delivery"], ["service_time", "Service, from delivery to acknowledgement"]]
      .filter(([field]) => stats?.[field]?.count);
    this.times.hidden = !known.length;
    if (!known.length) return;
    const head = ["", "Half below", "90 % below", "99 % below", "Most", "Mean", "Messages"];
    this.times.replaceChildren(h("header", {}, h("h2", {}, "How long it takes")),
      h("table", { class: "stack times" }, h("colgroup", {}, head.map((_, i) => h("col", { class: i ? "" : "c-wide" }))), h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { class: i ? "num" : "" }, name)))),
        h("tbody", {}, known.map(([field, name]) => {
          const { p50_s, p90_s, p99_s, max_s, mean_s, count: messages } = stats[field];
          const cells = [span(p50_s), span(p90_s), span(p99_s), span(max_s), span(mean_s), count(messages)];
          return h("tr", {}, h("td", { class: "c-wide" }, name), cells.map((text, i) => h("td", { class: "num", "data-label": head[i + 1] }, text)));
        }))));
  }

  showPeople({ people, at: now, error }) {
    const said = JSON.stringify([error, people.map((each) => [each.client, each.pid, each.holds])]) + (people.length ? Math.floor(now / 10) : "");
    if (said === this.saidPeople) return;
    this.saidPeople = said;
    if (!people.length) return this.people.replaceChildren(h("div", { class: "body muted" }, error ? "Not known." : "Nobody has it open."));
    this.people.replaceChildren(h("table", { class: "people" },
      h("thead", {}, h("tr", {}, h("th", {}, "Process"), h("th", { class: "num" }, "Has messages"), h("th", { class: "num" }, "Since"))),
      h("tbody", {}, people.slice(0, 50).map((each) => h("tr", {}, h("td", { class: "mono" }, String(each.pid)), h("td", { class: "num" }, count(each.holds)),
        h("td", { class: "num", title: moment(each.since_us / 1e6) }, distance(each.since_us / 1e6, now)))))),
      people.length > 50 ? h("p", { class: "body muted" }, `and ${people.length - 50} more`) : "");
  }

  showOptions(queue) {
    const said = JSON.stringify([queue.options, queue.uuid]);
    if (said !== this.saidOptions) {
      this.saidOptions = said;
      const facts = { uuid: queue.uuid, ...queue.options };
      this.options.replaceChildren(...Object.entries(facts).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length))
        .map(([name, value]) => h("div", {}, h("span", {}, name.replaceAll("_", " ")), h("span", {}, this.readable(name, value)))));
    }
    const stats = Object.entries(queue.stats).filter(([, value]) => value === null || typeof value !== "object");
    if (this.figures.children.length !== stats.length) {
      this.figures.replaceChildren(...stats.map(([name]) => h("div", {}, h("span", {}, name.replaceAll("_", " ")), h("span"))));
    }
    stats.forEach(([name, value], i) => say(this.figures.children[i].lastChild, this.readable(name, value)));
  }

  readable(name, value) {
    if (value === null) return "–";
    if (name.endsWith("_bytes")) return bytes(value);
    if (name.endsWith("_at")) return moment(value);
    if (name === "mode") return `0${value.toString(8)}`;
    if (name === "lease" || name === "dedup_window") return span(value);
    if (typeof value === "number") return Number.isInteger(value) ? count(value) : value.toFixed(2);
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  // ------------------------------------------------------------ messages: as they were at one moment, until asked again

  choose(state) {
    this.state = state;
    STATES.forEach(([each], i) => this.tabs[i].setAttribute("aria-selected", String(each === state)));
    this.list();
  }

  // Not before it is known that it has messages of its own, which can be looked at.
  listFirst(queue) {
    if (this.listed || queue.members.length) return;
    if (queue.error) return this.refuse(queue.error);
    this.listed = true;
    this.list();
  }

  refuse(words) {
    this.table.hidden = this.pager.hidden = true;
    this.note.hidden = false;
    this.note.replaceChildren(h("strong", {}, "The messages cannot be shown"), words);
  }

  async list(skip = 0) {
    const state = this.state;
    dress(this.rows, "busy");
    try {
      const told = await this.ask(`${this.path}/messages?state=${state}&skip=${Math.max(0, skip)}&limit=${PAGE}`);
      if (state === this.state) this.showMessages(told);
    } catch (error) {
      this.refuse(error.message);
    } finally {
      dress(this.rows, "");
    }
  }

  showMessages(told) {
    const now = Date.now() / 1000;
    this.skip = told.skip;
    say(this.asOf, `as of ${clock(now)}`);
    const dead = told.state === "dead";
    const when = dead ? "Dead since" : told.state === "pending" ? "Lease ends" : "Due";
    const names = [when, "Type and key", "Priority", "Attempts", "Size", dead ? "Reason" : "Body"];
    this.heads.replaceChildren(...names.map((name, i) => h("th", { class: i > 1 && i < 5 ? "num" : "", scope: "col" }, name)));
    this.rows.replaceChildren(...told.messages.map((message) => this.row(message, told.state, names, now)));
    const none = !told.messages.length;
    this.table.hidden = none;
    this.note.hidden = !none && !told.error;
    if (none || told.error) {
      const [title, words] = told.error ? ["Damaged messages", told.error] : EMPTY[told.state];
      this.note.replaceChildren(h("strong", {}, title), words);
    }
    this.pager.hidden = !told.skip && !told.more;
    say(this.pages, none ? "no more" : `${count(told.skip + 1)} to ${count(told.skip + told.messages.length)}`);
    this.before.disabled = !told.skip;
    this.after.disabled = !told.more;
  }

  row(message, state, names, now) {
    const address = `#/queues/${[this.name, state, message.here].map(encodeURIComponent).join("/")}`;
    const at = state === "dead" ? message.enqueued_at : state === "pending" ? message.lease_ends_at : message.deliver_at;
    const number = (label, text) => h("td", { class: "num", "data-label": label }, text);
    return h("tr", { class: "go", onclick: (event) => { if (!event.target.closest("a")) location.hash = address; } },
      h("td", { class: "c-due" }, h("a", { href: address, title: moment(at) }, at === null ? "claimed" : distance(at, now))),
      h("td", { class: "c-type" }, message.type ?? h("span", { class: "muted" }, "–"), h("span", { class: "twice" }, message.key ?? "")),
      number("Priority", String(message.priority)), number("Attempts", count(message.attempts)), number("Size", bytes(message.body_bytes)),
      state === "dead"
        ? h("td", { class: "c-preview" }, h("span", { class: "bad-text" }, message.reason ?? "moved here"), h("span", { class: "twice", title: message.error ?? "" }, message.error ?? ""))
        : h("td", { class: "c-preview" }, h("span", { class: "preview" }, message.preview)));
  }
}
