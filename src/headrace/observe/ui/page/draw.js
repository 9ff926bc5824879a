// Small helpers: elements, figures as text, colours of load. All text goes in as text nodes, never
// as HTML, so a name cannot become code.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, given = {}, ...children) {
  return fill(document.createElement(name), given, children);
}

export function svg(name, given = {}, ...children) {
  return fill(document.createElementNS(SVG, name), given, children);
}

function fill(made, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) made.style.setProperty(k, v);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

export const titled = (text) => svg("title", {}, text);

export function count(n) {
  if (n === null || n === undefined) return "-";
  if (Math.abs(n) >= 1e9) return `${(n / 1e9).toFixed(2)} G`;
  if (Math.abs(n) >= 1e7) return `${(n / 1e6).toFixed(1)} M`;
  return Math.round(n).toLocaleString("en");
}

export function rate(n) {
  if (n === null || n === undefined) return "-";
  return `${n > 0 && n < 10 ? n.toFixed(1) : count(n)}/s`;
}

export function bytes(n) {
  let unit = "B";
  for (const larger of ["kB", "MB", "GB", "TB"]) {
    if (n < 1000) break;
    n /= 1000; unit = larger;
  }
  return unit === "B" ? `${n} B` : `${n.toFixed(1)} ${unit}`;
}

export function seconds(s) {
  if (s === 0) return "0 s";
  if (s < 0.001) return `${Math.round(s * 1e6)} µs`;
  if (s < 1) return `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

export function instant(micros) {
  if (!micros || micros <= 0) return "-";
  if (micros > 8.6e18) return "the end";
  const at = new Date(micros / 1000);
  return Number.isNaN(at.getTime()) ? "-" : at.toISOString().replace("T", " ").slice(0, 19);
}

export const isTime = (micros) => micros > 0 && micros < 8.6e18;

export function lag(watermark, newest) {
  if (!isTime(watermark)) return watermark > 8.6e18 ? "ended" : "-";
  return newest > 0 ? `${seconds(Math.max(0, newest - watermark) / 1e6)} behind` : instant(watermark);
}

export const percent = (part) => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;

// The colour of a load from 0 (idle) to 1 (always busy).
export function heat(part) {
  const stops = [[186, 45, 78], [150, 45, 62], [48, 85, 58], [20, 85, 55], [0, 75, 50]];
  const at = Math.max(0, Math.min(1, part)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at)), f = at - low;
  const mix = stops[low].map((v, i) => v + (stops[low + 1][i] - v) * f);
  return `hsl(${mix[0].toFixed(0)} ${mix[1].toFixed(0)}% ${mix[2].toFixed(0)}%)`;
}

export const inkOn = (part) => (part > 0.86 ? "#fff" : "#10222a");

export function table(heads, rows, empty) {
  if (!rows.length) return el("p", { class: "empty" }, empty);
  const kind = (head) => (typeof head === "string" ? [head, ""] : head);
  const long = heads.some((head) => kind(head)[1] === "text") ? "texts" : "";
  return el("div", { class: `scroll ${long}` }, el("table", {},
    el("thead", {}, el("tr", {}, heads.map((h) => el("th", { class: kind(h)[1] }, kind(h)[0])))),
    el("tbody", {}, rows.map((row) => el("tr", {},
      row.map((cell, at) => el("td", { class: kind(heads[at])[1], "data-head": kind(heads[at])[0] }, cell)))))));
}
