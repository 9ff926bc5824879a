// The page: reads what the server knows, about once a second, and shows the view that the address
// names. Inputs keep what was typed, and open details stay open, when a view is drawn again.

import { bytes, count, el, instant, isTime, lag, rate, seconds } from "/draw.js";
import { epochsView, eventsView, graphView, lettersView, mayAsk, slotsView, stateResult, stateView } from "/views.js";

const VIEWS = { graph: "Graph", slots: "Slots", epochs: "Epochs", state: "State", letters: "Dead letters", events: "Events" };
const EVERY_MS = 1000, HIDDEN_MS = 10000;
const token = document.querySelector("meta[name=headrace-token]").content;
const main = document.getElementById("main"), freshness = document.getElementById("freshness");
let looked = null, timer = 0, shownRoute = "", lastRead = 0;

async function read(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...(options.headers || {}) }, cache: "no-store" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || `status ${answer.status}`);
  return found;
}

function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  if (parts[0] !== "p" || !/^\d+$/.test(parts[1] || "")) return { list: true };
  return { number: Number(parts[1]), view: Object.hasOwn(VIEWS, parts[2] || "") ? parts[2] : "graph" };
}

async function refresh() {
  clearTimeout(timer);
  const where = route(), asked = location.hash;
  try {
    const found = await read(where.list ? "/api/pipelines" : `/api/pipeline/${where.number}`);
    if (location.hash !== asked) return;
    if (where.list && found.pipelines.length === 1) { location.replace("#/p/0/graph"); return; }
    lastRead = Date.now();
    freshness.classList.toggle("old", Boolean(found.error));
    freshness.textContent = found.error ? "the checkpoint cannot be read" : `read ${new Date().toLocaleTimeString()}`;
    draw(where, found);
  } catch (error) {
    freshness.classList.add("old");
    freshness.textContent = lastRead ? `no answer since ${new Date(lastRead).toLocaleTimeString()}` : "no answer";
    if (shownRoute !== nameOf(where)) {
      main.replaceChildren(el("p", { class: "card alert" }, String(error.message || error)));
      shownRoute = "";
    }
  }
  timer = setTimeout(refresh, document.hidden ? HIDDEN_MS : EVERY_MS);
}

const nameOf = (where) => (where.list ? "list" : `${where.number}/${where.view}`);

function draw(where, found) {
  const name = nameOf(where), same = name === shownRoute;
  if (same && inHand()) { freshness.textContent = "waits for your hand"; return; }
  if (same && document.getElementById("state-result")) { drawHead(found, where); return; }
  const kept = same ? keep() : null;
  main.replaceChildren(...(where.list ? list(found) : pipeline(found, where)));
  if (kept) restore(kept);
  else { window.scrollTo(0, 0); showTab(); }
  shownRoute = name;
}

// A press, or a selection of text, is lost where the element under it is made anew.
let pressed = false;
window.addEventListener("pointerdown", () => { pressed = true; });
for (const kind of ["pointerup", "pointercancel", "blur"]) window.addEventListener(kind, () => { pressed = false; });

function inHand() {
  const chosen = window.getSelection();
  return pressed || (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode));
}

// On a phone the tabs are wider than the window: shows the current one whole.
function showTab() {
  const tabs = main.querySelector("nav.tabs"), tab = tabs && tabs.querySelector("a[aria-current]");
  if (tab) tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft + tab.offsetWidth - tabs.clientWidth;
}

function keep() {
  const active = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  const values = {}, open = {}, scrolled = [];
  main.querySelectorAll("input[data-key]").forEach((e) => { if (e === document.activeElement || e.value !== e.defaultValue) values[e.dataset.key] = e.value; });
  main.querySelectorAll("details[data-key]").forEach((e) => { open[e.dataset.key] = e.open; });
  main.querySelectorAll(".scroll").forEach((e) => scrolled.push(e.scrollLeft));
  return { active, values, open, scrolled };
}

function restore({ active, values, open, scrolled }) {
  main.querySelectorAll("input[data-key]").forEach((e) => {
    if (e.dataset.key in values) e.value = values[e.dataset.key];
  });
  main.querySelectorAll("[data-key]").forEach((e) => { if (active && e.dataset.key === active) e.focus({ preventScroll: true }); });
  main.querySelectorAll("details[data-key]").forEach((e) => { if (open[e.dataset.key]) e.open = true; });
  main.querySelectorAll(".scroll").forEach((e, at) => { e.scrollLeft = scrolled[at] || 0; });
}

function pill(state, outage) {
  const kind = outage ? "bad" : { running: "good", paused: "warn", stopping: "warn", silent: "bad", unreadable: "bad" }[state] || "";
  return el("span", { class: `pill ${kind}` }, outage ? "waiting: outage" : state);
}

function list(found) {
  document.title = "Headrace";
  return [el("div", { class: "head" }, el("h1", {}, "Pipelines")), ...found.pipelines.map((p) => el("a", { class: "block", href: `#/p/${p.number}/graph` },
    el("div", { class: "card" }, el("div", { class: "head" }, el("h2", {}, p.pipeline || "?"), pill(p.state, p.outage), el("span", { class: "spacer" }),
      el("span", { class: "soft small" }, instant(p.wall))), el("p", { class: "where" }, p.location),
    p.error ? el("p", { class: "small" }, p.error) : el("span", { class: "soft small" },
      `epoch ${count(p.epoch)} · ${count(p.records)} records · ${rate(p.rate)} · ${bytes(p.state_bytes)} of state · ${count(p.dead)} dead letters`))))];
}

function headOf(found) {
  const o = found.overview, status = found.status;
  const sources = status ? status.graph.filter((p) => p.kind === "source").map((p) => p.name) : [];
  const live = status && status.phase !== "ended";
  const total = live ? sources.reduce((sum, name) => sum + (status.rates[name] || 0), 0) : undefined;
  const marks = Object.values(o.computations).map((c) => c.watermark);
  const lowest = marks.length ? Math.min(...marks) : 0;
  const last = status && status.epochs.length ? status.epochs[status.epochs.length - 1] : null;
  const figure = (text, about, bad, title) => el("div", { class: `figure ${bad ? "bad" : ""}`, title }, el("b", {}, text), el("span", {}, about));
  return [el("div", { class: "head" }, el("h1", {}, o.pipeline), pill(o.state, live && status.outage),
    o.deploy ? el("span", { class: "small soft" }, o.deploy) : null, el("span", { class: "spacer" }), ...buttons(found)),
  el("p", { class: "where" }, `${found.location}${status && status.host ? `, led by ${status.host}` : ""}, generation ${o.generation}`),
  found.error ? el("p", { class: "card alert" }, found.error) : null,
  el("div", { class: "figures" },
    figure(count(o.epoch), last ? `epochs, last ${seconds(last[2])}` : "epochs", false, "how long the last one took"),
    figure(total === undefined ? count(o.records) : rate(total), total === undefined ? "records" : `${count(o.records)} records`),
    figure(lag(lowest, found.newest).replace(" behind", ""), behindNow(lowest, found.wall), false, `watermark ${instant(lowest)}, behind the newest record`),
    figure(bytes(o.state_bytes), "state"),
    figure(status && status.backlog !== null ? count(status.backlog) : "-", o.carried ? `waiting, ${count(o.carried)} carried` : "records waiting"),
    figure(count(o.late), "late"), figure(count(o.dead), "dead letters", o.dead > 0))];
}

function behindNow(watermark, wall) {
  return isTime(watermark) ? `lag; ${seconds(Math.max(0, wall - watermark) / 1e6)} to now` : "watermark lag";
}

function buttons(found) {
  if (!mayAsk(found)) return [];
  const paused = found.overview.state === "paused";
  return [paused ? el("button", { class: "main", "data-key": "pause", onclick: () => ask({ verb: "resume" }) }, "Resume")
    : el("button", { "data-key": "pause", onclick: () => ask({ verb: "pause" }, "Pause the pipeline after its current epoch?") }, "Pause")];
}

function drawHead(found, where) {
  const head = document.getElementById("head");
  if (head && found.overview) head.replaceChildren(...headOf(found).filter(Boolean));
  looked = { found, where };
}

function pipeline(found, where) {
  looked = { found, where };
  if (!found.overview) return [el("div", { class: "card alert" }, el("h2", {}, found.location), el("p", {}, found.error))];
  document.title = `${found.overview.pipeline} · Headrace`;
  const dead = found.overview.dead, trouble = found.status && found.status.outage ? "!" : "";
  const badge = { letters: dead ? count(dead) : "", events: trouble };
  const tabs = el("nav", { class: "tabs scroll" }, Object.entries(VIEWS).map(([view, title]) => el("a", {
    href: `#/p/${where.number}/${view}`, "aria-current": view === where.view ? "page" : null, "data-key": `tab-${view}`,
  }, title, badge[view] ? el("span", { class: "badge" }, badge[view]) : null)));
  const body = { graph: graphView, epochs: epochsView, letters: lettersView, events: eventsView,
    slots: (seen) => slotsView(seen, ask), state: (seen) => stateView(seen, lookUp) }[where.view](found);
  return [el("div", { id: "head" }, headOf(found)), tabs, ...body];
}

async function lookUp(what, computation, key, place) {
  const query = new URLSearchParams({ computation, key });
  place.replaceChildren(el("p", { class: "empty" }, "Reading ..."));
  try {
    place.replaceChildren(stateResult(what, await read(`/api/pipeline/${looked.where.number}/${what}?${query}`)));
  } catch (error) {
    place.replaceChildren(el("p", { class: "card alert" }, error.message));
  }
}

async function ask(request, question) {
  if (question && !window.confirm(question)) return;
  say(`${request.verb}: asked, waiting for the leader ...`, 30000);
  try {
    const done = await read(`/api/pipeline/${looked.where.number}/ask`, {
      method: "POST", body: JSON.stringify(request), headers: { "Content-Type": "application/json", "X-Headrace-Token": token },
    });
    say(`${request.verb}: ${done.verdict}${done.message ? `, ${done.message}` : ""}`);
  } catch (error) {
    say(error.message, 12000);
  }
  refresh();
}

let toastTimer = 0;
function say(text, time = 5000) {
  const toast = document.getElementById("toast");
  toast.textContent = text; toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { toast.hidden = true; }, time);
}

window.addEventListener("hashchange", () => { refresh(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
