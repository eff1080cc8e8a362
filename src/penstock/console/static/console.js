// Owns the page as a whole: which view is shown, when it asks for news, what happens when nobody answers.
//
// An address is #/ for all queues, #/queues/NAME for one and #/queues/NAME/STATE/ID for a message of it.

import { dress, h, say } from "./elements.js";
import { Overview } from "./overview.js";
import { QueueView } from "./queue.js";
import { closeMessage, showMessage } from "./message.js";

const RETRY_MS = 2000; // while the console does not answer
const PATIENCE_MS = 20000;

const main = document.getElementById("main");
const live = document.getElementById("live");
let view = null;
let timer = 0;
let round = 0; // answers to questions of an earlier view are not for this one

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), headers: { accept: "application/json" } });
  const told = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, told.error ?? answer.statusText);
  return told;
}

function parts() {
  const address = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return address.map(decodeURIComponent);
  } catch {
    return [];
  }
}

function alive(interval) {
  dress(live, "live on");
  say(live.lastElementChild, interval ? `live, every ${interval} s` : "live");
}

function lost() {
  dress(live, "live off");
  say(live.lastElementChild, "no answer, trying again");
}

async function look() {
  clearTimeout(timer);
  const mine = ++round;
  let pause = RETRY_MS;
  try {
    const interval = await view.look();
    if (mine !== round) return;
    if (interval) pause = Math.max(interval * 1000, 250);
    alive(interval);
  } catch (error) {
    if (mine !== round) return;
    if (error instanceof Refused) {
      alive(0);
      view.fail(error);
    } else if (error instanceof TypeError || error.name === "TimeoutError" || error instanceof SyntaxError) {
      lost(); // the network's; what was shown stays
    } else {
      throw error;
    }
  }
  if (!document.hidden) timer = setTimeout(look, pause);
}

function route() {
  const [what, name, state, id] = parts();
  const wanted = what === "queues" && name ? `queue ${name}` : "overview";
  if (view?.key !== wanted) {
    view?.close();
    view = wanted === "overview" ? new Overview(ask, () => look()) : new QueueView(name, ask, () => look());
    view.key = wanted;
    main.replaceChildren(view.element);
    document.title = wanted === "overview" ? "Penstock" : `${name} · Penstock`;
    window.scrollTo(0, 0);
    look();
  }
  if (id) showMessage({ name, state, id, ask, back: `#/queues/${encodeURIComponent(name)}` });
  else closeMessage();
}

export function linkTo(...words) {
  return `#/${words.map(encodeURIComponent).join("/")}`;
}

window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); else clearTimeout(timer); });
window.addEventListener("online", () => look());
main.replaceChildren(h("p", { class: "note" }, "Looking at the queues…"));
route();
