// The page: what is asked of the agent, when, and where it is shown.

import { Feed, get } from "./feed.js";
import { History, draw } from "./chart.js";
import * as view from "./view.js";

const { $ } = view;
const every = 2; // s, between questions about the status
const rows = 300; // events that are shown
const backlog = 300, filteredBacklog = 5000; // events that are read at the beginning
const samplesOfLatency = 1000;

let pods = [];
let latencies = new Map();
let waiting = []; // events that are not shown yet
let paused = false;
let podsDue = true;
let shownPods = "";

// Filters: commas separate alternatives, but for labels, which have their own use
// for them.
function query() {
  const params = new URLSearchParams();
  for (const [name, value] of new FormData($("filters"))) {
    for (const part of name === "selector" ? [value.trim()] : value.split(",").map((s) => s.trim())) {
      if (part) params.append(name, part);
    }
  }
  return params;
}

const feed = new Feed({
  event(ev) {
    waiting.push(ev);
    if (waiting.length > rows) waiting.shift();
    const took = view.latency(ev);
    if (took !== null && ev.source) {
      const list = latencies.get(ev.source) ?? [];
      list.push(took);
      if (list.length > samplesOfLatency) list.shift();
      latencies.set(ev.source, list);
    }
    podsDue = true;
  },
  link(state, text) {
    view.setText($("link"), text, `pill ${state === "up" ? "ok" : "bad"}`);
    document.body.classList.toggle("stale", state !== "up");
    podsDue = true;
  },
  gap(text) {
    $("event-list").prepend(view.make("li", "note", text));
  },
  refused(text) {
    view.setText($("filter-error"), text);
  },
});

// show shows the events that have come since it was last called.
function show(fresh) {
  if (paused) {
    view.setText($("events-count"), waiting.length > 0 ? `${waiting.length} new` : "");
    return;
  }
  if (waiting.length > 0) {
    const items = waiting.map(view.eventRow);
    waiting = [];
    if (fresh) items.forEach((item) => item.classList.add("fresh"));
    const list = $("event-list");
    list.prepend(...items.reverse());
    while (list.children.length > rows) list.lastChild.remove();
    view.showLatency(latencies);
  }
  const n = $("event-list").children.length;
  view.setText($("events-count"), n === rows ? `the newest ${n}` : String(n));
  $("no-events").classList.toggle("hidden", n > 0);
}

let beginnings = 0;

// begin follows the events anew, with those that came last. One that waits for an
// answer while the next begins is left: what the filters were then doesn't count.
async function begin() {
  const mine = ++beginnings;
  let status;
  while (!(status = await ask("v1/status")) && mine === beginnings) await pause(every);
  if (mine !== beginnings) return;
  const params = query();
  const [epoch, number] = status.position.split("/");
  const [oldEpoch, oldest] = status.oldest.split("/");
  const first = Math.max(0, number - (params.size > 0 ? filteredBacklog : backlog), oldEpoch === epoch ? oldest : number);
  $("event-list").replaceChildren();
  waiting = [];
  latencies = new Map();
  view.showLatency(latencies);
  feed.start(params, `${epoch}/${first}`);
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// ask returns null while the agent doesn't answer; the feed says why.
async function ask(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error.status) view.setText($("link"), error.message, "pill bad");
    return null;
  }
}

const history = new History(every);
let before = null;

async function refreshStatus() {
  const status = await ask("v1/status");
  if (!status) {
    before = null;
    history.push(null);
    drawCharts();
    return;
  }
  const now = { at: performance.now() / 1000, events: status.stream.events };
  const rate = before && now.events >= before.events ? (now.events - before.events) / (now.at - before.at) : null;
  before = now;
  history.push({ rate: rate ?? 0, stream: status.stream.state, period: status.relist.periodic ? status.relist.period_seconds : 0 });
  const runtime = [status.runtime.name, status.runtime.version].filter(Boolean).join(" ") || "a runtime that has not answered yet";
  view.setText($("agent"), `${status.node} · ${runtime} · mode ${status.mode}`);
  document.title = `${status.health.ready ? "" : "not ready: "}plegd on ${status.node}`;
  view.setText($("as-of"), `As of ${view.clock(new Date()).slice(0, 8)}, position ${status.position}`);
  view.showHealth(status.health);
  view.showStream(status.stream, rate);
  view.showPeriod(status.relist);
  view.showQueue(status.reinspections, pods);
  drawCharts();
}

function drawCharts() {
  const known = history.samples.filter((s) => s !== null);
  if (known.length === 0) return;
  const fastest = Math.max(1, ...known.map((s) => s.rate));
  const last = known[known.length - 1];
  draw($("stream-chart"), `Event stream over the last ${history.span()}: now ${last.stream}, up in ${known.filter((s) => s.stream === "up").length} of ${known.length} samples, at most ${fastest.toFixed(1)} events a second`,
    history, { value: (s) => s.rate, scale: (v) => v / fastest, state: (s) => s.stream });
  // The period grows by factors, so its logarithm is drawn.
  const longest = Math.max(...known.map((s) => s.period)), shortest = Math.min(...known.map((s) => s.period));
  const log = (v) => Math.log(Math.max(v, 0.01));
  const span = Math.max(log(longest) - log(shortest), 1);
  draw($("period-chart"), `Relist period over the last ${history.span()}: ${view.duration(shortest)} to ${view.duration(longest)}, now ${view.duration(last.period)}`,
    history, { value: (s) => s.period, scale: (v) => 0.12 + 0.88 * (log(v) - log(shortest)) / span });
}

async function refreshPods() {
  if (!podsDue) return;
  podsDue = false;
  const params = query();
  params.delete("type");
  params.delete("source");
  try {
    const answer = await get(`v1/pods?${params}`);
    const place = (p) => `${p.namespace}/${p.name}`;
    pods = answer.pods.sort((a, b) => place(a).localeCompare(place(b), "en", { numeric: true }));
    const text = JSON.stringify(pods);
    if (text !== shownPods) view.showPods(pods);
    shownPods = text;
  } catch (error) {
    if (error.status !== 400) podsDue = true; // a filter that is no use: the feed says so
    if (error.status === 503 && shownPods === "") view.setText($("no-pods"), error.message);
  }
}

// loop does something again and again, but not while nobody looks.
async function loop(seconds, what) {
  for (;;) {
    if (!document.hidden) await what();
    await pause(seconds);
  }
}

let settled = 0; // when what is shown is no longer what was there at the beginning

function restart() {
  settled = performance.now() + 1500;
  podsDue = true;
  begin();
}

let typing;
$("filters").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(restart, 400);
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("reset", () => setTimeout(restart));
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  show(false);
});

view.showLatency(latencies);
restart();
loop(every, refreshStatus);
loop(every, refreshPods);
loop(0.2, () => show(performance.now() > settled));
