// The views of one pipeline: each is a function of what was read, and returns elements.

import { bytes, count, el, heat, inkOn, instant, lag, percent, rate, seconds, svg, table, titled }
  from "/draw.js";

export const PHASES = ["plan", "job", "judge", "commit", "deliver"];
const BOX = { w: 196, h: 92, gapX: 74, gapY: 26 };

// The graph ---------------------------------------------------------------

export function graphView(seen) {
  const parts = seen.status ? seen.status.graph : fallback(seen);
  if (!parts.length) return [el("p", { class: "card empty" }, "No graph is known: no driver has led yet.")];
  const down = window.innerWidth < 760;
  const note = seen.status ? null
    : el("p", { class: "soft small" }, "No leader tells of its graph: these are the computations with state.");
  return [el("div", { class: "card" }, el("h2", {}, "Graph"), note,
    el("div", { class: "legend" },
      key("var(--good)", "source"), key("var(--accent)", "computation"), key("var(--deliver)", "sink"),
      key("var(--bad)", "dead letters"), key("var(--warn)", "feedback")),
    el("div", { class: "scroll" }, drawGraph(seen, parts, down))),
  el("div", { class: "card" }, el("h2", {}, "Sources and computations"), partsTable(seen, parts))];
}

const key = (colour, text) => el("span", {}, el("i", { style: { background: colour } }), text);

const fallback = (seen) => Object.keys(seen.rings).map((name) => (
  { name, kind: "computation", about: "", inputs: [], outputs: [], keyed: true, letters: "" }));

function levels(parts, feedback) {
  const makers = new Map();
  parts.forEach((part, at) => part.outputs.forEach((s) => makers.set(s, [...(makers.get(s) || []), at])));
  const level = parts.map(() => 0);
  for (let round = 0; round < parts.length; round += 1) {
    let changed = false;
    parts.forEach((part, at) => {
      for (const stream of part.inputs) {
        if (feedback.includes(stream)) continue;
        for (const from of makers.get(stream) || []) {
          if (from !== at && level[at] < level[from] + 1 && level[from] + 1 < parts.length) {
            level[at] = level[from] + 1; changed = true;
          }
        }
      }
    });
    if (!changed) break;
  }
  return { level, makers };
}

function drawGraph(seen, parts, down) {
  const feedback = seen.status ? seen.status.feedback : [];
  const letterStreams = new Set(parts.map((p) => p.letters).filter(Boolean));
  const { level, makers } = levels(parts, feedback);
  const rows = [];
  parts.forEach((part, at) => { (rows[level[at]] = rows[level[at]] || []).push(at); });
  const lanes = rows.filter(Boolean);
  // Parts stand beside what feeds them: the mean place of their producers decides.
  const place = new Map();
  lanes.forEach((lane, depth) => {
    const want = (at) => {
      const from = parts[at].inputs.flatMap((s) => makers.get(s) || []).filter((f) => place.has(f));
      return from.length ? from.reduce((sum, f) => sum + place.get(f).cross, 0) / from.length : 0;
    };
    if (depth) lane.sort((a, b) => want(a) - want(b));
    lane.forEach((at, n) => place.set(at, { depth, cross: n - (lane.length - 1) / 2 }));
  });
  const widest = Math.max(...lanes.map((lane) => lane.length));
  const stepX = BOX.w + (down ? 24 : BOX.gapX), stepY = BOX.h + (down ? 58 : BOX.gapY);
  const xy = (at) => {
    const { depth, cross } = place.get(at), mid = cross + (widest - 1) / 2;
    return down ? [6 + mid * stepX, 6 + depth * stepY] : [6 + depth * stepX, 6 + mid * stepY];
  };
  const width = 12 + (down ? widest : lanes.length) * stepX - (down ? 24 : BOX.gapX);
  const height = 12 + (down ? lanes.length : widest) * stepY - (down ? 58 : BOX.gapY);
  const edges = [];
  parts.forEach((part, at) => part.inputs.forEach((stream) => (makers.get(stream) || []).forEach((from) => {
    const back = feedback.includes(stream);
    edges.push(edge(xy(from), xy(at), down, stream, back ? "feedback" : letterStreams.has(stream) ? "letters" : ""));
  })));
  // A graph that is a little too wide is made smaller; a much wider one is scrolled.
  const room = document.getElementById("main").clientWidth - 76, fits = room / width;
  const zoom = fits < 1 && fits > 0.72 ? fits : 1;
  return svg("svg", { width: width * zoom, height: height * zoom, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "graph of the pipeline" },
    svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("path", { d: "M0 0 8 4 0 8z", class: "tip" }))),
    edges, parts.map((part, at) => box(seen, part, xy(at), letterStreams)));
}

function edge([x1, y1], [x2, y2], down, stream, kind) {
  const from = down ? [x1 + BOX.w / 2, y1 + BOX.h] : [x1 + BOX.w, y1 + BOX.h / 2];
  const to = down ? [x2 + BOX.w / 2, y2] : [x2, y2 + BOX.h / 2];
  let path;
  if (kind === "feedback") {
    path = down ? `M${x1} ${y1 + BOX.h / 2}C${x1 - 40} ${y1} ${x2 - 40} ${y2 + BOX.h} ${x2} ${y2 + BOX.h / 2}`
      : `M${x1 + BOX.w / 2} ${y1 + BOX.h}C${x1 + BOX.w / 2} ${y1 + BOX.h + 40} ${x2 + BOX.w / 2} ${y2 + BOX.h + 40} ${x2 + BOX.w / 2} ${y2 + BOX.h}`;
  } else if (down) {
    const mid = (from[1] + to[1]) / 2;
    path = `M${from[0]} ${from[1]}C${from[0]} ${mid} ${to[0]} ${mid} ${to[0]} ${to[1] - 1}`;
  } else {
    const mid = (from[0] + to[0]) / 2;
    path = `M${from[0]} ${from[1]}C${mid} ${from[1]} ${mid} ${to[1]} ${to[0] - 1} ${to[1]}`;
  }
  const at = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
  const room = down ? 20 : 11;
  return svg("g", {}, svg("path", { d: path, class: `edge ${kind}`, "marker-end": "url(#tip)" }, titled(stream)),
    svg("text", { x: at[0], y: at[1] - 5, "font-size": 10.5, "text-anchor": "middle", class: "soft label" }, short(stream, room)));
}

function short(text, most) { return text.length > most ? `${text.slice(0, most - 1)}…` : text; }

function busyOf(seen, name) {
  const ring = seen.rings[name];
  const known = ring ? ring.slots.map((s) => s[1]).filter((b) => b !== null) : [];
  return known.length ? Math.max(...known) : null;
}

function figuresOf(seen, name) {
  const status = seen.status;
  const told = status && status.computations[name];
  const kind = status && status.graph.find((p) => p.name === name);
  const source = kind && kind.kind === "source";
  const known = seen.overview && seen.overview.computations[name], ring = seen.rings[name];
  // From the log, as `newest` is: what the leader has told last may be an epoch older.
  const watermark = known ? known.watermark : source ? seen.outs[name] || 0 : told ? told.watermark : 0;
  return {
    rate: status && status.phase !== "ended" ? status.rates[name] : undefined,
    records: seen.records_of[name] || 0, watermark, lag: lag(watermark, seen.newest), source,
    state: ring ? ring.slots.reduce((sum, slot) => sum + slot[3], 0) : 0, slots: known ? known.slots : 0, busy: busyOf(seen, name),
    late: told ? told.late : 0, dead: seen.dead_of[name] || 0, told,
    hit: known && known.hit_rate !== null ? known.hit_rate : null,
  };
}

function box(seen, part, [x, y], letterStreams) {
  const f = figuresOf(seen, part.name), lines = [];
  if (part.kind === "sink") lines.push(short(part.about, 26), `from ${short(part.inputs[0] || "", 21)}`);
  else if (part.kind === "source") lines.push(f.rate === undefined ? `${count(f.records)} records` : rate(f.rate), short(part.about, 26));
  else if (part.keyed) lines.push(`${f.rate === undefined ? `${count(f.records)} records` : rate(f.rate)} · ${f.slots} slots`, `watermark ${f.lag}`);
  else lines.push("no key: runs with its input", `watermark ${f.lag}`);
  const dead = letterStreams.has(part.inputs[0]) && part.kind === "sink";
  const bar = f.busy === null || part.kind !== "computation" ? null : svg("g", {},
    svg("rect", { x: 12, y: 76, width: BOX.w - 24, height: 6, rx: 3, class: "load-back" }),
    svg("rect", { x: 12, y: 76, width: Math.max(3, (BOX.w - 24) * Math.min(1, f.busy)), height: 6, rx: 3, class: f.busy > 0.8 ? "load hot" : "load" },
      titled(`busiest slot: ${percent(f.busy)} of the time`)));
  return svg("g", { transform: `translate(${x} ${y})` },
    svg("rect", { width: BOX.w, height: BOX.h, rx: 10, class: `part ${part.kind} ${dead ? "letters" : ""}` },
      titled(`${part.kind} ${part.name}${part.about ? `: ${part.about}` : ""}`)),
    svg("text", { x: 12, y: 24, "font-size": 14, "font-weight": 700 }, short(part.name, 23)),
    svg("text", { x: 12, y: 45, "font-size": 12 }, lines[0]),
    svg("text", { x: 12, y: 64, "font-size": 12, class: "soft" }, lines[1]),
    f.dead ? svg("text", { x: BOX.w - 10, y: 24, "font-size": 11, "text-anchor": "end", style: { fill: "var(--bad)" } }, `${count(f.dead)} dead`) : null,
    bar);
}

function partsTable(seen, parts) {
  const rows = parts.filter((p) => p.kind !== "sink").map((part) => {
    const f = figuresOf(seen, part.name);
    const counts = f.source || part.keyed;
    return [el("b", {}, part.name), counts ? count(f.records) : "-", counts && f.rate !== undefined ? rate(f.rate) : "-",
      instant(f.watermark), f.lag, part.keyed ? count(f.slots) : "-", f.busy === null ? "-" : percent(f.busy),
      part.keyed ? bytes(f.state) : "-", f.hit === null ? "-" : percent(f.hit), count(f.late), count(f.dead)];
  });
  return table(["name", ["records", "num"], ["rate", "num"], ["watermark (UTC)", "time"], ["lag", "num"], ["slots", "num"],
    ["busiest slot", "num"], ["state", "num"], ["in memory", "num"], ["late", "num"], ["dead", "num"]], rows, "No computations.");
}

// Slots -------------------------------------------------------------------

export function slotsView(seen, ask) {
  const names = Object.keys(seen.rings);
  if (!names.length) return [el("p", { class: "card empty" }, "No computation has slots yet.")];
  return names.map((name) => ringCard(seen, name, seen.rings[name], ask));
}

function ringCard(seen, name, ring, ask) {
  const busy = new Map(ring.slots.map((s) => [s[0], s[1]]));
  const known = ring.slots.map((s) => s[1]).filter((b) => b !== null);
  const mean = known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  const most = known.length ? Math.max(...known) : null;
  const top = Math.max(most || 0, 0.1);  // what is red: differences between slots must show
  const said = known.length
    ? `busiest slot ${percent(most)}, mean ${percent(mean)}${mean > 0 ? ` (${(most / mean).toFixed(1)} times)` : ""}`
    : "no report of load since the ring last changed";
  const wanted = seen.overview.computations[name] && seen.overview.computations[name].wanted;
  const sorted = [...ring.slots].sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1) || b[3] - a[3]);
  return el("div", { class: "card" },
    el("div", { class: "head" }, el("h2", {}, name), el("span", { class: "soft small" },
      `${ring.slots.length} slots, ${count(ring.intervals)} intervals, ring version ${ring.version}; ${said}`)),
    wanted ? el("p", { class: "small" }, el("span", { class: "pill warn" }, "wanted"), ` ${wanted}`) : null,
    el("div", { class: "head" }, rescaleForm(seen, name, ring, ask), el("span", { class: "spacer" }),
      el("span", { class: "small soft" }, "idle", el("span", { class: "scale" }), `${percent(top)} busy`)),
    el("div", { class: "row" },
      el("div", {}, drawRing(ring, busy, top)),
      el("div", { style: { flex: "1 1 320px", "min-width": "0" } },
        el("div", { class: "heat" }, ring.slots.slice(0, 512).map((s) => cell(s, top))))),
    el("details", { "data-key": `slots-${name}` }, el("summary", { class: "small soft", "data-key": `ten-${name}` }, "The ten busiest slots"),
      table([["slot", "num"], ["busy", "num"], ["key space", "num"], ["state", "num"], ["segments", "num"], ["carried", "num"], ["limit", "num"]],
        sorted.slice(0, 10).map((s) => [s[0], s[1] === null ? "-" : percent(s[1]), percent(s[2]), bytes(s[3]), s[4], count(s[5]), s[6] ?? "-"]), "")));
}

export const mayAsk = (seen) => !seen.read_only && ["running", "paused"].includes(seen.overview.state);

function rescaleForm(seen, name, ring, ask) {
  if (!mayAsk(seen)) return null;
  const input = el("input", { type: "number", min: 1, max: 10000, value: ring.slots.length, "aria-label": `slots of ${name}`, "data-key": `rescale-${name}` });
  return el("form", { class: "line", onsubmit: (event) => {
    event.preventDefault();
    ask({ verb: "rescale", computation: name, slots: Number(input.value) }, `Give ${name} ${input.value} slots?`);
  } }, el("label", { class: "small soft" }, "slots "), input, el("button", { type: "submit", "data-key": `ask-${name}` }, "Rescale"));
}

function cell([slot, busy, share, size], top) {
  const style = busy === null ? {} : { background: heat(busy / top), color: inkOn(busy / top) };
  return el("div", { class: "cell", style, title: `slot ${slot}: ${busy === null ? "load unknown" : percent(busy)}, ${percent(share)} of keys, ${bytes(size)}` },
    el("b", {}, slot), busy === null ? "–" : percent(busy));
}

function drawRing(ring, busy, top) {
  const size = 250, mid = size / 2, outer = 118, inner = 74;
  const point = (turn, radius) => {
    const angle = 2 * Math.PI * turn - Math.PI / 2;
    return `${(mid + radius * Math.cos(angle)).toFixed(2)} ${(mid + radius * Math.sin(angle)).toFixed(2)}`;
  };
  const arcs = ring.arcs.map(([start, slot], at) => {
    const end = at + 1 < ring.arcs.length ? ring.arcs[at + 1][0] : 1;
    const last = Math.min(end, start + 0.99999), large = last - start > 0.5 ? 1 : 0;
    const load = busy.get(slot);
    const d = `M${point(start, outer)}A${outer} ${outer} 0 ${large} 1 ${point(last, outer)}L${point(last, inner)}A${inner} ${inner} 0 ${large} 0 ${point(start, inner)}Z`;
    const known = load !== null && load !== undefined;
    return svg("path", { d, class: known ? "arc" : "arc none", style: known ? { fill: heat(load / top) } : {} },
      titled(`slot ${slot}: ${known ? percent(load) : "load unknown"}`));
  });
  return svg("svg", { width: size, height: size, viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "ring of slots by load" }, arcs,
    svg("text", { x: mid, y: mid - 2, "text-anchor": "middle", "font-size": 26, "font-weight": 700 }, ring.slots.length),
    svg("text", { x: mid, y: mid + 18, "text-anchor": "middle", "font-size": 12, class: "soft" }, "slots"));
}

// Epochs ------------------------------------------------------------------

export function epochsView(seen) {
  const epochs = seen.status ? seen.status.epochs : [];
  if (!epochs.length) return [el("p", { class: "card empty" }, "The leader has not told of any epoch yet.")];
  const last = [...epochs].reverse().slice(0, 15);
  return [el("div", { class: "card" }, el("h2", {}, `The last ${epochs.length} epochs, by phase`),
    el("div", { class: "legend" }, PHASES.map((p) => el("span", {}, el("i", { class: `bg-${p}` }), p)),
      el("span", {}, el("i", { style: { border: "2px solid var(--bad)" } }), "more than one attempt")),
    el("div", { class: "scroll" }, timeline(epochs))),
  el("div", { class: "card" }, el("h2", {}, "Records per epoch"), el("div", { class: "scroll" }, recordsChart(epochs))),
  el("div", { class: "card" }, el("h2", {}, "The last ones"), table(
    [["epoch", "num"], ["ended (UTC)", "time"], ["took", "num"], ...PHASES.map((p) => [p, "num"]), ["records", "num"], ["rows out", "num"], ["attempts", "num"]],
    last.map(([epoch, ended, took, phases, records, produced, attempts]) => [epoch.toLocaleString("en"), instant(ended), seconds(took),
      ...phases.map((s) => seconds(s)), count(records), count(produced), attempts]), ""))];
}

function chart(epochs, most, label, columns) {
  const width = Math.max(320, Math.min(1160, document.body.clientWidth - 80)), height = 190, left = 58, base = height - 22;
  const step = (width - left) / Math.max(epochs.length, 30);
  const y = (value) => base - (base - 10) * (value / most);
  const grid = [0, 0.5, 1].map((part) => svg("g", {},
    svg("line", { x1: left, x2: width, y1: y(most * part), y2: y(most * part), class: "grid" }),
    svg("text", { x: left - 8, y: y(most * part) + 4, "font-size": 11, "text-anchor": "end", class: "soft" }, label(most * part))));
  const every = Math.max(1, Math.ceil(epochs.length / 8));
  const marks = epochs.map((e, at) => (at % every ? null
    : svg("text", { x: left + at * step, y: height - 6, "font-size": 11, class: "soft" }, e[0])));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, grid, marks,
    epochs.map((e, at) => columns(e, left + at * step, Math.max(1.5, step - Math.min(3, step / 4)), y, base)));
}

function timeline(epochs) {
  const total = (e) => Math.max(e[2], e[3].reduce((a, b) => a + b, 0));
  const most = Math.max(...epochs.map(total), 0.001);
  return chart(epochs, most, seconds, (e, x, w, y, base) => {
    let sum = 0;
    const rects = PHASES.map((phase, at) => {
      const from = sum; sum += e[3][at];
      return svg("rect", { x, width: w, y: y(sum), height: Math.max(0, y(from) - y(sum)), class: `f-${phase}` });
    });
    const about = PHASES.map((p, at) => `${p} ${seconds(e[3][at])}`).join(", ");
    return svg("g", {}, titled(`epoch ${e[0]}: ${seconds(total(e))} (${about}); ${count(e[4])} records`), rects,
      e[6] > 1 ? svg("rect", { x, width: w, y: y(sum), height: base - y(sum), class: "again" }) : null);
  });
}

function recordsChart(epochs) {
  const most = Math.max(...epochs.map((e) => e[4]), 1);
  return chart(epochs, most, count, (e, x, w, y, base) => svg("rect",
    { x, width: w, y: y(e[4]), height: base - y(e[4]), class: "f-rate" }, titled(`epoch ${e[0]}: ${count(e[4])} records`)));
}

// State by key ------------------------------------------------------------

export function stateView(seen, look) {
  const names = Object.keys(seen.rings);
  if (!names.length) return [el("p", { class: "card empty" }, "No computation has state yet.")];
  const result = el("div", { id: "state-result" });
  const select = el("select", { "aria-label": "computation", "data-key": "state-computation" }, names.map((n) => el("option", { value: n }, n)));
  const input = el("input", { type: "text", placeholder: "a key: a word, or JSON such as 42 or [\"a\", 1]", "aria-label": "key", "data-key": "state-key" });
  return [el("div", { class: "card" }, el("h2", {}, "State by key"),
    el("form", { class: "line", onsubmit: (event) => { event.preventDefault(); look("state", select.value, input.value, result); } },
      select, input, el("button", { type: "submit", class: "main" }, "Look up"),
      el("button", { type: "button", onclick: () => look("keys", select.value, "", result) }, "First keys")), result)];
}

export function stateResult(what, found) {
  if (what === "keys") {
    return el("div", {}, el("p", { class: "soft small" }, `The first keys in the order of hashes, after epoch ${found.epoch}:`),
      table(["key", ["state", "text"]], found.keys.map((each) => [el("code", {}, each.key),
        el("code", {}, each.state.map(([n, v]) => `${n}: ${v}`).join(", "))]), "No key has state."));
  }
  if (!found.found) return el("p", { class: "empty" }, `${found.key} has no state after epoch ${found.epoch}.`);
  return el("div", {}, el("p", { class: "soft small" }, `${found.key}, after epoch ${found.epoch}:`),
    table(["field", ["value", "text"]], found.state.map(([n, v]) => [el("b", {}, n), el("code", {}, v)]), "It has no fields."));
}

// Dead letters, events ----------------------------------------------------

export function lettersView(seen) {
  const by = Object.entries(seen.dead_of).sort((a, b) => b[1] - a[1]);
  const parts = seen.status ? seen.status.graph : [];
  const stream = (owner) => (parts.find((p) => p.name === owner) || {}).letters || "";
  const sinks = (name) => parts.filter((p) => p.kind === "sink" && p.inputs.includes(name)).map((p) => p.name).join(", ");
  const letters = seen.status ? [...seen.status.letters].reverse() : [];
  return [el("div", { class: "card" }, el("h2", {}, "Dead letters by computation or source, in all runs"),
    table(["of", ["letters", "num"], "to the stream", "and from there to"], by.map(([owner, n]) =>
      [el("b", {}, owner), count(n), stream(owner) || "-", sinks(stream(owner)) || "nowhere: nothing reads it"]), "None so far.")),
  el("div", { class: "card" }, el("h2", {}, "Examples of this run"), table([["epoch", "num"], "of", ["error", "text"], ["key", "text"], ["value", "text"]],
    letters.map((l) => [l.epoch, l.owner, el("code", {}, l.error), el("code", {}, l.key), el("code", {}, l.value)]),
    "The leader has told of none."))];
}

export function eventsView(seen) {
  const o = seen.overview, status = seen.status, found = [];
  if (status && status.outage) {
    found.push(el("div", { class: "card alert" }, el("h2", {}, `The ${status.outage.part} is unavailable`),
      el("p", {}, `Since ${instant(status.outage.since * 1e6)}, ${status.outage.tries} tries. Nothing is lost; the run waits.`),
      el("code", {}, status.outage.error)));
  }
  found.push(el("div", { class: "card" }, el("h2", {}, "Decisions about slots, with their reasons"), table(
    [["at (UTC)", "time"], ["epoch", "num"], "by", "computation", ["decision", "text"]],
    [...o.decisions].reverse().map((d) => [instant(d.wall), d.epoch, d.by, d.computation, d.text]), "The balancer and the scaler have decided nothing lately.")));
  found.push(el("div", { class: "card" }, el("h2", {}, "Outages and notices of this run"), table(
    [["at (UTC)", "time"], "kind", ["text", "text"]], (status ? [...status.notices].reverse() : []).filter((n) => n[1] !== "balancer" && n[1] !== "scaler").map(([wall, kind, text]) =>
      [instant(wall), el("span", { class: `pill ${["away", "failure", "listener"].includes(kind) ? "bad" : kind === "doubt" || kind === "overload" ? "warn" : ""}` }, kind), text]), "None.")));
  found.push(el("div", { class: "card" }, el("h2", {}, "Requests"), table(
    [["at (UTC)", "time"], "verb", "verdict", ["", "text"]], [...o.outcomes].reverse().map((r) =>
      [instant(r.wall), `${r.verb} ${r.about || ""}`, el("span", { class: `pill ${r.verdict === "taken" ? "good" : "warn"}` }, r.verdict), r.done || r.message || ""]), "Nobody has asked anything."),
  o.waiting.length ? el("p", { class: "small" }, `Waiting: ${o.waiting.join(", ")}`) : null));
  if (o.savepoints.length) {
    found.push(el("div", { class: "card" }, el("h2", {}, "Savepoints"), table(["name", ["epoch", "num"], ["at (UTC)", "time"]],
      o.savepoints.map((s) => [s.name, s.epoch, instant(s.wall)]), "")));
  }
  const store = status ? Object.entries(status.store.requests) : [];
  if (store.length) {
    found.push(el("div", { class: "card" }, el("h2", {}, "Requests to stores, in this run"), table(
      ["for", ["puts", "num"], ["gets", "num"], ["lists", "num"], ["deletes", "num"], ["sent", "num"], ["received", "num"]],
      store.map(([purpose, c]) => [purpose, count(c.puts), count(c.gets), count(c.lists), count(c.deletes), bytes(c.bytes_out), bytes(c.bytes_in)]), "")));
  }
  const counts = Object.entries(seen.counts);
  if (counts.length) {
    found.push(el("div", { class: "card" }, el("h2", {}, "Counted by ctx.count, in all runs"), table(["name", ["count", "num"]],
      counts.map(([name, n]) => [name, count(n)]), "")));
  }
  return found;
}
