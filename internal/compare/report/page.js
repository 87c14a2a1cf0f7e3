"use strict";
// Lets one transition be followed through the modes. All text goes into the page as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const perPage = 25;
const rungs = ["created", "up", "down", "removed"];
const stateWords = [["created", "ready", "not ready", "removed"], ["created", "running", "exited", "removed"]];
const byID = new Map();
data.transitions.forEach((t, n) => {
  t.n = n;
  if (!byID.has(t.id)) byID.set(t.id, []);
  byID.get(t.id).push(t);
});

const took = (ms) => {
  ms = Math.max(0, ms);
  if (ms >= 10000) return (ms / 1000).toFixed(1) + " s";
  if (ms >= 1000) return (ms / 1000).toFixed(2) + " s";
  return ms >= 10 ? ms.toFixed(0) + " ms" : ms.toFixed(2) + " ms";
};

function el(parent, name, attributes, text) {
  const e = parent.ownerSVGElement || parent instanceof SVGElement
    ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}

function mark(svg, x, y, shape, colour) {
  const r = 6;
  const at = { fill: colour, stroke: "#fff" };
  const points = (list) => el(svg, "polygon", { points: list.map((p) => p.join(",")).join(" "), ...at });
  switch (shape) {
    case "circle": return el(svg, "circle", { cx: x, cy: y, r, ...at });
    case "square": return el(svg, "rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...at });
    case "triangle": return points([[x, y - r], [x + r, y + r], [x - r, y + r]]);
    case "triangle-down": return points([[x, y + r], [x + r, y - r], [x - r, y - r]]);
    case "diamond": return points([[x, y - r - 1], [x + r + 1, y], [x, y + r + 1], [x - r - 1, y]]);
    case "cross": return el(svg, "path", { d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x + r} ${y - r}L${x - r} ${y + r}`, stroke: colour, "stroke-width": 3 });
    case "plus": return el(svg, "path", { d: `M${x - r} ${y}L${x + r} ${y}M${x} ${y - r}L${x} ${y + r}`, stroke: colour, "stroke-width": 3 });
    default: return el(svg, "rect", { x: x - 2, y: y - r - 1, width: 4, height: 2 * r + 2, ...at });
  }
}

// How a state is drawn: by a pattern too, since a printer may have no colours.
const fills = ["url(#p-created)", "url(#p-up)", "url(#p-down)", "url(#p-removed)"];
function patterns(svg) {
  const defs = el(svg, "defs");
  const add = (id, background, path) => {
    const p = el(defs, "pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" });
    el(p, "rect", { width: 8, height: 8, fill: background });
    if (path) el(p, "path", { d: path, stroke: "#555", fill: "none" });
  };
  add("p-created", "#fff", "M0 4H8");
  add("p-up", "#cfe3f1", "");
  add("p-down", "#f3d9c6", "M0 8L8 0");
  add("p-removed", "#eee", "M0 0L8 8M0 8L8 0");
}

let selected = -1;

// draw shows the life of the entity of a transition.
function draw(t) {
  const svg = document.getElementById("life");
  svg.replaceChildren();
  const lanes = [{ name: "as it was", colour: "#000", shape: "bar", at: (x) => x.at }];
  data.modes.forEach((m, i) => { if (m.ran) lanes.push({ ...m, i, at: (x) => x.told[i] }); });
  const laneHeight = 34, top = 26, left = 110, width = 900, right = 130;
  const height = top + lanes.length * laneHeight + 54;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  patterns(svg);
  const life = byID.get(t.id);
  let from = Infinity, to = -Infinity;
  for (const x of life) for (const l of lanes) {
    const at = l.at(x);
    if (at !== null && (x === t || Math.abs(at - t.at) < 60000)) { from = Math.min(from, at); to = Math.max(to, at); }
  }
  const margin = Math.max(2, (to - from) * 0.06);
  from -= margin; to += margin;
  const x = (ms) => left + (Math.min(to, Math.max(from, ms)) - from) / (to - from) * (width - left - right);
  for (let i = 0; i <= 4; i++) {
    const at = from + (to - from) * i / 4;
    el(svg, "line", { x1: x(at), y1: top - 6, x2: x(at), y2: height - 50, class: "grid" });
    const off = at - t.at;
    el(svg, "text", { x: x(at), y: height - 34, "text-anchor": "middle", class: "tick" }, (off < 0 ? "−" : "+") + took(Math.abs(off)));
  }
  const words = stateWords[t.t < 4 ? 0 : 1];
  lanes.forEach((l, n) => {
    const y = top + n * laneHeight;
    el(svg, "text", { x: left - 8, y: y + 18, "text-anchor": "end", class: "label" }, l.name);
    const steps = life.map((s) => ({ at: l.at(s), to: s.t % 4 })).filter((s) => s.at !== null).sort((a, b) => a.at - b.at || a.to - b.to);
    steps.forEach((s, i) => {
      const end = i + 1 < steps.length ? steps[i + 1].at : to;
      const w = x(end) - x(s.at);
      if (w <= 0) return;
      el(svg, "rect", { x: x(s.at), y: y + 4, width: w, height: 20, fill: fills[s.to], stroke: "#555", "data-state": rungs[s.to] });
      const word = words[s.to];
      if (w > word.length * 7 + 8) {
        el(svg, "rect", { x: x(s.at) + 3, y: y + 7, width: word.length * 6.6 + 4, height: 14, fill: "#fff", opacity: 0.85 });
        el(svg, "text", { x: x(s.at) + 5, y: y + 18 }, word);
      }
    });
    const at = l.at(t);
    const off = width - right + 8;
    if (n === 0) return;
    if (at === null) {
      el(svg, "text", { x: off, y: y + 18, "font-weight": 700, "data-told": "missed" }, "missed");
    } else {
      mark(svg, x(at), y + 14, l.shape, l.colour).setAttribute("data-mode", l.name);
      el(svg, "text", { x: off, y: y + 18, "data-told": l.name }, "after " + took(at - t.at) + (t.fault[l.i] ? " !" : ""));
    }
  });
  words.forEach((word, i) => {
    el(svg, "rect", { x: left + i * 120, y: height - 22, width: 28, height: 14, fill: fills[i], stroke: "#555" });
    el(svg, "text", { x: left + i * 120 + 34, y: height - 10, class: "tick" }, word);
  });
  el(svg, "line", { x1: x(t.at), y1: top - 8, x2: x(t.at), y2: top + lanes.length * laneHeight, stroke: "#000", "stroke-width": 1.5 });
  el(svg, "text", { x: x(t.at), y: top - 12, "text-anchor": "middle", "font-weight": 700 }, data.types[t.t]);
  const told = data.modes.filter((m) => m.ran).map((m) => {
    const i = data.modes.indexOf(m);
    const how = t.told[i] === null ? "missed it" : "told it after " + took(t.told[i] - t.at);
    return `${m.name} ${how}` + (t.fault[i] && t.told[i] !== null ? ` (${t.fault[i]})` : "");
  });
  document.getElementById("life-words").textContent =
    `${t.title} at ${t.clock} (time known by: ${t.basis})${t.more ? ", " + t.more : ""}. ${told.join("; ")}.`;
}

let at = 0; // the first row that is shown
const form = document.getElementById("filter");
const body = document.querySelector("#transitions tbody");

function wanted() {
  const text = form.text.value.toLowerCase(), type = form.type.value, faults = form.faults.checked;
  return data.transitions.filter((t) => (type === "" || t.t === Number(type)) && (!faults || t.fault.some((f) => f)) &&
    (text === "" || t.title.toLowerCase().includes(text) || t.id.toLowerCase().includes(text)));
}

function rows() {
  const all = wanted();
  at = Math.max(0, Math.min(at, Math.floor((all.length - 1) / perPage) * perPage));
  body.replaceChildren();
  for (const t of all.slice(at, at + perPage)) {
    const tr = el(body, "tr", { tabindex: 0, "data-number": t.n, "aria-selected": String(t.n === selected) });
    el(tr, "td", {}, t.clock.slice(0, 12));
    el(tr, "td", {}, t.title);
    data.modes.forEach((m, i) => {
      if (m.ran) el(tr, "td", t.fault[i] ? { class: "fault", title: t.fault[i] } : {}, t.told[i] === null ? "missed" : took(t.told[i] - t.at));
    });
    tr.addEventListener("click", () => select(t.n));
    tr.addEventListener("keydown", (e) => {
      const next = { ArrowDown: tr.nextSibling, ArrowUp: tr.previousSibling, Enter: tr }[e.key];
      if (!next) return;
      e.preventDefault();
      next.focus();
      select(Number(next.dataset.number));
    });
  }
  const left = data.left > 0 ? ` (${data.left} more are not on this page)` : "";
  document.getElementById("count").textContent = all.length === 0 ? "none" + left
    : `${at + 1} to ${Math.min(all.length, at + perPage)} of ${all.length}${left}`;
  document.getElementById("back").disabled = at === 0;
  document.getElementById("on").disabled = at + perPage >= all.length;
}

function select(n) {
  selected = n;
  for (const tr of body.children) tr.setAttribute("aria-selected", String(Number(tr.dataset.number) === n));
  draw(data.transitions[n]);
}

const head = el(document.querySelector("#transitions thead"), "tr");
for (const word of ["time", "transition", ...data.modes.filter((m) => m.ran).map((m) => m.name)]) el(head, "th", {}, word);
data.types.forEach((name, i) => { if (data.transitions.some((t) => t.t === i)) el(form.type, "option", { value: i }, name); });
form.addEventListener("submit", (e) => e.preventDefault());
form.addEventListener("input", () => { at = 0; rows(); });
document.getElementById("back").addEventListener("click", () => { at -= perPage; rows(); });
document.getElementById("on").addEventListener("click", () => { at += perPage; rows(); });
for (const button of document.querySelectorAll("button.show")) {
  button.addEventListener("click", () => {
    select(Number(button.dataset.number));
    document.getElementById("follow").scrollIntoView();
  });
}
// What is folded is printed too.
addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details")) d.open = true; });

// At first: one that some mode missed, else one that was not told well, else the one that took longest.
if (data.transitions.length > 0) {
  const longest = (t) => Math.max(...t.told.map((x) => (x === null ? 0 : x - t.at)));
  const first = data.transitions.find((t) => t.fault.some((f) => f.startsWith("missed"))) ||
    data.transitions.find((t) => t.fault.some((f) => f)) ||
    data.transitions.reduce((a, b) => (longest(b) > longest(a) ? b : a));
  select(first.n);
  rows();
  at = Math.floor(first.n / perPage) * perPage;
  rows();
} else {
  document.getElementById("follow").hidden = true;
}
